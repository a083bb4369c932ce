// SPDX-License-Identifier: Apache-2.0
// The functions that a module may import: those of "hpvm", which client/kernel/hpvm.h declares for authors, and
// AssemblyScript's "env.abort".
#ifndef HPVMD_COMPILER_FRONT_WASM_READ_IMPORTS_H_
#define HPVMD_COMPILER_FRONT_WASM_READ_IMPORTS_H_

#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/diagnostic.h"
#include "compiler/front/wasm/read/decoded.h"
#include "compiler/ir/ir.h"

namespace hpvm::wasm {

// The way a call of the import becomes operations. A is the address type, T the row's type.
enum class ImportShape : uint8_t {
  kQuery,          // (i32) -> i32 or i64, as the module declares it
  kBarrier,        // () -> ()
  kLocalAlloc,     // (A) -> A
  kAtomicLoad,     // (A) -> T
  kAtomicStore,    // (A, T) -> ()
  kAtomicUpdate,   // (A, T) -> T
  kAtomicCompare,  // (A, T, T) -> T
  kAssert,         // (i32) -> ()
  kAbort,          // (i32, i32, i32, i32) -> (), of "env"
  kPrint,          // (A format, A arguments) -> ()
  kMath,           // (T) -> T, (T, T) -> T or (T, T, T) -> T
};

struct Import {
  std::string_view name;
  ImportShape shape;
  ir::Opcode opcode;  // Ignored for kAssert and kAbort.
  ir::Type type;
  uint32_t arguments = 0;  // For kMath.
  uint32_t math = 0;       // For kMath: the index in math::MathFunctions().
};

// Returns the import of that name, or null. Every import that CheckImport accepts exists.
const Import* FindImport(std::string_view name);
// Returns the required signature. For queries, `declared` decides between the two result types.
ir::FunctionType ImportType(const Import& import, ir::Type address_type, const ir::FunctionType& declared);
// Returns a sentence that says why the import is refused; empty when it is accepted.
std::string CheckImport(const ImportDecl& declaration, const ir::FunctionType& declared, ir::Type address_type);

// The kernel's state that calls of imports need while its functions are lowered.
struct ImportContext {
  ir::Module& out;                   // `data` is complete; `formats` grows.
  std::vector<ir::FunctionId> math;  // The result of AppendMath.
  const std::string& place;
  Diagnostics& diagnostics;  // Receives faults of print calls.
  // Calls in `caller`, by function and argument value. A later call with the same key may share the result while the
  // region is still open.
  struct Call {
    ir::RegionId region;
    ir::ValueId result;
  };
  const ir::Function* caller = nullptr;
  std::map<std::pair<uint32_t, uint32_t>, Call> calls{};
};

// Appends the operations of a call with `operands` to `function`, which `builder` is building. Returns the call's
// result, if it has one.
ir::ValueId EmitImport(ImportContext& context, const Import& import, const ir::FunctionType& type,
                       std::span<const ir::ValueId> operands, uint32_t source, ir::Function& function,
                       ir::Builder& builder);

}  // namespace hpvm::wasm

#endif  // HPVMD_COMPILER_FRONT_WASM_READ_IMPORTS_H_
