// SPDX-License-Identifier: Apache-2.0
// One decoded function to the kernel IR: the operand stack and the locals become SSA values, branches become `leave`
// and `continue`.
//
// Every block, loop and if carries, behind its WebAssembly results, the locals that are set inside it, in rising order;
// a loop also takes them as arguments behind its parameters. What cannot be reached is dropped.
#ifndef HPVMD_COMPILER_FRONT_WASM_LOWER_H_
#define HPVMD_COMPILER_FRONT_WASM_LOWER_H_

#include <cstdint>
#include <vector>

#include "compiler/front/wasm/decoded.h"
#include "compiler/ir/ir.h"

namespace hpvm::wasm {

struct LowerContext {
  const Module& module;
  // By function index; invalid for functions that are not reachable. Imports have one only if the table holds them.
  std::vector<ir::FunctionId> ids;
  // By index in Module::signatures; only those that a reachable call_indirect names.
  std::vector<uint32_t> indirect_types;
  uint64_t values_left = 0;  // Falls as functions are lowered.
};

// Fills `out`, whose name and type are set. False when the values are used up; `out` is then incomplete.
bool LowerFunction(LowerContext& context, const Function& function, ir::Function& out);

}  // namespace hpvm::wasm

#endif  // HPVMD_COMPILER_FRONT_WASM_LOWER_H_
