// SPDX-License-Identifier: Apache-2.0
#include "client/ctl/kernel/module_entries.h"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <span>
#include <utility>

namespace hpvm::ctl {
namespace {

// WebAssembly Core Specification 2.0, chapter 5: a module is a sequence of sections; the section with id 7 has the
// exports.
constexpr std::string_view kWasmHead{"\0asm\1\0\0\0", 8};
constexpr uint8_t kExportSection = 7;
constexpr uint8_t kFunction = 0;

class WasmBytes {
 public:
  explicit WasmBytes(std::string_view bytes) : rest_(bytes) {}
  bool is_empty() const { return rest_.empty(); }

  std::optional<uint8_t> Byte() {
    if (rest_.empty()) {
      return std::nullopt;
    }
    const auto byte = static_cast<uint8_t>(rest_[0]);
    rest_.remove_prefix(1);
    return byte;
  }
  // Reads an unsigned LEB128 number of at most 32 bits.
  std::optional<uint32_t> Number() {
    uint64_t value = 0;
    for (int shift = 0; shift < 35; shift += 7) {
      const std::optional<uint8_t> byte = Byte();
      if (!byte.has_value()) {
        return std::nullopt;
      }
      value |= uint64_t{*byte & 0x7fu} << shift;
      if ((*byte & 0x80) == 0) {
        return value <= UINT32_MAX ? std::optional(static_cast<uint32_t>(value)) : std::nullopt;
      }
    }
    return std::nullopt;
  }
  std::optional<std::string_view> Bytes() {
    const std::optional<uint32_t> size = Number();
    if (!size.has_value() || *size > rest_.size()) {
      return std::nullopt;
    }
    const std::string_view bytes = rest_.substr(0, *size);
    rest_.remove_prefix(*size);
    return bytes;
  }

 private:
  std::string_view rest_;
};

Status Broken() { return InvalidArgument("The file is not a WebAssembly module, or is damaged."); }

bool ReadExports(std::string_view section, std::vector<std::string>* names) {
  WasmBytes exports(section);
  const std::optional<uint32_t> count = exports.Number();
  for (uint32_t i = 0; count.has_value() && i < *count; ++i) {
    const std::optional<std::string_view> name = exports.Bytes();
    const std::optional<uint8_t> kind = exports.Byte();
    if (!name.has_value() || !kind.has_value() || !exports.Number().has_value()) {
      return false;
    }
    if (*kind == kFunction && !name->starts_with("_")) {
      names->emplace_back(*name);
    }
  }
  return count.has_value();
}

// Types of OpenCL C's parameters and their names in documents.
constexpr std::pair<std::string_view, std::string_view> kTypes[] = {
    {"float", "f32"},          {"double", "f64"},       {"half", "f16"},     {"char", "i8"},
    {"uchar", "u8"},           {"short", "i16"},        {"ushort", "u16"},   {"int", "i32"},
    {"uint", "u32"},           {"long", "i64"},         {"ulong", "u64"},    {"unsigned char", "u8"},
    {"unsigned short", "u16"}, {"unsigned int", "u32"}, {"unsigned", "u32"}, {"unsigned long", "u64"},
    {"signed char", "i8"}};

// Returns the words and single characters of a C source, without comments and white space.
std::vector<std::string_view> TokensOf(std::string_view source) {
  const auto is_word = [](char c) { return isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; };
  std::vector<std::string_view> tokens;
  for (size_t i = 0; i < source.size();) {
    size_t end = i + 1;
    if (source.substr(i, 2) == "//") {
      end = source.find('\n', i);
    } else if (source.substr(i, 2) == "/*") {
      end = source.find("*/", i + 2);
      end = end == std::string_view::npos ? end : end + 2;
    } else if (is_word(source[i])) {
      while (end < source.size() && is_word(source[end])) {
        ++end;
      }
      tokens.push_back(source.substr(i, end - i));
    } else if (isspace(static_cast<unsigned char>(source[i])) == 0) {
      tokens.push_back(source.substr(i, 1));
    }
    i = std::min(end, source.size());
  }
  return tokens;
}

// Address-space and type qualifiers, which are not part of the type's name.
constexpr std::string_view kQualifiers[] = {"restrict", "__restrict", "volatile", "global",   "__global",
                                            "local",    "__local",    "private",  "__private"};
constexpr std::string_view kConstants[] = {"const", "constant", "__constant"};

template <typename List>
bool Has(const List& list, std::string_view word) {
  return std::find(std::begin(list), std::end(list), word) != std::end(list);
}

DeclaredKernel::Param ReadParam(std::span<const std::string_view> tokens) {
  DeclaredKernel::Param param;
  std::string type;
  for (const std::string_view token : tokens) {
    if (token == "*" || token == "[") {
      param.is_buffer = true;
    } else if (Has(kConstants, token)) {
      param.is_const = true;
    } else if (!Has(kQualifiers, token) && token != "]") {
      type += (type.empty() || param.name.empty() ? "" : " ") + param.name;
      param.name = token;  // The last word is the name.
    }
  }
  const auto found = std::find_if(std::begin(kTypes), std::end(kTypes), [&](const auto& t) { return t.first == type; });
  param.type = found == std::end(kTypes) ? "" : found->second;
  return param;
}

}  // namespace

StatusOr<std::vector<std::string>> EntriesOfWasm(std::string_view bytes) {
  if (!bytes.starts_with(kWasmHead)) {
    return Broken();
  }
  std::vector<std::string> names;
  WasmBytes module(bytes.substr(kWasmHead.size()));
  while (!module.is_empty()) {
    const std::optional<uint8_t> id = module.Byte();
    const std::optional<std::string_view> section = module.Bytes();
    if (!section.has_value() || (*id == kExportSection && !ReadExports(*section, &names))) {
      return Broken();
    }
  }
  return names;
}

std::vector<DeclaredKernel> KernelsOfOpenCl(std::string_view source) {
  const std::vector<std::string_view> tokens = TokensOf(source);
  std::vector<DeclaredKernel> kernels;
  for (size_t i = 0; i < tokens.size(); ++i) {
    if (tokens[i] != "kernel" && tokens[i] != "__kernel") {
      continue;
    }
    // Attributes may stand before the return type, which is always void.
    const auto result = std::find(tokens.begin() + static_cast<ptrdiff_t>(i), tokens.end(), "void");
    const size_t name = static_cast<size_t>(result - tokens.begin()) + 1;
    if (name + 1 >= tokens.size() || tokens[name + 1] != "(") {
      continue;
    }
    DeclaredKernel& kernel = kernels.emplace_back();
    kernel.name = tokens[name];
    size_t begin = name + 2;
    for (i = begin; i < tokens.size(); ++i) {
      const bool is_last = tokens[i] == ")";
      if ((tokens[i] == "," || is_last) && i > begin) {
        kernel.params.push_back(ReadParam(std::span(tokens).subspan(begin, i - begin)));
        begin = i + 1;
      }
      if (is_last) {
        break;
      }
    }
    if (kernel.params.size() == 1 && kernel.params[0].name == "void") {
      kernel.params.clear();
    }
  }
  return kernels;
}

}  // namespace hpvm::ctl
