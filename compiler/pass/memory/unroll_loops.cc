// SPDX-License-Identifier: Apache-2.0
// Method: a Rehearsal first executes a loop's iterations on known constants, without changes, and records which
// blocks and ifs dissolve. If every iteration's path follows from constants and the limits suffice, the Unroller
// then repeats the same decisions while it copies the iterations.
// Invariants: known bits are exact or absent; results of constructs that remain are absent. The copy takes the
// recorded decisions in the order in which they were made, so both follow one path. No jump leads to a construct
// that dissolves, except the one that is followed.
// A rehearsal ends after `trips` iterations or `loop_ops` operations; all of them together visit about eight times
// kernel_ops operations, and at most kernel_ops are written.
#include "compiler/pass/memory/unroll_loops.h"

#include <algorithm>
#include <functional>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "compiler/ir/fold.h"
#include "compiler/ir/op_syntax.h"
#include "compiler/ir/walk.h"
#include "compiler/pass/rewrite/copy_function.h"

namespace hpvm::pass {
namespace {

using Bits = std::optional<uint64_t>;

// Returns the known bits of an operation's operands.
std::vector<Bits> KnownOperands(const ir::Function& f, const Op& op, const std::vector<Bits>& known) {
  std::vector<Bits> operands;
  for (ValueId operand : f.operands_of(op)) {
    operands.push_back(known[operand.index]);
  }
  return operands;
}

// The way in which the operations of a region end.
enum class End : uint8_t { kFell, kContinued, kLeft, kUnknown };

// The operations of a construct, including nested ones.
struct Content {
  uint32_t ops = 0;
  bool has_stack = false;
};
Content ContentOf(const ir::Function& f, RegionId region) {
  Content content;
  ir::ForEachOpIn(f, region, [&](OpId id) {
    const Op& op = f.op(id);
    ++content.ops;
    content.has_stack |= ir::HasSpace(op.code) && op.space == ir::Space::kStack;
  });
  return content;
}

// Returns true if `is_there` holds for the target of any jump in the construct.
bool Jumps(const ir::Function& f, OpId construct, const std::function<bool(const ir::Target&)>& is_there) {
  bool jumps = false;
  ir::ForEachOpOf(f, construct,
                  [&](OpId id) { jumps = jumps || std::ranges::any_of(f.targets_of(f.op(id)), is_there); });
  return jumps;
}

// Rehearsal follows a loop's iterations using known constants, without changing the function.
class Rehearsal {
 public:
  // `first`: known bits of the loop's operands; `known`: of all values, by ValueId.
  Rehearsal(const ir::Function& f, OpId loop, const UnrollLimits& limits, std::vector<Bits> first,
            std::vector<Bits> known)
      : f_(f), loop_(loop), limits_(limits), next_(std::move(first)), known_(std::move(known)) {}

  // Returns the number of operations of all iterations; nothing if some path does not follow from constants, or they
  // are too many.
  std::optional<uint32_t> Run() {
    const Op& loop = f_.op(loop_);
    for (uint32_t trip = 0; trip < limits_.trips; ++trip) {
      for (size_t i = 0; i < next_.size(); ++i) {
        known_[f_.region(loop.body).first_param.index + i] = next_[i];
      }
      const End end = Follow(loop.body);
      if (end == End::kUnknown) {
        return std::nullopt;
      }
      if (end != End::kContinued) {
        return ops_;
      }
    }
    return std::nullopt;
  }
  // Returns, for each block and if in the order of visits, true if it dissolves with the loop.
  std::vector<bool> TakeGone() && { return std::move(gone_); }
  // Returns the number of visited operations, also after a failure.
  uint32_t ops() const { return ops_; }

 private:
  std::vector<Bits> Known(const Op& op) const { return KnownOperands(f_, op, known_); }
  void Forget(const Op& op) {
    for (uint32_t i = 0; i < op.result_count; ++i) {
      known_[op.first_result.index + i] = std::nullopt;
    }
  }

  End Follow(RegionId region) {
    for (OpId id : f_.region(region).ops) {
      const Op& op = f_.op(id);
      if (++ops_ > limits_.loop_ops) {
        return End::kUnknown;
      }
      if (ir::IsTerminator(op.code)) {
        return Jump(op);
      }
      if (op.code == Opcode::kIf) {
        gone_.push_back(known_[f_.operands_of(op)[0].index].has_value());
      }
      if (op.code == Opcode::kIf && gone_.back()) {
        const bool is_body = *known_[f_.operands_of(op)[0].index] != 0;
        if (const End end = FollowInto(id, is_body ? op.body : op.otherwise); end != End::kFell || left_ != id) {
          return end;
        }
        continue;
      }
      if (op.code == Opcode::kBlock) {
        const size_t place = gone_.size();
        gone_.push_back(true);
        const uint32_t ops = ops_;
        const End end = FollowInto(id, op.body);
        if (end == End::kFell && left_ == id) {
          continue;
        }
        if (end != End::kUnknown) {
          return end;
        }
        // The block remains.
        gone_.resize(place);
        gone_.push_back(false);
        ops_ = ops;
      }
      if (ir::OwnsRegions(op.code)) {
        if (Jumps(f_, id, [&](const ir::Target& target) { return IsLost(target); })) {
          return End::kUnknown;
        }
        ops_ += ContentOf(f_, op.body).ops + (op.code == Opcode::kIf ? ContentOf(f_, op.otherwise).ops : 0);
        Forget(op);
        continue;
      }
      Forget(op);
      if (op.result_count == 1) {
        known_[op.first_result.index] = ir::FoldInteger(op, f_.type_of(op.first_result), Known(op));
      }
    }
    return End::kUnknown;
  }
  End FollowInto(OpId id, RegionId region) {
    Forget(f_.op(id));
    dissolved_.push_back(id);
    const End end = Follow(region);
    dissolved_.pop_back();
    return end;
  }
  // Returns true if the jump's target will no longer exist.
  bool IsLost(const ir::Target& target) const {
    return (target.op == loop_ && target.is_continue) || std::ranges::find(dissolved_, target.op) != dissolved_.end();
  }
  End Jump(const Op& op) {
    if (op.code == Opcode::kContinue && f_.targets_of(op)[0].op == loop_) {
      next_ = Known(op);
      return End::kContinued;
    }
    if (op.code == Opcode::kBr && IsLost(f_.targets_of(op)[0])) {
      left_ = f_.targets_of(op)[0].op;
      const Op& left = f_.op(left_);
      const std::vector<Bits> results = Known(op);
      for (size_t i = 0; i < results.size(); ++i) {
        known_[left.first_result.index + i] = results[i];
      }
      return End::kFell;
    }
    const std::span<const ir::Target> targets = f_.targets_of(op);
    const bool is_lost = std::ranges::any_of(targets, [&](const ir::Target& target) { return IsLost(target); });
    return is_lost ? End::kUnknown : End::kLeft;
  }

  const ir::Function& f_;
  const OpId loop_;
  const UnrollLimits limits_;
  std::vector<Bits> next_;       // Known bits of the next iteration's parameters.
  std::vector<Bits> known_;      // Indexed by ValueId.
  std::vector<OpId> dissolved_;  // The enclosing blocks and ifs of which one path is taken.
  OpId left_;                    // The last of them that was left.
  std::vector<bool> gone_;
  uint32_t ops_ = 0;
};

class Unroller final : public FunctionCopier {
 public:
  Unroller(const ir::Function& from, const UnrollLimits& limits)
      : FunctionCopier(from), limits_(limits), known_(from.values.size()) {}

  // Returns the function with unrolled loops; nothing if no loop can be unrolled.
  std::optional<ir::Function> Run() && {
    CopyAll();
    return has_unrolled_ ? std::optional(std::move(to_)) : std::nullopt;
  }

 private:
  std::vector<Bits> Known(const Op& op) const { return KnownOperands(f_, op, known_); }
  void Bind(ValueId first, std::span<const ValueId> values) override { BindKnown(first, values, {}); }
  void BindKnown(ValueId first, std::span<const ValueId> values, std::span<const Bits> known) {
    FunctionCopier::Bind(first, values);
    for (size_t i = 0; i < values.size(); ++i) {
      known_[first.index + i] = i < known.size() ? known[i] : std::nullopt;
    }
  }

  void CopyOp(OpId id) override {
    const Op& op = f_.op(id);
    if (op.code == Opcode::kLoop) {
      if (std::optional<Writing> writing = Plan(id)) {
        return Unroll(*std::move(writing));
      }
    }
    if (op.code == Opcode::kIf && is_unrolling_ && known_[f_.operands_of(op)[0].index]) {
      return CopyWay(id);
    }
    if (op.result_count == 1 && !ir::OwnsRegions(op.code)) {
      const ir::Type type = f_.type_of(op.first_result);
      if (const Bits bits = ir::FoldInteger(op, type, Known(op));
          bits && (is_unrolling_ || op.code == Opcode::kConst)) {
        Op constant = op;
        constant.code = Opcode::kConst;
        constant.type = type;
        constant.imm = *bits;
        const ValueId made = b_.Append1(constant, {}, type);
        SetOrigin(op);
        return BindKnown(op.first_result, std::span(&made, 1), std::span(&bits, 1));
      }
    }
    FunctionCopier::CopyOp(id);
  }

  // Turns an if whose condition is known into a block.
  void CopyWay(OpId id) {
    const Op& op = f_.op(id);
    const OpId block = b_.BeginBlock(Opcode::kBlock, {}, ResultTypes(op), op.source);
    to_.op(block).origin = op.origin;
    ops_[id.index] = block;
    CopyRegion(*known_[f_.operands_of(op)[0].index] != 0 ? op.body : op.otherwise);
    b_.End();
    Bind(op.first_result, b_.Results(block));
  }

  // A loop that is being unrolled.
  struct Writing {
    OpId loop;
    std::vector<bool> gone;  // From Rehearsal::TakeGone.
    size_t next_gone = 0;
    std::vector<ValueId> arguments{};  // The next iteration's arguments; `known` has their known bits.
    std::vector<Bits> known{};
    std::vector<Bits> results{};  // Known bits of the loop's results, if all iterations end in one place.
    bool leaves_early = false;
  };

  // Returns the plan for unrolling the loop, if it can be unrolled.
  std::optional<Writing> Plan(OpId id) {
    const Op& op = f_.op(id);
    if (rehearsals_left_ == 0 || !ContentOf(f_, op.body).has_stack) {
      return std::nullopt;
    }
    Rehearsal rehearsal(f_, id, limits_, Known(op), known_);
    const std::optional<uint32_t> ops = rehearsal.Run();
    rehearsals_left_ -= std::min(rehearsals_left_, rehearsal.ops());
    if (!ops || *ops > ops_left_) {
      return std::nullopt;
    }
    ops_left_ -= *ops;
    return Writing{.loop = id, .gone = std::move(rehearsal).TakeGone()};
  }
  void Unroll(Writing writing) {
    const OpId id = writing.loop;
    const Op& loop = f_.op(id);
    const bool was_unrolling = std::exchange(is_unrolling_, true);
    has_unrolled_ = true;
    writing.arguments = Map(loop);
    writing.known = Known(loop);
    const OpId block = b_.BeginBlock(Opcode::kBlock, {}, ResultTypes(loop), loop.source);
    to_.op(block).origin = loop.origin;
    ops_[id.index] = block;
    End end = End::kContinued;
    while (end == End::kContinued) {
      BindKnown(f_.region(loop.body).first_param, writing.arguments, writing.known);
      end = CopyIteration(loop.body, writing);
    }
    b_.End();
    is_unrolling_ = was_unrolling;
    BindKnown(loop.first_result, b_.Results(block), writing.leaves_early ? std::vector<Bits>() : writing.results);
  }
  // Repeats the rehearsal's decision, which was based on less knowledge: nested loops had no known results then.
  static bool Goes(const Op& op, Writing& writing) {
    if (op.code != Opcode::kIf && op.code != Opcode::kBlock) {
      return false;
    }
    HPVMD_CHECK(writing.next_gone < writing.gone.size());
    return writing.gone[writing.next_gone++];
  }
  // Follows the same path as Rehearsal::Follow.
  End CopyIteration(RegionId region, Writing& writing) {
    for (OpId id : f_.region(region).ops) {
      const Op& op = f_.op(id);
      if (Goes(op, writing)) {
        const Bits condition = op.code == Opcode::kIf ? known_[f_.operands_of(op)[0].index] : Bits(1);
        HPVMD_CHECK(condition.has_value());
        const bool is_body = *condition != 0;
        dissolved_.push_back(id);
        const End end = CopyIteration(is_body ? op.body : op.otherwise, writing);
        dissolved_.pop_back();
        if (end != End::kFell || left_ != id) {
          return end;
        }
        continue;
      }
      if (ir::IsTerminator(op.code)) {
        return CopyEnd(id, writing);
      }
      writing.leaves_early |= ir::OwnsRegions(op.code) && Jumps(f_, id, [&](const ir::Target& target) {
                                return target.op == writing.loop && !target.is_continue;
                              });
      CopyOp(id);
    }
    return End::kLeft;
  }
  End CopyEnd(OpId id, Writing& writing) {
    const Op& op = f_.op(id);
    const ir::Target target = f_.targets_of(op).empty() ? ir::Target{} : f_.targets_of(op)[0];
    if (op.code == Opcode::kContinue && target.op == writing.loop) {
      writing.arguments = Map(op);
      writing.known = Known(op);
      return End::kContinued;
    }
    if (op.code == Opcode::kBr && std::ranges::find(dissolved_, target.op) != dissolved_.end()) {
      left_ = target.op;
      BindKnown(f_.op(left_).first_result, Map(op), Known(op));
      return End::kFell;
    }
    if (op.code == Opcode::kBr && target.op == writing.loop) {
      writing.results = Known(op);
    }
    CopyTerminator(id);
    return End::kLeft;
  }

  const UnrollLimits limits_;
  std::vector<Bits> known_;      // Indexed by old ValueId.
  std::vector<OpId> dissolved_;  // As in Rehearsal, without loops.
  OpId left_;
  uint32_t ops_left_ = limits_.kernel_ops;
  // Operations that rehearsals may still visit: a nested loop is rehearsed again in each iteration of an unrolled
  // loop.
  uint32_t rehearsals_left_ = 8 * limits_.kernel_ops;
  bool is_unrolling_ = false, has_unrolled_ = false;
};

}  // namespace

Status UnrollLoops(ir::Module& module, const UnrollLimits& limits) {
  if (!module.stack_frame.has_value() || module.function(module.entry).ops.size() > kUnrolledFromOpsMax) {
    return absl::OkStatus();
  }
  if (std::optional<ir::Function> unrolled = Unroller(module.function(module.entry), limits).Run()) {
    module.function(module.entry) = *std::move(unrolled);
  }
  return absl::OkStatus();
}

}  // namespace hpvm::pass
