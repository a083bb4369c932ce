// SPDX-License-Identifier: Apache-2.0
// What a module may import: the functions of "hpvm", which client/kernel/hpvm.h declares for authors, and
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

// How a call of the import becomes operations. A is the address type, T the row's type.
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
  ir::Opcode opcode;  // Means nothing for kAssert and kAbort.
  ir::Type type;
  uint32_t arguments = 0;  // kMath.
  uint32_t math = 0;       // kMath: the index in math::MathFunctions().
};

// The import of that name, or null. One that CheckImport has let pass is there.
const Import* FindImport(std::string_view name);
// The signature it must have. For queries `declared` decides between the two results.
ir::FunctionType ImportType(const Import& import, ir::Type address_type, const ir::FunctionType& declared);
// Why the import cannot be had, as a sentence; empty if it can.
std::string CheckImport(const ImportDecl& declaration, const ir::FunctionType& declared, ir::Type address_type);

// What calls of imports need of the kernel while its functions are lowered.
struct ImportContext {
  ir::Module& out;                   // `data` is complete; `formats` grow.
  std::vector<ir::FunctionId> math;  // AppendMath's.
  const std::string& place;
  Diagnostics& diagnostics;  // Receives what is wrong with a print.
  // Calls that a later one of the same function and argument may share, where their region is still open: in `caller`,
  // by the function and the argument's value.
  struct Call {
    ir::RegionId region;
    ir::ValueId result;
  };
  const ir::Function* caller = nullptr;
  std::map<std::pair<uint32_t, uint32_t>, Call> calls{};
};

// Appends what a call with `operands` does to `function`, which `builder` is building, and returns its result if it has
// one.
ir::ValueId EmitImport(ImportContext& context, const Import& import, const ir::FunctionType& type,
                       std::span<const ir::ValueId> operands, uint32_t source, ir::Function& function,
                       ir::Builder& builder);

}  // namespace hpvm::wasm

#endif  // HPVMD_COMPILER_FRONT_WASM_READ_IMPORTS_H_
