// SPDX-License-Identifier: Apache-2.0
#include "compiler/front/wasm/simd.h"

namespace hpvm::wasm {

const char* SimdRefusal(uint32_t) { return "a later release brings SIMD; build without -msimd128"; }

void SimdLowering::Lower(const SimdInstr&, OperandStack&) {}

void SimdLowering::Finish() {}

}  // namespace hpvm::wasm
