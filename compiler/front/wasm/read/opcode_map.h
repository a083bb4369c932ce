// SPDX-License-Identifier: Apache-2.0
// Maps each WebAssembly instruction to its decoded form, or to the reason why it is refused.
#ifndef HPVMD_COMPILER_FRONT_WASM_READ_OPCODE_MAP_H_
#define HPVMD_COMPILER_FRONT_WASM_READ_OPCODE_MAP_H_

#include <cstdint>

#include "compiler/front/wasm/read/decoded.h"

namespace hpvm::wasm {

struct OpcodeRow {
  Instr instr;                    // Without source and imm.
  uint8_t bytes = 1;              // Number of bytes of the opcode's encoding.
  const char* refusal = nullptr;  // When not null, the end of the sentence that refuses the instruction.
};

// Requires a valid wabt::Opcode enumerator. The rows are an array in enumerator order.
const OpcodeRow& MapOpcode(uint32_t opcode);

}  // namespace hpvm::wasm

#endif  // HPVMD_COMPILER_FRONT_WASM_READ_OPCODE_MAP_H_
