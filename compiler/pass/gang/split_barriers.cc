// SPDX-License-Identifier: Apache-2.0
#include "compiler/pass/gang/split_barriers.h"

#include <algorithm>
#include <string>
#include <utility>

#include "compiler/analysis/op_flow.h"
#include "compiler/analysis/uniformity.h"
#include "compiler/ir/walk.h"
#include "compiler/pass/gang/group_plan.h"
#include "compiler/pass/gang/group_steps.h"
#include "compiler/pass/gang/split_build.h"

namespace hpvm::pass {
namespace {

using ir::Function;

// The report examines the whole function once per barrier.
constexpr size_t kReportedBarriersMax = 64;

// Assigns places to kept and passed values among an instance's values; wide values first.
Status PlaceValues(const Function& f, const GroupPlan& plan, GroupFrame* places) {
  places->of.assign(f.values.size(), kNotKept);
  std::vector<bool> is_read(f.values.size(), false);
  for (ValueId operand : f.operands) {
    is_read[operand.index] = true;
  }
  uint32_t bytes = 0;
  for (const uint32_t width : {8u, 4u}) {
    for (size_t v = 0; v < f.values.size(); ++v) {
      const bool is_passed = plan.is_passed[v] && !plan.is_scalar[v] && is_read[v];
      if ((is_passed || plan.is_kept[v]) && ir::Bytes(f.values[v].type) == width) {
        places->of[v] = bytes;
        bytes += width;
        if (bytes > kGroupValueBytesMax) {
          return Unimplemented("An instance would keep more than " + std::to_string(kGroupValueBytesMax) +
                               " bytes across barriers.");
        }
      }
    }
  }
  const bool checks =
      std::ranges::any_of(plan.intervals, [](const IntervalPlan& interval) { return interval.checked.valid(); });
  if (checks) {
    places->check = bytes;
    bytes += 4;
  }
  places->bytes = bytes;
  return absl::OkStatus();
}

std::vector<bool> Reached(const std::vector<std::vector<OpId>>& edges, OpId from) {
  std::vector<bool> reached(edges.size());
  analysis::FollowFlow(edges, edges[from.index], [&](OpId id) {
    reached[id.index] = true;
    return true;
  });
  return reached;
}

// Reports how much may be kept across each barrier: values that have a place, are made on a path to the barrier, and
// are read on a path from it.
void Report(const Function& f, const GroupPlan& plan, const GroupFrame& places, KernelReport* report) {
  const analysis::OpFlow flow = analysis::FindOpFlow(f);
  std::vector<std::vector<OpId>> users(f.values.size());
  std::vector<OpId> barriers;
  ir::ForEachOp(f, [&](OpId id) {
    for (ValueId operand : f.operands_of(f.op(id))) {
      if (places.of[operand.index] != kNotKept) {
        users[operand.index].push_back(id);
      }
    }
    if (f.op(id).code == Opcode::kBarrier) {
      barriers.push_back(id);
    }
  });
  for (size_t i = 0; i < barriers.size() && i < kReportedBarriersMax; ++i) {
    const std::vector<bool> before = Reached(flow.previous, barriers[i]);
    const std::vector<bool> behind = Reached(flow.next, barriers[i]);
    uint32_t count = 0, bytes = 0;
    for (size_t v = 0; v < f.values.size(); ++v) {
      const OpId definition = plan.definition[v];
      const bool is_made = places.of[v] != kNotKept && (!definition.valid() || before[definition.index]);
      if (is_made && std::ranges::any_of(users[v], [&](OpId id) { return behind[id.index]; })) {
        ++count;
        bytes += ir::Bytes(f.values[v].type);
      }
    }
    report->Add(KernelRemark::Kind::kBarrier, f.op(barriers[i]).source,
                "Instances of a group run in lockstep up to the barrier and from it on; across it each keeps " +
                    (count == 0 ? "nothing."
                                : std::to_string(count) + (count == 1 ? " value of " : " values of ") +
                                      std::to_string(bytes) + " bytes, and computes other values again."));
  }
}

// Returns the source of the first barrier found on the path `way`, if any, for GroupCheck.
std::optional<uint32_t> FirstBarrier(const Function& f, const analysis::OpFlow& flow, OpId way, uint32_t entry,
                                     uint32_t* function) {
  std::optional<uint32_t> source;
  analysis::FollowFlow(flow.next, {way}, [&](OpId id) {
    const Op& op = f.op(id);
    const bool is_barrier = op.code == Opcode::kBarrier;
    if (is_barrier && !source) {
      *function = op.origin != 0 ? op.origin - 1 : entry;
      source = op.source;
    }
    return !is_barrier && !source;
  });
  return source;
}

GroupCheck MakeCheck(const Function& f, const analysis::OpFlow& flow, OpId branch, uint32_t entry, uint32_t place) {
  GroupCheck check{place, {}, entry};
  for (OpId way : flow.next[branch.index]) {
    check.barriers.push_back(FirstBarrier(f, flow, way, entry, &check.function));
  }
  return check;
}

// Copies all parts of the module that the back end needs: everything except its data.
ir::Module WithoutData(const ir::Module& module) {
  ir::Module copy;
  copy.name = module.name;
  copy.is_memory64 = module.is_memory64;
  copy.memory_bytes = module.memory_bytes;
  copy.memory_bytes_max = module.memory_bytes_max;
  copy.globals = module.globals;
  copy.references = module.references;
  copy.reference_types = module.reference_types;
  copy.first_reference = module.first_reference;
  copy.is_linked = module.is_linked;
  copy.state_bytes = module.state_bytes;
  copy.passive_segments = module.passive_segments;
  copy.formats = module.formats;
  copy.stack_pointer = module.stack_pointer;
  copy.stack_frame = module.stack_frame;
  copy.functions = module.functions;
  copy.entry = module.entry;
  copy.params = module.params;
  copy.uses_barrier = module.uses_barrier;
  copy.uses_group_memory = module.uses_group_memory;
  copy.has_separate_buffers = module.has_separate_buffers;
  return copy;
}

Status MakeSteps(ir::Module& module) {
  ir::Function& entry = module.function(module.entry);
  const std::vector<bool> levels = FindGroupLevel(entry);
  const std::optional<analysis::Uniformity> known =
      analysis::AnalyseUniformity(module, analysis::Lanes::kSurelyGroup, &levels);
  if (!known.has_value()) {
    return Unimplemented("The analysis of which values a group's instances share did not end within its limits.");
  }
  MakeStepsUniform(entry, levels, known->functions[module.entry.index]);
  return absl::OkStatus();
}

}  // namespace

StatusOr<GroupSplit> SplitBarriers(const ir::Module& module, KernelReport* report) {
  GroupSplit split;
  split.module = WithoutData(module);
  HPVMD_RETURN_IF_ERROR(MakeSteps(split.module));
  HPVMD_ASSIGN_OR_RETURN(const GroupPlan plan, PlanGroup(split.module));
  const Function entry = split.module.function(split.module.entry);
  const uint32_t entry_index = split.module.entry.index;
  GroupFrame places;
  HPVMD_RETURN_IF_ERROR(PlaceValues(entry, plan, &places));
  split.value_bytes = places.bytes;
  const analysis::OpFlow flow = analysis::FindOpFlow(entry);
  std::vector<IntervalCall> calls;
  for (uint32_t s = 0; s < plan.intervals.size(); ++s) {
    IntervalFunctions built = BuildInterval(split.module, entry, plan, places, s);
    IntervalCall call;
    if (built.has_effects) {
      const OpId checked = plan.intervals[s].checked;
      call = {ir::FunctionId(split.module.functions.size()), std::move(built.arguments), checked.valid()};
      BarrierInterval interval{call.loop, ir::FunctionId(split.module.functions.size() + 1), std::nullopt,
                               std::move(built.original)};
      if (checked.valid()) {
        interval.check = MakeCheck(entry, flow, checked, entry_index, places.check);
      }
      split.module.functions.push_back(std::move(built.loop));
      split.module.functions.push_back(std::move(built.gang));
      split.intervals.push_back(std::move(interval));
    }
    calls.push_back(std::move(call));
  }
  split.module.functions.push_back(BuildDriver(split.module, entry, plan, calls));
  split.module.entry = ir::FunctionId(split.module.functions.size() - 1);
  if (report != nullptr) {
    Report(entry, plan, places, report);
  }
  return split;
}

}  // namespace hpvm::pass
