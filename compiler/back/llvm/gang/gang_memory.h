// SPDX-License-Identifier: Apache-2.0
// Emits one memory access for all instances of a tile. Internal to this folder.
//
// The layout of the address decides: one scalar access per row, one vector per column where the lanes' bytes are
// contiguous, else a gather or scatter. An access that is not known to be inside is first compared for a whole row;
// rows that miss go lane by lane through the search of the instance's space, as docs/KERNELS.md says.
#ifndef HPVMD_COMPILER_BACK_LLVM_GANG_GANG_MEMORY_H_
#define HPVMD_COMPILER_BACK_LLVM_GANG_GANG_MEMORY_H_

#include <optional>

#include "compiler/back/llvm/gang/gang_tile.h"

namespace hpvm::cpu {

// GangAddress computes an access's address, and the lanes that miss. The bytes are at data + (operand - bias) + imm,
// with the difference taken in the address type; they are inside if the difference is less than ValidOf(0).
class GangAddress {
 public:
  GangAddress(GangTile& tile, GangTraps& traps, GangFrame& frame, const ir::Op& op, ir::OpId id);

  llvm::Value* ValidOf(uint64_t span);          // i64: number of valid offsets if the access had `span` more bytes.
  llvm::Value* OffsetOf(llvm::Value* operand);  // A scalar.
  llvm::Value* Offset(unsigned row);
  llvm::Value* Offsets(unsigned row, unsigned column);
  llvm::Value* Wide(llvm::Value* value);  // Zero-extends to i64; scalar or vector.
  llvm::Value* Added(llvm::Value* pointer, uint64_t bytes);
  llvm::Value* Pointer(llvm::Value* offset, bool may_be_below);
  llvm::Value* FlatAddress(llvm::Value* operand);  // i64; scalar or vector.
  // Traps lanes that miss where a search would find nothing; returns true if that is always so.
  bool TrapUnlessSearched(unsigned row, unsigned column);
  // Returns <lanes x i1>: the lanes whose offset is not less than `valid`; any value for inactive lanes.
  llvm::Value* LaneMisses(unsigned row, unsigned column, llvm::Value* valid);
  void Audit();

  const bool is_store;
  const bool is_known;            // Known to be inside.
  std::optional<uint64_t> reach;  // From the offset to the last byte; nothing when no access can fit.
  llvm::Value* data = nullptr;
  uint64_t imm = 0;
  llvm::Value* bytes = nullptr;  // i64: number of bytes at `data`.

 private:
  void FindPlace();
  llvm::Value* I64(uint64_t value) { return b_.getInt64(value); }
  llvm::Type* AddressType() const { return m_.TypeOf(m_.source.address_type()); }

  GangTile& tile_;
  GangTraps& traps_;
  GangFrame& frame_;
  ModuleEmitter& m_ = tile_.m;
  llvm::IRBuilder<>& b_ = tile_.b;
  const ir::Op& op_;
  llvm::Value* bias_ = nullptr;  // Has the address type; null: 0.
};

class GangAccess {
 public:
  GangAccess(GangTile& tile, GangMasks& masks, GangTraps& traps, GangFrame& frame, const ir::Op& op, ir::OpId id);
  Status EmitLoad();
  Status EmitStore();
  Status EmitAtomic();

 private:
  enum class Form : uint8_t { kUniform, kContiguous, kReversed, kStrided, kTransposed, kVarying };
  // Addresses of a row's access of form contiguous, reversed or strided.
  struct Run {
    llvm::Value* misses = nullptr;               // i1; null: known to be inside.
    llvm::SmallVector<llvm::Value*, 8> columns;  // Pointers to each column's lowest lane.
  };
  // Loaded or stored values of a row (kAllRows: that rows share): a vector for each of columns * words_; uniform: a
  // scalar for each of words_.
  using Row = llvm::SmallVector<llvm::Value*, 8>;

  void FindForm();
  void Remark() const;
  llvm::Value* MaskOf(unsigned row, unsigned column);  // Null: all lanes.
  Run FindRun(unsigned row);
  Run FindMaskedRun(unsigned row);

  // Accesses that are inside.
  Row LoadInside(unsigned row, const Run& run);
  void StoreInside(unsigned row, const Run& run);
  llvm::Value* LoadColumn(llvm::Value* pointer, llvm::Value* mask);
  void StoreColumn(llvm::Value* pointer, llvm::Value* mask, llvm::Value* value);
  Row LoadScalars(llvm::Value* pointer);
  void StoreScalars(llvm::Value* pointer, const Row& values);
  Row LoadUniform(unsigned row);
  void StoreUniform(unsigned row);
  llvm::Value* UniformPointer(unsigned row, llvm::Value* active, llvm::Value** misses);
  llvm::Value* LastActive(unsigned row, uint32_t operand);
  llvm::Instruction* Tag(llvm::Instruction* access);
  llvm::Value* Narrow(llvm::Value* value);  // To the type in memory; scalar or vector.
  llvm::Value* Widen(llvm::Value* value);
  llvm::Value* Misses(unsigned row, const Run& run);
  // Runs `search` if `misses` holds, or gives the tile up; otherwise runs `inside`. Merges the results.
  Row Split(llvm::Value* misses, llvm::function_ref<Row()> inside, llvm::function_ref<Row()> search);
  void Guarded(llvm::Value* condition, llvm::function_ref<void()> body);  // Null: always.

  // In gang_search.cc: accesses that miss, lane by lane.
  Row SearchLoad(unsigned row);
  Row SearchUniformLoad(unsigned row);
  void SearchStore(unsigned row);
  Row StoredWords(unsigned row, unsigned column);
  // Calls a helper that iterates over the active lanes; `values` is stored, or null. Returns the array of values.
  llvm::Value* SearchColumn(unsigned row, unsigned column, llvm::Value* values);

  // In gang_gather.cc.
  llvm::Value* Gather(unsigned row, unsigned column, unsigned word);
  llvm::Value* GatherNarrow(unsigned row, unsigned column);
  llvm::Value* TinyWord();
  llvm::SmallVector<unsigned, 4> StridedStarts() const;
  llvm::Value* LoadStrided(llvm::Value* pointer);
  void StoreStrided(llvm::Value* pointer, llvm::Value* value);
  llvm::Value* InterleavedMask(llvm::Value* mask);
  void LoadInterleaved(llvm::Value* pointer, llvm::Value* mask, Row* row);
  void StoreInterleaved(llvm::Value* pointer, llvm::Value* mask, const Row& words);
  // Splits four words per lane, lane after lane, into four vectors; Interleave is the inverse.
  void Deinterleave(llvm::Value* all, Row* row);
  llvm::Value* Interleave(const Row& words);
  void Scatter(unsigned row, unsigned column, unsigned word, llvm::Value* value);
  llvm::Value* Pointers(llvm::Value* offsets, uint64_t imm);

  // In gang_transpose.cc.
  bool IsTransposed() const;
  unsigned BlockRows(unsigned row) const;
  llvm::SmallVector<llvm::Value*, 16> LanePointers(unsigned column);
  Tiled LoadTransposed();
  void StoreTransposed();

  // In gang_atomic.cc.
  // Ends the lane, or a row's active lanes, if `condition` holds.
  using Trap = llvm::function_ref<void(llvm::Value* condition, llvm::Value* code, llvm::Value* address)>;
  llvm::Value* AtomicPointer(llvm::Value* operand, Trap trap);
  llvm::Value* AtomicColumn(unsigned row, unsigned column);
  void AtomicUniform(unsigned row, llvm::Value* value);
  llvm::Value* ReduceRow(unsigned row);

  llvm::Value* I64(uint64_t value) { return b_.getInt64(value); }
  llvm::Value* context() const { return tile_.function->getArg(0); }

  GangTile& tile_;
  GangMasks& masks_;
  GangTraps& traps_;
  GangFrame& frame_;
  ModuleEmitter& m_ = tile_.m;
  llvm::IRBuilder<>& b_ = tile_.b;
  const ir::Op& op_;
  GangAddress place_;
  const pass::Layout at_;  // Layout of the address.
  const unsigned lanes_, columns_;
  const unsigned words_;       // 4 for load128 and store128, else 1.
  const unsigned word_bytes_;  // Bytes of each word.
  const bool gives_up_;        // Gives the tile up if the access misses.
  bool is_shared_ = false;     // Shared by all rows: done once, for lanes active in any row.
  int64_t step_ = 0;           // Step of a linear address.
  Form form_ = Form::kVarying;
  llvm::Type* stored_ = nullptr;  // Type of a word in memory.
};

}  // namespace hpvm::cpu

#endif  // HPVMD_COMPILER_BACK_LLVM_GANG_GANG_MEMORY_H_
