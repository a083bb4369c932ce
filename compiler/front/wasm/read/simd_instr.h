// SPDX-License-Identifier: Apache-2.0
#ifndef HPVMD_COMPILER_FRONT_WASM_READ_SIMD_INSTR_H_
#define HPVMD_COMPILER_FRONT_WASM_READ_SIMD_INSTR_H_

#include <array>
#include <cstdint>

namespace hpvm::wasm {

// A validated instruction with the prefix 0xfd.
struct SimdInstr {
  uint32_t opcode = 0;              // A wabt::Opcode::Enum.
  uint32_t source = 0;              // For Op::source.
  uint8_t lane = 0;                 // For lane operations, and loads and stores of a lane.
  uint64_t offset = 0;              // For loads and stores: added to the address, as ir::Op::imm is.
  std::array<uint8_t, 16> bytes{};  // For v128.const and i8x16.shuffle.
};

// Returns the end of the sentence "... is refused: " for an opcode that is not supported, else null. Defined in
// simd.cc beside the rows.
const char* SimdRefusal(uint32_t opcode);

}  // namespace hpvm::wasm

#endif  // HPVMD_COMPILER_FRONT_WASM_READ_SIMD_INSTR_H_
