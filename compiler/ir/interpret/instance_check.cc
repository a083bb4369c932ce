// SPDX-License-Identifier: Apache-2.0
#include "compiler/ir/interpret/instance_check.h"

#include <algorithm>
#include <utility>

namespace hpvm::ir {
namespace {

// Memory for tracking one address stored in module memory.
constexpr uint64_t kStoredBytes = 64;
// An address combined with a smaller number by `or` keeps its buffer, because the compiler knew that the bits are
// free.
constexpr uint64_t kOrMax = 4096;

// Returns no provenance when the sum stems from more than one buffer, or from a multiple of one.
Provenance Sum(Provenance a, Provenance b) {
  if (a.plus == b.minus) {
    a.plus = b.minus = 0;
  }
  if (b.plus == a.minus) {
    b.plus = a.minus = 0;
  }
  if ((a.plus != 0 && b.plus != 0) || (a.minus != 0 && b.minus != 0)) {
    return {};
  }
  return {std::max(a.plus, b.plus), std::max(a.minus, b.minus)};
}

bool HasTopBit(uint64_t value, Type type) { return (value >> (8 * Bytes(type) - 1) & 1) != 0; }

}  // namespace

void InstanceCheck::Start(const Instance& instance, uint32_t local) {
  const Module& m = decoded_.module;
  local_ = local;
  launch_.ReturnBytes(stored_.size() * kStoredBytes);
  stored_.clear();
  unwritten_reads_.clear();
  read_of_site_.clear();
  globals_.assign(m.globals.size(), Provenance{});
  stack_.Start(m.stack_pointer.has_value() ? m.globals[*m.stack_pointer].init : 0);
  values_.resize(instance.stack_slots());
  const DecodedFunction& entry = decoded_.functions[m.entry.index];
  for (uint32_t i = 0; i < entry.param_count; ++i) {
    Of(0, entry.first_param + i) = {.from = {static_cast<uint16_t>(m.params[i].is_buffer ? i + 1 : 0), 0}};
  }
}

CheckedSite InstanceCheck::SiteAt(const Instance& instance, const DecodedFunction& function, const Code* code) const {
  const uint32_t written_in = code->origin != 0 ? code->origin - 1 : function.index;
  return {instance.id(), local_, written_in, code->source, launch_.SiteOf(function, code)};
}

const Op& InstanceCheck::OpOf(const Step& step) const {
  const OpId id = step.function->ops[static_cast<size_t>(step.code - step.function->code.data())];
  return decoded_.module.functions[step.function->index].op(id);
}

void InstanceCheck::SetResults(const Step& step, const Op& op, ValueRecord value) {
  for (uint32_t i = 0; i < op.result_count; ++i) {
    Of(step.base, step.code->result + i) = value;
  }
}

void InstanceCheck::Use(size_t base, uint32_t slot) {
  // Reported once, because the same value is often used several times.
  if (const uint32_t read = std::exchange(Of(base, slot).unwritten, 0); read != 0) {
    const UnwrittenRead& found = unwritten_reads_[read - 1];
    launch_.ReportUninitialized(found.site, found.location, found.bytes, false);
  }
}

// Checks operands that are used beyond being moved. A store's value is checked once the target is known.
void InstanceCheck::UseOperands(const Step& step) {
  const Code& code = *step.code;
  if (code.run == step::Move) {
    return;
  }
  const Op& op = OpOf(step);
  const Family family = Info(op.code).family;
  const bool is_access = op.code == Opcode::kLoad || op.code == Opcode::kLoad128 || op.code == Opcode::kStore ||
                         op.code == Opcode::kStore128;
  if (is_access || family == Family::kSelect || op.code == Opcode::kCallRef || code.run == step::JumpIfZero ||
      code.run == step::JumpTable) {
    return Use(step.base, code.a);
  }
  if (family == Family::kControl || op.code == Opcode::kCall) {
    return;
  }
  for (const ValueId operand : decoded_.module.functions[step.function->index].operands_of(op)) {
    Use(step.base, operand.index);
  }
}

void InstanceCheck::After(const Step& step, const Instance& instance) {
  if (step.code->run == step::Move) {
    Of(step.base, step.code->result) = Of(step.base, step.code->a);
    return;
  }
  const Op& op = OpOf(step);
  switch (Info(op.code).family) {
    case Family::kIntBinary:
    case Family::kSelect:
      return AfterArithmetic(step, op, instance);
    case Family::kGlobal:
      return AfterGlobal(step, op, instance);
    case Family::kCall:
      return AfterCall(step, instance);
    case Family::kMemory:
    case Family::kAtomic:
      return AfterMemory(step, op, instance);
    case Family::kControl:
      return op.code == Opcode::kReturn ? AfterReturn(step, instance) : void();
    default:
      return SetResults(step, op, {});
  }
}

void InstanceCheck::AfterArithmetic(const Step& step, const Op& op, const Instance& instance) {
  const Code& code = *step.code;
  if (op.code == Opcode::kSelect) {
    return SetResults(step, op, Of(step.base, Operand(instance, code.a) != 0 ? code.b : code.c));
  }
  const Provenance a = Of(step.base, code.a).from, b = Of(step.base, code.b).from;
  const bool is_one = a.is_none() != b.is_none();
  const Provenance one = a.is_none() ? b : a;
  Provenance result;
  switch (op.code) {
    case Opcode::kAdd:
      result = Sum(a, b);
      break;
    case Opcode::kSub:
      result = Sum(a, {b.minus, b.plus});
      break;
    case Opcode::kAnd:
      // An alignment keeps the upper bits; any other mask turns an address into a number.
      if (is_one && HasTopBit(Operand(instance, a.is_none() ? code.a : code.b), op.type)) {
        result = one;
      }
      break;
    case Opcode::kOr:
      if (is_one && Operand(instance, a.is_none() ? code.a : code.b) < kOrMax) {
        result = one;
      }
      break;
    default:
      break;
  }
  SetResults(step, op, {.from = result});
}

void InstanceCheck::AfterGlobal(const Step& step, const Op& op, const Instance& instance) {
  if (op.code == Opcode::kGlobalGet) {
    return SetResults(step, op, {.from = globals_[op.imm]});
  }
  globals_[op.imm] = Of(step.base, step.code->a).from;
  if (decoded_.module.stack_pointer == op.imm) {
    stack_.SetPointer(Operand(instance, step.code->a));
  }
}

void InstanceCheck::AfterCall(const Step& step, const Instance& instance) {
  if (step.code->run == step::Print) {
    return;
  }
  values_.resize(instance.stack_slots());
  const uint32_t first = instance.function().first_param;
  for (uint32_t i = 0; i < step.code->c; ++i) {
    Of(instance.frame_base(), first + i) = Of(step.base, step.function->slots[step.code->b + i]);
  }
}

void InstanceCheck::AfterReturn(const Step& step, const Instance& instance) {
  if (step.call == nullptr) {
    return;
  }
  for (uint32_t i = 0; i < step.code->c; ++i) {
    Of(instance.frame_base(), step.call->result + i) = Of(step.base, step.function->slots[step.code->b + i]);
  }
}

Location InstanceCheck::LocationOf(const Step& step, const Op& op, const Instance& instance, uint64_t bytes) const {
  const LaunchState& launch = instance.launch();
  const uint64_t operand = Operand(instance, step.code->a), memory_bytes = instance.memory().bytes();
  switch (op.space) {
    case Space::kParam: {
      const uint64_t size = launch.launch.arguments[op.space_index].bytes;
      uint64_t at = 0;
      if (!__builtin_add_overflow(operand, op.imm, &at) && bytes <= size && at <= size - bytes) {
        return {FindingMemory::kBuffer, op.space_index, at};
      }
      const uint64_t base = launch.addresses.base[op.space_index];
      return launch_.Locate(((base + operand) & launch.address_mask) + op.imm, bytes, memory_bytes);
    }
    case Space::kModule:
    case Space::kStack:
      return {FindingMemory::kModule, 0, operand + op.imm};
    default:
      return launch_.Locate(operand + op.imm, bytes, memory_bytes);
  }
}

// Returns true when the bytes lie on the stack and all are unwritten. A single written byte makes the read valid,
// because a wide load may copy a struct with padding.
bool InstanceCheck::IsUnwritten(const Location& location, uint64_t bytes) const {
  uint64_t begin = 0, end = 0;
  stack_.Cut(location.offset, bytes, &begin, &end);
  for (uint64_t at = begin; at < end; ++at) {
    if (!stack_.IsUnwritten(at)) {
      return false;
    }
  }
  return location.memory == FindingMemory::kModule && begin < end;
}

void InstanceCheck::MarkStack(const Location& location, uint64_t bytes, bool is_written) {
  uint64_t begin = 0, end = 0;
  stack_.Cut(location.offset, bytes, &begin, &end);
  for (uint64_t at = begin; at < end; ++at) {
    stack_.Write(at, is_written);
  }
}

void InstanceCheck::CheckAccess(const Step& step, const Instance& instance, const Location& location, uint64_t bytes,
                                AccessKind kind, bool reads, uint32_t through) {
  const CheckedSite site = SiteAt(instance, *step.function, step.code);
  if (through != 0 && (location.memory != FindingMemory::kBuffer || location.param + 1 != through)) {
    launch_.ReportWrongBuffer(site, kind, location, bytes, through - 1);
  }
  if (location.memory != FindingMemory::kModule) {
    return launch_.Access(site, kind, reads, location, bytes);
  }
  if (reads && IsAtomic(kind) && IsUnwritten(location, bytes)) {
    launch_.ReportUninitialized(site, location, bytes, true);
  }
  if (IsWrite(kind)) {
    MarkStack(location, bytes, true);
  }
}

void InstanceCheck::AfterMemory(const Step& step, const Op& op, const Instance& instance) {
  if (op.code == Opcode::kMemorySize || op.code == Opcode::kMemoryGrow) {
    return SetResults(step, op, {});
  }
  if (op.code == Opcode::kMemoryCopy || op.code == Opcode::kMemoryFill || op.code == Opcode::kMemoryInit) {
    return AfterBulk(step, op, instance);
  }
  if (IsState(op.space)) {
    return SetResults(step, op, {});
  }
  const bool is_atomic = Info(op.code).family == Family::kAtomic;
  const bool is_write = (Info(op.code).effects & kWrites) != 0, reads = (Info(op.code).effects & kReads) != 0;
  const AccessKind kind = is_atomic ? (is_write ? AccessKind::kAtomicWrite : AccessKind::kAtomicRead)
                                    : (is_write ? AccessKind::kWrite : AccessKind::kRead);
  const Location location = LocationOf(step, op, instance, op.width);
  const uint32_t through = op.space == Space::kParam ? op.space_index + 1 : Of(step.base, step.code->a).from.through();
  CheckAccess(step, instance, location, op.width, kind, reads, through);
  SetResults(step, op, {});
  if (op.code == Opcode::kLoad || op.code == Opcode::kLoad128) {
    AfterLoad(step, op, instance, location);
  } else if (op.code == Opcode::kStore || op.code == Opcode::kStore128) {
    AfterStore(step, op, location);
  } else if (is_write) {
    StorePrivate(location, op.width, {});
  }
}

void InstanceCheck::AfterLoad(const Step& step, const Op& op, const Instance& instance, const Location& location) {
  const uint64_t bytes = op.width / op.result_count;  // load128 has four results of 4 bytes.
  Of(step.base, step.code->result).from = LoadPrivate(location, op.width);
  for (uint32_t i = 0; i < op.result_count; ++i) {
    const Location part{location.memory, location.param, location.offset + i * bytes};
    if (!IsUnwritten(part, bytes)) {
      continue;
    }
    const CheckedSite site = SiteAt(instance, *step.function, step.code);
    uint32_t& read = read_of_site_[site.site];
    if (read == 0) {
      unwritten_reads_.push_back({site, part, bytes});
      read = static_cast<uint32_t>(unwritten_reads_.size());
    }
    Of(step.base, step.code->result + i).unwritten = read;
  }
}

void InstanceCheck::AfterStore(const Step& step, const Op& op, const Location& location) {
  const auto values = decoded_.module.functions[step.function->index].operands_of(op).subspan(1);
  const uint64_t bytes = op.width / values.size();
  for (uint32_t i = 0; i < values.size(); ++i) {
    if (location.memory != FindingMemory::kModule) {
      Use(step.base, values[i].index);
    } else if (Of(step.base, values[i].index).unwritten != 0) {
      MarkStack({location.memory, 0, location.offset + i * bytes}, bytes, false);
    }
  }
  StorePrivate(location, op.width, values.size() == 1 ? Of(step.base, values[0].index).from : Provenance{});
}

// memory_copy propagates the marks of the module memory that it reads, without checking them: structs have padding.
void InstanceCheck::AfterBulk(const Step& step, const Op& op, const Instance& instance) {
  const Code& code = *step.code;
  const uint64_t bytes = Operand(instance, code.c), memory_bytes = instance.memory().bytes();
  if (bytes == 0) {
    return;
  }
  const Location to = launch_.Locate(Operand(instance, code.a), bytes, memory_bytes);
  if (op.code != Opcode::kMemoryCopy) {
    CheckAccess(step, instance, to, bytes, AccessKind::kWrite, false, Of(step.base, code.a).from.through());
    return StorePrivate(to, bytes, {});
  }
  const Location from = launch_.Locate(Operand(instance, code.b), bytes, memory_bytes);
  const bool judges = from.memory != FindingMemory::kModule;
  CheckAccess(step, instance, from, bytes, AccessKind::kRead, judges, Of(step.base, code.b).from.through());
  // The source's marks are read before the access to the target sets its own.
  std::vector<bool> written;
  uint64_t begin = 0, end = 0;
  if (to.memory == FindingMemory::kModule) {
    stack_.Cut(to.offset, bytes, &begin, &end);
    for (uint64_t at = begin; at < end; ++at) {
      written.push_back(judges || !stack_.IsUnwritten(from.offset + (at - to.offset)));
    }
  }
  CheckAccess(step, instance, to, bytes, AccessKind::kWrite, false, Of(step.base, code.a).from.through());
  for (uint64_t at = begin; at < end; ++at) {
    stack_.Write(at, written[at - begin]);
  }
  CopyPrivate(to, from, bytes);
}

Provenance InstanceCheck::LoadPrivate(const Location& location, uint64_t bytes) const {
  if (location.memory != FindingMemory::kModule || bytes != Bytes(decoded_.module.address_type())) {
    return {};
  }
  const auto found = stored_.find(location.offset);
  return found == stored_.end() ? Provenance{} : found->second;
}

void InstanceCheck::StorePrivate(const Location& location, uint64_t bytes, Provenance provenance) {
  const uint64_t width = Bytes(decoded_.module.address_type());
  if (location.memory != FindingMemory::kModule) {
    return;
  }
  const uint64_t begin = location.offset / width * width, end = location.offset + bytes;
  if ((end - begin) / width > stored_.size()) {
    const size_t count =
        std::erase_if(stored_, [&](const auto& entry) { return entry.first >= begin && entry.first < end; });
    launch_.ReturnBytes(count * kStoredBytes);
  } else {
    for (uint64_t at = begin; at < end; at += width) {
      launch_.ReturnBytes(stored_.erase(at) * kStoredBytes);
    }
  }
  if (provenance.is_none() || bytes != width || begin != location.offset) {
    return;
  }
  if (launch_.TakeBytes(kStoredBytes)) {
    stored_[begin] = provenance;
  }
}

void InstanceCheck::CopyPrivate(const Location& to, const Location& from, uint64_t bytes) {
  const uint64_t width = Bytes(decoded_.module.address_type());
  std::vector<std::pair<uint64_t, Provenance>> copied;
  const auto copy = [&](uint64_t address, Provenance provenance) {
    if (address >= from.offset && address - from.offset < bytes && bytes - (address - from.offset) >= width) {
      copied.emplace_back(to.offset + (address - from.offset), provenance);
    }
  };
  if (to.memory == FindingMemory::kModule && from.memory == FindingMemory::kModule) {
    if (bytes / width > stored_.size()) {
      for (const auto& [address, provenance] : stored_) {
        copy(address, provenance);
      }
    } else {
      for (uint64_t at = from.offset / width * width; at < from.offset + bytes; at += width) {
        if (const auto found = stored_.find(at); found != stored_.end()) {
          copy(at, found->second);
        }
      }
    }
  }
  StorePrivate(to, bytes, {});
  for (const auto& [address, provenance] : copied) {
    StorePrivate({FindingMemory::kModule, 0, address}, width, provenance);
  }
}

}  // namespace hpvm::ir
