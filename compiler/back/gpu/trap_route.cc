// SPDX-License-Identifier: Apache-2.0
// Method: one pass from the inside out finds the constructs that contain barriers and how far their jumps reach.
// From each trap a walk goes on and outwards to the first barrier, or to the branch that decides which barrier is
// next; the rejoin point then moves up past the operations that compute what the path depends on.
// Invariants: a rejoin point follows its traps in their region or an enclosing one. A path that trapped instances
// follow has only control and operations that neither act nor trap, and no branch on it depends on a value that
// they skipped.
// The walk only moves later or further out. A path has at most 256 operations and operands; values are propagated,
// and a point is moved, at most eight times; otherwise all wait at the first point.
#include "compiler/back/gpu/trap_route.h"

#include <algorithm>
#include <map>
#include <optional>
#include <span>
#include <utility>

#include "compiler/analysis/definitions.h"
#include "compiler/analysis/nesting.h"
#include "compiler/analysis/op_flow.h"
#include "compiler/analysis/uniformity.h"
#include "compiler/ir/op_syntax.h"
#include "compiler/ir/walk.h"

namespace hpvm::gpu {
namespace {

// Limits: paths are short, and the time to examine each rejoin point is bounded by these.
constexpr size_t kWayMax = 256;  // Operations and operands on a path.
constexpr int kRoundsMax = 8;    // Iterations of value propagation, and moves of a rejoin point.

// The operations of a region that an instance skips: from the one in which it traps up to its rejoin point.
struct Skipped {
  RegionId region;
  uint32_t first = 0, rejoin = 0;
};

// Way collects the operations on all paths from an operation to the next barriers, or to the kernel's end.
class Way {
 public:
  Way(const ir::Function& function, const analysis::Nesting& nesting, const analysis::OpFlow& flow,
      const std::function<bool(OpId)>& can_trap)
      : f_(function),
        nesting_(nesting),
        flow_(flow),
        can_trap_(can_trap),
        definitions_(function),
        seen_(function.ops.size()) {}

  // Returns false if a path contains an operation that a trapped instance must not perform, or is too long.
  bool Follow(OpId from) {
    ++turn_;
    ops_.clear();
    barriers_.clear();
    size_t size = 0;
    std::vector<OpId> open{from};
    while (!open.empty()) {
      const OpId id = open.back();
      open.pop_back();
      if (std::exchange(seen_[id.index], turn_) == turn_) {
        continue;
      }
      const Op& op = f_.op(id);
      if (op.code == Opcode::kBarrier) {
        barriers_.push_back(id);
        continue;
      }
      constexpr uint8_t kHarmless = ir::kControl | ir::kTraps;
      const bool acts = (ir::Info(op.code).effects & ~kHarmless) != 0;
      const bool traps = can_trap_(id);
      size += 1 + op.operand_count * std::max<size_t>(op.target_count, 1);
      if (acts || traps || size > kWayMax) {
        return false;
      }
      ops_.push_back(id);
      open.insert(open.end(), flow_.next[id.index].begin(), flow_.next[id.index].end());
    }
    return true;
  }
  const std::vector<OpId>& barriers() const { return barriers_; }

  // Finds the skipped values that decide about the path, and returns the index in the region of the first operation
  // that produces one; skipped.rejoin when there is none. Returns nothing if the search takes too long.
  std::optional<uint32_t> Misses(const Skipped& skipped) const {
    std::map<uint32_t, uint32_t> carried;  // Indexed by ValueId: index of the originating operation.
    const auto origin = [&](ValueId value) {
      const auto found = carried.find(value.index);
      uint32_t at = found != carried.end() ? found->second : skipped.rejoin;
      const OpId by = definitions_.Of(value);
      if (by.valid() && f_.op(by).code != Opcode::kConst && IsIn(skipped, by)) {
        at = std::min(at, nesting_.IndexOf(by));
      }
      return at;
    };
    bool is_settled = false;
    for (int round = 0; round < kRoundsMax && !is_settled; ++round) {
      is_settled = true;
      for (const OpId id : ops_) {
        Carry(id, [&](ValueId from, ValueId to) {
          const uint32_t at = origin(from);
          if (at < origin(to)) {
            carried[to.index] = at;
            is_settled = false;
          }
        });
      }
    }
    if (!is_settled) {
      return std::nullopt;
    }
    uint32_t first = skipped.rejoin;
    for (const OpId id : ops_) {
      const Op& op = f_.op(id);
      if (op.code == Opcode::kIf || op.code == Opcode::kBrTable) {
        first = std::min(first, origin(f_.operands_of(op)[0]));
      }
    }
    return first;
  }

 private:
  // Values in nested regions are computed on the path before they are read.
  bool IsIn(const Skipped& skipped, OpId id) const {
    const uint32_t at = nesting_.IndexOf(id);
    return nesting_.RegionOf(id) == skipped.region && at >= skipped.first && at < skipped.rejoin;
  }

  // Calls carry(from, to) for each value that the operation passes on or computes with.
  template <typename Carrier>
  void Carry(OpId id, Carrier&& carry) const {
    const Op& op = f_.op(id);
    for (uint32_t r = 0; r < op.result_count && (ir::Info(op.code).effects & ir::kControl) == 0; ++r) {
      for (const ValueId operand : f_.operands_of(op)) {
        carry(operand, ValueId(op.first_result.index + r));
      }
    }
    ir::ForEachBrought(f_, op, [&](ValueId slot, ValueId value) { carry(value, slot); });
  }

  const ir::Function& f_;
  const analysis::Nesting& nesting_;
  const analysis::OpFlow& flow_;
  const std::function<bool(OpId)>& can_trap_;
  const analysis::Definitions definitions_;
  std::vector<uint32_t> seen_;  // Indexed by OpId: the last `turn_` in which it was visited.
  uint32_t turn_ = 0;
  std::vector<OpId> ops_, barriers_;
};

class Router {
 public:
  Router(const ir::Module& module, const std::function<bool(OpId)>& can_trap)
      : function_(module.function(module.entry)),
        can_trap_(can_trap),
        has_barrier_(function_.ops.size()),
        jumps_to_(function_.ops.size(), kNowhere),
        loops_back_(function_.ops.size()) {
    if (std::optional<analysis::Uniformity> found = analysis::AnalyseUniformity(module); found.has_value()) {
      decided_by_ = std::move(found->functions[module.entry.index].decided_by);
    }
    Measure();
  }

  TrapRoutes Run() {
    TrapRoutes routes;
    routes.rejoin.resize(function_.ops.size());
    routes.rejoin_after.resize(function_.ops.size());
    routes.tests.resize(function_.ops.size());
    std::map<uint32_t, std::pair<uint32_t, std::vector<OpId>>> traps_by_rejoin;  // Keyed by rejoin point: first trap.
    ir::ForEachOp(function_, [&](OpId id) {
      const OpId meets = function_.op(id).code != Opcode::kBarrier && can_trap_(id) ? RouteOf(id) : OpId();
      if (!meets.valid()) {
        return;
      }
      auto& [first, traps] = traps_by_rejoin.try_emplace(meets.index, kNowhere, std::vector<OpId>()).first->second;
      first = std::min(first, IndexAround(id, meets));
      traps.push_back(id);
    });
    if (traps_by_rejoin.empty()) {
      return routes;
    }
    const analysis::OpFlow flow = analysis::FindOpFlow(function_);
    Way way(function_, nesting_, flow, can_trap_);
    FindUsers();
    for (const auto& [meets, found] : traps_by_rejoin) {
      const OpId goes_on = GoesOnFrom(OpId(meets), found.first, way);
      const OpId id = goes_on.valid() ? goes_on : OpId(meets);
      for (const OpId trap : found.second) {
        routes.rejoin[trap.index] = id;
      }
      RejoinPoint& rejoin = routes.rejoin_points[id.index];
      rejoin.first = OpsAround(id)[found.first];
      routes.rejoin_after[rejoin.first.index] = id;
      rejoin.waits = !goes_on.valid();
      rejoin.defines = goes_on.valid() && function_.op(id).code != Opcode::kBarrier;
      rejoin.kept = Kept(id, found.first);
      for (size_t i = 0; i < way.barriers().size() && goes_on.valid(); ++i) {
        routes.tests[way.barriers()[i].index] = true;
      }
    }
    return routes;
  }

 private:
  // Marks an operation without jumps, and an index that is not known yet.
  static constexpr uint32_t kNowhere = 0xffffffffu;

  // Returns the rejoin point at or before `meets` from which trapped instances can follow the path to the next
  // barriers, and leaves that path in `way`; invalid when there is none. The first trap is at index `first` in the
  // region.
  OpId GoesOnFrom(OpId meets, uint32_t first, Way& way) const {
    const std::vector<OpId>& ops = OpsAround(meets);
    Skipped skipped{nesting_.RegionOf(meets), first, nesting_.IndexOf(meets)};
    for (int move = 0; move < kRoundsMax; ++move) {
      const OpId rejoin = ops[skipped.rejoin];
      if (!way.Follow(rejoin)) {
        return {};
      }
      const std::optional<uint32_t> missed = way.Misses(skipped);
      if (!missed.has_value() || *missed <= first) {
        return {};
      }
      if (*missed == skipped.rejoin) {
        return rejoin;
      }
      skipped.rejoin = *missed;
    }
    return {};
  }

  void FindUsers() {
    users_.resize(function_.values.size());
    ir::ForEachOp(function_, [&](OpId id) {
      for (const ValueId value : function_.operands_of(function_.op(id))) {
        users_[value.index].push_back(id);
      }
    });
  }

  // Returns RejoinPoint::kept for the operations from `first` on.
  std::vector<ValueId> Kept(OpId rejoin, uint32_t first) const {
    const std::vector<OpId>& ops = OpsAround(rejoin);
    const uint32_t end = nesting_.IndexOf(rejoin);
    std::vector<ValueId> kept;
    for (uint32_t i = first; i < end; ++i) {
      const Op& op = function_.op(ops[i]);
      for (uint32_t r = 0; r < op.result_count && op.code != Opcode::kConst; ++r) {
        const ValueId value(op.first_result.index + r);
        if (std::ranges::any_of(users_[value.index], [&](OpId user) { return IndexAround(user, rejoin) >= end; })) {
          kept.push_back(value);
        }
      }
    }
    return kept;
  }

  // Returns the index of the operation in the region of `rejoin` that is `id` or contains it.
  uint32_t IndexAround(OpId id, OpId rejoin) const {
    while (nesting_.RegionOf(id) != nesting_.RegionOf(rejoin)) {
      id = nesting_.OwnerOf(id);
    }
    return nesting_.IndexOf(id);
  }

  const std::vector<OpId>& OpsAround(OpId id) const { return function_.region(nesting_.RegionOf(id)).ops; }

  // Finds for each construct whether it contains a barrier and how far out its jumps go.
  void Measure() {
    const std::span<const OpId> order = nesting_.order();
    // Inner operations come after those that contain them, so the order is reversed.
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
      const OpId owner = nesting_.OwnerOf(id);
      if (!owner.valid()) {
        continue;
      }
      has_barrier_[owner.index] = has_barrier_[owner.index] || has_barrier_[id.index];
      // Jumps to the owner itself end inside it.
      if (jumps_to_[id.index] < nesting_.DepthOf(owner) + 1) {
        jumps_to_[owner.index] = std::min(jumps_to_[owner.index], jumps_to_[id.index]);
      }
    }
  }

  // Notes a jump. Its reach is 1 + the depth of the construct that it leaves or continues; 0 stands for a return. A
  // continue also marks its loop.
  void NoteJump(OpId id, const ir::Target& target) {
    const uint32_t depth = nesting_.DepthOf(target.op);
    const OpId owner = nesting_.OwnerOf(id);
    // The final leave of the owner is not a jump.
    if (target.op == owner && !target.is_continue && function_.op(id).code == Opcode::kBr) {
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
      const OpId owner = nesting_.OwnerOf(at);
      OpId next;
      for (uint32_t i = nesting_.IndexOf(at) + 1; i < ops.size() && !next.valid(); ++i) {
        const OpId id = ops[i];
        if (has_barrier_[id.index]) {
          return id;
        }
        if (jumps_to_[id.index] != kNowhere) {
          next = id;
        }
      }
      if (!next.valid()) {
        // Control continues after the owner.
        if (!owner.valid()) {
          return {};
        }
        at = owner;
        continue;
      }
      // An unconditional jump cannot diverge.
      const Op& jump = function_.op(next);
      if (jump.code == Opcode::kReturn) {
        return {};
      }
      if (jump.code == Opcode::kBr) {
        at = function_.targets_of(jump)[0].op;
        continue;
      }
      // Instances may diverge after `next`; there must be no barrier before the end of the construct that they leave.
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

  // Returns the construct around `at` that a jump of this reach targets; invalid for the whole function.
  OpId Outermost(OpId at, uint32_t reach) const {
    if (reach == 0) {
      return {};
    }
    OpId owner = nesting_.OwnerOf(at);
    while (owner.valid() && nesting_.DepthOf(owner) + 1 > reach) {
      owner = nesting_.OwnerOf(owner);
    }
    return owner;
  }

  // Returns true if a barrier may follow `at` before `construct` (or the function) ends.
  bool MeetsBarrier(OpId at, OpId construct) const {
    while (true) {
      const std::vector<OpId>& ops = OpsAround(at);
      for (uint32_t i = nesting_.IndexOf(at) + 1; i < ops.size(); ++i) {
        if (has_barrier_[ops[i].index]) {
          return true;
        }
      }
      const OpId owner = nesting_.OwnerOf(at);
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
  const std::function<bool(OpId)>& can_trap_;
  const analysis::Nesting nesting_{function_};
  std::vector<bool> has_barrier_;   // Indexed by OpId: is a barrier or contains one.
  std::vector<uint32_t> jumps_to_;  // Indexed by OpId: reach of the farthest jump (see NoteJump).
  std::vector<bool> loops_back_;    // Indexed by OpId: a loop with a continue.
  std::vector<OpId> decided_by_;
  std::vector<std::vector<OpId>> users_;  // Indexed by ValueId.
};

}  // namespace

TrapRoutes FindTrapRoutes(const ir::Module& module, const std::function<bool(OpId)>& can_trap) {
  return Router(module, can_trap).Run();
}

bool MayTrap(const ir::Module& module, OpId id, bool omits_check) {
  const Op& op = module.function(module.entry).op(id);
  const uint8_t effects = ir::Info(op.code).effects;
  if ((effects & ir::kTraps) == 0 || op.code == Opcode::kBarrier || op.code == Opcode::kLocalAlloc) {
    return false;
  }
  const bool is_plain = ir::Info(op.code).family == ir::Family::kMemory;
  const bool is_store_to_input =
      op.space == ir::Space::kParam && (effects & ir::kWrites) != 0 && !module.params[op.space_index].is_writable;
  return !(is_plain && omits_check && !is_store_to_input);
}

}  // namespace hpvm::gpu
