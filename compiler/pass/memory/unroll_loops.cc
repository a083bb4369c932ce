// SPDX-License-Identifier: Apache-2.0
#include "compiler/pass/memory/unroll_loops.h"

#include <algorithm>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "compiler/ir/spelling.h"
#include "compiler/pass/memory/copy_function.h"
#include "compiler/pass/memory/fold.h"

namespace hpvm {
namespace {

using ir::Op;
using ir::Opcode;
using ir::OpId;
using ir::RegionId;
using ir::ValueId;
using Bits = std::optional<uint64_t>;

// How the operations of a region end.
enum class End : uint8_t { kFell, kContinued, kLeft, kUnknown };

// What the operations of a construct, and those in it, do.
struct Content {
  uint32_t ops = 0;
  bool has_stack = false;
};
Content ContentOf(const ir::Function& f, RegionId region) {
  Content content;
  for (OpId id : f.region(region).ops) {
    const Op& op = f.op(id);
    ++content.ops;
    content.has_stack |= ir::HasSpace(op.code) && op.space == ir::Space::kStack;
    for (RegionId inner : {op.body, op.otherwise}) {
      if (ir::OwnsRegions(op.code) && (inner == op.body || op.code == Opcode::kIf)) {
        const Content more = ContentOf(f, inner);
        content.ops += more.ops;
        content.has_stack |= more.has_stack;
      }
    }
  }
  return content;
}

// Whether anything in the construct jumps to one of the targets: a loop, to its next iteration; an if, out of it.
bool JumpsTo(const ir::Function& f, const Op& construct, std::span<const OpId> targets) {
  for (RegionId region : {construct.body, construct.otherwise}) {
    if (region != construct.body && construct.code != Opcode::kIf) {
      continue;
    }
    for (OpId id : f.region(region).ops) {
      const Op& op = f.op(id);
      for (const ir::Target& target : f.targets_of(op)) {
        const bool is_out_of_loop = f.op(target.op).code == Opcode::kLoop && !target.is_continue;
        if (!is_out_of_loop && std::find(targets.begin(), targets.end(), target.op) != targets.end()) {
          return true;
        }
      }
      if (ir::OwnsRegions(op.code) && JumpsTo(f, op, targets)) {
        return true;
      }
    }
  }
  return false;
}

// Goes through a loop's iterations with what is constant, without writing anything.
class Rehearsal {
 public:
  // `first`: what is known of the loop's operands; `known`: of all values, by ValueId.
  Rehearsal(const ir::Function& f, OpId loop, uint32_t ops_max, std::vector<Bits> first, std::vector<Bits> known)
      : f_(f), loop_(loop), ops_max_(ops_max), next_(std::move(first)), known_(std::move(known)), dissolved_{loop} {}

  // How many operations the iterations have; nothing if they do not all follow from constants or are too many.
  std::optional<uint32_t> Run() {
    const Op& loop = f_.op(loop_);
    for (uint32_t trip = 0; trip < kUnrolledTripsMax; ++trip) {
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

 private:
  std::vector<Bits> Known(const Op& op) const {
    std::vector<Bits> known;
    for (ValueId operand : f_.operands_of(op)) {
      known.push_back(known_[operand.index]);
    }
    return known;
  }
  void Forget(const Op& op) {
    for (uint32_t i = 0; i < op.result_count; ++i) {
      known_[op.first_result.index + i] = std::nullopt;
    }
  }

  End Follow(RegionId region) {
    for (OpId id : f_.region(region).ops) {
      const Op& op = f_.op(id);
      if (++ops_ > ops_max_) {
        return End::kUnknown;
      }
      if (ir::IsTerminator(op.code)) {
        return Jump(op);
      }
      if (op.code == Opcode::kIf && known_[f_.operands_of(op)[0].index]) {
        Forget(op);
        dissolved_.push_back(id);
        const End end = Follow(*known_[f_.operands_of(op)[0].index] != 0 ? op.body : op.otherwise);
        dissolved_.pop_back();
        if (end != End::kFell) {
          return end;
        }
        continue;
      }
      if (ir::OwnsRegions(op.code)) {
        if (JumpsTo(f_, op, dissolved_)) {
          return End::kUnknown;
        }
        ops_ += ContentOf(f_, op.body).ops + (op.code == Opcode::kIf ? ContentOf(f_, op.otherwise).ops : 0);
        Forget(op);
        continue;
      }
      Forget(op);
      if (op.result_count == 1) {
        known_[op.first_result.index] = FoldInteger(op, f_.type_of(op.first_result), Known(op));
      }
    }
    return End::kUnknown;
  }
  End Jump(const Op& op) {
    if (op.code == Opcode::kContinue && f_.targets_of(op)[0].op == loop_) {
      next_ = Known(op);
      return End::kContinued;
    }
    if (op.code == Opcode::kLeave && f_.targets_of(op)[0].op == dissolved_.back() && dissolved_.size() > 1) {
      const Op& left = f_.op(dissolved_.back());
      const std::vector<Bits> results = Known(op);
      for (size_t i = 0; i < results.size(); ++i) {
        known_[left.first_result.index + i] = results[i];
      }
      return End::kFell;
    }
    // Out of an if that will not be there any more, from another one within.
    const bool is_lost = std::any_of(f_.targets_of(op).begin(), f_.targets_of(op).end(), [&](const ir::Target& target) {
      return std::find(dissolved_.begin() + 1, dissolved_.end(), target.op) != dissolved_.end() ||
             (target.op == loop_ && target.is_continue);
    });
    return is_lost ? End::kUnknown : End::kLeft;
  }

  const ir::Function& f_;
  const OpId loop_;
  const uint32_t ops_max_;
  std::vector<Bits> next_;       // What the next iteration begins with.
  std::vector<Bits> known_;      // By ValueId.
  std::vector<OpId> dissolved_;  // The loop, and the ifs around the place of which one way is taken.
  uint32_t ops_ = 0;
};

class Unroller final : public FunctionCopier {
 public:
  Unroller(const ir::Function& from, const UnrollLimits& limits)
      : FunctionCopier(from), limits_(limits), known_(from.values.size()) {}

  // The function with loops written out; nothing if there are none to write out.
  std::optional<ir::Function> Run() && {
    CopyAll();
    return has_unrolled_ ? std::optional(std::move(to_)) : std::nullopt;
  }

 private:
  std::vector<Bits> Known(const Op& op) const {
    std::vector<Bits> known;
    for (ValueId operand : f_.operands_of(op)) {
      known.push_back(known_[operand.index]);
    }
    return known;
  }
  void Bind(ValueId first, std::span<const ValueId> values) override { BindKnown(first, values, {}); }
  void BindKnown(ValueId first, std::span<const ValueId> values, std::span<const Bits> known) {
    FunctionCopier::Bind(first, values);
    for (size_t i = 0; i < values.size(); ++i) {
      known_[first.index + i] = i < known.size() ? known[i] : std::nullopt;
    }
  }

  void CopyOp(OpId id) override {
    const Op& op = f_.op(id);
    if (op.code == Opcode::kLoop && IsUnrolled(id)) {
      return Unroll(id);
    }
    if (op.code == Opcode::kIf && is_unrolling_ && known_[f_.operands_of(op)[0].index]) {
      return CopyWay(id);
    }
    if (op.result_count == 1 && !ir::OwnsRegions(op.code)) {
      const ir::Type type = f_.type_of(op.first_result);
      if (const Bits bits = FoldInteger(op, type, Known(op)); bits && (is_unrolling_ || op.code == Opcode::kConst)) {
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

  // An if of which one way is taken becomes a block.
  void CopyWay(OpId id) {
    const Op& op = f_.op(id);
    const OpId block = b_.BeginBlock(Opcode::kBlock, {}, ResultTypes(op), op.source);
    to_.op(block).origin = op.origin;
    ops_[id.index] = block;
    CopyRegion(*known_[f_.operands_of(op)[0].index] != 0 ? op.body : op.otherwise);
    b_.End();
    Bind(op.first_result, b_.Results(block));
  }

  bool IsUnrolled(OpId id) {
    const Op& op = f_.op(id);
    if (!ContentOf(f_, op.body).has_stack) {
      return false;
    }
    const std::optional<uint32_t> ops = Rehearsal(f_, id, limits_.loop_ops, Known(op), known_).Run();
    if (!ops || *ops > ops_left_) {
      return false;
    }
    ops_left_ -= *ops;
    return true;
  }
  void Unroll(OpId id) {
    const Op& loop = f_.op(id);
    const bool was_unrolling = std::exchange(is_unrolling_, true);
    has_unrolled_ = true;
    std::vector<ValueId> arguments = Map(loop);
    std::vector<Bits> known = Known(loop);
    const OpId block = b_.BeginBlock(Opcode::kBlock, {}, ResultTypes(loop), loop.source);
    to_.op(block).origin = loop.origin;
    ops_[id.index] = block;
    End end = End::kContinued;
    while (end == End::kContinued) {
      BindKnown(f_.region(loop.body).first_param, arguments, known);
      end = CopyIteration(loop.body, id, &arguments, &known);
    }
    b_.End();
    is_unrolling_ = was_unrolling;
    Bind(loop.first_result, b_.Results(block));
  }
  // As Rehearsal::Follow went.
  End CopyIteration(RegionId region, OpId loop, std::vector<ValueId>* arguments, std::vector<Bits>* known) {
    for (OpId id : f_.region(region).ops) {
      const Op& op = f_.op(id);
      if (op.code == Opcode::kIf && known_[f_.operands_of(op)[0].index]) {
        const RegionId way = *known_[f_.operands_of(op)[0].index] != 0 ? op.body : op.otherwise;
        if (const End end = CopyIteration(way, loop, arguments, known); end != End::kFell) {
          return end;
        }
        continue;
      }
      if (!ir::IsTerminator(op.code)) {
        CopyOp(id);
        continue;
      }
      if (op.code == Opcode::kContinue && f_.targets_of(op)[0].op == loop) {
        *arguments = Map(op);
        *known = Known(op);
        return End::kContinued;
      }
      const OpId owner = f_.region(region).owner;
      if (op.code == Opcode::kLeave && f_.targets_of(op)[0].op == owner && owner != loop) {
        BindKnown(f_.op(owner).first_result, Map(op), Known(op));
        return End::kFell;
      }
      CopyTerminator(op);
      return End::kLeft;
    }
    return End::kLeft;
  }

  const UnrollLimits limits_;
  std::vector<Bits> known_;  // By old ValueId.
  uint32_t ops_left_ = limits_.kernel_ops;
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

}  // namespace hpvm
