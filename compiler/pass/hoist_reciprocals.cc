// SPDX-License-Identifier: Apache-2.0
#include "compiler/pass/hoist_reciprocals.h"

#include <array>
#include <utility>
#include <vector>

#include "compiler/analysis/definitions.h"
#include "compiler/analysis/nesting.h"
#include "compiler/ir/walk.h"
#include "compiler/pass/rewrite/copy_function.h"

namespace hpvm::pass {
namespace {

class Hoister final : public FunctionCopier {
 public:
  explicit Hoister(const ir::Module& module)
      : FunctionCopier(module.function(module.entry)),
        module_(module),
        is_wanted_(f_.values.size(), false),
        is_product_(f_.ops.size(), false),
        reciprocals_(f_.values.size()) {
    Find();
  }

  bool FindsAny() const { return finds_any_; }
  ir::Function Run() && {
    CopyAll();
    return std::move(to_);
  }

 private:
  // Finds quotients in loops whose divisors are defined outside.
  void Find() {
    const analysis::Definitions definitions(f_);
    const analysis::Nesting nesting(f_);
    const ir::Slots params = ir::ParamsOf(f_.region(f_.body));
    for (const OpId id : nesting.order()) {
      if (!IsFastQuotient(f_.op(id))) {
        continue;
      }
      OpId loop = nesting.OwnerOf(id);
      while (loop.valid() && f_.op(loop).code != Opcode::kLoop) {
        loop = nesting.OwnerOf(loop);
      }
      const ValueId divisor = f_.operands_of(f_.op(id))[1];
      // Parameters of regions are excluded, because those of a loop change.
      const bool is_fixed = definitions.Of(divisor).valid() || divisor.index - params.first.index < params.count;
      if (is_fixed && loop.valid() && !nesting.IsMadeIn(divisor, loop)) {
        is_wanted_[divisor.index] = is_product_[id.index] = finds_any_ = true;
      }
    }
  }
  bool IsFastQuotient(const Op& op) const {
    const uint32_t written = op.origin != 0 ? op.origin - 1 : module_.entry.index;
    return op.code == Opcode::kFDiv && op.type == Type::kF32 &&
           module_.functions[written].fast_math == ir::FastMath::kAll;
  }

  void BeginBody() override {
    const ir::Region& body = f_.region(f_.body);
    for (uint32_t i = 0; i < body.param_count; ++i) {
      MakeReciprocal(ValueId(body.first_param.index + i), Op{.code = Opcode::kFDiv});
    }
  }
  void CopyOp(OpId id) override {
    const Op& op = f_.op(id);
    if (is_product_[id.index]) {
      Op product = op;
      product.code = Opcode::kFMul;
      const ValueId divisor = f_.operands_of(op)[1];
      const ValueId made = b_.Append1(product, std::array{Map(op)[0], reciprocals_[divisor.index]}, Type::kF32);
      SetOrigin(op);
      Bind(op.first_result, std::array{made});
    } else {
      FunctionCopier::CopyOp(id);
    }
    for (uint32_t i = 0; i < op.result_count; ++i) {
      MakeReciprocal(ValueId(op.first_result.index + i), op);
    }
  }
  // Makes the reciprocal, if wanted, at the current place after `op`.
  void MakeReciprocal(ValueId divisor, const Op& op) {
    if (!is_wanted_[divisor.index]) {
      return;
    }
    constexpr uint64_t kOne = 0x3f800000;
    const ValueId one = b_.Const(Type::kF32, kOne);
    Op quotient{.code = Opcode::kFDiv, .type = Type::kF32, .source = op.source};
    reciprocals_[divisor.index] = b_.Append1(quotient, std::array{one, values_[divisor.index]}, Type::kF32);
  }

  const ir::Module& module_;
  bool finds_any_ = false;
  std::vector<bool> is_wanted_;       // Indexed by ValueId: true if its reciprocal is wanted.
  std::vector<bool> is_product_;      // Indexed by OpId.
  std::vector<ValueId> reciprocals_;  // Indexed by old ValueId.
};

}  // namespace

Status HoistReciprocals(ir::Module& module) {
  Hoister hoister(module);
  if (hoister.FindsAny()) {
    module.function(module.entry) = std::move(hoister).Run();
  }
  return absl::OkStatus();
}

}  // namespace hpvm::pass
