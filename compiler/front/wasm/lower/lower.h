// SPDX-License-Identifier: Apache-2.0
// One decoded function to the kernel IR: the operand stack and the locals become SSA values, branches become `leave`
// and `continue`.
//
// Every block, loop and if carries, behind its WebAssembly results, the locals that are set inside it, in rising order;
// a loop also takes them as arguments behind its parameters. What cannot be reached is dropped.
#ifndef HPVMD_COMPILER_FRONT_WASM_LOWER_LOWER_H_
#define HPVMD_COMPILER_FRONT_WASM_LOWER_LOWER_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "compiler/front/wasm/lower/layout.h"
#include "compiler/front/wasm/lower/state_code.h"
#include "compiler/front/wasm/read/decoded.h"
#include "compiler/front/wasm/read/imports.h"
#include "compiler/ir/ir.h"

namespace hpvm::wasm {

struct LowerContext {
  const Module& module;
  const Layout& layout;
  // By function index; invalid for functions that are not reachable. Imports have one only if references to them
  // exist; in linked modules they never have, their references do.
  std::vector<ir::FunctionId> ids;
  // By signature: the index in ir::Module::reference_types of those that a reachable instruction or reference names.
  std::vector<uint32_t> types;
  // Whether what asks for a launch (ids, barriers, group memory, printing) traps with kHost: start functions.
  bool has_no_launch = false;
  bool is_linked = false;
  ImportContext* imports = nullptr;  // Borrowed; needed where functions of "hpvm" are called.
  uint64_t values_left = 0;          // Falls as functions are lowered.
  TableFunctions table_functions{};
};

// Fills `out`, whose name and type are set. False when the values are used up; `out` is then incomplete.
bool LowerFunction(LowerContext& context, const Function& function, ir::Function& out);

}  // namespace hpvm::wasm

#endif  // HPVMD_COMPILER_FRONT_WASM_LOWER_LOWER_H_
