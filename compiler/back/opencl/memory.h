// SPDX-License-Identifier: Apache-2.0
// Accesses to memory. Internal to this folder.
#ifndef HPVMD_COMPILER_BACK_OPENCL_MEMORY_H_
#define HPVMD_COMPILER_BACK_OPENCL_MEMORY_H_

#include <cstdint>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "compiler/analysis/index_loads.h"
#include "compiler/back/gpu/float_sums.h"
#include "compiler/back/opencl/control.h"
#include "compiler/back/opencl/text.h"
#include "compiler/pass/memory/shared_checks.h"

namespace hpvm::opencl {

// Ranges describes an instance's memory for accesses by address (emit_ranges.cc), and the parts of its private memory.
class Ranges {
 public:
  Ranges(Variant& variant, Text& text, Facts& facts) : v_(variant), text_(text), facts_(facts) {}

  std::string Use();  // "&ranges"; also declares what it needs.
  std::string PartPointer(bool is_state, int32_t part, const gpu::OwnMemory& memory);
  void WriteParts();
  void WriteValue();

 private:
  void Need();
  std::string Definition() const;
  std::string Value();

  Variant& v_;
  Text& text_;
  Facts& facts_;
  std::set<std::pair<bool, int32_t>> parts_;  // Private memory in use: is_state, part.
  bool uses_ranges_ = false;
};

// In emit_memory.cc.
class Memory {
 public:
  // The location of an access's bytes.
  struct Bytes {
    std::string_view space;  // "__global" ...
    std::string pointer;     // Has type uchar*.
    uint32_t alignment = 0;  // log2.
    bool is_table = false;   // Constant, and work items may read different addresses.
    // Returns true if no other instance writes there, so that repeated reads give the same value.
    bool is_own() const { return space == "__private" || space == "__constant const"; }
  };

  Memory(Variant& variant, Text& text, Facts& facts, Traps& traps, Ranges& ranges)
      : v_(variant),
        text_(text),
        facts_(facts),
        traps_(traps),
        ranges_(ranges),
        shared_(gpu::ShareChecks(variant.module, variant.plan, [&](OpId id) { return variant.OmitsCheck(id); })) {}

  void WriteAccess(OpId id);
  void WriteLocalAlloc(OpId id);
  bool Locate(OpId id, Bytes* bytes);
  std::string LoadWord(const Bytes& bytes, uint32_t width, uint64_t at);
  std::string StoreWord(const Bytes& bytes, uint32_t width, uint64_t at, const std::string& value);
  std::string WordOf(const Op& op, uint32_t operand);
  // Returns the address (or offset) with the immediate, as a ulong. Traps where it overflows.
  std::string Effective(OpId id);
  uint32_t AlignmentOf(const Op& op) const;

 private:
  void WriteFlatAccess(OpId id);
  void CheckShared(const pass::SharedCheck& check);
  bool LocateParam(OpId id, Bytes* bytes);
  std::string ParamPointer(const Op& op, std::string_view space);
  bool LocateGroup(OpId id, Bytes* bytes);
  bool LocateOwn(OpId id, Bytes* bytes);
  std::string PlaceInside(const Op& op, const gpu::OwnMemory& memory);
  void WriteOwnAccess(OpId id);
  void WriteLoad(const Op& op, const Bytes& bytes);
  void WriteStore(const Op& op, const Bytes& bytes);
  void DefineLoaded(const Op& op, const std::string& loaded, bool is_own = false);
  std::string Once(ValueId result, uint32_t width, const std::string& word, bool is_own = false);
  void WriteBulk(OpId id);

  Variant& v_;
  Text& text_;
  Facts& facts_;
  Traps& traps_;
  Ranges& ranges_;
  const pass::SharedChecks shared_;
  const std::vector<bool> index_loads_ = analysis::FindIndexLoads(v_.module, v_.module.entry);  // Indexed by ValueId.
};

// In emit_atomic.cc.
class Atomics {
 public:
  Atomics(Variant& variant, Text& text, Facts& facts, Traps& traps, Ranges& ranges, Memory& memory)
      : v_(variant), text_(text), facts_(facts), traps_(traps), ranges_(ranges), memory_(memory) {}

  void WriteAtomic(OpId id);

 private:
  using Bytes = Memory::Bytes;
  std::string AtomicOn(const Op& op, const Bytes& bytes);
  void WriteSum(OpId id, const Bytes& bytes);
  void WriteOwnAtomic(OpId id);
  void WriteOwnUpdate(const Op& op, const std::string& at, const std::string& result);
  void WritePlainAtomic(const Op& op, const Bytes& bytes);
  std::string AtomicByLoop(const Op& op, const Bytes& bytes);
  std::string LoopFor(const Op& op, std::string_view space);
  std::string FloatSumOn(const Op& op, const Bytes& bytes, const std::string& word);
  bool GivesOld(const Op& op) const;  // True if the old value is used.
  std::string Updated(const Op& op, const std::string& old);
  std::string NextValue(const Op& op, std::string_view old, std::string_view a, std::string_view b, uint32_t width);
  void Fence();

  Variant& v_;
  Text& text_;
  Facts& facts_;
  Traps& traps_;
  Ranges& ranges_;
  Memory& memory_;
  const std::vector<bool> is_used_ = gpu::FindUsed(v_.f);  // Indexed by ValueId.
  const std::vector<gpu::SumPartners> partners_ =          // Indexed by OpId.
      gpu::FindSumPartners(v_.module, v_.plan, v_.target, v_.options.fast_math);
  std::string carried_;  // Total of the preceding sums that are merged into the next one; empty when there is none.
};

// Returns how an atomic float sum is performed in "__global" or "__local" memory.
gpu::FloatSum FloatSumIn(const ir::Module& module, const Op& op, const GpuTarget& target, std::string_view space,
                         bool fast_math);

}  // namespace hpvm::opencl

#endif  // HPVMD_COMPILER_BACK_OPENCL_MEMORY_H_
