// SPDX-License-Identifier: Apache-2.0
// What the lanes of a tile keep across barriers.
#include "compiler/back/llvm/gang.h"
#include "compiler/ir/cpu_abi.h"

namespace hpvm::cpu {

// All lanes at once, also those that do not exist: each gang has a place for every lane.
Status GangOps::EmitKept(const ir::Op& op) {
  llvm::Type* type = tile_.VectorOf(m_.TypeOf(op.type));
  llvm::MDBuilder builder(m_.context());
  llvm::MDNode* node = builder.createTBAAScalarTypeNode("kept values", builder.createTBAARoot("hpvm"));
  llvm::MDNode* tag = builder.createTBAAStructTagNode(node, node, 0);
  llvm::Value* base = tile_.entry_fields.LoadInvariant(b_.getPtrTy(), offsetof(ir::CpuContext, group_values));
  llvm::Value* offset = b_.CreateZExtOrTrunc(tile_.Scalar(tile_.OperandId(op, 0), 0), b_.getInt64Ty());
  llvm::Value* gang = b_.CreateInBoundsGEP(b_.getInt8Ty(), base, offset);
  const llvm::Align align(4 *
                          tile_.lanes());  // Values are multiples of 4 bytes, and the whole lies at a multiple of 64.
  Tiled value;
  for (unsigned row = 0; row < tile_.rows(); ++row) {
    for (unsigned column = 0; column < tile_.columns(); ++column) {
      const uint64_t place = (uint64_t{row * tile_.columns() + column} * m_.group_value_bytes + op.imm) * tile_.lanes();
      llvm::Value* pointer = b_.CreateConstInBoundsGEP1_64(b_.getInt8Ty(), gang, place);
      llvm::Instruction* access = nullptr;
      if (op.code == ir::Opcode::kLoad) {
        access = b_.CreateAlignedLoad(type, pointer, std::min(align, llvm::Align(64)));
        value.push_back(access);
      } else {
        access = b_.CreateAlignedStore(tile_.Operand(op, 1, row, column), pointer, std::min(align, llvm::Align(64)));
      }
      access->setMetadata(llvm::LLVMContext::MD_tbaa, tag);
    }
  }
  if (op.code != ir::Opcode::kLoad) {
    return absl::OkStatus();
  }
  if (const Layout& layout = tile_.LayoutOf(op.first_result);
      layout.kind != Layout::Kind::kVarying || tile_.RowsOf(layout) != tile_.rows()) {
    return Internal("What instances keep is planned as if they shared it.");
  }
  tile_.Set(op.first_result, std::move(value));
  return absl::OkStatus();
}

}  // namespace hpvm::cpu
