// SPDX-License-Identifier: Apache-2.0
#include "graph/short_argument.h"

#include <algorithm>

namespace hpvm::graph {
namespace {

constexpr std::string_view kBlanks = " \t";
constexpr std::string_view kScalarTypes[] = {"i32", "i64", "f32", "f64"};

std::string_view Trimmed(std::string_view text) {
  const size_t first = text.find_first_not_of(kBlanks);
  return first == std::string_view::npos ? std::string_view()
                                         : text.substr(first, text.find_last_not_of(kBlanks) - first + 1);
}

// Removes the first word from `rest` and returns it.
std::string_view TakeWord(std::string_view* rest) {
  const size_t end = std::min(rest->find_first_of(kBlanks), rest->size());
  const std::string_view word = rest->substr(0, end);
  *rest = Trimmed(rest->substr(end));
  return word;
}

bool IsNameStart(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }

// Returns true for a source: a name of letters, digits, "_" and "-", with at most one full stop, between node and port.
bool IsSource(std::string_view text) {
  if (text.empty() || !IsNameStart(text[0]) || text.back() == '.' || std::count(text.begin(), text.end(), '.') > 1) {
    return false;
  }
  return std::all_of(text.begin(), text.end(),
                     [](char c) { return IsNameStart(c) || (c >= '0' && c <= '9') || c == '-' || c == '.'; });
}

bool ReadSource(std::string_view text, std::string_view word, ShortArgument* argument, std::string* fault) {
  if (!IsSource(text)) {
    *fault = "names no source after \"" + std::string(word) + "\": an input, a node or NODE.PORT is expected";
    return false;
  }
  argument->name = text;
  return true;
}

}  // namespace

bool ReadShortTensor(std::string_view text, ShortTensor* tensor, std::string* fault) {
  text = Trimmed(text);
  const size_t open = text.find('[');
  tensor->type = Trimmed(text.substr(0, open));
  if (tensor->type.empty() || tensor->type.find_first_of(kBlanks) != std::string_view::npos) {
    *fault = "has no type; TYPE[EXTENT, ...] is expected, as f32[h, w]";
    return false;
  }
  if (open == std::string_view::npos) {
    return true;
  }
  if (text.back() != ']') {
    *fault = "does not end with \"]\"";
    return false;
  }
  const std::string_view inside = text.substr(open + 1, text.size() - open - 2);
  if (Trimmed(inside).empty()) {
    return true;
  }
  size_t begin = 0;
  int depth = 0;  // Number of open parentheses: commas inside them separate a function's arguments, not extents.
  for (size_t i = 0; i <= inside.size(); ++i) {
    const char c = i < inside.size() ? inside[i] : ',';
    depth += c == '(' ? 1 : c == ')' ? -1 : 0;
    if (c == '[' || c == ']') {
      *fault = "has a bracket within its brackets";
      return false;
    }
    if (i == inside.size() || (c == ',' && depth == 0)) {
      tensor->extents.push_back(Trimmed(inside.substr(begin, i - begin)));
      if (tensor->extents.back().empty()) {
        *fault = "has an empty extent";
        return false;
      }
      begin = i + 1;
    }
  }
  return true;
}

bool ReadShortArgument(std::string_view text, ShortArgument* argument, std::string* fault) {
  text = Trimmed(text);
  if (text.empty()) {
    *fault = "is empty";
    return false;
  }
  if (IsSource(text)) {
    argument->kind = ShortArgument::Kind::kName;
    argument->name = text;
    return true;
  }
  std::string_view rest = text;
  const std::string_view word = TakeWord(&rest);
  if (word == "in" || word == "inout") {
    argument->kind = word == "in" ? ShortArgument::Kind::kIn : ShortArgument::Kind::kInOut;
    return ReadSource(rest, word, argument, fault);
  }
  if (word == "out") {
    argument->kind = ShortArgument::Kind::kOut;
    // The optional port's name comes before the type, separated by a blank.
    const std::string_view head = Trimmed(rest.substr(0, rest.find('[')));
    if (head.find_first_of(kBlanks) != std::string_view::npos) {
      argument->name = TakeWord(&rest);
    }
    return ReadShortTensor(rest, &argument->tensor, fault);
  }
  argument->value = text;
  if (std::find(std::begin(kScalarTypes), std::end(kScalarTypes), word) != std::end(kScalarTypes) && !rest.empty()) {
    argument->type = word;
    argument->value = rest;
  }
  return true;
}

}  // namespace hpvm::graph
