// SPDX-License-Identifier: Apache-2.0
#include "tests/wast/store.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "tests/wast/import_types.h"

namespace hpvm::wast {
namespace {

using wasm::ExternKind;
using wasm::ExternType;

constexpr uint64_t kPageBytes = 64 * 1024;
// Calls between modules nest on the thread's stack; each level of the CPU engine may take a kernel's whole stack.
constexpr uint32_t kDepthMax = 200;
// The limit of 32-bit addresses; 64-bit memories get no more, because no test expects more to succeed.
constexpr uint64_t kMemoryPagesMax = 65536;

template <typename T>
T Load(const uint8_t* from) {
  T value;
  std::memcpy(&value, from, sizeof(value));
  return value;
}

std::string_view Name(ExternKind kind) {
  constexpr std::string_view kNames[] = {"function", "table", "memory", "global"};
  return kNames[static_cast<size_t>(kind)];
}

uint64_t SlotCount(std::span<const wasm::ValueType> types) {
  uint64_t count = 0;
  for (const wasm::ValueType type : types) {
    count += wasm::Slots(type);
  }
  return count;
}

std::string Join(const Diagnostics& diagnostics) {
  const std::string text = ToString(diagnostics);
  return text.empty() ? "The module was refused without a reason." : text;
}

}  // namespace

StatusOr<std::unique_ptr<Store>> Store::Create(Engine& engine) {
  std::unique_ptr<Store> store(new Store(engine));
  HPVMD_ASSIGN_OR_RETURN(store->state_, ReservedMemory::Reserve(wasm::kStoreStateBytes));
  store->no_memory_.state = store->state_.data();
  return store;
}

void Store::Register(const std::string& name, const Exports& exports) { registry_[name] = exports; }

ExternType Store::TypeOf(Extern entry) const {
  ExternType type;
  switch (entry.kind) {
    case ExternKind::kFunction:
      type.signature = functions_[entry.index].signature;
      type.kind = ExternKind::kFunction;
      return type;
    case ExternKind::kTable:
      type = tables_[entry.index].type;
      type.limits.initial = Load<uint32_t>(state_.data() + tables_[entry.index].offset);
      return type;
    case ExternKind::kMemory:
      type = memories_[entry.index].type;
      type.limits.initial = memories_[entry.index].storage.memory_bytes / kPageBytes;
      return type;
    case ExternKind::kGlobal:
      return globals_[entry.index].type;
  }
  return type;
}

StatusOr<Store::Members> Store::Resolve(const wasm::ModuleOutline& outline) const {
  Members members;
  for (const wasm::ModuleImport& import : outline.imports) {
    const std::string place = "\"" + import.module + "\" \"" + import.name + "\"";
    const auto module = registry_.find(import.module);
    const Extern* found = nullptr;
    if (module != registry_.end()) {
      const auto entry = module->second.find(import.name);
      found = entry == module->second.end() ? nullptr : &entry->second;
    }
    if (found == nullptr) {
      return FailedPrecondition("unknown import: " + place + ".");
    }
    if (!MatchesImport(TypeOf(*found), import.type)) {
      return FailedPrecondition(
          "incompatible import type: " + place + " is a " + std::string(Name(found->kind)) +
          (found->kind == import.type.kind ? " of another type." : ", which is not imported as one."));
    }
    members.of(found->kind).push_back(found->index);
  }
  const auto add_own = [&](ExternKind kind, size_t total, size_t next) {
    std::vector<uint32_t>& indices = members.of(kind);
    members.imported[static_cast<size_t>(kind)] = static_cast<uint32_t>(indices.size());
    while (indices.size() < total) {
      indices.push_back(static_cast<uint32_t>(next++));
    }
  };
  add_own(ExternKind::kFunction, outline.functions.size(), functions_.size());
  add_own(ExternKind::kTable, outline.tables.size(), tables_.size());
  add_own(ExternKind::kMemory, outline.memories.size(), memories_.size());
  add_own(ExternKind::kGlobal, outline.globals.size(), globals_.size());
  return members;
}

wasm::Linkage Store::LinkageFor(const Members& members) {
  wasm::Linkage linkage;
  for (const uint32_t index : members.imports_of(ExternKind::kFunction)) {
    linkage.functions.push_back(index + 1);
  }
  for (const uint32_t index : members.imports_of(ExternKind::kGlobal)) {
    linkage.globals.push_back(globals_[index].offset);
    linkage.global_bits.push_back(Load<uint64_t>(state_.data() + globals_[index].offset));
  }
  for (const uint32_t index : members.imports_of(ExternKind::kTable)) {
    linkage.tables.push_back(tables_[index].offset);
    linkage.table_capacities.push_back(tables_[index].capacity);
  }
  for (const uint32_t index : members.imports_of(ExternKind::kMemory)) {
    const MemoryEntry& memory = memories_[index];
    linkage.memory = memory.type.limits;
    linkage.memory->initial = memory.storage.memory_bytes / kPageBytes;
    linkage.memory->maximum = memory.storage.memory_bytes_max / kPageBytes;
  }
  linkage.memory_pages_max = kMemoryPagesMax;
  linkage.first_reference = static_cast<uint32_t>(functions_.size()) + 1;
  linkage.signatures = &signatures_;
  linkage.state_begin = state_end_;
  return linkage;
}

Status Store::Adopt(const wasm::ModuleOutline& outline, const Members& members, const wasm::LinkedModule& linked,
                    Instance& instance) {
  for (const ir::DataSegment& segment : linked.module.state) {
    if (segment.address < state_end_ || segment.address + segment.bytes.size() > linked.state_end) {
      return Internal("The module's initial state lies outside its part of the store.");
    }
    std::memcpy(state_.data() + segment.address, segment.bytes.data(), segment.bytes.size());
  }
  state_end_ = linked.state_end;
  for (size_t i = members.imported_of(ExternKind::kFunction); i < outline.functions.size(); ++i) {
    if (linked.functions.at(i) != functions_.size() + 1) {
      return Internal("The module's functions are not numbered in order.");
    }
    functions_.push_back({&instance, static_cast<uint32_t>(i) + 1, outline.functions[i].signature});
  }
  for (size_t i = members.imported_of(ExternKind::kTable); i < outline.tables.size(); ++i) {
    tables_.push_back({linked.tables.at(i), linked.table_capacities.at(i), outline.tables[i]});
  }
  for (size_t i = members.imported_of(ExternKind::kGlobal); i < outline.globals.size(); ++i) {
    globals_.push_back({linked.globals.at(i), outline.globals[i]});
  }
  return UseMemory(outline, members, linked.module, instance);
}

Status Store::UseMemory(const wasm::ModuleOutline& outline, const Members& members, const ir::Module& module,
                        Instance& instance) {
  if (outline.memories.empty()) {
    instance.storage = &no_memory_;
    return absl::OkStatus();
  }
  if (members.imported_of(ExternKind::kMemory) == 0) {
    MemoryEntry& memory = memories_.emplace_back();
    HPVMD_ASSIGN_OR_RETURN(memory.pages, ReservedMemory::Reserve(module.memory_bytes_max));
    memory.type = outline.memories[0];
    memory.storage = {.memory = memory.pages.data(),
                      .memory_bytes = module.memory_bytes,
                      .memory_bytes_max = module.memory_bytes_max,
                      .globals = nullptr,
                      .state = state_.data()};
  }
  instance.storage = &memories_[members.of(ExternKind::kMemory)[0]].storage;
  return absl::OkStatus();
}

Instantiation Store::Instantiate(std::span<const uint8_t> bytes) {
  const auto fault = [](InstantiateFault kind, std::string text) {
    return Instantiation{.fault = kind, .text = std::move(text)};
  };
  Diagnostics diagnostics;
  const std::optional<wasm::ModuleOutline> outline = wasm::OutlineModule(bytes, diagnostics);
  if (!outline) {
    return fault(InstantiateFault::kInvalid, Join(diagnostics));
  }
  const StatusOr<Members> members = Resolve(*outline);
  if (!members.ok()) {
    return fault(InstantiateFault::kUnlinkable, Message(members.status()));
  }
  std::optional<wasm::LinkedModule> linked = wasm::LinkModule(bytes, LinkageFor(*members), diagnostics);
  if (!linked) {
    return fault(InstantiateFault::kBroken, Join(diagnostics));
  }
  Instance& instance = instances_.emplace_back();
  const StatusOr<ir::TrapCode> started = Start(*outline, *members, *std::move(linked), instance);
  if (!started.ok()) {
    return fault(InstantiateFault::kBroken, Message(started.status()));
  }
  if (*started != ir::TrapCode::kNone) {
    Instantiation trapped = fault(InstantiateFault::kTrap, std::string(ir::Name(*started)));
    trapped.trap = *started;
    return trapped;
  }
  Instantiation done;
  done.instance = &instance;
  return done;
}

StatusOr<ir::TrapCode> Store::Start(const wasm::ModuleOutline& outline, const Members& members,
                                    wasm::LinkedModule linked, Instance& instance) {
  HPVMD_RETURN_IF_ERROR(Adopt(outline, members, linked, instance));
  for (const wasm::ModuleExport& one : outline.exports) {
    instance.exports[one.name] = {one.kind, members.of(one.kind).at(one.index)};
  }
  linked.module.state.clear();  // It has been copied.
  HPVMD_ASSIGN_OR_RETURN(instance.program, engine_.Load(std::move(linked.module)));
  return Run({&instance, 0, {}}, {});
}

StatusOr<ir::TrapCode> Store::Run(const FunctionEntry& function, std::span<uint64_t> values) {
  if (values.size_bytes() > wasm::kCallAreaBytes) {
    return Unimplemented("A call passes " + std::to_string(values.size()) + " values; the call area has room for " +
                         std::to_string(wasm::kCallAreaBytes / sizeof(uint64_t)) + ".");
  }
  if (function.owner->program == nullptr) {
    return Internal("A function's module could not be loaded.");
  }
  uint8_t* area = state_.data() + wasm::kCallArea;
  std::copy_n(reinterpret_cast<const uint8_t*>(values.data()), values.size_bytes(), area);
  HPVMD_ASSIGN_OR_RETURN(const ir::TrapCode trap,
                         function.owner->program->Run(function.selector, *function.owner->storage, *this));
  std::copy_n(area, values.size_bytes(), reinterpret_cast<uint8_t*>(values.data()));
  if (trap == ir::TrapCode::kHost && !host_error_.ok()) {
    return std::exchange(host_error_, absl::OkStatus());
  }
  return trap;
}

ir::TrapCode Store::Call(uint32_t reference, uint32_t type, std::span<uint64_t> values) {
  if (reference == 0) {
    return ir::TrapCode::kUninitializedElement;
  }
  if (reference > functions_.size() || type >= signatures_.size()) {
    host_error_ = Internal("A call names function " + std::to_string(reference) + " with type " + std::to_string(type) +
                           "; the store has " + std::to_string(functions_.size()) + " and " +
                           std::to_string(signatures_.size()) + ".");
    return ir::TrapCode::kHost;
  }
  const FunctionEntry& function = functions_[reference - 1];
  if (function.signature != signatures_[type]) {
    return ir::TrapCode::kIndirectCall;
  }
  if (depth_ >= kDepthMax) {
    return ir::TrapCode::kStackOverflow;
  }
  ++depth_;
  const StatusOr<ir::TrapCode> trap = Run(function, values);
  --depth_;
  if (!trap.ok()) {
    host_error_ = trap.status();
    return ir::TrapCode::kHost;
  }
  return *trap;
}

StatusOr<CallOutcome> Store::Invoke(const Instance& instance, const std::string& field,
                                    std::span<const Value> arguments) {
  const auto found = instance.exports.find(field);
  if (found == instance.exports.end() || found->second.kind != ExternKind::kFunction) {
    return InvalidArgument("The instance exports no function \"" + field + "\".");
  }
  const FunctionEntry& function = functions_[found->second.index];
  const wasm::Signature& signature = function.signature;
  const bool fits = std::equal(arguments.begin(), arguments.end(), signature.params.begin(), signature.params.end(),
                               [](const Value& value, wasm::ValueType type) { return value.type == type; });
  if (!fits) {
    return InvalidArgument("The arguments do not fit the parameters of \"" + field + "\".");
  }
  std::vector<uint64_t> slots;
  for (const Value& value : arguments) {
    AppendSlots(value, slots);
  }
  slots.resize(std::max(slots.size(), SlotCount(signature.results)));
  CallOutcome outcome;
  HPVMD_ASSIGN_OR_RETURN(outcome.trap, Run(function, slots));
  if (outcome.trap == ir::TrapCode::kNone) {
    std::span<const uint64_t> rest(slots);
    for (const wasm::ValueType type : signature.results) {
      outcome.results.push_back(FromSlots(type, rest));
      rest = rest.subspan(wasm::Slots(type));
    }
  }
  return outcome;
}

StatusOr<Value> Store::Get(const Instance& instance, const std::string& field) const {
  const auto found = instance.exports.find(field);
  if (found == instance.exports.end() || found->second.kind != ExternKind::kGlobal) {
    return InvalidArgument("The instance exports no global \"" + field + "\".");
  }
  const GlobalEntry& global = globals_[found->second.index];
  const uint8_t* at = state_.data() + global.offset;
  const bool is_vector = global.type.value == wasm::ValueType::kV128;
  return Value{global.type.value, Load<uint64_t>(at), is_vector ? Load<uint64_t>(at + 8) : 0};
}

}  // namespace hpvm::wast
