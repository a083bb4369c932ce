// SPDX-License-Identifier: Apache-2.0
// Table of the instructions that only compute or access memory, from which the generator chooses.
#ifndef HPVMD_TESTS_DIFF_OPERATORS_H_
#define HPVMD_TESTS_DIFF_OPERATORS_H_

#include <cstdint>
#include <vector>

#include "tests/diff/program.h"

namespace hpvm::diff {

enum class Immediate : uint8_t {
  kNone,
  kMemory,      // Alignment and offset; operand 0 is the address.
  kMemoryLane,  // Like kMemory, and a lane.
  kLane,
  kShuffle,  // 16 lanes, from the bits.
};

struct Operator {
  uint8_t prefix = 0;  // 0, 0xfc, 0xfd or 0xfe.
  uint32_t code = 0;
  uint8_t operand_count = 0;
  bool has_result = true;
  ValueType result = ValueType::kI32;
  ValueType operands[3]{};
  Immediate immediate = Immediate::kNone;
  uint8_t width = 0;  // Bytes accessed.
  uint8_t lanes = 0;
  bool is_atomic = false;
  bool divides = false;   // Traps when operand 1 is 0.
  bool converts = false;  // Traps when the float does not fit.
  // Operands whose NaN payload would be visible, as bits: they are made canonical.
  uint8_t canonical_operands = 0;
  // The result is a v128 of floats, whose NaNs are made canonical at once, because later the type of the lanes is
  // unknown.
  bool has_float_lanes = false;
  ValueType lane = ValueType::kF32;
};

// Returns all operators; indices never change while the program runs.
const std::vector<Operator>& Operators();

}  // namespace hpvm::diff

#endif  // HPVMD_TESTS_DIFF_OPERATORS_H_
