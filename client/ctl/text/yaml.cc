// SPDX-License-Identifier: Apache-2.0
#include "client/ctl/text/yaml.h"

#include <algorithm>
#include <array>
#include <string_view>

#include <nlohmann/json.hpp>

namespace hpvm::ctl {
namespace {

using Json = nlohmann::ordered_json;

bool IsLetter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }

// Returns true for words that some YAML parser reads as a boolean or as null.
bool IsReserved(std::string word) {
  constexpr auto kWords =
      std::to_array<std::string_view>({"true", "false", "yes", "no", "on", "off", "y", "n", "null"});
  std::transform(word.begin(), word.end(), word.begin(), [](char c) { return static_cast<char>(c | 0x20); });
  return std::find(kWords.begin(), kWords.end(), word) != kWords.end();
}

// Returns true when the text needs no quotes. Numbers, dates and signs do not begin with a letter.
bool IsPlain(const std::string& text) {
  const auto fits = [](char c) {
    return IsLetter(c) || (c >= '0' && c <= '9') || std::string_view("_./-+ ").find(c) != std::string_view::npos;
  };
  return !text.empty() && (IsLetter(text[0]) || text[0] == '/') && text.back() != ' ' &&
         std::all_of(text.begin(), text.end(), fits) && !IsReserved(text);
}

// JSON's quoting is valid YAML, but YAML requires escapes for some characters that JSON leaves.
std::string Quoted(const std::string& text) {
  const std::string json = Json(text).dump(-1, ' ', false, Json::error_handler_t::replace);
  struct Escape {
    std::string_view raw, escaped;
  };
  constexpr auto kEscapes =
      std::to_array<Escape>({{"\x7f", "\\x7f"}, {"\u2028", "\\u2028"}, {"\u2029", "\\u2029"}, {"\ufeff", "\\ufeff"}});
  std::string out;
  for (size_t i = 0; i < json.size();) {
    const std::string_view rest = std::string_view(json).substr(i);
    const auto found = std::find_if(kEscapes.begin(), kEscapes.end(),
                                    [&](const Escape& escape) { return rest.starts_with(escape.raw); });
    if (found != kEscapes.end()) {
      out += found->escaped;
      i += found->raw.size();
    } else if (rest.size() > 1 && rest[0] == '\xc2' && static_cast<unsigned char>(rest[1]) < 0xa0) {
      constexpr char kDigits[] = "0123456789abcdef";  // A control character above ASCII, "\u0080" to "\u009f".
      const auto code = static_cast<unsigned char>(rest[1]);
      out += std::string("\\u00") + kDigits[code >> 4] + kDigits[code & 15];
      i += 2;
    } else {
      out += rest[0];
      ++i;
    }
  }
  return out;
}

std::string TextOf(const std::string& text) { return IsPlain(text) ? text : Quoted(text); }

std::string ScalarOf(const Json& value) {
  if (value.is_string()) {
    return TextOf(value.get_ref<const std::string&>());
  }
  std::string text = value.dump(-1, ' ', false, Json::error_handler_t::replace);
  // YAML 1.1 reads 1e+30 as text.
  if (const size_t exponent = text.find('e');
      value.is_number_float() && exponent != std::string::npos && text.find('.') == std::string::npos) {
    text.insert(exponent, ".0");
  }
  return text;
}

// Returns lines that begin at `indent`, each with its newline.
std::string Block(const Json& value, size_t indent) {
  if (value.empty() && value.is_structured()) {
    return std::string(indent, ' ') + (value.is_array() ? "[]" : "{}") + "\n";
  }
  std::string out;
  if (value.is_array()) {
    for (const Json& item : value) {
      std::string lines = Block(item, indent + 2);
      lines[indent] = '-';
      out += lines;
    }
  } else if (value.is_object()) {
    for (const auto& [name, item] : value.items()) {
      out += std::string(indent, ' ') + TextOf(name) + ":";
      out += item.is_structured() && !item.empty() ? "\n" + Block(item, indent + 2) : " " + Block(item, 0);
    }
  } else {
    out = std::string(indent, ' ') + ScalarOf(value) + "\n";
  }
  return out;
}

}  // namespace

std::string ToYaml(const Json& value) { return Block(value, 0); }

}  // namespace hpvm::ctl
