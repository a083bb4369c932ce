// SPDX-License-Identifier: Apache-2.0
// All accesses of a record (compiler/pass/gang/gang_records.h) at once. Internal to this folder.
#ifndef HPVMD_COMPILER_BACK_LLVM_GANG_GANG_RECORD_H_
#define HPVMD_COMPILER_BACK_LLVM_GANG_GANG_RECORD_H_

#include "compiler/back/llvm/gang/gang_memory.h"
#include "compiler/back/llvm/gang/gang_shuffle.h"
#include "compiler/pass/gang/gang_records.h"

namespace hpvm::cpu {

// Requires that all lanes of the tile are active and all accesses known to be inside. Stores touch the members' bytes
// alone, loads the words between them, too.
class GangRecordAccess {
 public:
  GangRecordAccess(GangTile& tile, GangTraps& traps, GangFrame& frame, const pass::GangRecord& record);
  // False where rows differ in what they store at one place, so that the last of them counts.
  static bool IsPossible(const GangTile& tile, const pass::GangRecord& record);
  void EmitLoads();
  void EmitStores();

 private:
  // Gives a pointer to lane 0's first word of a column.
  llvm::Value* Pointer(unsigned row, unsigned column);
  // `words` has a vector with every lane's for each word of the record; null where no member asks for it.
  void Load(llvm::Value* pointer, Block& words);
  void Store(llvm::Value* pointer, const Block& words);
  // The first words of blocks of so many that together have all that is asked for; each ends within the record.
  llvm::SmallVector<unsigned, 8> Starts(unsigned size) const;
  unsigned BlockSize() const;
  llvm::Instruction* Tag(llvm::Instruction* access);

  GangTile& tile_;
  ModuleEmitter& m_ = tile_.m;
  llvm::IRBuilder<>& b_ = tile_.b;
  const pass::GangRecord& record_;
  const ir::Op& first_;    // The member that comes first.
  GangPlace place_;        // Its.
  const pass::Layout at_;  // Its address's.
  const unsigned lanes_;
  llvm::Type* const word_;
};

}  // namespace hpvm::cpu

#endif  // HPVMD_COMPILER_BACK_LLVM_GANG_GANG_RECORD_H_
