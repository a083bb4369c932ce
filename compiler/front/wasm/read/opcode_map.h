// SPDX-License-Identifier: Apache-2.0
// What each WebAssembly instruction becomes, or why it is refused.
#ifndef HPVMD_COMPILER_FRONT_WASM_READ_OPCODE_MAP_H_
#define HPVMD_COMPILER_FRONT_WASM_READ_OPCODE_MAP_H_

#include <cstdint>

#include "compiler/front/wasm/read/decoded.h"

namespace hpvm::wasm {

struct OpcodeRow {
  Instr instr;                    // Without source and imm.
  uint8_t bytes = 1;              // Of the encoding.
  const char* refusal = nullptr;  // Not null: the rest of the sentence that refuses it.
};

// Requires a valid wabt::Opcode's enumerator. The rows are an array in its order.
const OpcodeRow& MapOpcode(uint32_t opcode);

}  // namespace hpvm::wasm

#endif  // HPVMD_COMPILER_FRONT_WASM_READ_OPCODE_MAP_H_
