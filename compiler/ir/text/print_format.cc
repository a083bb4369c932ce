// SPDX-License-Identifier: Apache-2.0
#include "compiler/ir/text/print_format.h"

#include <algorithm>
#include <array>
#include <bit>
#include <charconv>
#include <cstdio>

#include "base/limits.h"

namespace hpvm::ir {
namespace {

// A % and the directive after it.
struct Directive {
  size_t end = 0;     // Offset in the format after the conversion.
  std::string flags;  // Each flag once.
  std::optional<uint32_t> width, precision;
  std::string_view length;  // "", "hh", "h", "l", "ll", "j", "z", "t".
  char conversion = 0;
};

constexpr std::string_view kFlags = "-+ #0";
constexpr std::string_view kIntegers = "diuxXoc";
constexpr std::string_view kFloats = "fFeEgGaA";

bool Has(std::string_view set, char c) { return set.find(c) != std::string_view::npos; }

Status Fault(size_t at, std::string_view what) {
  return absl::InvalidArgumentError("The format of a print, at its byte " + std::to_string(at) + ", " +
                                    std::string(what));
}

// Reads a width or precision; leaves `field` unset when there are no digits.
Status ParseField(std::string_view format, size_t* at, std::optional<uint32_t>* field) {
  const size_t begin = *at;
  uint32_t number = 0;
  for (; *at < format.size() && format[*at] >= '0' && format[*at] <= '9'; ++*at) {
    number = std::min(number * 10 + static_cast<uint32_t>(format[*at] - '0'), limits::kPrintFieldMax + 1);
    *field = number;
  }
  if (*at < format.size() && format[*at] == '*') {
    return Fault(*at, "has \"*\"; a width or precision is a number in the format.");
  }
  if (number > limits::kPrintFieldMax) {
    return Fault(begin, "has a width or precision above the limit (" + std::to_string(limits::kPrintFieldMax) + ").");
  }
  return absl::OkStatus();
}

std::string Hex(uint64_t bits) {
  std::array<char, 16> digits;
  return "0x" + std::string(digits.data(), std::to_chars(digits.begin(), digits.end(), bits, 16).ptr);
}

std::string_view ParseLength(std::string_view rest) {
  for (const std::string_view length : {"hh", "h", "ll", "l", "j", "z", "t"}) {
    if (rest.starts_with(length)) {
      return rest.substr(0, length.size());
    }
  }
  return rest.substr(0, 0);
}

// Parses the directive whose % is at `begin`.
StatusOr<Directive> ParseDirective(std::string_view format, size_t begin) {
  Directive directive;
  size_t at = begin + 1;
  for (; at < format.size() && Has(kFlags, format[at]); ++at) {
    if (!Has(directive.flags, format[at])) {
      directive.flags += format[at];
    }
  }
  HPVMD_RETURN_IF_ERROR(ParseField(format, &at, &directive.width));
  if (at < format.size() && format[at] == '.') {
    ++at;
    directive.precision = 0;
    HPVMD_RETURN_IF_ERROR(ParseField(format, &at, &directive.precision));
  }
  directive.length = ParseLength(format.substr(at));
  at += directive.length.size();
  if (at == format.size()) {
    return Fault(begin, "ends inside a directive; a percent sign alone is \"%%\".");
  }
  directive.conversion = format[at];
  directive.end = at + 1;
  const bool is_integer = Has(kIntegers, directive.conversion);
  if (!is_integer && !Has(kFloats, directive.conversion) && !Has("sp%", directive.conversion)) {
    const char c = directive.conversion;
    const std::string shown = c > ' ' && c <= '~' ? std::string(1, c) : "\\" + std::to_string(static_cast<uint8_t>(c));
    return Fault(begin,
                 "has the conversion \"" + shown + "\"; those supported are d i u x X o c f F e E g G a A s p %.");
  }
  if (directive.length == "l" && Has(kFloats, directive.conversion)) {
    directive.length = "";  // As in C.
  }
  if (!directive.length.empty() && (!is_integer || directive.conversion == 'c')) {
    return Fault(begin, "has the length \"" + std::string(directive.length) + "\" before \"" + directive.conversion +
                            "\", which takes none.");
  }
  return directive;
}

bool IsWide(std::string_view length, bool is_memory64) {
  return length == "ll" || length == "j" || (is_memory64 && (length == "l" || length == "z" || length == "t"));
}

// C leaves some flags undefined for some conversions; here they have no effect.
bool IsUseful(char flag, char conversion) {
  switch (flag) {
    case '0':
      return !Has("csp", conversion);
    case '#':
      return !Has("cspdiu", conversion);
    case '+':
    case ' ':
      return Has("difFeEgGaA", conversion);
    default:
      return true;
  }
}

// Returns the directive up to its precision.
std::string Head(const Directive& directive) {
  std::string text = "%";
  for (const char flag : directive.flags) {
    if (IsUseful(flag, directive.conversion)) {
      text += flag;
    }
  }
  text += directive.width ? std::to_string(*directive.width) : "";
  return text + (directive.precision ? "." + std::to_string(*directive.precision) : "");
}

std::string NormalForm(const Directive& directive, bool is_memory64) {
  const std::string_view length = IsWide(directive.length, is_memory64) ? "ll"
                                  : directive.length.starts_with('h')   ? directive.length
                                                                        : "";
  return Head(directive) + std::string(length) + directive.conversion;
}

Type OperandOf(const Directive& directive, bool is_memory64) {
  if (Has(kFloats, directive.conversion)) {
    return Type::kF64;
  }
  const bool is_address = Has("sp", directive.conversion);
  return (is_address ? is_memory64 : IsWide(directive.length, is_memory64)) ? Type::kI64 : Type::kI32;
}

void Pad(const Directive& directive, std::string_view text, std::string* out) {
  const size_t missing = std::max<size_t>(directive.width.value_or(0), text.size()) - text.size();
  const bool is_left = Has(directive.flags, '-');
  out->append(is_left ? 0 : missing, ' ');
  out->append(text);
  out->append(is_left ? missing : 0, ' ');
}

// Returns the integer, sign- or zero-extended from its length.
uint64_t Extended(const Directive& directive, uint64_t bits) {
  const bool is_signed = Has("di", directive.conversion);
  if (directive.length == "ll") {
    return bits;
  }
  const int shift = directive.length == "hh" ? 56 : directive.length == "h" ? 48 : 32;
  const auto high = static_cast<int64_t>(bits << shift);
  return is_signed ? static_cast<uint64_t>(high >> shift) : static_cast<uint64_t>(high) >> shift;
}

void FormatNumber(const Directive& directive, uint64_t bits, std::string* out) {
  // The largest double has 309 digits before the point, and at most kPrintFieldMax digits follow.
  std::array<char, 320 + limits::kPrintFieldMax> buffer;
  const bool is_float = Has(kFloats, directive.conversion);
  const std::string format = Head(directive) + (is_float ? "" : "ll") + directive.conversion;
  // Safety: `format` is one checked directive without `*`, and the value has its type.
  const int length = is_float ? std::snprintf(buffer.data(), buffer.size(), format.c_str(), std::bit_cast<double>(bits))
                              : std::snprintf(buffer.data(), buffer.size(), format.c_str(),
                                              static_cast<long long>(Extended(directive, bits)));
  out->append(buffer.data(), static_cast<size_t>(std::clamp(length, 0, static_cast<int>(buffer.size()) - 1)));
}

void FormatOne(const Directive& directive, uint64_t bits, std::span<const DataSegment> memory, std::string* out) {
  switch (directive.conversion) {
    case 'c': {
      const char c = static_cast<char>(bits);
      return Pad(directive, {&c, 1}, out);
    }
    case 'p':
      return Pad(directive, Hex(bits), out);
    case 's': {
      const std::optional<std::string_view> literal = FindLiteral(memory, bits, limits::kPrintFormatBytesMax);
      const std::string missing = literal ? "" : "(no literal at " + Hex(bits) + ")";
      const std::string_view text = literal ? *literal : missing;
      return Pad(directive, text.substr(0, directive.precision.value_or(limits::kPrintFormatBytesMax)), out);
    }
    default:
      return FormatNumber(directive, bits, out);
  }
}

}  // namespace

StatusOr<PrintFormat> ParsePrintFormat(std::string_view format, bool is_memory64) {
  if (format.size() > limits::kPrintFormatBytesMax) {
    return absl::InvalidArgumentError("The format of a print is longer (" + std::to_string(format.size()) +
                                      " bytes) than the limit (" + std::to_string(limits::kPrintFormatBytesMax) + ").");
  }
  PrintFormat parsed;
  for (size_t at = 0; at < format.size();) {
    if (format[at] != '%') {
      parsed.text += format[at++];
      continue;
    }
    HPVMD_ASSIGN_OR_RETURN(const Directive directive, ParseDirective(format, at));
    at = directive.end;
    if (directive.conversion == '%') {
      parsed.text += "%%";
      continue;
    }
    parsed.text += NormalForm(directive, is_memory64);
    parsed.operands.push_back(OperandOf(directive, is_memory64));
  }
  if (parsed.operands.size() > limits::kPrintOperandsMax) {
    return absl::InvalidArgumentError("The format of a print takes more values (" +
                                      std::to_string(parsed.operands.size()) + ") than the limit (" +
                                      std::to_string(limits::kPrintOperandsMax) + ").");
  }
  return parsed;
}

std::string FormatPrint(std::string_view format, std::span<const uint64_t> values,
                        std::span<const DataSegment> memory) {
  std::string text;
  size_t next = 0;
  for (size_t at = 0; at < format.size();) {
    const StatusOr<Directive> directive =
        format[at] == '%' ? ParseDirective(format, at) : StatusOr<Directive>(absl::NotFoundError("plain"));
    const bool is_percent = directive.ok() && directive->conversion == '%';
    if (!directive.ok() || (!is_percent && next == values.size())) {
      text += format[at++];
    } else {
      is_percent ? text.append(1, '%') : (FormatOne(*directive, values[next++], memory, &text), text);
      at = directive->end;
    }
  }
  return text;
}

std::optional<std::string_view> FindLiteral(std::span<const DataSegment> memory, uint64_t address, size_t bytes_max) {
  auto segment = std::ranges::upper_bound(memory, address, {}, &DataSegment::address);
  if (segment == memory.begin() || address - std::prev(segment)->address >= std::prev(segment)->bytes.size()) {
    return std::nullopt;
  }
  --segment;
  const std::string_view bytes(reinterpret_cast<const char*>(segment->bytes.data()), segment->bytes.size());
  const std::string_view rest = bytes.substr(address - segment->address);
  const size_t length = rest.substr(0, bytes_max + 1).find('\0');
  if (length != std::string_view::npos) {
    return rest.substr(0, length);
  }
  const auto next = std::next(segment);
  const bool goes_on = next != memory.end() && next->address - segment->address == bytes.size();
  return goes_on || rest.size() > bytes_max ? std::nullopt : std::optional(rest);
}

}  // namespace hpvm::ir
