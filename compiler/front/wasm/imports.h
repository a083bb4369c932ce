// SPDX-License-Identifier: Apache-2.0
// The functions of the import module "hpvm", which client/kernel/hpvm.h declares for authors.
#ifndef HPVMD_COMPILER_FRONT_WASM_IMPORTS_H_
#define HPVMD_COMPILER_FRONT_WASM_IMPORTS_H_

#include <string>
#include <string_view>

#include "compiler/front/wasm/decoded.h"
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
};

struct Import {
  std::string_view name;
  ImportShape shape;
  ir::Opcode opcode;  // Means nothing for kAssert.
  ir::Type type;
};

// The import of that name, or null.
const Import* FindImport(std::string_view name);
// The signature it must have. For queries `declared` decides between the two results.
ir::FunctionType ImportType(const Import& import, ir::Type address_type, const ir::FunctionType& declared);
// Why the import cannot be had, as a sentence; empty if it can.
std::string CheckImport(const ImportDecl& declaration, const ir::FunctionType& declared, ir::Type address_type);

// Appends what a call with `operands` does, and returns its result if it has one.
ir::ValueId EmitImport(const Import& import, const ir::FunctionType& type, std::span<const ir::ValueId> operands,
                       uint32_t source, ir::Builder& builder);

}  // namespace hpvm::wasm

#endif  // HPVMD_COMPILER_FRONT_WASM_IMPORTS_H_
