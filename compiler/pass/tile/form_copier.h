// SPDX-License-Identifier: Apache-2.0
// Shared parts of passes that change loads: plans by loop, and a copier of a kernel, or of a coarse form of it, into a
// form that performs the same accesses differently. Internal to this folder.
#ifndef HPVMD_COMPILER_PASS_TILE_FORM_COPIER_H_
#define HPVMD_COMPILER_PASS_TILE_FORM_COPIER_H_

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "compiler/analysis/counted_loops.h"
#include "compiler/ir/op_syntax.h"
#include "compiler/ir/walk.h"
#include "compiler/pass/rewrite/copy_function.h"
#include "compiler/pass/tile/coarsen.h"

namespace hpvm::pass {

// Returns, by OpId of the loop, the plans that plan_of(loop) makes for a function's loops, in the order of the text,
// as long as their `ops` sum to at most `ops_max`.
template <typename Plan, typename PlanOf>
std::map<uint32_t, Plan> PlanLoops(const ir::Function& function, uint32_t ops_max, PlanOf&& plan_of) {
  std::map<uint32_t, Plan> plans;
  ir::ForEachOp(function, [&](ir::OpId id) {
    std::optional<Plan> plan = function.op(id).code == ir::Opcode::kLoop ? plan_of(id) : std::nullopt;
    if (plan && plan->ops <= ops_max) {
      ops_max -= plan->ops;
      plans.emplace(id.index, *std::move(plan));
    }
  });
  return plans;
}

class FormCopier : public FunctionCopier {
 protected:
  // `module` is the module of `coarse`, which may be null; borrows both.
  FormCopier(const ir::Module& module, const CoarseModule* coarse)
      : FunctionCopier(module.function(module.entry)), module_(module), coarse_(coarse) {}

  // Copies the whole function, once. The form has the launch conditions of `coarse`.
  CoarseModule Copy() {
    CopyAll();
    CoarseModule form;
    if (coarse_ != nullptr) {
      form.needs_alignment = coarse_->needs_alignment;
      form.factors = coarse_->factors;
      form.group = coarse_->group;
    }
    original_.resize(to_.ops.size());
    lane_.resize(to_.ops.size());
    form.original = std::move(original_);
    form.lane = std::move(lane_);
    form.module = module_;
    form.module.function(module_.entry) = std::move(to_);
    return form;
  }

  void CopyOp(ir::OpId id) override {
    FunctionCopier::CopyOp(id);
    if (!ir::OwnsRegions(f_.op(id).code)) {
      NoteOriginal(ir::OpId(static_cast<uint32_t>(to_.ops.size() - 1)), id);
    }
  }
  // Sets the location in the module's file for operations that Make appends from now on.
  void SetSource(uint32_t source) { source_ = source; }
  ir::ValueId Make(ir::Opcode code, ir::Type type, std::span<const ir::ValueId> operands, ir::Type result) {
    return b_.Append1({.code = code, .type = type, .source = source_}, operands, result);
  }
  ir::ValueId Make(ir::Opcode code, ir::ValueId a, ir::ValueId b) {
    const ir::Type type = to_.type_of(a);
    const bool is_comparison = ir::Info(code).family == ir::Family::kIntCompare;
    return Make(code, type, std::array{a, b}, is_comparison ? ir::Type::kI32 : type);
  }
  // Emits the form's value in the loop's first iteration.
  ir::ValueId First(const analysis::LoopForm& form, ir::Type type) {
    ir::ValueId sum;
    for (const auto& [value, factor] : form.terms) {
      const ir::ValueId own = values_[value.index];
      const ir::ValueId term = factor == 1 ? own : Make(ir::Opcode::kMul, own, b_.Const(type, factor));
      sum = sum.valid() ? Make(ir::Opcode::kAdd, sum, term) : term;
    }
    if (!sum.valid()) {
      return b_.Const(type, form.constant);
    }
    return form.constant == 0 ? sum : Make(ir::Opcode::kAdd, sum, b_.Const(type, form.constant));
  }
  // Records that `made`, of the copy, performs the access of `id`.
  void NoteOriginal(ir::OpId made, ir::OpId id) {
    original_.resize(to_.ops.size());
    lane_.resize(to_.ops.size());
    original_[made.index] = coarse_ != nullptr ? coarse_->original[id.index] : id;
    lane_[made.index] = coarse_ != nullptr ? coarse_->lane[id.index] : std::array<uint8_t, 2>{};
  }

 private:
  const ir::Module& module_;
  const CoarseModule* coarse_;
  std::vector<ir::OpId> original_;            // Indexed by new OpId.
  std::vector<std::array<uint8_t, 2>> lane_;  // Indexed by new OpId.
  uint32_t source_ = 0;
};

}  // namespace hpvm::pass

#endif  // HPVMD_COMPILER_PASS_TILE_FORM_COPIER_H_
