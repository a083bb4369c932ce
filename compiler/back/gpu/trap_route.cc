// SPDX-License-Identifier: Apache-2.0
#include "compiler/back/gpu/trap_route.h"

#include <optional>
#include <utility>

#include "compiler/ir/spelling.h"
#include "compiler/ir/walk.h"
#include "compiler/pass/uniformity.h"

namespace hpvm::gpu {
namespace {

using ir::Op;
using ir::Opcode;
using ir::OpId;
using ir::RegionId;

class Router {
 public:
  explicit Router(const ir::Module& module)
      : function_(module.function(module.entry)),
        places_(function_.ops.size()),
        has_barrier_(function_.ops.size()),
        jumps_to_(function_.ops.size(), kNowhere),
        loops_back_(function_.ops.size()) {
    if (std::optional<Uniformity> found = AnalyseUniformity(module); found.has_value()) {
      decided_by_ = std::move(found->functions[module.entry.index].decided_by);
    }
    Measure();
  }

  std::vector<OpId> Run() {
    std::vector<OpId> routes(function_.ops.size());
    ir::ForEachOp(function_, [&](OpId id) {
      if ((ir::Info(function_.op(id).code).effects & ir::kTraps) != 0 && function_.op(id).code != Opcode::kBarrier) {
        routes[id.index] = RouteOf(id);
      }
    });
    return routes;
  }

 private:
  // Depths of enclosing constructs: 0 is the outermost one.
  static constexpr uint32_t kNowhere = 0xffffffffu;
  struct Place {
    RegionId region;
    uint32_t index = 0;  // In the region.
    uint32_t depth = 0;  // Constructs around the region.
  };

  OpId OwnerOf(OpId id) const { return function_.region(places_[id.index].region).owner; }
  const std::vector<OpId>& OpsAround(OpId id) const { return function_.region(places_[id.index].region).ops; }

  // Finds for each construct whether it has a barrier and how far out its jumps go.
  void Measure() {
    std::vector<std::pair<RegionId, uint32_t>> open{{function_.body, 0}};
    std::vector<OpId> order;
    while (!open.empty()) {
      const auto [region, depth] = open.back();
      open.pop_back();
      const std::vector<OpId>& ops = function_.region(region).ops;
      for (uint32_t i = 0; i < ops.size(); ++i) {
        places_[ops[i].index] = {region, i, depth};
        order.push_back(ops[i]);
        const Op& op = function_.op(ops[i]);
        if (ir::OwnsRegions(op.code)) {
          open.push_back({op.body, depth + 1});
          if (op.code == Opcode::kIf) {
            open.push_back({op.otherwise, depth + 1});
          }
        }
      }
    }
    // Inner operations stand behind those around them.
    for (size_t i = order.size(); i-- > 0;) {
      const OpId id = order[i];
      const Op& op = function_.op(id);
      has_barrier_[id.index] = has_barrier_[id.index] || op.code == Opcode::kBarrier;
      if (op.code == Opcode::kReturn) {
        jumps_to_[id.index] = 0;
      }
      for (const ir::Target& target : function_.targets_of(op)) {
        NoteJump(id, target);
      }
      const OpId owner = OwnerOf(id);
      if (!owner.valid()) {
        continue;
      }
      has_barrier_[owner.index] = has_barrier_[owner.index] || has_barrier_[id.index];
      // Jumps to the owner itself end inside it.
      if (jumps_to_[id.index] < places_[owner.index].depth + 1) {
        jumps_to_[owner.index] = std::min(jumps_to_[owner.index], jumps_to_[id.index]);
      }
    }
  }

  // A jump's reach is the number of constructs that stay around it: leaving the construct at depth d (which d
  // constructs surround) keeps d; going on with it keeps d too, but marks it.
  void NoteJump(OpId id, const ir::Target& target) {
    const uint32_t depth = places_[target.op.index].depth;
    const OpId owner = OwnerOf(id);
    // A leave of the owner at its end is no jump.
    if (target.op == owner && !target.is_continue && function_.op(id).code == Opcode::kLeave) {
      return;
    }
    jumps_to_[id.index] = std::min(jumps_to_[id.index], depth + 1);
    if (target.is_continue) {
      loops_back_[target.op.index] = true;
    }
  }

  OpId RouteOf(OpId trap) const {
    OpId at = trap;
    while (true) {
      const std::vector<OpId>& ops = OpsAround(at);
      const OpId owner = OwnerOf(at);
      OpId next;
      for (uint32_t i = places_[at.index].index + 1; i < ops.size() && !next.valid(); ++i) {
        const OpId id = ops[i];
        if (has_barrier_[id.index]) {
          return id;
        }
        if (jumps_to_[id.index] != kNowhere) {
          next = id;
        }
      }
      if (!next.valid()) {
        // Control goes on behind the owner.
        if (!owner.valid()) {
          return {};
        }
        at = owner;
        continue;
      }
      // What surely comes next is no place to part.
      const Op& jump = function_.op(next);
      if (jump.code == Opcode::kReturn) {
        return {};
      }
      if (jump.code == Opcode::kLeave) {
        at = function_.targets_of(jump)[0].op;
        continue;
      }
      // Somewhere behind `next` instances may part; up to the end of what they leave there may be no barrier.
      const OpId outermost = Outermost(at, jumps_to_[next.index]);
      if (!outermost.valid()) {
        return MeetsBarrier(at, OpId()) ? Anchored(next) : OpId();
      }
      if (MeetsBarrier(at, outermost)) {
        return Anchored(next);
      }
      at = outermost;
    }
  }

  OpId Anchored(OpId id) const { return !decided_by_.empty() && decided_by_[id.index].valid() ? OpId() : id; }

  // The construct around `at` that a jump of this reach leaves; invalid: the function.
  OpId Outermost(OpId at, uint32_t reach) const {
    if (reach == 0) {
      return {};
    }
    OpId owner = OwnerOf(at);
    while (owner.valid() && places_[owner.index].depth + 1 > reach) {
      owner = OwnerOf(owner);
    }
    return owner;
  }

  // Whether a barrier may come behind `at` before `construct` (or the function) ends.
  bool MeetsBarrier(OpId at, OpId construct) const {
    while (true) {
      const std::vector<OpId>& ops = OpsAround(at);
      for (uint32_t i = places_[at.index].index + 1; i < ops.size(); ++i) {
        if (has_barrier_[ops[i].index]) {
          return true;
        }
      }
      const OpId owner = OwnerOf(at);
      if (!owner.valid()) {
        return false;
      }
      if (loops_back_[owner.index] && has_barrier_[owner.index]) {
        return true;
      }
      if (owner == construct) {
        return false;
      }
      at = owner;
    }
  }

  const ir::Function& function_;
  std::vector<Place> places_;       // By OpId.
  std::vector<bool> has_barrier_;   // It is a barrier or has one in it.
  std::vector<uint32_t> jumps_to_;  // Constructs around where its farthest jump lands, one more for the one it is of.
  std::vector<bool> loops_back_;    // Loops that are continued.
  std::vector<OpId> decided_by_;
};

}  // namespace

std::vector<OpId> FindTrapRoutes(const ir::Module& module) { return Router(module).Run(); }

}  // namespace hpvm::gpu
