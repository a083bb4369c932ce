// SPDX-License-Identifier: Apache-2.0
#include <optional>

#include "llvm/ADT/STLExtras.h"
#include "llvm/IR/Constants.h"
#include "llvm/IR/IRBuilder.h"
#include "llvm/IR/InstIterator.h"
#include "llvm/IR/IntrinsicInst.h"
#include "llvm/IR/Module.h"

#include "compiler/back/llvm/codegen.h"

namespace hpvm::cpu {
namespace {

// Returns the active lanes of a constant mask; nothing when it is not constant or has more than one. A lane whose mask
// is undefined counts as inactive.
std::optional<llvm::SmallVector<unsigned, 1>> FewLanes(llvm::Value* mask) {
  const auto* constant = llvm::dyn_cast<llvm::Constant>(mask);
  const auto* type = llvm::dyn_cast<llvm::FixedVectorType>(mask->getType());
  if (constant == nullptr || type == nullptr) {
    return std::nullopt;
  }
  llvm::SmallVector<unsigned, 1> lanes;
  for (unsigned i = 0; i < type->getNumElements(); ++i) {
    const llvm::Constant* lane = constant->getAggregateElement(i);
    if (lane == nullptr) {
      return std::nullopt;
    }
    if (lane->isOneValue()) {
      lanes.push_back(i);
    } else if (!lane->isZeroValue() && !llvm::isa<llvm::UndefValue>(lane)) {
      return std::nullopt;
    }
  }
  return lanes.size() > 1 ? std::nullopt : std::optional(lanes);
}

void Replace(llvm::IntrinsicInst& store) {
  llvm::Value* pointer = store.getArgOperand(1);
  const auto lanes = FewLanes(store.getArgOperand(2));
  if (!lanes) {
    return;
  }
  if (!lanes->empty()) {
    llvm::IRBuilder<> b(&store);
    llvm::Value* value = b.CreateExtractElement(store.getArgOperand(0), uint64_t{lanes->front()});
    const uint64_t before = lanes->front() * store.getModule()->getDataLayout().getTypeStoreSize(value->getType());
    b.CreateAlignedStore(value, b.CreateConstGEP1_64(b.getInt8Ty(), pointer, before), llvm::Align(1))
        ->copyMetadata(store, llvm::LLVMContext::MD_tbaa);
  }
  store.eraseFromParent();
}

}  // namespace

void StoreOneLanePlainly(llvm::Module& module) {
  for (llvm::Function& function : module) {
    for (llvm::Instruction& instruction : llvm::make_early_inc_range(llvm::instructions(function))) {
      auto* call = llvm::dyn_cast<llvm::IntrinsicInst>(&instruction);
      if (call != nullptr && call->getIntrinsicID() == llvm::Intrinsic::masked_store) {
        Replace(*call);
      }
    }
  }
}

}  // namespace hpvm::cpu
