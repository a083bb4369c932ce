// SPDX-License-Identifier: Apache-2.0
// Emits all accesses of a record (compiler/pass/gang/gang_records.h) at once. Internal to this folder.
#ifndef HPVMD_COMPILER_BACK_LLVM_GANG_GANG_RECORD_H_
#define HPVMD_COMPILER_BACK_LLVM_GANG_GANG_RECORD_H_

#include "compiler/back/llvm/gang/gang_memory.h"
#include "compiler/back/llvm/gang/gang_shuffle.h"
#include "compiler/pass/gang/gang_records.h"

namespace hpvm::cpu {

// GangRecordAccess requires that all lanes of the tile are active and all accesses known to be inside. Stores touch
// only the members' bytes; loads also touch the words between them.
class GangRecordAccess {
 public:
  GangRecordAccess(GangTile& tile, GangTraps& traps, GangFrame& frame, const pass::GangRecord& record);
  // Returns false where rows store different values at one address, so that the last row must win.
  static bool IsPossible(const GangTile& tile, const pass::GangRecord& record);
  void EmitLoads();
  void EmitStores();

 private:
  // Returns a pointer to lane 0's first word of a column.
  llvm::Value* Pointer(unsigned row, unsigned column);
  // `words` has, for each word of the record, a vector with every lane's value; null where no member uses the word.
  void Load(llvm::Value* pointer, Block& words);
  void Store(llvm::Value* pointer, const Block& words);
  // Returns the first words of blocks of `size` words that together contain all used words; each ends within the
  // record.
  llvm::SmallVector<unsigned, 8> Starts(unsigned size) const;
  unsigned BlockSize() const;
  llvm::Instruction* Tag(llvm::Instruction* access);

  GangTile& tile_;
  ModuleEmitter& m_ = tile_.m;
  llvm::IRBuilder<>& b_ = tile_.b;
  const pass::GangRecord& record_;
  const ir::Op& first_;    // The first member.
  GangAddress place_;      // Location of first_.
  const pass::Layout at_;  // Layout of first_'s address.
  const unsigned lanes_;
  llvm::Type* const word_;
};

}  // namespace hpvm::cpu

#endif  // HPVMD_COMPILER_BACK_LLVM_GANG_GANG_RECORD_H_
