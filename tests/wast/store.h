// SPDX-License-Identifier: Apache-2.0
// Store holds what the modules of one script share: functions, tables, memories and globals, like the store of
// WebAssembly's specification. Objects are identified as in compiler/front/wasm/testing/link.h: functions by
// reference, tables and globals by their offset in the state.
//
// Objects live as long as the store: an instance whose start trapped may have left its functions in tables.
#ifndef HPVMD_TESTS_WAST_STORE_H_
#define HPVMD_TESTS_WAST_STORE_H_

#include <array>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "compiler/front/wasm/testing/link.h"
#include "compiler/ir/launch.h"
#include "tests/wast/engine.h"
#include "tests/wast/reserved_memory.h"
#include "tests/wast/value.h"

namespace hpvm::wast {

// An object of the store: a function, table, memory or global, by its index among its kind.
struct Extern {
  wasm::ExternKind kind = wasm::ExternKind::kFunction;
  uint32_t index = 0;
};
using Exports = std::map<std::string, Extern, std::less<>>;

struct Instance {
  std::unique_ptr<Program> program;
  ir::InstanceStorage* storage = nullptr;  // The memory that it uses; owned by the store.
  Exports exports;
};

enum class InstantiateFault : uint8_t { kNone, kInvalid, kUnlinkable, kTrap, kBroken };  // kBroken means a bug of ours.
struct Instantiation {
  const Instance* instance = nullptr;  // Null exactly when there is a fault.
  InstantiateFault fault = InstantiateFault::kNone;
  ir::TrapCode trap = ir::TrapCode::kNone;  // For kTrap.
  std::string text;                         // Description of the fault.
};

struct CallOutcome {
  ir::TrapCode trap = ir::TrapCode::kNone;
  std::vector<Value> results;  // Empty after a trap.
};

class Store final : public ir::HostCalls {
 public:
  // Borrows `engine` for the store's lifetime.
  static StatusOr<std::unique_ptr<Store>> Create(Engine& engine);

  // Sets the exports that imports of that module's name find from now on; replaces earlier ones.
  void Register(const std::string& name, const Exports& exports);
  // Validates, links, applies the active segments and runs the start function.
  Instantiation Instantiate(std::span<const uint8_t> bytes);
  // Returns kInvalidArgument when there is no such export, or arguments do not fit. Other errors mean that the engine
  // failed.
  StatusOr<CallOutcome> Invoke(const Instance& instance, const std::string& field, std::span<const Value> arguments);
  StatusOr<Value> Get(const Instance& instance, const std::string& field) const;

  // Calls between modules.
  ir::TrapCode Call(uint32_t reference, uint32_t type, std::span<uint64_t> values) override;

 private:
  struct FunctionEntry {
    Instance* owner = nullptr;
    uint32_t selector = 0;
    wasm::Signature signature;
  };
  struct TableEntry {
    uint32_t offset = 0, capacity = 0;
    wasm::ExternType type;
  };
  struct MemoryEntry {
    ReservedMemory pages;
    ir::InstanceStorage storage;
    wasm::ExternType type;
  };
  struct GlobalEntry {
    uint32_t offset = 0;
    wasm::ExternType type;
  };

  explicit Store(Engine& engine) : engine_(engine) {}

  // Indices of a module's functions, tables, memories and globals in the store, imports first.
  struct Members {
    std::array<std::vector<uint32_t>, 4> indices;  // Indexed by ExternKind.
    std::array<uint32_t, 4> imported{};
    std::vector<uint32_t>& of(wasm::ExternKind kind) { return indices[static_cast<size_t>(kind)]; }
    const std::vector<uint32_t>& of(wasm::ExternKind kind) const { return indices[static_cast<size_t>(kind)]; }
    uint32_t imported_of(wasm::ExternKind kind) const { return imported[static_cast<size_t>(kind)]; }
    std::span<const uint32_t> imports_of(wasm::ExternKind kind) const {
      return std::span(of(kind)).first(imported_of(kind));
    }
  };

  // Returns the imports found, and the indices at which Adopt will put the rest; or the reason why it cannot be
  // linked.
  StatusOr<Members> Resolve(const wasm::ModuleOutline& outline) const;
  // Returns the present type of an object: sizes grow.
  wasm::ExternType TypeOf(Extern entry) const;
  wasm::Linkage LinkageFor(const Members& members);
  // Compiles the module, applies its active segments and runs its start function.
  StatusOr<ir::TrapCode> Start(const wasm::ModuleOutline& outline, const Members& members, wasm::LinkedModule linked,
                               Instance& instance);
  // Adds what the module defines to the store.
  Status Adopt(const wasm::ModuleOutline& outline, const Members& members, const wasm::LinkedModule& linked,
               Instance& instance);
  Status UseMemory(const wasm::ModuleOutline& outline, const Members& members, const ir::Module& module,
                   Instance& instance);
  // `values` hold the arguments and receive the results.
  StatusOr<ir::TrapCode> Run(const FunctionEntry& function, std::span<uint64_t> values);

  Engine& engine_;
  ReservedMemory state_;
  uint32_t state_end_ = wasm::kCallArea + wasm::kCallAreaBytes;
  std::vector<wasm::Signature> signatures_;
  std::vector<FunctionEntry> functions_;  // Indexed by reference - 1.
  std::vector<TableEntry> tables_;
  std::deque<MemoryEntry> memories_;  // A deque, because instances point at their storage.
  std::vector<GlobalEntry> globals_;
  ir::InstanceStorage no_memory_;
  std::deque<Instance> instances_;
  std::map<std::string, Exports, std::less<>> registry_;
  uint32_t depth_ = 0;  // Depth of calls between modules.
  Status host_error_;   // Why Call returned kHost.
};

}  // namespace hpvm::wast

#endif  // HPVMD_TESTS_WAST_STORE_H_
