// SPDX-License-Identifier: Apache-2.0
// Memory: the private arrays of a variant, and how an access's bytes are found, loaded and stored. Internal to this
// folder.
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

// An execution's private memory, constants, or group memory: an array of words at byte address `begin`.
struct WordArray {
  SpvId variable = 0;
  spv::StorageClass storage = spv::StorageClassPrivate;
  uint64_t begin = 0, end = 0;
  bool is_writable = false;
  bool has_vectors = false;  // Its elements are vectors of four words.
};

// The location of an access once its range is known. `address` counts bytes from the beginning of the bound array.
struct Spot {
  uint32_t param = 0;                // Unless `words`.
  const WordArray* words = nullptr;  // Module memory, state, group memory.
  SpvId address = 0;                 // u32.
  uint32_t alignment = 0;            // log2, of the address.
  bool is_once = false;              // The value must not be loaded twice (pass/index_loads.h).
};

// Arrays declares the arrays and initializes them (arrays.cc).
class Arrays : private Room {
 public:
  Arrays(Variant& variant, Functions& functions) : Room(variant), functions_(functions) {}

  void Declare();
  // Emitted at the entry point's beginning: initializes written arrays.
  void EmitStart();
  // `word`: the type of a pointer into it; `index`: the work item's index, which selects the part to zero.
  void ZeroGroup(SpvId word, SpvId index);
  // The same for tables, which receive their content. A barrier must follow.
  void FillTables(SpvId word, SpvId index);
  bool has_tables() const { return !tables_.empty(); }
  uint64_t table_bytes() const;
  // Returns the table in which the load looks up an address known to be inside; null when there is none.
  const WordArray* TableOf(ir::OpId id) const;
  const std::vector<WordArray>& module_memory() const { return module_memory_; }
  const std::vector<WordArray>& state() const { return state_; }
  const WordArray* group() const { return group_ ? &*group_ : nullptr; }  // Null when there is none.
  SpvId GroupBase();
  const WordArray* SegmentArray(uint64_t index);

 private:
  // Constants that work items look up at varying addresses. Drivers keep constant arrays in memory that serves one
  // address at a time; group memory serves many.
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

// Access emits loads and stores at a spot.
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
  // Returns true for plain accesses that atomics must order.
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

// Search finds and checks the location of an access: by its known range, or by address (emit_flat.cc) in functions
// that are emitted on first use.
class Search : private Room {
 public:
  struct RangeSource {
    const WordArray* words = nullptr;
    uint32_t param = 0;
    bool is_group = false;
  };
  struct Range {
    SpvId begin = 0, bytes = 0;  // Has the address type.
    Spot spot;                   // Without an address.
    SpvId offset = 0;            // u32: offset of the range's first byte in the bound array.
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

  // Return nothing when the access always traps; the block has then ended.
  std::optional<Spot> FindInParam(ir::OpId id);
  std::optional<Spot> FindInGroup(ir::OpId id);
  static Memory MemoryOf(gpu::Reach reach);
  SpvId AddressTypeOf(Memory memory);
  SpvId AddressOf(const ir::Op& op);
  std::vector<RangeSource> SourcesOf(Memory memory) const;
  // Emits the code of `found`, which returns, for each range that may hold [address, address + bytes). For a write,
  // constants are left out, because no store of the kernel reaches them. `found` receives the distance from the
  // range's beginning.
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

// MemoryOps emits the IR's loads, stores and bulk operations.
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

  bool EmitMemory(ir::OpId id);  // Returns false when it always traps.

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
  const std::vector<bool> index_loads_ = analysis::FindIndexLoads(v_.module, v_.module.entry);  // Indexed by ValueId.
  const analysis::Definitions definitions_{v_.f};
};

// Atomics emits atomic operations; in emit_atomic.cc.
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

  bool EmitAtomic(ir::OpId id);  // Returns false when it always traps.

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
  const std::vector<gpu::SumPartners> partners_ =  // Indexed by OpId.
      gpu::FindSumPartners(v_.module, v_.plan, v_.m.target, v_.options.fast_math);
  SpvId carried_ = 0;  // Total of the preceding sums that are merged into the next one; 0 when there is none.
};

// Returns how an atomic float sum is performed.
gpu::FloatSum FloatSumAt(const ir::Module& module, const ir::Op& op, const GpuTarget& target, bool is_group,
                         bool fast_math);

}  // namespace hpvm::vulkan

#endif  // HPVMD_COMPILER_BACK_VULKAN_MEMORY_H_
