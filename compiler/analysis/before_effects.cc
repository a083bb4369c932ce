// SPDX-License-Identifier: Apache-2.0
#include "compiler/analysis/before_effects.h"

#include "compiler/ir/op_syntax.h"
#include "compiler/ir/walk.h"

namespace hpvm::analysis {
namespace {

class Finder {
 public:
  explicit Finder(const ir::Function& function) : f_(function), is_before_(f_.ops.size()), has_effect_(f_.ops.size()) {}

  std::vector<bool> Run() {
    // In a loop, every operation may follow every other one of an earlier iteration. ForEachOp visits an operation
    // before the operations in its regions, so the reverse order handles all nested operations first.
    std::vector<ir::OpId> order;
    ir::ForEachOp(f_, [&](ir::OpId id) { order.push_back(id); });
    for (size_t i = order.size(); i-- > 0;) {
      has_effect_[order[i].index] = has_effect_[order[i].index] || HasEffect(f_.op(order[i]));
      for (ir::RegionId region : {f_.op(order[i]).body, f_.op(order[i]).otherwise}) {
        if (ir::OwnsRegions(f_.op(order[i]).code) && (region == f_.op(order[i]).body || IsIf(order[i]))) {
          for (ir::OpId inner : f_.region(region).ops) {
            has_effect_[order[i].index] = has_effect_[order[i].index] || has_effect_[inner.index];
          }
        }
      }
    }
    bool has_happened = false;
    for (ir::OpId id : order) {
      const ir::Op& op = f_.op(id);
      is_before_[id.index] = !has_happened;
      has_happened = has_happened || HasEffect(op) || (op.code == ir::Opcode::kLoop && has_effect_[id.index]);
    }
    return std::move(is_before_);
  }

 private:
  bool IsIf(ir::OpId id) const { return f_.op(id).code == ir::Opcode::kIf; }

  const ir::Function& f_;
  std::vector<bool> is_before_;
  std::vector<bool> has_effect_;  // Indexed by OpId: it, or a nested operation, has an effect.
};

}  // namespace

bool HasEffect(const ir::Op& op) {
  const bool is_own = ir::HasSpace(op.code) && op.space == ir::Space::kStack;
  return !is_own && (ir::Info(op.code).effects & (ir::kWrites | ir::kSyncs)) != 0;
}

std::vector<bool> FindBeforeEffects(const ir::Module& module) { return Finder(module.function(module.entry)).Run(); }

}  // namespace hpvm::analysis
