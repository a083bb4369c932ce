// SPDX-License-Identifier: Apache-2.0
// FunctionCopier copies a function operation by operation, for passes that change its operations or the values of its
// edges.
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
  // Copies into a function that another copier builds; borrows that copier, too.
  FunctionCopier(const ir::Function& from, FunctionCopier& into);

  // Copies the whole function, once, into to_. BeginBody is called after the parameters are bound.
  void CopyAll();
  virtual void BeginBody() {}
  virtual void CopyRegion(ir::RegionId region);
  // Copies an operation, with all operations nested in it.
  virtual void CopyOp(ir::OpId id);
  // Maps the old values, from `first` on, to these values.
  virtual void Bind(ir::ValueId first, std::span<const ir::ValueId> values);

  // Returns the value that replaces an old value at the current place; ConditionOf: the condition of an if, or a
  // table's index.
  virtual ir::ValueId At(ir::ValueId value) { return values_[value.index]; }
  virtual ir::ValueId ConditionOf(ir::OpId id) { return At(f_.operands_of(f_.op(id))[0]); }
  // Returns false for a construct's parameter or result that its copy lacks. All targets of one table must agree.
  virtual bool IsKept(ir::ValueId) const { return true; }
  // Returns the target of a jump to an old target; an invalid operation if the target has not been copied.
  virtual ir::Target TargetOf(const ir::Target& old) const { return {ops_[old.op.index], old.is_continue}; }
  virtual void CopyReturn(const ir::Op& op) { b_.Return(Map(op), op.source); }
  // Returns Op::origin of the copy.
  virtual uint32_t OriginOf(const ir::Op& op) const { return op.origin; }

  // A copy may give a block, loop or if more results, which a loop also has as parameters. These return their types,
  // and their values on an edge that leads there, or enters the loop, at the current place. All targets of one table
  // get the same.
  virtual std::vector<ir::Type> MoreTypes(ir::OpId) const { return {}; }
  virtual std::vector<ir::ValueId> MoreValues(ir::OpId) const { return {}; }
  // Called when the copy is at the start of the construct's (first) region, where a loop has its added parameters; at
  // the start of its other region; and after the construct, which has its added results.
  virtual void Enter(ir::OpId, std::span<const ir::ValueId>) {}
  virtual void EnterOtherwise(ir::OpId) {}
  virtual void Leave(ir::OpId, std::span<const ir::ValueId>) {}

  std::vector<ir::ValueId> Map(const ir::Op& op);
  // Returns the values that a jump, or entry into a block or loop, brings to the kept slots.
  std::vector<ir::ValueId> Brought(const ir::Op& op, const ir::Slots& slots);
  // Returns the types of the kept results.
  std::vector<ir::Type> ResultTypes(const ir::Op& op) const;
  void SetOrigin(const ir::Op& op) { to_.ops.back().origin = OriginOf(op); }
  void CopyPlain(const ir::Op& op);
  void CopyConstruct(ir::OpId id);
  void CopyTerminator(ir::OpId id);

  struct Made {
    ir::Function function;
    ir::Builder builder{function};
  };
  const std::unique_ptr<Made> made_;  // Null if another copier builds the function.
  const ir::Function& f_;
  ir::Function& to_;
  ir::Builder& b_;
  std::vector<ir::ValueId> values_;  // Indexed by old ValueId.
  std::vector<ir::OpId> ops_;        // Indexed by old OpId of constructs.

 private:
  // Binds the kept slots; returns the remaining values.
  std::span<const ir::ValueId> BindKept(const ir::Slots& slots, std::span<const ir::ValueId> values);
};

}  // namespace hpvm::pass

#endif  // HPVMD_COMPILER_PASS_REWRITE_COPY_FUNCTION_H_
