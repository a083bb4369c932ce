// SPDX-License-Identifier: Apache-2.0
// Emits one access to the stacks of a tile's instances (Space::kStack). Internal to this folder.
//
// Each part of a tile has the frame as an array of vectors, one for each unit (ir::StackFrame) of the frame, which
// holds every lane's unit. An address that is the same for all lanes accesses one vector, which LLVM keeps in a
// register where it knows the address; others are gathers and scatters. Regardless of the address, the code reaches
// only the array.
#ifndef HPVMD_COMPILER_BACK_LLVM_GANG_GANG_STACK_H_
#define HPVMD_COMPILER_BACK_LLVM_GANG_GANG_STACK_H_

#include "compiler/back/llvm/gang/gang_tile.h"

namespace hpvm::cpu {

class GangStackAccess {
 public:
  GangStackAccess(GangTile& tile, GangMasks& masks, GangTraps& traps, GangFrame& frame, const ir::Op& op, ir::OpId id);
  void Emit();

 private:
  // The location of a part's bytes: the unit with the first of them, in [0, units - units of the access], and the
  // number of bits of the unit before it; both scalars (uniform) or vectors.
  struct Where {
    llvm::Value* unit = nullptr;   // i32.
    llvm::Value* shift = nullptr;  // Has the unit's type; null: the access begins where the unit does.
  };
  Where Find(unsigned row, unsigned column);
  llvm::Value* Offset(unsigned row, unsigned column);  // Has the address type; relative to the frame.
  void TrapIfMisses(unsigned row, unsigned column, llvm::Value* offset);
  llvm::Value* Pointers(const Where& where, unsigned index);
  llvm::Value* LoadUnit(const Where& where, unsigned index);
  void StoreUnit(const Where& where, unsigned index, llvm::Value* value);
  llvm::Value* LoadBits(const Where& where);  // <lanes x iN>, N = 8 * width; width at most 8.
  void StoreBits(const Where& where, llvm::Value* bits);
  llvm::Value* Loaded(llvm::Value* bits);                       // Converted to the result's type.
  llvm::Value* SplatConstant(llvm::Type* type, uint64_t bits);  // `type` is a scalar type.

  GangTile& tile_;
  GangMasks& masks_;
  GangTraps& traps_;
  GangFrame& frame_;
  ModuleEmitter& m_ = tile_.m;
  llvm::IRBuilder<>& b_ = tile_.b;
  const ir::Op& op_;
  const ir::StackFrame& of_ = *m_.source.stack_frame;
  const bool is_inside_;   // Known to be inside the frame.
  const bool is_uniform_;  // The address is uniform.
  const unsigned units_;   // Number of units that an access touches.
  llvm::Type* const unit_type_;
  // The current part.
  unsigned row_ = 0, column_ = 0;
};

}  // namespace hpvm::cpu

#endif  // HPVMD_COMPILER_BACK_LLVM_GANG_GANG_STACK_H_
