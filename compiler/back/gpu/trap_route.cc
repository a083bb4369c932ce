// SPDX-License-Identifier: Apache-2.0
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
#include "compiler/ir/spelling.h"
#include "compiler/ir/walk.h"

namespace hpvm::gpu {
namespace {

// Ways are short; each place is looked at in time that these bound.
constexpr size_t kWayMax = 256;  // Operations and what they take.
constexpr int kRoundsMax = 8;    // Of what comes from value to value, and of moves of a place.

// An interval of a region that an instance skips: the operation in which it traps, and those up to its place.
struct Skipped {
  RegionId region;
  uint32_t first = 0, place = 0;
};

// All that control may come by from an operation to the barriers that are next, or to the kernel's end.
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

  // False if there is anything on the way that an instance which trapped must not do, or too much.
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

  // Finds what is skipped and decides about the way: the first operation in the region that such a value comes from;
  // skipped.place: none. Nothing if it takes too long to find out.
  std::optional<uint32_t> Misses(const Skipped& skipped) const {
    std::map<uint32_t, uint32_t> carried;  // By ValueId: where it comes from.
    const auto origin = [&](ValueId value) {
      const auto found = carried.find(value.index);
      uint32_t at = found != carried.end() ? found->second : skipped.place;
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
    uint32_t first = skipped.place;
    for (const OpId id : ops_) {
      const Op& op = f_.op(id);
      if (op.code == Opcode::kIf || op.code == Opcode::kLeaveTable) {
        first = std::min(first, origin(f_.operands_of(op)[0]));
      }
    }
    return first;
  }

 private:
  // Further inside there is nothing that is read without being computed on the way.
  bool IsIn(const Skipped& skipped, OpId id) const {
    const uint32_t at = nesting_.IndexOf(id);
    return nesting_.RegionOf(id) == skipped.region && at >= skipped.first && at < skipped.place;
  }

  // Calls carry(from, to) for each value that the operation hands on or computes with.
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
  std::vector<uint32_t> seen_;  // By OpId: the turn it was last seen in.
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
    routes.place.resize(function_.ops.size());
    routes.place_behind.resize(function_.ops.size());
    routes.tests.resize(function_.ops.size());
    std::map<uint32_t, std::pair<uint32_t, std::vector<OpId>>> meetings;  // By the meeting: where the first trap is.
    ir::ForEachOp(function_, [&](OpId id) {
      const OpId meets = function_.op(id).code != Opcode::kBarrier && can_trap_(id) ? RouteOf(id) : OpId();
      if (!meets.valid()) {
        return;
      }
      auto& [first, traps] = meetings.try_emplace(meets.index, kNowhere, std::vector<OpId>()).first->second;
      first = std::min(first, IndexAround(id, meets));
      traps.push_back(id);
    });
    if (meetings.empty()) {
      return routes;
    }
    const analysis::OpFlow flow = analysis::FindOpFlow(function_);
    Way way(function_, nesting_, flow, can_trap_);
    FindUsers();
    for (const auto& [meets, found] : meetings) {
      const OpId goes_on = GoesOnFrom(OpId(meets), found.first, way);
      const OpId id = goes_on.valid() ? goes_on : OpId(meets);
      for (const OpId trap : found.second) {
        routes.place[trap.index] = id;
      }
      TrapPlace& place = routes.places[id.index];
      place.first = OpsAround(id)[found.first];
      routes.place_behind[place.first.index] = id;
      place.waits = !goes_on.valid();
      place.defines = goes_on.valid() && function_.op(id).code != Opcode::kBarrier;
      place.kept = Kept(id, found.first);
      for (size_t i = 0; i < way.barriers().size() && goes_on.valid(); ++i) {
        routes.tests[way.barriers()[i].index] = true;
      }
    }
    return routes;
  }

 private:
  // Depths of enclosing constructs: 0 is the outermost one.
  static constexpr uint32_t kNowhere = 0xffffffffu;

  // The place at or in front of `meets` from which whoever has trapped finds the way to the next barriers, which `way`
  // then holds; invalid: none. The first trap is at `first` in its region.
  OpId GoesOnFrom(OpId meets, uint32_t first, Way& way) const {
    const std::vector<OpId>& ops = OpsAround(meets);
    Skipped skipped{nesting_.RegionOf(meets), first, nesting_.IndexOf(meets)};
    for (int move = 0; move < kRoundsMax; ++move) {
      const OpId place = ops[skipped.place];
      if (!way.Follow(place)) {
        return {};
      }
      const std::optional<uint32_t> missed = way.Misses(skipped);
      if (!missed.has_value() || *missed <= first) {
        return {};
      }
      if (*missed == skipped.place) {
        return place;
      }
      skipped.place = *missed;
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

  // TrapPlace::kept, of the operations from `first` on.
  std::vector<ValueId> Kept(OpId place, uint32_t first) const {
    const std::vector<OpId>& ops = OpsAround(place);
    const uint32_t end = nesting_.IndexOf(place);
    std::vector<ValueId> kept;
    for (uint32_t i = first; i < end; ++i) {
      const Op& op = function_.op(ops[i]);
      for (uint32_t r = 0; r < op.result_count && op.code != Opcode::kConst; ++r) {
        const ValueId value(op.first_result.index + r);
        if (std::ranges::any_of(users_[value.index], [&](OpId user) { return IndexAround(user, place) >= end; })) {
          kept.push_back(value);
        }
      }
    }
    return kept;
  }

  // The index in the region of `place` of the operation there that `id` is or stands in.
  uint32_t IndexAround(OpId id, OpId place) const {
    while (nesting_.RegionOf(id) != nesting_.RegionOf(place)) {
      id = nesting_.OwnerOf(id);
    }
    return nesting_.IndexOf(id);
  }

  const std::vector<OpId>& OpsAround(OpId id) const { return function_.region(nesting_.RegionOf(id)).ops; }

  // Finds for each construct whether it has a barrier and how far out its jumps go.
  void Measure() {
    const std::span<const OpId> order = nesting_.order();
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

  // A jump's reach is the number of constructs that stay around it: leaving the construct at depth d (which d
  // constructs surround) keeps d; going on with it keeps d too, but marks it.
  void NoteJump(OpId id, const ir::Target& target) {
    const uint32_t depth = nesting_.DepthOf(target.op);
    const OpId owner = nesting_.OwnerOf(id);
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
    OpId owner = nesting_.OwnerOf(at);
    while (owner.valid() && nesting_.DepthOf(owner) + 1 > reach) {
      owner = nesting_.OwnerOf(owner);
    }
    return owner;
  }

  // Whether a barrier may come behind `at` before `construct` (or the function) ends.
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
  std::vector<bool> has_barrier_;   // It is a barrier or has one in it.
  std::vector<uint32_t> jumps_to_;  // Constructs around where its farthest jump lands, one more for the one it is of.
  std::vector<bool> loops_back_;    // Loops that are continued.
  std::vector<OpId> decided_by_;
  std::vector<std::vector<OpId>> users_;  // By ValueId.
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
