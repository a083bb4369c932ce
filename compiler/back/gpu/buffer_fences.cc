// SPDX-License-Identifier: Apache-2.0
// Every barrier starts as a fence. For each barrier a search of the operation flow in both directions, up to the next
// fences, collects the buffer accesses; if they do not conflict, the fence is dropped. A kernel with more than
// kBarriersMax barriers keeps all fences.
#include "compiler/back/gpu/buffer_fences.h"

#include <algorithm>
#include <map>
#include <span>

#include "compiler/analysis/definitions.h"
#include "compiler/analysis/op_flow.h"
#include "compiler/ir/walk.h"
#include "compiler/pass/remove_barriers.h"

namespace hpvm::gpu {
namespace {

// Limits: the search takes time linear in the function for each barrier and for each load that may complete early.
constexpr size_t kBarriersMax = 256, kDoneLoadsMax = 64;
constexpr size_t kSumMax = 16;  // Limit on the operations through which a stored value is traced.

class FenceSearch {
 public:
  explicit FenceSearch(const ir::Function& function)
      : f_(function), flow_(analysis::FindOpFlow(function)), definitions_(function), is_fence_(function.ops.size()) {}

  std::vector<bool> Run() {
    std::vector<OpId> barriers, stores;
    ir::ForEachOp(f_, [&](OpId id) {
      const Op& op = f_.op(id);
      if (op.code == Opcode::kBarrier) {
        barriers.push_back(id);
        is_fence_[id.index] = true;
      } else if ((op.code == Opcode::kStore || op.code == Opcode::kStore128) && op.space == ir::Space::kGroup) {
        stores.push_back(id);
      }
    });
    if (barriers.size() > kBarriersMax) {
      return is_fence_;
    }
    for (const OpId store : stores) {
      NoteLoadsDoneBy(store);
    }
    for (const auto& [load, by] : done_by_) {
      FindWhereOpen(OpId(load), by);
    }
    // Fences are dropped one at a time, so that a remaining fence separates conflicting accesses on every path.
    for (const OpId barrier : barriers) {
      const pass::BufferUse before = Around(barrier, flow_.previous, true), behind = Around(barrier, flow_.next, false);
      is_fence_[barrier.index] = (before.writes && (behind.reads || behind.writes)) || (before.reads && behind.writes);
    }
    return is_fence_;
  }

 private:
  // Finds the buffer accesses that may happen between `barrier` and the next fences in the direction of `edges`.
  pass::BufferUse Around(OpId barrier, const std::vector<std::vector<OpId>>& edges, bool is_before) const {
    pass::BufferUse use;
    std::vector<bool> seen(f_.ops.size());
    std::vector<OpId> work = edges[barrier.index];
    while (!work.empty()) {
      const OpId id = work.back();
      work.pop_back();
      if (seen[id.index] || is_fence_[id.index]) {
        continue;
      }
      seen[id.index] = true;
      const pass::BufferUse here = pass::BuffersUsedBy(f_.op(id));
      use.reads |= here.reads && !(is_before && IsDone(id, barrier));
      use.writes |= here.writes;
      work.insert(work.end(), edges[id.index].begin(), edges[id.index].end());
    }
    return use;
  }

  bool IsDone(OpId load, OpId barrier) const {
    const auto open = open_at_.find(load.index);
    return open != open_at_.end() && !open->second[barrier.index];
  }

  // Finds the loads that must have completed before the stored value is known: the value is the loaded one, a
  // conversion of it, or a sum in which each load occurs once, so that terms cannot cancel.
  void NoteLoadsDoneBy(OpId store) {
    std::vector<OpId> loads;
    bool is_sum = false, has_other = false;
    const std::span<const ir::ValueId> operands = f_.operands_of(f_.op(store));
    for (const ir::ValueId stored : operands.subspan(1)) {
      std::vector<ir::ValueId> open{stored};
      for (size_t steps = 0; !open.empty() && steps < kSumMax; ++steps) {
        const OpId by = definitions_.Of(open.back());
        open.pop_back();
        if (!by.valid()) {
          has_other = true;
          continue;
        }
        const Op& op = f_.op(by);
        const ir::Family family = ir::Info(op.code).family;
        if (op.code == Opcode::kLoad || op.code == Opcode::kLoad128) {
          loads.push_back(by);
        } else if (op.code == Opcode::kFAdd || op.code == Opcode::kAdd || family == ir::Family::kConvert) {
          is_sum |= family != ir::Family::kConvert;
          open.insert(open.end(), f_.operands_of(op).begin(), f_.operands_of(op).end());
        } else {
          has_other |= op.code != Opcode::kConst;
        }
      }
      has_other |= !open.empty();
    }
    std::ranges::sort(loads);
    const bool is_twice = std::adjacent_find(loads.begin(), loads.end()) != loads.end();
    if (is_sum && (has_other || is_twice)) {
      return;
    }
    for (const OpId load : loads) {
      const bool is_known = done_by_.count(load.index) != 0;
      if (pass::BuffersUsedBy(f_.op(load)).reads && (is_known || done_by_.size() < kDoneLoadsMax)) {
        done_by_[load.index].push_back(store);
      }
    }
  }

  // Finds the barriers that control may reach from the load without passing one of the stores.
  void FindWhereOpen(OpId load, const std::vector<OpId>& stores) {
    std::vector<bool>& open_at = open_at_[load.index];
    open_at.resize(f_.ops.size());
    for (const OpId store : stores) {
      open_at[store.index] = true;  // Stops the search.
    }
    std::vector<OpId> work = flow_.next[load.index];
    while (!work.empty()) {
      const OpId id = work.back();
      work.pop_back();
      if (!open_at[id.index]) {
        open_at[id.index] = true;
        work.insert(work.end(), flow_.next[id.index].begin(), flow_.next[id.index].end());
      }
    }
  }

  const ir::Function& f_;
  const analysis::OpFlow flow_;
  const analysis::Definitions definitions_;
  std::vector<bool> is_fence_;                     // Indexed by OpId.
  std::map<uint32_t, std::vector<OpId>> done_by_;  // Per load from a buffer (OpId): the stores that need its value.
  std::map<uint32_t, std::vector<bool>> open_at_;  // Per such load: by OpId, where its value may not be stored.
};

}  // namespace

std::vector<bool> FindBufferFences(const ir::Module& module) {
  return FenceSearch(module.function(module.entry)).Run();
}

}  // namespace hpvm::gpu
