// SPDX-License-Identifier: Apache-2.0
// Processes nodes in order, part by part (part of PlanResidency).
// Method: the bytes that a task reads are copied to its space from any copy that has them, then the task is added,
// then its written ranges become valid in its copy and nowhere else. Memory of a value passes to the value that
// updates it when no one reads the old one later.
// Invariants: every byte of a value that is still read is valid in at least one copy, or is a zero that no one
// wrote. A copy that the current task uses is pinned until the task is added. A copy whose last valid byte is
// overwritten is dropped.
// A task that fails for lack of memory is tried once more, after everything has left its space and host memory.
#include <utility>

#include "scheduler/residency/residency_walk.h"

namespace hpvm::scheduler {

using graph::FlatNodeId;
using graph::FlatPort;
using graph::FlatValueId;

void ResidencyWalk::BeginValue(FlatNodeId node, uint32_t group, uint32_t port) {
  const FlatPort& p = flat_.ports[port];
  if (!p.in.valid()) {
    copies_.Add(p.out, {.space = kZeros, .valid = RangeSet({0, BytesOf(p.out)})});
  } else if (IsLastReader(flat_, uses_, node, group, port)) {
    // The memory passes to the new value; memory bound as an input remains readable.
    copies_.PassOn(p.in, p.out);
  }
}

Status ResidencyWalk::AddGroup(const TaskGroup& group, uint32_t index) {
  copies_.BeginGroup(index);
  const FlatNodeId node = input_.tasks[group.first_task].node;
  const auto [begin, end] = PortsOf(flat_, node);
  written_.assign(end - begin, {});
  for (uint32_t port = begin; port < end; ++port) {
    if (flat_.ports[port].out.valid()) {
      BeginValue(node, index, port);
    }
  }
  for (uint32_t task = group.first_task; task < group.first_task + group.task_count; ++task) {
    HPVMD_RETURN_IF_ERROR(AddTask(task));
  }
  for (uint32_t port = begin; port < end; ++port) {
    if (flat_.ports[port].out.valid() && flat_.ports[port].in.valid()) {
      HPVMD_RETURN_IF_ERROR(KeepRest(group, port));
      copies_.UnpinAll();
    }
  }
  EndGroup(group, index);
  return absl::OkStatus();
}

StatusOr<uint32_t> ResidencyWalk::EnsurePort(uint32_t task, uint32_t port, const PortAccess& access) {
  const FlatPort& p = flat_.ports[port];
  const DeviceIndex device = input_.tasks[task].device;
  if (!p.out.valid()) {
    return Ensure(p.in, device, RangeSet(access.read), /*writes=*/false);
  }
  RangeSet need(access.read);
  if (!access.overwrites) {
    need.Add(access.written);
  }
  if (!p.in.valid() || copies_.First(p.in) == kNone) {
    const uint64_t copies = out_.copies;
    HPVMD_ASSIGN_OR_RETURN(const uint32_t target, Ensure(p.out, device, need, /*writes=*/true));
    out_.in_place += p.in.valid() && out_.copies == copies;
    return target;
  }
  HPVMD_ASSIGN_OR_RETURN(const uint32_t target, Ensure(p.out, device, {}, /*writes=*/true));
  need.Remove(copies_[target].valid);
  HPVMD_RETURN_IF_ERROR(Fill(p.in, target, std::move(need), device));
  return target;
}

// Extents that a driver is told before the launch are read on the host.
Status ResidencyWalk::EnsureExtents(uint32_t task) {
  const Task& t = input_.tasks[task];
  const graph::FlatNode& node = flat_.nodes[t.node.index];
  for (uint32_t d = 0; d < 3 && SpaceOf(t.device) != kHostSpace; ++d) {
    if (node.extent_port[d] < 0) {
      continue;
    }
    const FlatValueId value = flat_.ports[node.first_port + static_cast<uint32_t>(node.extent_port[d])].in;
    HPVMD_ASSIGN_OR_RETURN(const uint32_t copy, Ensure(value, mover_[kHostSpace], RangeSet({0, BytesOf(value)}),
                                                       /*writes=*/false));
    out_.late_extents.push_back({.task = task, .dimension = d, .storage = copies_[copy].storage});
  }
  return absl::OkStatus();
}

Status ResidencyWalk::EnsurePorts(uint32_t task) {
  const Task& t = input_.tasks[task];
  const auto [begin, end] = PortsOf(flat_, t.node);
  const SpaceIndex space = SpaceOf(t.device);
  const bool has_budget = copies_.HasBudget(space);
  for (uint32_t port = begin; port < end && has_budget; ++port) {
    PinResidents(flat_.ports[port], space);
  }
  // New values come first: memory freed by the previous task suits them when this task starts, whereas transfers in
  // should not wait for that.
  for (const bool is_new : {true, false}) {
    for (uint32_t port = begin; port < end; ++port) {
      if (has_budget ? flat_.ports[port].in.valid() != is_new : is_new) {
        accesses_[port - begin] = input_.accesses.Of(t.node, t.choice, t.box, port);
        HPVMD_ASSIGN_OR_RETURN(port_copies_[port - begin], EnsurePort(task, port, accesses_[port - begin]));
      }
    }
  }
  return EnsureExtents(task);
}

// Copies that are already present must not be evicted for the rest.
void ResidencyWalk::PinResidents(const FlatPort& port, SpaceIndex space) {
  for (const FlatValueId value : {port.in, port.out}) {
    for (uint32_t c = value.valid() ? copies_.First(value) : kNone; c != kNone; c = copies_[c].next) {
      if (copies_[c].space == space && copies_[c].is_temporary) {
        copies_.Pin(c);
      }
    }
  }
}

// Brings everything that the task needs to its space. When there is no room only because of fragmentation, everything
// is moved out and brought back adjacent.
Status ResidencyWalk::EnsureTask(uint32_t task) {
  copies_.NoteWork(SpaceOf(input_.tasks[task].device));
  const size_t late = out_.late_extents.size();
  const Status status = EnsurePorts(task);
  if (!absl::IsResourceExhausted(status)) {
    return status;
  }
  copies_.UnpinAll();
  out_.late_extents.resize(late);
  HPVMD_RETURN_IF_ERROR(EvictAll(SpaceOf(input_.tasks[task].device)));
  HPVMD_RETURN_IF_ERROR(EvictAll(kHostSpace));
  return EnsurePorts(task);
}

Status ResidencyWalk::AddTask(uint32_t task) {
  const Task& t = input_.tasks[task];
  start_ = t.start;
  end_ = t.end;
  const auto [begin, end] = PortsOf(flat_, t.node);
  out_.first_port[task] = static_cast<uint32_t>(out_.port_storage.size());
  accesses_.resize(end - begin);
  port_copies_.resize(end - begin);
  const size_t late = out_.late_extents.size();
  HPVMD_RETURN_IF_ERROR(EnsureTask(task));
  AddStep(
      {.kind = Step::Kind::kRun, .device = t.device, .task = task, .has_late_extent = late < out_.late_extents.size()});
  for (size_t i = late; i < out_.late_extents.size(); ++i) {
    const LateExtent& extent = out_.late_extents[i];
    const int32_t port = flat_.nodes[t.node.index].extent_port[extent.dimension];
    const FlatPort& p = flat_.ports[begin + static_cast<uint32_t>(port)];
    AddTouch(extent.storage, false, {0, BytesOf(p.in)});
  }
  for (uint32_t port = begin; port < end; ++port) {
    const PortAccess& access = accesses_[port - begin];
    Copy& copy = copies_[port_copies_[port - begin]];
    out_.port_storage.push_back(copy.storage);
    AddTouch(copy.storage, false, access.read);
    if (flat_.ports[port].out.valid()) {
      AddTouch(copy.storage, true, access.written);
      copy.device = t.device;
      NoteWrite(flat_.ports[port].out, port_copies_[port - begin], access.written);
      written_[port - begin].Add(access.written);
      if (t.is_part) {
        part_begins_[flat_.ports[port].out.index].push_back(access.written.begin);
      }
    }
  }
  copies_.UnpinAll();
  return absl::OkStatus();
}

void ResidencyWalk::NoteWrite(FlatValueId value, uint32_t written_copy, ByteRange written) {
  for (uint32_t c = copies_.First(value); c != kNone;) {
    const uint32_t next = copies_[c].next;
    if (c == written_copy) {
      copies_[c].valid.Add(written);
    } else {
      copies_[c].valid.Remove(written);
      if (copies_[c].valid.is_empty() && !written.is_empty()) {
        copies_.Drop(value, c);
      }
    }
    c = next;
  }
}

Status ResidencyWalk::KeepRest(const TaskGroup& group, uint32_t port) {
  const FlatPort& p = flat_.ports[port];
  const Task& first = input_.tasks[group.first_task];
  if (copies_.First(p.in) == kNone) {
    return absl::OkStatus();
  }
  RangeSet rest({0, BytesOf(p.out)});
  for (uint32_t c = copies_.First(p.out); c != kNone; c = copies_[c].next) {
    rest.Remove(copies_[c].valid);
  }
  rest.Remove(written_[port - PortsOf(flat_, first.node).first]);
  for (uint32_t c = copies_.First(p.in); c != kNone && !rest.is_empty(); c = copies_[c].next) {
    const bool is_input = !copies_[c].is_writable && copies_[c].space != kZeros;
    if (is_input || copies_[c].space == kZeros) {
      // No launch writes there, so the new version may share the copy.
      Copy shared = copies_[c];
      shared.valid = shared.valid.Within(rest);
      rest.Remove(shared.valid);
      copies_.Add(p.out, std::move(shared));
    }
  }
  for (uint32_t t = group.first_task; t < group.first_task + group.task_count && !rest.is_empty(); ++t) {
    // Bytes where a part ran stay there.
    const DeviceIndex device = input_.tasks[t].device;
    HPVMD_ASSIGN_OR_RETURN(const uint32_t target, Ensure(p.out, device, {}, /*writes=*/true));
    for (uint32_t c = copies_.First(p.in); c != kNone; c = copies_[c].next) {
      if (copies_[c].space == SpaceOf(device)) {
        TakeFrom(c, target, rest, device);
      }
    }
  }
  if (rest.is_empty()) {
    return absl::OkStatus();
  }
  HPVMD_ASSIGN_OR_RETURN(const uint32_t target, Ensure(p.out, first.device, {}, /*writes=*/true));
  return Fill(p.in, target, rest, first.device);
}

void ResidencyWalk::EndGroup(const TaskGroup& group, uint32_t index) {
  const auto [begin, end] = PortsOf(flat_, input_.tasks[group.first_task].node);
  for (uint32_t port = begin; port < end; ++port) {
    const FlatPort& p = flat_.ports[port];
    if (p.in.valid() && uses_.last_use[p.in.index] == index) {
      copies_.DropValue(p.in);
    }
    if (p.out.valid() && uses_.last_use[p.out.index] == kNoUse) {
      copies_.DropValue(p.out);
    }
  }
}

}  // namespace hpvm::scheduler
