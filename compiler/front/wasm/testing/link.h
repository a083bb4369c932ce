// SPDX-License-Identifier: Apache-2.0
// Modules that import from each other, as WebAssembly's specification has them. Kernels never do: only hpvm-wast, which
// runs the specification's tests, links modules.
//
// All modules of a script share one store. A *reference* numbers a function of any of them, from 1. Tables and globals
// lie in the store's state (ir::Space::kState), so that modules share them by offset:
//   a global  16 bytes: its bits, a v128 whole
//   a table   u32 size, then one u32 a reference up to its capacity
// Memory is not in the state: the caller gives each module's launch the memory that it declares or imports
// (ir::Launch::instance).
//
// An instance runs by launches of the module's entry, which takes one i32 parameter, the selector: 0 applies the active
// segments and runs the start function; 1 + i calls functions[i], whether exported or not. Arguments are read from and
// results written to the state at kCallArea, 8 bytes a slot; a v128 takes four slots of 32 bits each, i32 and f32 the
// low half of one.
#ifndef HPVMD_COMPILER_FRONT_WASM_TESTING_LINK_H_
#define HPVMD_COMPILER_FRONT_WASM_TESTING_LINK_H_

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/diagnostic.h"
#include "compiler/front/wasm/read/types.h"
#include "compiler/ir/ir.h"

namespace hpvm::wasm {

// The type of something imported, exported or defined.
struct ExternType {
  ExternKind kind = ExternKind::kFunction;
  Signature signature;                // Functions.
  ValueType value = ValueType::kI32;  // Globals and tables (the element's).
  bool is_mutable = false;            // Globals.
  SizeLimits limits;                  // Tables (entries) and memories (pages).
};
struct ModuleImport {
  std::string module, name;
  ExternType type;
};
struct ModuleExport {
  std::string name;
  ExternKind kind = ExternKind::kFunction;
  uint32_t index = 0;  // Among the module's functions, tables ..., imports first.
};

// What a module asks for and offers, without lowering it.
struct ModuleOutline {
  std::vector<ModuleImport> imports;
  std::vector<ModuleExport> exports;
  // Types of all of them, imports first.
  std::vector<ExternType> functions, tables, memories, globals;
};

inline constexpr uint32_t kCallArea = 0;               // In the state.
inline constexpr uint32_t kCallAreaBytes = 32 * 1024;  // 4,096 slots: 1,000 values of v128.
inline constexpr uint32_t kStoreStateBytes = 256u << 20;
inline constexpr uint32_t kLinkedTableEntriesMax = 1u << 20;  // Capacity of a table that may grow further.

struct Linkage {
  // What the imports are, one each in order of the imports of that kind.
  std::vector<uint32_t> functions;    // References.
  std::vector<uint32_t> globals;      // Offsets in the state.
  std::vector<uint64_t> global_bits;  // The present values (the low half of a v128), for initial values.
  std::vector<uint32_t> tables;       // Offsets in the state.
  std::vector<uint32_t> table_capacities;
  // The memory's present and largest size, when one is imported; else the module's own declaration holds. The caller
  // makes it of ir::Module::memory_bytes_max, which is at most memory_pages_max pages and the limit of all modules.
  std::optional<SizeLimits> memory;
  uint64_t memory_pages_max = 65536;
  // The module's own functions, imported ones left out, get the references from here on.
  uint32_t first_reference = 1;
  // Signatures of all modules so far; grows. The index is ir::Module's reference type.
  std::vector<Signature>* signatures = nullptr;
  // Where the module's own tables, globals and segments begin in the state.
  uint32_t state_begin = kCallArea + kCallAreaBytes;
};

struct LinkedModule {
  // state_bytes is kStoreStateBytes; `state` holds the initial values of what the module defines itself, at
  // [state_begin, state_end): the caller copies it into the store before the first launch. No globals, no `data`.
  ir::Module module;
  uint32_t state_end = 0;
  std::vector<uint32_t> functions;        // References, imports first.
  std::vector<uint32_t> globals, tables;  // Offsets in the state, imports first.
  std::vector<uint32_t> table_capacities;
};

// Nothing when the module is malformed, invalid or uses what is not supported; `diagnostics` says.
std::optional<ModuleOutline> OutlineModule(std::span<const uint8_t> bytes, Diagnostics& diagnostics);
std::optional<LinkedModule> LinkModule(std::span<const uint8_t> bytes, const Linkage& linkage,
                                       Diagnostics& diagnostics);

}  // namespace hpvm::wasm

#endif  // HPVMD_COMPILER_FRONT_WASM_TESTING_LINK_H_
