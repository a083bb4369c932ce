// SPDX-License-Identifier: Apache-2.0
#include "compiler/ir/instance_check.h"

#include <algorithm>

namespace hpvm::ir {
namespace {

// Addresses stored in module memory of one instance that are followed.
constexpr size_t kStoredMax = size_t{1} << 20;
// An address combined with a smaller number by `or` keeps its buffer: the compiler knew that the bits are free.
constexpr uint64_t kOrMax = 4096;

// Nothing when it is of more than one buffer, or a multiple of one.
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
  stored_.clear();
  globals_.assign(m.globals.size(), Provenance{});
  stack_.Start(m.stack_pointer.has_value() ? m.globals[*m.stack_pointer].init : 0);
  values_.resize(instance.stack_slots());
  const DecodedFunction& entry = decoded_.functions[m.entry.index];
  for (uint32_t i = 0; i < entry.param_count; ++i) {
    Of(0, entry.first_param + i) = {static_cast<uint16_t>(m.params[i].is_buffer ? i + 1 : 0), 0};
  }
}

CheckedSite InstanceCheck::SiteAt(const Instance& instance, const DecodedFunction& function, const Code* code) const {
  const uint32_t written_in = code->origin != 0 ? code->origin - 1 : function.index;
  return {instance.id(), local_, written_in, code->source, launch_.SiteOf(function, code)};
}

void InstanceCheck::SetResults(const Step& step, const Op& op, Provenance provenance) {
  for (uint32_t i = 0; i < op.result_count; ++i) {
    Of(step.base, step.code->result + i) = provenance;
  }
}

void InstanceCheck::After(const Step& step, const Instance& instance) {
  if (step.code->run == step::Move) {
    Of(step.base, step.code->result) = Of(step.base, step.code->a);
    return;
  }
  const OpId id = step.function->ops[static_cast<size_t>(step.code - step.function->code.data())];
  const Op& op = decoded_.module.functions[step.function->index].op(id);
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
  const Provenance a = Of(step.base, code.a), b = Of(step.base, code.b);
  Provenance result;
  switch (op.code) {
    case Opcode::kAdd:
      result = Sum(a, b);
      break;
    case Opcode::kSub:
      result = Sum(a, {b.minus, b.plus});
      break;
    case Opcode::kSelect:
      result = Operand(instance, code.a) != 0 ? b : Of(step.base, code.c);
      break;
    case Opcode::kAnd:
      // An alignment keeps the upper bits; anything else makes a number of an address.
      if (a.is_none() != b.is_none() && HasTopBit(Operand(instance, a.is_none() ? code.a : code.b), op.type)) {
        result = a.is_none() ? b : a;
      }
      break;
    case Opcode::kOr:
      if (a.is_none() != b.is_none() && Operand(instance, a.is_none() ? code.a : code.b) < kOrMax) {
        result = a.is_none() ? b : a;
      }
      break;
    default:
      break;
  }
  SetResults(step, op, result);
}

void InstanceCheck::AfterGlobal(const Step& step, const Op& op, const Instance& instance) {
  if (op.code == Opcode::kGlobalGet) {
    return SetResults(step, op, globals_[op.imm]);
  }
  globals_[op.imm] = Of(step.base, step.code->a);
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
      return {FindingMemory::kModule, 0, operand + op.imm};
    case Space::kGroup:
      return {FindingMemory::kGroup, 0, operand + op.imm - launch.addresses.group_base};
    default:
      return launch_.Locate(operand + op.imm, bytes, memory_bytes);
  }
}

void InstanceCheck::CheckStackRead(const CheckedSite& site, const Location& location, uint64_t bytes) {
  uint64_t begin = 0, end = 0;
  stack_.Cut(location.offset, bytes, &begin, &end);
  // A load that touches at least one written byte passes: it may copy a struct with padding.
  for (uint64_t at = begin; at < end; ++at) {
    if (!stack_.IsUnwritten(at)) {
      return;
    }
  }
  if (begin < end) {
    launch_.ReportUninitialized(site, location, bytes, false);
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
  if (reads) {
    CheckStackRead(site, location, bytes);
  }
  if (IsWrite(kind)) {
    uint64_t begin = 0, end = 0;
    stack_.Cut(location.offset, bytes, &begin, &end);
    for (uint64_t at = begin; at < end; ++at) {
      stack_.Write(at);
    }
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
  const Provenance from = Of(step.base, step.code->a);
  const uint32_t through = op.space == Space::kParam ? op.space_index + 1 : from.minus == 0 ? from.plus : 0;
  CheckAccess(step, instance, location, op.width, kind, reads, through);
  if (is_write) {
    StorePrivate(location, op.width, op.code == Opcode::kStore ? Of(step.base, step.code->b) : Provenance{});
  }
  SetResults(step, op, op.code == Opcode::kLoad ? LoadPrivate(location, op.width) : Provenance{});
}

// memory_copy passes on what it reads of module memory, and does not judge it: structs have padding.
void InstanceCheck::AfterBulk(const Step& step, const Op& op, const Instance& instance) {
  const Code& code = *step.code;
  const uint64_t bytes = Operand(instance, code.c), memory_bytes = instance.memory().bytes();
  if (bytes == 0) {
    return;
  }
  const auto through = [](Provenance from) -> uint32_t { return from.minus == 0 ? from.plus : 0; };
  const Location to = launch_.Locate(Operand(instance, code.a), bytes, memory_bytes);
  if (op.code != Opcode::kMemoryCopy) {
    CheckAccess(step, instance, to, bytes, AccessKind::kWrite, false, through(Of(step.base, code.a)));
    return StorePrivate(to, bytes, {});
  }
  const Location from = launch_.Locate(Operand(instance, code.b), bytes, memory_bytes);
  const bool judges = from.memory != FindingMemory::kModule;
  CheckAccess(step, instance, from, bytes, AccessKind::kRead, judges, through(Of(step.base, code.b)));
  // The bytes' marks are read before the access to the target sets its own.
  std::vector<bool> written;
  uint64_t begin = 0, end = 0;
  if (to.memory == FindingMemory::kModule) {
    stack_.Cut(to.offset, bytes, &begin, &end);
    for (uint64_t at = begin; at < end; ++at) {
      written.push_back(judges || !stack_.IsUnwritten(from.offset + (at - to.offset)));
    }
  }
  CheckAccess(step, instance, to, bytes, AccessKind::kWrite, false, through(Of(step.base, code.a)));
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
    std::erase_if(stored_, [&](const auto& entry) { return entry.first >= begin && entry.first < end; });
  } else {
    for (uint64_t at = begin; at < end; at += width) {
      stored_.erase(at);
    }
  }
  if (provenance.is_none() || bytes != width || begin != location.offset) {
    return;
  }
  if (stored_.size() < kStoredMax) {
    stored_[begin] = provenance;
  } else {
    launch_.checker().SetIncomplete();
  }
}

void InstanceCheck::CopyPrivate(const Location& to, const Location& from, uint64_t bytes) {
  const uint64_t width = Bytes(decoded_.module.address_type());
  std::vector<std::pair<uint64_t, Provenance>> copied;
  if (to.memory == FindingMemory::kModule && from.memory == FindingMemory::kModule) {
    for (const auto& [address, provenance] : stored_) {
      if (address >= from.offset && address - from.offset < bytes && bytes - (address - from.offset) >= width) {
        copied.emplace_back(to.offset + (address - from.offset), provenance);
      }
    }
  }
  StorePrivate(to, bytes, {});
  for (const auto& [address, provenance] : copied) {
    StorePrivate({FindingMemory::kModule, 0, address}, width, provenance);
  }
}

}  // namespace hpvm::ir
