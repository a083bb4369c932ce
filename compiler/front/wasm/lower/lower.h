// SPDX-License-Identifier: Apache-2.0
// Lowers one decoded function to the kernel IR: the operand stack and the locals become SSA values, branches become
// `leave` and `continue`.
//
// Every block, loop and if carries, after its WebAssembly results, the locals that are set inside it, in rising
// order; a loop also takes these locals as arguments after its parameters. Unreachable code is dropped.
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
  // Indexed by function; invalid for unreachable functions. An import has an id only when references to it exist; in
  // linked modules no import has one, but each has a reference.
  std::vector<ir::FunctionId> ids;
  // Indexed by signature: the index in ir::Module::reference_types for signatures that a reachable instruction or
  // reference uses.
  std::vector<uint32_t> types;
  // True for start functions: operations that need a launch (ids, barriers, group memory, printing) trap with kHost.
  bool has_no_launch = false;
  bool is_linked = false;
  ImportContext* imports = nullptr;  // Borrowed; needed when functions of "hpvm" are called.
  uint64_t values_left = 0;          // Decreases as functions are lowered.
  TableFunctions table_functions{};
};

// Fills `out`, whose name and type are set. Returns false when no values are left; `out` is then incomplete.
bool LowerFunction(LowerContext& context, const Function& function, ir::Function& out);

}  // namespace hpvm::wasm

#endif  // HPVMD_COMPILER_FRONT_WASM_LOWER_LOWER_H_
