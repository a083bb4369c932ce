// SPDX-License-Identifier: Apache-2.0
// Formats of print operations: parses C's printf syntax at compile time, and formats values at run time.
//
// A format in Module::formats is in normal form, which is independent of the address width: an integer directive
// takes an i32, or an i64 with `ll`; `hh` and `h` take the low bytes of an i32; floating directives take an f64; `p`
// and `s` take an address, i32 or i64.
#ifndef HPVMD_COMPILER_IR_TEXT_PRINT_FORMAT_H_
#define HPVMD_COMPILER_IR_TEXT_PRINT_FORMAT_H_

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "compiler/ir/ir.h"

namespace hpvm::ir {

struct PrintFormat {
  std::string text;            // Format in normal form.
  std::vector<Type> operands;  // Operand types of the directives, in order.
};

// Accepts flags, width, precision, the lengths hh h l ll j z t, and the conversions d i u x X o c f F e E g G a A s p
// %. `l`, `j`, `z` and `t` have the widths that C gives them for wasm32 or wasm64. Any bytes give a format or a
// kInvalidArgument with a sentence that contains the byte offset in `format`.
StatusOr<PrintFormat> ParsePrintFormat(std::string_view format, bool is_memory64);

// Returns the text of one print. Accepts any format: a directive that is malformed or has no value is copied
// verbatim. `memory` is the initial module memory, where %s looks up strings, whatever the instance has written
// since; a missing string prints as "(no literal at 0x...)".
std::string FormatPrint(std::string_view format, std::span<const uint64_t> values,
                        std::span<const DataSegment> memory = {});

// Returns the bytes at `address` up to a zero byte, at most `bytes_max`. Bytes outside segments are zero, because
// linkers cut zero bytes off at a segment's end. Returns nothing when no segment contains the address, or when
// neither a zero byte nor the segment's end occurs within the limit.
std::optional<std::string_view> FindLiteral(std::span<const DataSegment> memory, uint64_t address, size_t bytes_max);

}  // namespace hpvm::ir

#endif  // HPVMD_COMPILER_IR_TEXT_PRINT_FORMAT_H_
