// SPDX-License-Identifier: Apache-2.0
#include "compiler/front/opencl/kernels.h"

#include <algorithm>
#include <iterator>
#include <string_view>

namespace hpvm::opencl {
namespace {

using Kind = ParameterShape::Kind;

bool Is(const Token& token, std::string_view text) { return token.text == text && token.kind != Token::Kind::kString; }

// The token behind the parenthesis that `begin` opens, or the end.
size_t SkipParentheses(std::span<const Token> tokens, size_t begin) {
  size_t depth = 0;
  for (size_t i = begin; i < tokens.size(); ++i) {
    depth += Is(tokens[i], "(") ? 1 : 0;
    if (Is(tokens[i], ")") && --depth == 0) {
      return i + 1;
    }
  }
  return tokens.size();
}

void ReadParameters(std::span<const Token> tokens, size_t open, KernelDeclaration& kernel) {
  const size_t end = SkipParentheses(tokens, open);
  kernel.is_whole = end < tokens.size() || (end > open && Is(tokens[end - 1], ")"));
  std::vector<Token> parameter;
  size_t depth = 0;
  for (size_t i = open + 1; i + 1 < end; ++i) {
    kernel.is_whole = kernel.is_whole && !tokens[i].in_directive;
    depth += Is(tokens[i], "(") || Is(tokens[i], "[") ? 1 : 0;
    depth -= (Is(tokens[i], ")") || Is(tokens[i], "]")) && depth > 0 ? 1 : 0;
    if (depth == 0 && Is(tokens[i], ",")) {
      kernel.parameters.push_back(std::move(parameter));
      parameter.clear();
    } else {
      parameter.push_back(tokens[i]);
    }
  }
  const bool is_void = parameter.size() == 1 && Is(parameter[0], "void");
  if (!parameter.empty() && !is_void) {
    kernel.parameters.push_back(std::move(parameter));
  } else if (parameter.empty() && !kernel.parameters.empty()) {
    kernel.is_whole = false;
  }
}

// From behind the word `kernel`: attributes, a type, a name, a parenthesis.
bool ReadKernel(std::span<const Token> tokens, size_t at, KernelDeclaration& kernel) {
  while (at < tokens.size()) {
    const Token& token = tokens[at];
    const bool is_attribute = Is(token, "__attribute__") || Is(token, "__attribute");
    const bool opens = at + 1 < tokens.size() && Is(tokens[at + 1], "(");
    if (is_attribute && opens) {
      at = SkipParentheses(tokens, at + 1);
    } else if (token.kind == Token::Kind::kName && opens) {
      kernel.name = token.text;
      kernel.place = token.place;
      ReadParameters(tokens, at + 1, kernel);
      return true;
    } else if (token.kind == Token::Kind::kName && !token.in_directive) {
      ++at;
    } else {
      return false;
    }
  }
  return false;
}

struct NumberName {
  std::string_view name;
  Kind kind;
  uint32_t width;
};
constexpr NumberName kNumbers[] = {
    {"bool", Kind::kOther, 0},      {"char", Kind::kInteger, 8},    {"uchar", Kind::kInteger, 8},
    {"short", Kind::kInteger, 16},  {"ushort", Kind::kInteger, 16}, {"int", Kind::kInteger, 32},
    {"uint", Kind::kInteger, 32},   {"long", Kind::kInteger, 64},   {"ulong", Kind::kInteger, 64},
    {"half", Kind::kFloat, 16},     {"float", Kind::kFloat, 32},    {"double", Kind::kFloat, 64},
    {"size_t", Kind::kOther, 0},    {"ptrdiff_t", Kind::kOther, 0}, {"intptr_t", Kind::kOther, 0},
    {"uintptr_t", Kind::kOther, 0}, {"int32_t", Kind::kUnknown, 0},
};

constexpr std::string_view kQualifiers[] = {"const",   "restrict",  "__restrict", "__restrict__", "volatile",
                                            "private", "__private", "signed",     "unsigned"};
constexpr std::string_view kOpaque[] = {"sampler_t",   "event_t", "queue_t", "reserve_id_t",
                                        "clk_event_t", "pipe",    "__pipe"};

bool IsOneOf(std::span<const std::string_view> list, const std::string& text) {
  return std::find(list.begin(), list.end(), text) != list.end();
}

// "float4": a number's name and how many there are.
bool IsVector(const std::string& text) {
  for (const NumberName& number : kNumbers) {
    for (const std::string_view count : {"2", "3", "4", "8", "16"}) {
      if (number.width != 0 && text == std::string(number.name) + std::string(count)) {
        return true;
      }
    }
  }
  return false;
}

// Of a parameter that is no pointer; `types` are its names without qualifiers and the parameter's own name.
void ReadNumber(const std::vector<std::string>& types, bool has_sign, ParameterShape& shape) {
  if (types.empty()) {
    // "unsigned n".
    shape.kind = has_sign ? Kind::kInteger : Kind::kUnknown;
    shape.width = has_sign ? 32 : 0;
    return;
  }
  const bool is_image = types[0].starts_with("image") && types[0].ends_with("_t");
  if (types.size() != 1 || IsOneOf(kOpaque, types[0]) || is_image || IsVector(types[0])) {
    const bool is_long = types.size() == 2 && types[0] == "long" && types[1] == "int";
    shape.kind = is_long ? Kind::kInteger : types.size() == 1 || is_image ? Kind::kOther : Kind::kUnknown;
    shape.width = is_long ? 64 : 0;
    return;
  }
  for (const NumberName& number : kNumbers) {
    if (number.name == types[0]) {
      shape.kind = number.kind;
      shape.width = number.width;
    }
  }
}

}  // namespace

std::vector<KernelDeclaration> FindKernels(std::span<const Token> tokens) {
  constexpr size_t kKernelsMax = 4096;
  std::vector<KernelDeclaration> kernels;
  for (size_t i = 0; i < tokens.size() && kernels.size() < kKernelsMax; ++i) {
    KernelDeclaration kernel;
    if ((Is(tokens[i], "kernel") || Is(tokens[i], "__kernel")) && !tokens[i].in_directive &&
        ReadKernel(tokens, i + 1, kernel)) {
      kernels.push_back(std::move(kernel));
    }
  }
  return kernels;
}

ParameterShape ShapeOf(std::span<const Token> parameter) {
  ParameterShape shape;
  bool is_pointer = false, is_global = false, is_local = false, has_sign = false;
  std::vector<std::string> names;
  for (size_t i = 0; i < parameter.size(); ++i) {
    const std::string& text = parameter[i].text;
    shape.text += (shape.text.empty() ? "" : " ") + text;
    // `const` in front of the star is of what is pointed to.
    shape.is_const = shape.is_const || (!is_pointer && text == "const");
    is_pointer = is_pointer || text == "*" || text == "[";
    is_global = is_global || text == "global" || text == "__global" || text == "constant" || text == "__constant";
    shape.is_const = shape.is_const || text == "constant" || text == "__constant";
    is_local = is_local || text == "local" || text == "__local";
    has_sign = has_sign || text == "signed" || text == "unsigned";
    if (parameter[i].kind == Token::Kind::kName && !IsOneOf(kQualifiers, text)) {
      names.push_back(text);
    }
  }
  if (is_pointer) {
    shape.kind = is_local ? Kind::kLocal : is_global ? Kind::kGlobal : Kind::kUnknown;
    return shape;
  }
  // Attributes and macros with arguments are not taken apart.
  const bool is_plain = std::all_of(parameter.begin(), parameter.end(),
                                    [](const Token& token) { return token.kind == Token::Kind::kName; });
  if (is_plain && !names.empty()) {
    // The last name is the parameter's own, unless it has none.
    const bool is_nameless = names.size() == 1 && !has_sign;
    if (!is_nameless) {
      names.pop_back();
    }
    ReadNumber(names, has_sign, shape);
  }
  return shape;
}

}  // namespace hpvm::opencl
