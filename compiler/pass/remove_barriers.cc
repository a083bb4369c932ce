// SPDX-License-Identifier: Apache-2.0
#include "compiler/pass/remove_barriers.h"

#include <optional>
#include <vector>

#include "compiler/analysis/op_flow.h"
#include "compiler/analysis/uniformity.h"
#include "compiler/ir/op_syntax.h"
#include "compiler/ir/walk.h"

namespace hpvm::pass {
namespace {

// Each barrier takes time linear in the function; a function with more barriers remains unchanged.
constexpr size_t kBarriersMax = 256;

// Sets of the resources that instances share. Printed records are ordered like memory.
enum Shared : uint8_t { kBuffers = 1, kGroupMemory = 2, kPrints = 4, kAllShared = 7 };

struct Effects {
  uint8_t reads = 0, writes = 0;
  void Add(const Effects& other) {
    reads |= other.reads;
    writes |= other.writes;
  }
  bool ConflictsWith(const Effects& other) const {
    return (writes & (other.reads | other.writes)) != 0 || (reads & other.writes) != 0;
  }
};

uint8_t SharedBy(Space space) {
  switch (space) {
    case Space::kParam:
      return kBuffers;
    case Space::kGroup:
      return kGroupMemory;
    case Space::kFlat:
      return kBuffers | kGroupMemory;
    default:
      return 0;
  }
}

// Calls count as accesses to everything: functions still called after inlining are large or recursive.
Effects EffectsOf(const Op& op) {
  switch (op.code) {
    case Opcode::kCall:
    case Opcode::kCallRef:
      return {kAllShared, kAllShared};
    case Opcode::kPrint:
      return {0, kPrints};
    case Opcode::kMemoryCopy:
      return {kBuffers | kGroupMemory, kBuffers | kGroupMemory};
    case Opcode::kMemoryFill:
    case Opcode::kMemoryInit:
      return {0, kBuffers | kGroupMemory};
    default:
      break;
  }
  if (!ir::HasSpace(op.code)) {
    return {};
  }
  const uint8_t place = SharedBy(op.space);
  if (ir::Info(op.code).family == ir::Family::kAtomic) {
    return {place, place};
  }
  return (ir::Info(op.code).effects & ir::kWrites) != 0 ? Effects{0, place} : Effects{place, 0};
}

class BarrierSearch {
 public:
  explicit BarrierSearch(const ir::Function& function) : f_(function), flow_(analysis::FindOpFlow(function)) {}

  // Returns the effects that may happen between `barrier` and the next barriers in the direction of `edges`.
  Effects Around(OpId barrier, const std::vector<std::vector<OpId>>& edges) const {
    Effects effects;
    analysis::FollowFlow(edges, edges[barrier.index], [&](OpId id) {
      const bool goes_on = !IsBarrier(id);
      effects.Add(goes_on ? EffectsOf(f_.op(id)) : Effects());
      return goes_on;
    });
    return effects;
  }
  bool IsRedundant(OpId barrier) const {
    return !Around(barrier, flow_.previous).ConflictsWith(Around(barrier, flow_.next));
  }
  void Remove(OpId barrier) {
    is_removed_.resize(f_.ops.size(), false);
    is_removed_[barrier.index] = true;
  }
  bool IsRemoved(OpId id) const { return !is_removed_.empty() && is_removed_[id.index]; }

 private:
  bool IsBarrier(OpId id) const { return f_.op(id).code == Opcode::kBarrier && !IsRemoved(id); }

  const ir::Function& f_;
  const analysis::OpFlow flow_;
  std::vector<bool> is_removed_;
};

bool HasBarrierLeft(const ir::Module& module) {
  bool found = false;
  for (const ir::Function& function : module.functions) {
    ir::ForEachOp(function, [&](OpId id) { found |= function.op(id).code == Opcode::kBarrier; });
  }
  return found;
}

}  // namespace

Status RemoveBarriers(ir::Module& module, KernelReport* report) {
  ir::Function& entry = module.function(module.entry);
  std::vector<OpId> barriers;
  ir::ForEachOp(entry, [&](OpId id) {
    if (entry.op(id).code == Opcode::kBarrier) {
      barriers.push_back(id);
    }
  });
  if (barriers.empty() || barriers.size() > kBarriersMax) {
    return absl::OkStatus();
  }
  const std::optional<analysis::Uniformity> uniformity =
      analysis::AnalyseUniformity(module, analysis::Lanes::kSurelyGroup);
  if (!uniformity.has_value()) {
    return absl::OkStatus();
  }
  const std::vector<OpId>& decided_by = uniformity->functions[module.entry.index].decided_by;
  BarrierSearch search(entry);
  bool removed = false;
  for (OpId barrier : barriers) {
    if (!decided_by[barrier.index].valid() && search.IsRedundant(barrier)) {
      search.Remove(barrier);
      removed = true;
      if (report != nullptr) {
        report->Add(KernelRemark::Kind::kBarrier, entry.op(barrier).source,
                    "The barrier is removed: no access before it conflicts with an access after it, up to the next "
                    "barriers on either side.");
      }
    }
  }
  if (!removed) {
    return absl::OkStatus();
  }
  for (ir::Region& region : entry.regions) {
    std::erase_if(region.ops, [&](OpId id) { return search.IsRemoved(id); });
  }
  module.uses_barrier = module.uses_barrier && HasBarrierLeft(module);
  return absl::OkStatus();
}

BufferUse BuffersUsedBy(const ir::Op& op) {
  const Effects effects = EffectsOf(op);
  return {(effects.reads & kBuffers) != 0, (effects.writes & kBuffers) != 0};
}

}  // namespace hpvm::pass
