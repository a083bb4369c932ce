// SPDX-License-Identifier: Apache-2.0
#include "engine/plan_commands.h"

#include <algorithm>
#include <string>
#include <utility>

#include "scheduler/residency/order.h"

namespace hpvm::engine {
namespace {

using scheduler::Step;

constexpr uint32_t kNoQueue = 0xffffffffu;

bool IsEmpty(const std::array<uint64_t, 3>& extent) { return extent[0] == 0 || extent[1] == 0 || extent[2] == 0; }

}  // namespace

PlanWriter::PlanWriter(const PreparedGraph& prepared, const PlanMemory& memory, Plan& plan)
    : prepared_(prepared), memory_(memory), plan_(plan), queue_of_lane_(plan.devices.size() * kLanes, kNoQueue) {}

void PlanWriter::Write() {
  const scheduler::Residency& residency = plan_.residency;
  plan_.segments.reserve(residency.segments.size());
  FindIndices();
  point_of_.resize(residency.segments.size());
  WriteStage(residency.prologue, plan_.prologue);
  WriteStage(residency.body, plan_.body);
  WriteStage(residency.epilogue, plan_.epilogue);
  for (PlanStage* stage : {&plan_.prologue, &plan_.body, &plan_.epilogue}) {
    stage->steps.resize(plan_.queues.size());
  }
}

void PlanWriter::FindIndices() {
  has_indices_.assign(plan_.residency.storages.size(), false);
  std::map<const Executable*, std::vector<bool>> words;  // Keyed by executable, then indexed by parameter.
  for (uint32_t task = 0; task < plan_.tasks.size(); ++task) {
    const scheduler::Task& t = plan_.tasks[task];
    const graph::Node& leaf = prepared_.graph.node(plan_.flat.nodes[t.node.index].leaf);
    const Executable* const executable = prepared_.executables[plan_.flat.nodes[t.node.index].leaf.index][t.choice];
    const auto [known, is_new] = words.try_emplace(executable);
    if (is_new && executable != nullptr && IsGpuCode(executable->artifact().kind)) {
      known->second = ir::FindWordParams(executable->artifact().bounds);
    }
    for (size_t i = 0; i < known->second.size() && i < leaf.params.size(); ++i) {
      if (known->second[i] && leaf.params[i] < leaf.ports.size()) {
        has_indices_[plan_.residency.port_storage[plan_.residency.first_port[task] + leaf.params[i]].index] = true;
      }
    }
  }
}

void PlanWriter::WriteStage(const scheduler::StepRange& range, PlanStage& stage) {
  stage.first_segment = static_cast<uint32_t>(plan_.segments.size());
  signalled_.assign(plan_.queues.size(), 0);
  for (uint32_t i = range.first_segment; i < range.first_segment + range.segment_count; ++i) {
    WriteSegment(plan_.residency.segments[i], i, stage);
    // Segments wait only for segments of the same stage.
    for (uint32_t w = 0; w < plan_.residency.segments[i].wait_count; ++w) {
      HPVMD_CHECK(plan_.residency.waits[plan_.residency.segments[i].first_wait + w].segment >= range.first_segment);
    }
  }
  stage.segment_count = static_cast<uint32_t>(plan_.segments.size()) - stage.first_segment;
  stage.steps = signalled_;
}

// Writes which launches may run concurrently, for CPU devices.
void PlanWriter::WriteOrder(const scheduler::Segment& segment, CommandList& list) const {
  // Steps without a command (launches without instances) would shift the indices of others.
  if (plan_.devices[segment.device]->info().kind != DeviceKind::kCpu || list.commands.size() != segment.step_count ||
      prepared_.facts[segment.device].lanes < 2) {
    return;
  }
  scheduler::StepOrder order = scheduler::OrderSteps(plan_.residency, segment, plan_.tasks);
  if (!order.predecessors.empty()) {
    list.order = std::make_unique<const CommandOrder>(CommandOrder{.first_successor = std::move(order.first_successor),
                                                                   .successors = std::move(order.successors),
                                                                   .predecessors = std::move(order.predecessors)});
  }
}

void PlanWriter::WriteSegment(const scheduler::Segment& segment, uint32_t index, PlanStage& stage) {
  const scheduler::Residency& residency = plan_.residency;
  const uint32_t queue = QueueOf(segment.device, segment.lane);
  PlanSegment& out = plan_.segments.emplace_back();
  out.queue = queue;
  out.signal = ++signalled_[queue];
  for (uint32_t i = 0; i < segment.wait_count; ++i) {
    const PlanWait& wait = point_of_[residency.waits[segment.first_wait + i].segment];
    // A queue's own segments run in order; but data for late extents must be there before the segment is submitted.
    if (wait.queue != queue || residency.steps[segment.first_step].has_late_extent) {
      out.waits.push_back(wait);
    }
  }
  out.commands.commands.reserve(segment.step_count);
  for (uint32_t i = 0; i < segment.step_count; ++i) {
    const Step& step = residency.steps[segment.first_step + i];
    if (step.has_late_extent) {
      WriteLateExtents(step, out);
    }
    WriteStep(step, out.commands);
    CountBytes(step, stage);
  }
  if (plan_.devices[segment.device]->info().runs_inline) {
    WriteOrder(segment, out.commands);
  } else {
    out.note = Describe(out);
  }
  point_of_[index] = {queue, out.signal};
}

uint32_t PlanWriter::QueueOf(uint32_t device, Lane lane) {
  uint32_t& queue = queue_of_lane_[device * kLanes + static_cast<size_t>(lane)];
  if (queue == kNoQueue) {
    queue = static_cast<uint32_t>(plan_.queues.size());
    plan_.queues.push_back({.device = device, .lane = lane});
  }
  signalled_.resize(plan_.queues.size());
  return queue;
}

// Records where the host finds the extents of the launch that is written next.
void PlanWriter::WriteLateExtents(const Step& step, PlanSegment& segment) {
  const std::vector<scheduler::LateExtent>& late = plan_.residency.late_extents;
  const graph::FlatNode& node = plan_.flat.nodes[plan_.tasks[step.task].node.index];
  const auto first = std::partition_point(late.begin(), late.end(),
                                          [&](const scheduler::LateExtent& extent) { return extent.task < step.task; });
  for (auto it = first; it != late.end() && it->task == step.task && !IsEmpty(node.extent); ++it) {
    const SlotView view = memory_.ViewOf(it->storage);
    const graph::FlatPort& port =
        plan_.flat.ports[node.first_port + static_cast<uint32_t>(node.extent_port[it->dimension])];
    segment.late.push_back({.command = static_cast<uint32_t>(segment.commands.commands.size()),
                            .dimension = it->dimension,
                            .device = step.device,
                            .slot = view.slot,
                            .offset = view.offset,
                            .bytes = static_cast<uint32_t>(plan_.flat.values[port.in.index].bytes),
                            .limit = node.extent[it->dimension]});
  }
}

// Returns text such as "node "a" or one of the 3 after it on device opencl:0".
std::string PlanWriter::Describe(const PlanSegment& segment) const {
  const DispatchCommand* first = nullptr;
  size_t count = 0;
  for (const Command& command : segment.commands.commands) {
    if (const auto* dispatch = std::get_if<DispatchCommand>(&command)) {
      first = first == nullptr ? dispatch : first;
      ++count;
    }
  }
  const std::string on = " on device " + plan_.devices[plan_.queues[segment.queue].device]->info().id;
  if (first == nullptr) {
    return "copies" + on;
  }
  return "node \"" + graph::PathOf(prepared_.graph, plan_.flat.nodes[plan_.tasks[first->node].node.index]) + "\"" +
         (count > 1 ? " or one of the " + std::to_string(count - 1) + " after it" : "") + on;
}

void PlanWriter::WriteStep(const Step& step, CommandList& out) {
  switch (step.kind) {
    case Step::Kind::kCopy: {
      const SlotView source = memory_.ViewOf(step.source), target = memory_.ViewOf(step.target);
      out.commands.push_back(CopyCommand{.source = source.slot,
                                         .target = target.slot,
                                         .source_offset = source.offset + step.offset - FirstOf(step.source),
                                         .target_offset = target.offset + step.offset - FirstOf(step.target),
                                         .bytes = step.bytes,
                                         .has_indices = has_indices_[step.target.index],
                                         .room = step.room});
      return;
    }
    case Step::Kind::kZero: {
      const SlotView target = memory_.ViewOf(step.target);
      out.commands.push_back(FillCommand{
          .target = target.slot, .offset = target.offset + step.offset - FirstOf(step.target), .bytes = step.bytes});
      return;
    }
    case Step::Kind::kRun:
      WriteDispatch(step.task, out);
      return;
  }
}

void PlanWriter::CountBytes(const Step& step, PlanStage& stage) const {
  if (step.kind == Step::Kind::kCopy && !plan_.devices[step.device]->info().host_visible) {
    (plan_.devices[step.device] == prepared_.spill.get() ? stage.spilled_bytes : stage.moved_bytes) += step.bytes;
  }
}

void PlanWriter::WriteDispatch(uint32_t task, CommandList& out) {
  const scheduler::Task& t = plan_.tasks[task];
  const graph::FlatNode& node = plan_.flat.nodes[t.node.index];
  if (IsEmpty(node.extent) || (t.is_part && IsEmpty(t.box.count))) {
    return;  // Without instances there is nothing to do; the ports keep their content.
  }
  const graph::Node& leaf = prepared_.graph.node(node.leaf);
  DispatchCommand dispatch{.executable = prepared_.executables[node.leaf.index][t.choice],
                           .extent = node.extent,
                           .first_argument = static_cast<uint32_t>(out.arguments.size()),
                           .argument_count = static_cast<uint32_t>(leaf.params.size()),
                           .node = task};
  for (int d = 0; d < 3; ++d) {
    dispatch.group[d] = std::max<uint64_t>(node.group[d], 1);
  }
  if (t.is_part) {
    dispatch.first = t.box.first;
    dispatch.count = t.box.count;
  }
  WriteExtents(task, t.device, dispatch);
  for (const uint32_t param : leaf.params) {
    out.arguments.push_back(param < leaf.ports.size()
                                ? BufferArgument(task, param)
                                : ScalarArgument(node.first_scalar + param - static_cast<uint32_t>(leaf.ports.size())));
  }
  out.commands.push_back(dispatch);
}

void PlanWriter::WriteExtents(uint32_t task, uint32_t device, DispatchCommand& dispatch) const {
  const graph::FlatNode& node = plan_.flat.nodes[plan_.tasks[task].node.index];
  if (!plan_.devices[device]->info().host_visible) {
    return;
  }
  for (uint32_t d = 0; d < 3; ++d) {
    if (node.extent_port[d] >= 0) {
      const DispatchArgument argument = BufferArgument(task, static_cast<uint32_t>(node.extent_port[d]));
      dispatch.extent_from[d] = {
          .slot = argument.slot, .offset = argument.offset, .bytes = static_cast<uint32_t>(argument.bytes)};
    }
  }
}

DispatchArgument PlanWriter::BufferArgument(uint32_t task, uint32_t port) const {
  const graph::FlatPort& p = plan_.flat.ports[plan_.flat.nodes[plan_.tasks[task].node.index].first_port + port];
  const graph::FlatValueId value = p.out.valid() ? p.out : p.in;
  const SlotView view = memory_.ViewOf(plan_.residency.port_storage[plan_.residency.first_port[task] + port]);
  return {.slot = view.slot,
          .is_buffer = true,
          .is_output = p.access == graph::Access::kOut && !p.in.valid(),
          .offset = view.offset,
          .bytes = plan_.flat.values[value.index].bytes};
}

DispatchArgument PlanWriter::ScalarArgument(uint32_t scalar) {
  const graph::FlatScalar& s = plan_.flat.scalars[scalar];
  if (s.input < 0) {
    return {.scalar = s.bits};
  }
  // One slot per (port, type), however many nodes read it.
  const uint32_t port = static_cast<uint32_t>(s.input);
  const auto [it, is_new] = scalar_slots_.try_emplace({port, s.type}, static_cast<uint32_t>(plan_.scalars.size()));
  if (is_new) {
    plan_.scalars.push_back(0);
    plan_.scalar_sources.push_back({.slot = it->second, .port = port, .type = s.type});
  }
  return {.slot = it->second};
}

}  // namespace hpvm::engine
