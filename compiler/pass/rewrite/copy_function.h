// SPDX-License-Identifier: Apache-2.0
// Copies a function operation by operation, for passes that change what stands in it or what its edges bring.
#ifndef HPVMD_COMPILER_PASS_REWRITE_COPY_FUNCTION_H_
#define HPVMD_COMPILER_PASS_REWRITE_COPY_FUNCTION_H_

#include <memory>
#include <span>
#include <vector>

#include "compiler/ir/walk.h"
#include "compiler/pass/rewrite/words.h"

namespace hpvm::pass {

class FunctionCopier {
 public:
  // Borrows the function. The copy has its name, type and math.
  explicit FunctionCopier(const ir::Function& from);
  virtual ~FunctionCopier() = default;
  FunctionCopier(const FunctionCopier&) = delete;
  FunctionCopier& operator=(const FunctionCopier&) = delete;

 protected:
  // Copies into a function that another one builds; borrows that, too.
  FunctionCopier(const ir::Function& from, FunctionCopier& into);

  // Copies the whole, once, into to_. BeginBody comes behind the parameters.
  void CopyAll();
  virtual void BeginBody() {}
  virtual void CopyRegion(ir::RegionId region);
  // An operation, with all that stands in it.
  virtual void CopyOp(ir::OpId id);
  // The old values, from `first` on, are these from now on.
  virtual void Bind(ir::ValueId first, std::span<const ir::ValueId> values);

  // What stands for an old value at the current place; for the condition of an if, or a table's index.
  virtual ir::ValueId At(ir::ValueId value) { return values_[value.index]; }
  virtual ir::ValueId ConditionOf(ir::OpId id) { return At(f_.operands_of(f_.op(id))[0]); }
  // False for a construct's parameter or result that its copy does not have. All targets of one table have the same.
  virtual bool IsKept(ir::ValueId) const { return true; }
  // Where a jump to an old target goes; invalid operation: it is in none that was copied.
  virtual ir::Target TargetOf(const ir::Target& old) const { return {ops_[old.op.index], old.is_continue}; }
  virtual void CopyReturn(const ir::Op& op) { b_.Return(Map(op), op.source); }
  // Op::origin of the copy.
  virtual uint32_t OriginOf(const ir::Op& op) const { return op.origin; }

  // A copy may give a block, loop or if more results, which a loop has as parameters, too. These are their types, and
  // their values on an edge that leads there, or begins the loop, at the current place. All targets of one table get
  // the same.
  virtual std::vector<ir::Type> MoreTypes(ir::OpId) const { return {}; }
  virtual std::vector<ir::ValueId> MoreValues(ir::OpId) const { return {}; }
  // The copy is at the beginning of the construct's (first) region, where a loop has its added parameters; of its other
  // region; and behind the construct, which has its added results.
  virtual void Enter(ir::OpId, std::span<const ir::ValueId>) {}
  virtual void EnterOtherwise(ir::OpId) {}
  virtual void Leave(ir::OpId, std::span<const ir::ValueId>) {}

  std::vector<ir::ValueId> Map(const ir::Op& op);
  // What a jump, or beginning a block or loop, brings to those of the slots that are kept.
  std::vector<ir::ValueId> Brought(const ir::Op& op, const ir::Slots& slots);
  // Of those that are kept.
  std::vector<ir::Type> ResultTypes(const ir::Op& op) const;
  void SetOrigin(const ir::Op& op) { to_.ops.back().origin = OriginOf(op); }
  void CopyPlain(const ir::Op& op);
  void CopyConstruct(ir::OpId id);
  void CopyTerminator(ir::OpId id);

  struct Made {
    ir::Function function;
    ir::Builder builder{function};
  };
  const std::unique_ptr<Made> made_;  // Null where another one builds.
  const ir::Function& f_;
  ir::Function& to_;
  ir::Builder& b_;
  std::vector<ir::ValueId> values_;  // By old ValueId.
  std::vector<ir::OpId> ops_;        // By old OpId of what owns regions.

 private:
  // Binds those of the slots that are kept; the values that are left.
  std::span<const ir::ValueId> BindKept(const ir::Slots& slots, std::span<const ir::ValueId> values);
};

}  // namespace hpvm::pass

#endif  // HPVMD_COMPILER_PASS_REWRITE_COPY_FUNCTION_H_
