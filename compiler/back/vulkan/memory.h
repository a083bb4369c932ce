// SPDX-License-Identifier: Apache-2.0
// Memory: the arrays that a variant has to itself, where an access's bytes lie, and how they are loaded and stored.
// Internal to this folder.
//
// Raw values are u32, uvec2 for 8 bytes, uvec4 for 16.
#ifndef HPVMD_COMPILER_BACK_VULKAN_MEMORY_H_
#define HPVMD_COMPILER_BACK_VULKAN_MEMORY_H_

#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"

#include "compiler/analysis/definitions.h"
#include "compiler/analysis/index_loads.h"
#include "compiler/back/gpu/float_sums.h"
#include "compiler/back/vulkan/arithmetic.h"
#include "compiler/back/vulkan/control.h"
#include "compiler/back/vulkan/variant.h"

namespace hpvm::vulkan {

// One execution's own memory, or constants, or group memory: an array of words at byte address `begin`.
struct WordArray {
  SpvId variable = 0;
  spv::StorageClass storage = spv::StorageClassPrivate;
  uint64_t begin = 0, end = 0;
  bool is_writable = false;
  bool has_vectors = false;  // Its elements are vectors of four words.
};

// Where an access goes once its range is known. `address` counts bytes from the beginning of what is bound.
struct Spot {
  uint32_t param = 0;                // Unless `words`.
  const WordArray* words = nullptr;  // Module memory, state, group memory.
  SpvId address = 0;                 // u32.
  uint32_t alignment = 0;            // log2, of the address.
  bool is_once = false;              // What is loaded must not be loaded again (pass/index_loads.h).
};

// The arrays (emit_entry.cc).
class Arrays : private Room {
 public:
  Arrays(Variant& variant, Functions& functions) : Room(variant), functions_(functions) {}

  void Declare();
  // At the entry point's beginning: gives written arrays their content.
  void EmitStart();
  // `word`: the type of a pointer into it; `index`: the work item's, which zeroes a part.
  void ZeroGroup(SpvId word, SpvId index);
  // The same, of tables, which get their content. Behind it the group waits.
  void FillTables(SpvId word, SpvId index);
  bool has_tables() const { return !tables_.empty(); }
  uint64_t table_bytes() const;
  // The table that the load looks up at a place that surely lies in it; null: none.
  const WordArray* TableOf(ir::OpId id) const;
  const std::vector<WordArray>& module_memory() const { return module_memory_; }
  const std::vector<WordArray>& state() const { return state_; }
  const WordArray* group() const { return group_ ? &*group_ : nullptr; }  // Null: there is none.
  SpvId GroupBase();
  const WordArray* SegmentArray(uint64_t index);

 private:
  // Constants that work items look up, each at a place of its own. Drivers keep constant arrays where one place is
  // served at a time; group memory serves many.
  struct Table {
    const gpu::OwnMemory* memory = nullptr;
    SpvId content = 0;
    WordArray words;
  };
  bool UsesGroupVectors() const;
  void FindTables();
  SpvId GroupItems();
  SpvId OwnArray(const gpu::OwnMemory& memory);
  void EmitOwnStart(const gpu::OwnMemory& memory, const WordArray& array);

  Functions& functions_;
  std::map<uint64_t, WordArray> segments_;
  std::vector<WordArray> module_memory_, state_;
  std::vector<Table> tables_;
  std::optional<WordArray> group_;
};

// Loads and stores at a spot.
class Access : private Room {
 public:
  explicit Access(Variant& variant) : Room(variant) {}

  SpvId LoadRaw(const Spot& spot, uint32_t width);
  void StoreRaw(const Spot& spot, uint32_t width, SpvId raw);
  SpvId RawType(uint32_t width);
  SpvId Element(const Spot& spot, View view, SpvId index);  // A pointer.
  SpvId BitsInWord(const Spot& spot, uint32_t mask);

 private:
  SpvId LoadElement(const Spot& spot, SpvId type, View view, SpvId index);
  void StoreElement(const Spot& spot, View view, SpvId index, SpvId value);
  // Of accesses that are no atomics, beside atomics that order them.
  bool IsVolatile(const Spot& spot) const;
  SpvId LoadWord(const Spot& spot, SpvId index);
  void StoreWord(const Spot& spot, SpvId index, SpvId value);
  void StoreBits(const Spot& spot, SpvId index, SpvId mask, SpvId value);
  Spot At(const Spot& spot, uint32_t bytes);
  SpvId LoadSmall(const Spot& spot, uint32_t width);
  void StoreSmall(const Spot& spot, uint32_t width, SpvId value);
  SpvId LoadUnaligned(const Spot& spot);
  void StoreUnaligned(const Spot& spot, SpvId value);
  bool HasView(const Spot& spot, View view) const;
  bool IsWhole(const Spot& spot, uint32_t width) const;
};

enum class Memory : uint8_t { kFlat, kModule, kState };

// Finds and checks where an access's bytes lie: by the range that is known, or by address (emit_flat.cc) in functions
// that are called where needed.
class Search : private Room {
 public:
  struct RangeSource {
    const WordArray* words = nullptr;
    uint32_t param = 0;
    bool is_group = false;
  };
  struct Range {
    SpvId begin = 0, bytes = 0;  // Of the address type.
    Spot spot;                   // Without an address.
    SpvId offset = 0;            // u32: of the range's first byte in what is bound.
    bool is_writable = false;
  };

  Search(Variant& variant, Functions& functions, Values& values, Traps& traps, Arrays& arrays, Access& access)
      : Room(variant),
        functions_(functions),
        values_(values),
        traps_(traps),
        arrays_(arrays),
        access_(access),
        shared_(gpu::ShareChecks(v_.module, v_.plan, [this](ir::OpId id) { return v_.OmitsCheck(id); })) {}

  // Nothing: the access always traps, and the block has ended.
  std::optional<Spot> FindInParam(ir::OpId id);
  std::optional<Spot> FindInGroup(ir::OpId id);
  static Memory MemoryOf(gpu::Reach reach);
  SpvId AddressTypeOf(Memory memory);
  SpvId AddressOf(const ir::Op& op);
  std::vector<RangeSource> SourcesOf(Memory memory) const;
  // Writes what `found` writes, which returns, for where [address, address + bytes) lies in a range: of a write,
  // without the constants, which no store of the kernel reaches. `found` receives the distance from the range's
  // beginning.
  void ForEachRange(const std::vector<RangeSource>& sources, Memory memory, bool is_write, SpvId address,
                    absl::FunctionRef<SpvId()> bytes, absl::FunctionRef<void(const Range&, SpvId)> found);
  Spot SpotIn(const Range& range, SpvId type, SpvId place, uint32_t alignment);
  static std::string SearchName(const char* what, Memory memory, uint32_t width, uint32_t alignment);
  SpvId SearchLoad(Memory memory, uint32_t width, uint32_t alignment, bool is_once = false);
  SpvId SearchStore(Memory memory, uint32_t width, uint32_t alignment);
  SpvId FindFault(bool is_write);
  SpvId FaultVariable();
  void TrapIfFault(const ir::Op& op, Memory memory, SpvId address);

 private:
  Range MakeRange(const RangeSource& from, Memory memory);
  SpvId Holds(const Range& range, SpvId type, SpvId address, SpvId bytes, SpvId* place);
  SpvId RangeCount(uint32_t param, uint64_t reach);
  void CheckParam(ir::OpId id, SpvId offset);
  void CheckShared(const pass::SharedCheck& check);
  SpvId IsOutside(SpvId offset, SpvId count);
  SpvId SearchByte(Memory memory);
  SpvId LoadByBytes(Memory memory, SpvId address, uint32_t width);

  Functions& functions_;
  Values& values_;
  Traps& traps_;
  Arrays& arrays_;
  Access& access_;
  const pass::SharedChecks shared_;
  SpvId fault_ = 0;
};

// The IR's loads, stores and bulk operations.
class MemoryOps : private Room {
 public:
  MemoryOps(Variant& variant, Functions& functions, Values& values, Traps& traps, Arrays& arrays, Access& access,
            Search& search)
      : Room(variant),
        functions_(functions),
        values_(values),
        traps_(traps),
        arrays_(arrays),
        access_(access),
        search_(search) {}

  bool EmitMemory(ir::OpId id);  // False: it always traps.

 private:
  bool EmitAccess(ir::OpId id);
  SpvId LoadConstant(ir::OpId id);
  bool EmitBulk(const ir::Op& op);
  void TrapIfBulkFault(const ir::Op& op, SpvId function, SpvId address, SpvId bytes);
  SpvId FromRaw(const ir::Op& op, SpvId raw);
  SpvId ToRaw(const ir::Op& op, SpvId value);

  Functions& functions_;
  Values& values_;
  Traps& traps_;
  Arrays& arrays_;
  Access& access_;
  Search& search_;
  const std::vector<bool> index_loads_ = analysis::FindIndexLoads(v_.module, v_.module.entry);  // By ValueId.
  const analysis::Definitions definitions_{v_.f};
};

// emit_atomic.cc.
class Atomics : private Room {
 public:
  Atomics(Variant& variant, Functions& functions, Values& values, Traps& traps, Access& access, Search& search,
          Floats& floats)
      : Room(variant),
        functions_(functions),
        values_(values),
        traps_(traps),
        access_(access),
        search_(search),
        floats_(floats) {}

  bool EmitAtomic(ir::OpId id);  // False: it always traps.

 private:
  void TrapIfMisaligned(const ir::Op& op);
  SpvId SearchAtomic(Memory memory, const ir::Op& op);
  SpvId AtomicAt(const Spot& spot, const ir::Op& op, std::span<const SpvId> operands);
  SpvId AtomicInOwn(const Spot& spot, const ir::Op& op, std::span<const SpvId> operands);
  SpvId AtomicNative(SpvId pointer, const ir::Op& op, std::span<const SpvId> operands, bool is_group);
  SpvId AtomicByExchange(SpvId pointer, SpvId shift, const ir::Op& op, std::span<const SpvId> operands, bool is_group);
  SpvId FloatSumIn(const Spot& spot, const ir::Op& op, std::span<const SpvId> operands);
  SpvId FloatSumNative(const Spot& spot, const ir::Op& op, SpvId operand);
  void FloatSumForAll(ir::OpId id, const Spot& spot, SpvId operand);
  gpu::FloatSum FormOf(const ir::Op& op, bool is_group) const;
  SpvId WordAt(const Spot& spot, const ir::Op& op);
  SpvId Semantics(uint32_t order);
  bool IsExchanged(const ir::Op& op, bool is_group) const;
  SpvId AtomicOperand(const ir::Op& op, SpvId value);
  SpvId AtomicResult(const ir::Op& op, SpvId old);
  SpvId Combine(const ir::Op& op, SpvId type, SpvId old, std::span<const SpvId> operands);

  Functions& functions_;
  Values& values_;
  Traps& traps_;
  Access& access_;
  Search& search_;
  Floats& floats_;
  const std::vector<gpu::SumPartners> partners_ =  // By OpId.
      gpu::FindSumPartners(v_.module, v_.plan, v_.m.target, v_.options.fast_math);
  SpvId carried_ = 0;  // The total of sums in front that go to the next one; 0: there is none.
};

// How a sum of floats is made.
gpu::FloatSum FloatSumAt(const ir::Module& module, const ir::Op& op, const GpuTarget& target, bool is_group,
                         bool fast_math);

}  // namespace hpvm::vulkan

#endif  // HPVMD_COMPILER_BACK_VULKAN_MEMORY_H_
