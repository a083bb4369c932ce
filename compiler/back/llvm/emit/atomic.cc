// SPDX-License-Identifier: Apache-2.0
// Emits one atomic operation at a host address, for the scalar emitter and for lanes.
#include "compiler/back/llvm/emit/emitter.h"

namespace hpvm::cpu {

namespace {

using Rmw = llvm::AtomicRMWInst::BinOp;

std::optional<Rmw> OperationOf(Opcode code) {
  static constexpr std::pair<Opcode, Rmw> kOperations[] = {
      {Opcode::kAtomicAdd, Rmw::Add},   {Opcode::kAtomicSub, Rmw::Sub},   {Opcode::kAtomicAnd, Rmw::And},
      {Opcode::kAtomicOr, Rmw::Or},     {Opcode::kAtomicXor, Rmw::Xor},   {Opcode::kAtomicXchg, Rmw::Xchg},
      {Opcode::kAtomicMinS, Rmw::Min},  {Opcode::kAtomicMinU, Rmw::UMin}, {Opcode::kAtomicMaxS, Rmw::Max},
      {Opcode::kAtomicMaxU, Rmw::UMax}, {Opcode::kAtomicFAdd, Rmw::FAdd},
  };
  for (const auto& [known, operation] : kOperations) {
    if (known == code) {
      return operation;
    }
  }
  return std::nullopt;
}

}  // namespace

llvm::Value* EmitAtomicAt(ModuleEmitter& m, llvm::IRBuilder<>& b, const ir::Op& op, llvm::Value* pointer,
                          llvm::ArrayRef<llvm::Value*> values) {
  constexpr llvm::AtomicOrdering kOrder = llvm::AtomicOrdering::SequentiallyConsistent;
  const llvm::Align align(op.width);
  llvm::Type* type = m.TypeOf(op.type);
  const bool is_narrow = op.width != ir::Bytes(op.type);
  llvm::Type* stored = is_narrow ? b.getIntNTy(8u * op.width) : type;
  auto narrow = [&](llvm::Value* value) { return is_narrow ? b.CreateTrunc(value, stored) : value; };
  auto widen = [&](llvm::Value* value) { return is_narrow ? b.CreateZExt(value, type) : value; };
  auto tag = [&](llvm::Instruction* access) {
    access->setMetadata(llvm::LLVMContext::MD_tbaa, m.kernel_tag);
    return access;
  };
  if (op.code == Opcode::kAtomicLoad) {
    llvm::LoadInst* load = b.CreateAlignedLoad(stored, pointer, align);
    load->setAtomic(kOrder);
    return widen(tag(load));
  }
  if (op.code == Opcode::kAtomicStore) {
    llvm::StoreInst* store = b.CreateAlignedStore(narrow(values[0]), pointer, align);
    store->setAtomic(kOrder);
    tag(store);
    return nullptr;
  }
  if (op.code == Opcode::kAtomicCmpxchg) {
    llvm::Value* pair =
        tag(b.CreateAtomicCmpXchg(pointer, narrow(values[0]), narrow(values[1]), align, kOrder, kOrder));
    return widen(b.CreateExtractValue(pair, 0));
  }
  const std::optional<Rmw> operation = OperationOf(op.code);
  HPVMD_CHECK(operation.has_value());
  return widen(tag(b.CreateAtomicRMW(*operation, pointer, narrow(values[0]), align, kOrder)));
}

}  // namespace hpvm::cpu
