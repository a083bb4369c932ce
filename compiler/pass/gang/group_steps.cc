// SPDX-License-Identifier: Apache-2.0
#include "compiler/pass/gang/group_steps.h"

#include <algorithm>

#include "compiler/ir/walk.h"

namespace hpvm::pass {
namespace {

constexpr size_t kStepsMax = 8;  // Maximum number of summands on one edge; longer sums remain unchanged.

class StepRewriter {
 public:
  StepRewriter(ir::Function& f, const analysis::FunctionUniformity& known) : f_(f), known_(known) { Index(); }

  bool Rewrite(OpId loop) {
    bool changed = false;
    const ir::Region& body = f_.region(f_.op(loop).body);
    for (uint32_t i = 0; i < body.param_count; ++i) {
      const ValueId param(body.first_param.index + i);
      if (ir::IsInt(f_.type_of(param)) && !IsUniform(param) && FindEdges(loop, i)) {
        Apply(loop, i);
        changed = true;
      }
    }
    return changed;
  }

 private:
  struct Edge {
    OpId jump;
    std::vector<OpId> steps;  // The last step first.
  };

  void Index() {
    definition_.assign(f_.values.size(), OpId());
    region_.assign(f_.ops.size(), ir::RegionId());
    for (size_t r = 0; r < f_.regions.size(); ++r) {
      for (OpId id : f_.regions[r].ops) {
        region_[id.index] = ir::RegionId(r);
      }
    }
    ir::ForEachOp(f_, [&](OpId id) {
      for (uint32_t i = 0; i < f_.op(id).result_count; ++i) {
        definition_[f_.op(id).first_result.index + i] = id;
      }
    });
  }
  bool IsUniform(ValueId value) const {
    return value.index < known_.shapes.size() && known_.shapes[value.index].is_uniform();
  }

  // Returns the operand of a step that is the sum so far, if the other operand is uniform; else -1.
  int SumOf(const Op& op) const {
    const auto operands = f_.operands_of(op);
    if ((op.code == Opcode::kAdd || op.code == Opcode::kSub) && IsUniform(operands[1])) {
      return 0;
    }
    return op.code == Opcode::kAdd && IsUniform(operands[0]) ? 1 : -1;
  }

  bool FollowSteps(ValueId value, ValueId param, std::vector<OpId>* steps) const {
    while (value != param) {
      const OpId id = definition_[value.index];
      const int sum = id.valid() && steps->size() < kStepsMax ? SumOf(f_.op(id)) : -1;
      if (sum < 0) {
        return false;
      }
      steps->push_back(id);
      value = f_.operands_of(f_.op(id))[static_cast<size_t>(sum)];
    }
    return true;
  }

  bool FindEdges(OpId loop, uint32_t index) {
    const ValueId param(f_.region(f_.op(loop).body).first_param.index + index);
    edges_.clear();
    bool holds = true;
    ir::ForEachOp(f_, [&](OpId id) {
      const Op& op = f_.op(id);
      for (const ir::Target& target : f_.targets_of(op)) {
        if (!holds || !target.is_continue || target.op != loop) {
          continue;
        }
        Edge edge{id, {}};
        holds = op.code == Opcode::kContinue && FollowSteps(f_.operands_of(op)[index], param, &edge.steps);
        edges_.push_back(std::move(edge));
      }
    });
    return holds && !edges_.empty();
  }

  // Inserts a copy of `like` with other operands at index `place` of the region.
  ValueId Insert(Op like, std::vector<ValueId> operands, ir::Type type, ir::RegionId region, size_t place) {
    like.first_operand = static_cast<uint32_t>(f_.operands.size());
    like.operand_count = static_cast<uint32_t>(operands.size());
    f_.operands.insert(f_.operands.end(), operands.begin(), operands.end());
    like.first_result = ValueId(f_.values.size());
    like.result_count = 1;
    f_.values.push_back({type});
    const OpId id(f_.ops.size());
    f_.ops.push_back(like);
    std::vector<OpId>& ops = f_.region(region).ops;
    ops.insert(ops.begin() + static_cast<ptrdiff_t>(place), id);
    definition_.push_back(id);
    region_.push_back(region);
    return like.first_result;
  }
  size_t PlaceOf(OpId id) const {
    const std::vector<OpId>& ops = f_.region(region_[id.index]).ops;
    return static_cast<size_t>(std::ranges::find(ops, id) - ops.begin());
  }

  void Apply(OpId loop, uint32_t index) {
    const ValueId param(f_.region(f_.op(loop).body).first_param.index + index);
    const ir::Type type = f_.type_of(param);
    const ValueId initial = f_.operands_of(f_.op(loop))[index];
    Op add{.code = Opcode::kAdd, .type = type, .source = f_.op(loop).source, .origin = f_.op(loop).origin};
    for (const Edge& edge : edges_) {
      ValueId sum = param;
      for (size_t i = edge.steps.size(); i-- > 0;) {
        const Op step = f_.op(edge.steps[i]);
        std::vector<ValueId> operands(f_.operands_of(step).begin(), f_.operands_of(step).end());
        operands[static_cast<size_t>(SumOf(step))] = sum;
        sum = Insert(step, operands, type, region_[edge.jump.index], PlaceOf(edge.jump));
        made_.push_back(definition_.back());
      }
      f_.operands[f_.op(edge.jump).first_operand + index] = sum;
    }
    const ValueId value = Insert(add, {initial, param}, type, f_.op(loop).body, 0);
    made_.push_back(definition_.back());
    Replace(param, value, index);
    Op zero{.code = Opcode::kConst, .type = type, .origin = add.origin};
    const ValueId start = Insert(zero, {}, type, region_[loop.index], PlaceOf(loop));
    f_.operands[f_.op(loop).first_operand + index] = start;
    made_.clear();
  }

  // Replaces uses in all operations except those just made, and the edges' own sums.
  void Replace(ValueId from, ValueId to, uint32_t index) {
    ir::ForEachOp(f_, [&](OpId id) {
      if (std::ranges::find(made_, id) != made_.end()) {
        return;
      }
      const bool is_edge = std::ranges::any_of(edges_, [id](const Edge& e) { return e.jump == id; });
      const Op& op = f_.op(id);
      for (uint32_t i = 0; i < op.operand_count; ++i) {
        ValueId& operand = f_.operands[op.first_operand + i];
        if (operand == from && !(is_edge && i == index)) {
          operand = to;
        }
      }
    });
  }

  ir::Function& f_;
  const analysis::FunctionUniformity& known_;
  std::vector<OpId> definition_;      // Indexed by ValueId.
  std::vector<ir::RegionId> region_;  // Indexed by OpId.
  std::vector<Edge> edges_;
  std::vector<OpId> made_;
};

}  // namespace

bool MakeStepsUniform(ir::Function& entry, const std::vector<bool>& loops, const analysis::FunctionUniformity& known) {
  StepRewriter rewriter(entry, known);
  std::vector<OpId> found;
  ir::ForEachOp(entry, [&](OpId id) {
    if (entry.op(id).code == Opcode::kLoop && loops[id.index]) {
      found.push_back(id);
    }
  });
  bool changed = false;
  for (OpId loop : found) {
    changed |= rewriter.Rewrite(loop);
  }
  return changed;
}

}  // namespace hpvm::pass
