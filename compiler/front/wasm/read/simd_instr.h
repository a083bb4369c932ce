// SPDX-License-Identifier: Apache-2.0
#ifndef HPVMD_COMPILER_FRONT_WASM_READ_SIMD_INSTR_H_
#define HPVMD_COMPILER_FRONT_WASM_READ_SIMD_INSTR_H_

#include <array>
#include <cstdint>

namespace hpvm::wasm {

// A validated instruction with the prefix 0xfd.
struct SimdInstr {
  uint32_t opcode = 0;              // wabt::Opcode::Enum.
  uint32_t source = 0;              // For Op::source.
  uint8_t lane = 0;                 // Lane operations, and loads and stores of a lane.
  uint64_t offset = 0;              // Loads and stores: added to the address, ir::Op::imm.
  std::array<uint8_t, 16> bytes{};  // v128.const and i8x16.shuffle.
};

// Why instructions of that opcode are not taken, as the rest of the sentence "... is refused: ", or null. Beside the
// rows, in simd.cc.
const char* SimdRefusal(uint32_t opcode);

}  // namespace hpvm::wasm

#endif  // HPVMD_COMPILER_FRONT_WASM_READ_SIMD_INSTR_H_
