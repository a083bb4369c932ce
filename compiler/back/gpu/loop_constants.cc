// SPDX-License-Identifier: Apache-2.0
#include "compiler/back/gpu/loop_constants.h"

#include <set>
#include <utility>

#include "compiler/analysis/definitions.h"
#include "compiler/ir/op_syntax.h"

namespace hpvm::gpu {
namespace {

class Finder {
 public:
  explicit Finder(const ir::Function& f) : f_(f), is_asked_(f.values.size()) {}

  std::vector<bool> Run() {
    LookThrough(f_.body, /*is_in_loop=*/false, /*is_sure=*/true);
    if (numbers_.size() < kLoopConstantsMin) {
      return std::vector<bool>(f_.values.size());
    }
    return std::move(is_asked_);
  }

 private:
  // Returns the constructs, by OpId, that jumps out of the region target, except loops that the jump leaves.
  std::set<uint32_t> LookThrough(RegionId region, bool is_in_loop, bool is_sure) {
    std::set<uint32_t> left;
    for (OpId id : f_.region(region).ops) {
      const Op& op = f_.op(id);
      const bool is_reached = is_sure && left.empty();
      if (op.code == Opcode::kLoop) {
        left.merge(LookThrough(op.body, true, true));
      } else if (op.code == Opcode::kBlock) {
        left.merge(LookThrough(op.body, is_in_loop, is_reached));
      } else if (op.code == Opcode::kIf) {
        left.merge(LookThrough(op.body, is_in_loop, false));
        left.merge(LookThrough(op.otherwise, is_in_loop, false));
      } else if (is_in_loop && is_reached) {
        Ask(op);
      }
      for (const ir::Target& target : f_.targets_of(op)) {
        if (target.is_continue || f_.op(target.op).code != Opcode::kLoop) {
          left.insert(target.op.index);
        }
      }
      left.erase(id.index);
    }
    return left;
  }
  void Ask(const Op& op) {
    const ir::Family family = ir::Info(op.code).family;
    if (family != ir::Family::kFloatBinary && family != ir::Family::kFloatUnary) {
      return;
    }
    for (const ValueId operand : f_.operands_of(op)) {
      const Op* by = definitions_.OpOf(operand, Opcode::kConst);
      if (by == nullptr || by->type != Type::kF64) {
        continue;
      }
      if (numbers_.size() < kLoopConstantsMax || numbers_.contains(by->imm)) {
        numbers_.insert(by->imm);
        is_asked_[operand.index] = true;
      }
    }
  }

  const ir::Function& f_;
  const analysis::Definitions definitions_{f_};
  std::set<uint64_t> numbers_;
  std::vector<bool> is_asked_;  // Indexed by ValueId.
};

}  // namespace

std::vector<bool> FindLoopConstants(const ir::Function& function) { return Finder(function).Run(); }

}  // namespace hpvm::gpu
