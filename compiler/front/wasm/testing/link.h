// SPDX-License-Identifier: Apache-2.0
// Links modules that import from each other, as WebAssembly's specification defines. Only hpvm-wast, which runs the
// specification's tests, links modules; kernels never import from each other.
//
// All modules of a script share one store. A *reference* numbers a function of any of them, from 1. Tables and globals
// lie in the store's state (ir::Space::kState), so that modules share them by offset:
//   a global  16 bytes: its bits; a v128 fills all of them
//   a table   u32 size, then one u32 reference per entry of its capacity
// Memory is not in the state: the caller gives each module's launch the memory that it declares or imports
// (ir::Launch::instance).
// An instance runs by launches of the module's entry, which takes one i32 parameter, the selector: 0 applies the
// active segments and runs the start function; 1 + i calls functions[i], whether exported or not. The entry reads
// arguments from and writes results to the state at kCallArea, 8 bytes per slot; a v128 takes four slots of 32 bits
// each, and i32 and f32 take the low half of a slot.
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

// The type of an imported, exported or defined item.
struct ExternType {
  ExternKind kind = ExternKind::kFunction;
  Signature signature;                // For functions.
  ValueType value = ValueType::kI32;  // For globals and tables (the element type).
  bool is_mutable = false;            // For globals.
  SizeLimits limits;                  // For tables (entries) and memories (pages).
};
struct ModuleImport {
  std::string module, name;
  ExternType type;
};
struct ModuleExport {
  std::string name;
  ExternKind kind = ExternKind::kFunction;
  uint32_t index = 0;  // Index among the module's functions, tables and so on, imports first.
};

// The imports and exports of a module that has not been lowered.
struct ModuleOutline {
  std::vector<ModuleImport> imports;
  std::vector<ModuleExport> exports;
  // Types of all items, imports first.
  std::vector<ExternType> functions, tables, memories, globals;
};

inline constexpr uint32_t kCallArea = 0;               // Offset in the state.
inline constexpr uint32_t kCallAreaBytes = 32 * 1024;  // 4,096 slots: 1,000 values of v128.
inline constexpr uint32_t kStoreStateBytes = 256u << 20;
inline constexpr uint32_t kLinkedTableEntriesMax = 1u << 20;  // Capacity of a table that may grow further.

struct Linkage {
  // The items to import, in the order of the imports of each kind.
  std::vector<uint32_t> functions;    // References.
  std::vector<uint32_t> globals;      // Offsets in the state.
  std::vector<uint64_t> global_bits;  // The present values (the low half of a v128), for initial values.
  std::vector<uint32_t> tables;       // Offsets in the state.
  std::vector<uint32_t> table_capacities;
  // The memory's present and largest size when it is imported; otherwise the module's own declaration applies. The
  // caller allocates ir::Module::memory_bytes_max bytes, at most memory_pages_max pages and the limit of all modules.
  std::optional<SizeLimits> memory;
  uint64_t memory_pages_max = 65536;
  // The module's own functions, without imported ones, get references from this number on.
  uint32_t first_reference = 1;
  // Signatures of all modules so far; grows. The index is ir::Module's reference type.
  std::vector<Signature>* signatures = nullptr;
  // Offset in the state at which the module's own tables, globals and segments begin.
  uint32_t state_begin = kCallArea + kCallAreaBytes;
};

struct LinkedModule {
  // state_bytes is kStoreStateBytes; `state` holds the initial values of the items that the module defines itself, at
  // [state_begin, state_end): the caller copies it into the store before the first launch. There are no globals and
  // no `data`.
  ir::Module module;
  uint32_t state_end = 0;
  std::vector<uint32_t> functions;        // References, imports first.
  std::vector<uint32_t> globals, tables;  // Offsets in the state, imports first.
  std::vector<uint32_t> table_capacities;
};

// Both return nothing when the module is malformed, invalid or uses an unsupported feature; `diagnostics` has the
// fault.
std::optional<ModuleOutline> OutlineModule(std::span<const uint8_t> bytes, Diagnostics& diagnostics);
std::optional<LinkedModule> LinkModule(std::span<const uint8_t> bytes, const Linkage& linkage,
                                       Diagnostics& diagnostics);

}  // namespace hpvm::wasm

#endif  // HPVMD_COMPILER_FRONT_WASM_TESTING_LINK_H_
