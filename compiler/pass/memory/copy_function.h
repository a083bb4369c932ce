// SPDX-License-Identifier: Apache-2.0
// Copies a function operation by operation, for passes that change what stands in it or what its edges bring.
#ifndef HPVMD_COMPILER_PASS_MEMORY_COPY_FUNCTION_H_
#define HPVMD_COMPILER_PASS_MEMORY_COPY_FUNCTION_H_

#include <span>
#include <vector>

#include "compiler/ir/ir.h"

namespace hpvm {

class FunctionCopier {
 public:
  // Borrows the function.
  explicit FunctionCopier(const ir::Function& from);
  virtual ~FunctionCopier() = default;
  FunctionCopier(const FunctionCopier&) = delete;
  FunctionCopier& operator=(const FunctionCopier&) = delete;

 protected:
  // Copies the whole, once, into to_. BeginBody comes behind the parameters.
  void CopyAll();
  virtual void BeginBody() {}
  // An operation, with all that stands in it.
  virtual void CopyOp(ir::OpId id);
  // The old values, from `first` on, are these from now on.
  virtual void Bind(ir::ValueId first, std::span<const ir::ValueId> values);

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

  std::vector<ir::ValueId> Map(const ir::Op& op, uint32_t first = 0) const;
  std::vector<ir::Type> ResultTypes(const ir::Op& op) const;
  void SetOrigin(const ir::Op& op) { to_.ops.back().origin = op.origin; }
  void CopyRegion(ir::RegionId region);
  void CopyPlain(const ir::Op& op);
  void CopyConstruct(ir::OpId id);
  void CopyTerminator(const ir::Op& op);

  const ir::Function& f_;
  ir::Function to_;
  ir::Builder b_;
  std::vector<ir::ValueId> values_;  // By old ValueId.
  std::vector<ir::OpId> ops_;        // By old OpId of what owns regions.
};

}  // namespace hpvm

#endif  // HPVMD_COMPILER_PASS_MEMORY_COPY_FUNCTION_H_
