// SPDX-License-Identifier: Apache-2.0
// Method: forward sweeps join an interval and an origin for each value. From the fourth sweep on, a bound that
// still moves is widened to 0, 2^32 - 1 or 2^64 - 1; parameters of counted loops take the closed form of LoopRanges
// instead. Tracked globals have a state that follows control flow.
// Invariants: facts only grow. A default fact, and an empty state of the globals, mean that no path is known to get
// there. Every interval holds all values that may occur, as unsigned numbers of the type; a sum keeps its interval
// only if both ends wrap alike.
// A widened bound moves at most twice more. Without a fixed point after 64 sweeps every value is unknown. At most
// eight globals and the stack's pointer are tracked.
#include "compiler/analysis/value_ranges.h"

#include <algorithm>
#include <array>
#include <bit>
#include <set>
#include <unordered_map>

#include "compiler/analysis/forward.h"
#include "compiler/analysis/loop_ranges.h"
#include "compiler/ir/walk.h"

namespace hpvm::analysis {
namespace {

using Base = PointerOrigin::Base;

// Merges that still grow in this sweep are widened.
constexpr int kWidenFrom = 3;
constexpr int kSweepsMax = 64;
// Maximum number of tracked globals; the shadow stack's pointer is tracked in any case.
constexpr size_t kGlobalsMax = 8;
constexpr uint64_t kI32Max = (uint64_t{1} << 31) - 1;

uint64_t MaxOf(ir::Type type) { return ir::Bytes(type) == 4 ? 0xffffffffull : ~uint64_t{0}; }
// The range of a value, as an unsigned number.
struct Interval {
  uint64_t lo = 0, hi = 0;
};
bool IsUnset(const ValueRange& range) { return range.Is(Base::kUnset); }
// Returns all ones up to the highest bit of `value`.
uint64_t Mask(uint64_t value) { return value == 0 ? 0 : ~uint64_t{0} >> std::countl_zero(value); }

// Keeps the interval of a sum or difference if both ends wrap around alike.
Interval Wrapped(__int128 lo, __int128 hi, uint64_t max) {
  const __int128 modulus = static_cast<__int128>(max) + 1;
  if (hi >= modulus && lo >= modulus) {
    lo -= modulus;
    hi -= modulus;
  } else if (lo < 0 && hi < 0) {
    lo += modulus;
    hi += modulus;
  }
  if (lo < 0 || hi >= modulus) {
    return {0, max};
  }
  return {static_cast<uint64_t>(lo), static_cast<uint64_t>(hi)};
}

class RangeDomain {
 public:
  using Fact = ValueRange;
  using Sweep = ForwardSweep<RangeDomain>;

  RangeDomain(const ir::Module& module, uint64_t id_max)
      : module_(module), function_(module.function(module.entry)), id_max_(id_max) {
    const std::optional<uint32_t> stack = StackPointerOf(module);
    for (uint32_t i = 0; i < module.globals.size(); ++i) {
      const bool is_stack = stack == i;
      if ((is_stack || tracked_.size() < kGlobalsMax) && module.globals[i].is_mutable &&
          ir::IsInt(module.globals[i].type)) {
        tracked_.emplace(i, tracked_.size());
        const uint64_t init = module.globals[i].init;
        initial_.push_back({{is_stack ? Base::kStack : Base::kNumber}, init, init});
      }
    }
    at_exit_.resize(function_.ops.size());
    at_loop_.resize(function_.ops.size());
    at_if_.resize(function_.ops.size());
  }

  bool Join(ValueRange& into, const ValueRange& from, int sweep) const {
    if (IsUnset(from)) {
      return false;
    }
    if (IsUnset(into)) {
      into = from;
      return true;
    }
    ValueRange joined = {analysis::Join(into.origin, from.origin), std::min(into.lo, from.lo),
                         std::max(into.hi, from.hi)};
    if (sweep >= kWidenFrom) {
      joined.lo = joined.lo < into.lo ? 0 : joined.lo;
      joined.hi = joined.hi > into.hi ? (joined.hi <= 0xffffffffull ? 0xffffffffull : ~uint64_t{0}) : joined.hi;
    }
    const bool changed = joined != into;
    into = joined;
    return changed;
  }

  void Start(Sweep& sweep) {
    sweep_ = &sweep;
    const ir::Region& body = function_.region(function_.body);
    for (uint32_t k = 0; k < body.param_count; ++k) {
      const PointerOrigin origin = module_.params[k].is_buffer ? PointerOrigin::Param(k) : PointerOrigin::Number();
      sweep.Set(ValueId(body.first_param.index + k), {origin, 0, MaxOf(module_.params[k].type)});
    }
  }

  // Values of globals along control flow; empty while no path to the current operation is known.
  void BeginSweep() { now_ = initial_; }
  void EnterRegion(ir::RegionId id) {
    const ir::OpId owner = function_.region(id).owner;
    if (!owner.valid()) {
      return;
    }
    const Op& op = function_.op(owner);
    if (op.code == Opcode::kLoop) {
      JoinState(at_loop_[owner.index], now_);
      now_ = at_loop_[owner.index];
    } else if (op.code == Opcode::kIf) {
      if (id == op.body) {
        at_if_[owner.index] = now_;
      } else {
        now_ = at_if_[owner.index];
      }
    }
  }
  void Jump(const Op& op) {
    for (const ir::Target& target : function_.targets_of(op)) {
      JoinState(target.is_continue ? at_loop_[target.op.index] : at_exit_[target.op.index], now_);
    }
    now_.clear();
  }
  void Leave(ir::OpId id) { now_ = at_exit_[id.index]; }

  bool IsBounded(ir::OpId loop, uint32_t param) const { return loops_.IsCounted(loop, param); }
  ValueRange LoopParam(ir::OpId loop, uint32_t param, const Sweep& sweep) const {
    const ValueRange& first = sweep.At(function_.op(loop), param);
    if (IsUnset(first)) {
      return {};
    }
    const std::optional<Range128> range = loops_.Of(loop, param, [&](ValueId value) -> std::optional<Range128> {
      const ValueRange& known = sweep.At(value);
      return IsUnset(known) ? std::nullopt : std::optional(Range128{known.lo, known.hi});
    });
    const uint64_t max = MaxOf(function_.type_of(function_.operands_of(function_.op(loop))[param]));
    return range ? ValueRange{first.origin, static_cast<uint64_t>(range->lo), static_cast<uint64_t>(range->hi)}
                 : ValueRange{first.origin, 0, max};
  }

  void Transfer(const Op& op, Sweep& sweep) {
    if (op.code == Opcode::kGlobalSet) {
      if (const auto found = tracked_.find(static_cast<uint32_t>(op.imm)); found != tracked_.end() && !now_.empty()) {
        now_[found->second] = sweep.At(op, 0);
      }
      return;
    }
    for (const ValueId result : ir::ResultsOf(op)) {
      sweep.Set(result, ResultOf(op, function_.type_of(result), sweep));
    }
  }

 private:
  using State = std::vector<ValueRange>;

  void JoinState(State& into, const State& from) {
    if (from.empty()) {
      return;
    }
    if (into.empty()) {
      into = from;
      sweep_->Touch();
      return;
    }
    for (size_t i = 0; i < into.size(); ++i) {
      if (Join(into[i], from[i], sweep_->sweep())) {
        sweep_->Touch();
      }
    }
  }

  ValueRange GlobalOf(const Op& op, uint64_t max) const {
    const auto index = static_cast<uint32_t>(op.imm);
    if (!module_.globals[index].is_mutable) {
      return {PointerOrigin::Number(), module_.globals[index].init, module_.globals[index].init};
    }
    const auto found = tracked_.find(index);
    if (found == tracked_.end()) {
      return {PointerOrigin::Any(), 0, max};
    }
    return now_.empty() ? ValueRange{} : now_[found->second];
  }

  ValueRange ResultOf(const Op& op, ir::Type type, const Sweep& sweep) const {
    const uint64_t max = MaxOf(type);
    if (op.code == Opcode::kGlobalGet) {
      return GlobalOf(op, max);
    }
    std::array<ValueRange, 3> of;
    for (uint32_t i = 0; i < op.operand_count && i < of.size(); ++i) {
      of[i] = sweep.At(op, i);
    }
    const PointerOrigin origin =
        OriginOf(op, {of[0].origin, of[1].origin, of[2].origin}, RoundsDown(8 * ir::Bytes(op.type), of[0], of[1]));
    if (origin.base == Base::kUnset) {
      return {};
    }
    if (op.code == Opcode::kSelect) {
      ValueRange joined = of[1];
      Join(joined, of[2], 0);
      return {origin, joined.lo, joined.hi};
    }
    const Interval interval = IntervalOf(op, max, of[0], of[1]);
    return {origin, interval.lo, interval.hi};
  }

  Interval IntervalOf(const Op& op, uint64_t max, const ValueRange& a, const ValueRange& b) const {
    switch (ir::Info(op.code).family) {
      case ir::Family::kConst:
        return {op.imm & max, op.imm & max};
      case ir::Family::kIntCompare:
      case ir::Family::kFloatCompare:
        return {0, 1};
      case ir::Family::kQuery:
        return {0, op.code == Opcode::kBufferSize ? max : std::min(max, id_max_)};
      case ir::Family::kMemory:
        return {0, op.code == Opcode::kLoad && !op.sign && op.width < 4 ? (uint64_t{1} << (8 * op.width)) - 1 : max};
      case ir::Family::kIntUnary:
        return {0, op.code == Opcode::kClz || op.code == Opcode::kCtz || op.code == Opcode::kPopcnt ? 64 : max};
      case ir::Family::kIntBinary:
        return Binary(op, max, a, b);
      case ir::Family::kConvert:
        return Converted(op, max, a);
      default:
        return {0, max};
    }
  }

  static Interval Converted(const Op& op, uint64_t max, const ValueRange& from) {
    const bool keeps = (op.code == Opcode::kWrap && from.hi <= max) || op.code == Opcode::kExtendU ||
                       (op.code == Opcode::kExtendS && from.hi <= kI32Max);
    return keeps ? Interval{from.lo, from.hi} : Interval{0, max};
  }

  static Interval Binary(const Op& op, uint64_t max, const ValueRange& a, const ValueRange& b) {
    const uint32_t bits = 8 * ir::Bytes(op.type);
    switch (op.code) {
      case Opcode::kAdd:
        return Wrapped(static_cast<__int128>(a.lo) + b.lo, static_cast<__int128>(a.hi) + b.hi, max);
      case Opcode::kSub:
        return Wrapped(static_cast<__int128>(a.lo) - b.hi, static_cast<__int128>(a.hi) - b.lo, max);
      case Opcode::kMul:
        if (static_cast<unsigned __int128>(a.hi) * b.hi <= max) {
          return {a.lo * b.lo, a.hi * b.hi};
        }
        return {0, max};
      case Opcode::kShl:
        if (b.is_constant() && a.hi <= max >> (b.lo % bits)) {
          return {a.lo << (b.lo % bits), a.hi << (b.lo % bits)};
        }
        return {0, max};
      case Opcode::kShrU:
        return b.is_constant() ? Interval{a.lo >> (b.lo % bits), a.hi >> (b.lo % bits)} : Interval{0, a.hi};
      case Opcode::kAnd:
        if (a.is_constant() && b.is_constant()) {
          return {a.lo & b.lo, a.lo & b.lo};
        }
        return {0, std::min(a.hi, b.hi)};
      case Opcode::kOr:
        // Bits that do not overlap a constant's bits add up with it.
        if ((a.is_constant() && (a.lo & Mask(b.hi)) == 0) || (b.is_constant() && (b.lo & Mask(a.hi)) == 0)) {
          return {a.lo + b.lo, a.hi + b.hi};
        }
        if (a.is_constant() && b.is_constant()) {
          return {a.lo | b.lo, a.lo | b.lo};
        }
        return {std::max(a.lo, b.lo), Mask(a.hi | b.hi)};
      case Opcode::kXor:
        return {0, Mask(a.hi | b.hi)};
      case Opcode::kDivU:
        return {0, b.lo > 0 ? a.hi / b.lo : max};
      case Opcode::kRemU:
        return {0, b.hi > 0 ? std::min(a.hi, b.hi - 1) : max};
      default:
        return {0, max};
    }
  }

  // Returns true for an `and` with a constant that keeps the highest bits, or of two constants.
  static bool RoundsDown(uint32_t bits, const ValueRange& a, const ValueRange& b) {
    return (a.is_constant() && b.is_constant()) || (a.is_constant() && (a.lo >> (bits - 1) & 1) != 0) ||
           (b.is_constant() && (b.lo >> (bits - 1) & 1) != 0);
  }

  const ir::Module& module_;
  const ir::Function& function_;
  const uint64_t id_max_;
  const LoopRanges loops_{function_};
  Sweep* sweep_ = nullptr;
  std::unordered_map<uint32_t, size_t> tracked_;  // Index of a global -> its index in a State.
  State initial_, now_;
  std::vector<State> at_exit_, at_loop_, at_if_;  // Indexed by OpId.
};

}  // namespace

std::optional<uint32_t> StackPointerOf(const ir::Module& module) {
  if (module.stack_pointer.has_value()) {
    return module.stack_pointer;
  }
  std::set<uint32_t> set;
  const ir::Function& entry = module.function(module.entry);
  ir::ForEachOp(entry, [&](ir::OpId id) {
    const Op& op = entry.op(id);
    const ir::Global* global = op.code == Opcode::kGlobalSet ? &module.globals[op.imm] : nullptr;
    if (global != nullptr && global->type == module.address_type() && global->init != 0 &&
        global->init <= module.memory_bytes) {
      set.insert(static_cast<uint32_t>(op.imm));
    }
  });
  return set.size() == 1 ? std::optional(*set.begin()) : std::nullopt;
}

std::vector<ValueRange> FindValueRanges(const ir::Module& module, uint64_t id_max) {
  RangeDomain domain(module, id_max);
  ForwardSweep<RangeDomain> sweep(module.function(module.entry), domain);
  domain.Start(sweep);
  if (!sweep.Run(kSweepsMax)) {
    return std::vector<ValueRange>(module.function(module.entry).values.size(),
                                   ValueRange{{Base::kAny, PointerOrigin::How::kBits}, 0, ~uint64_t{0}});
  }
  return sweep.Take();
}

}  // namespace hpvm::analysis
