// SPDX-License-Identifier: Apache-2.0
// GpuPlan holds what both GPU emitters (compiler/back/opencl, compiler/back/vulkan) must know about a kernel before
// they emit code: what to refuse, the memory layout, which accesses are aligned, where a trap goes. It depends on
// neither output language.
//
// The kernel specification (docs/KERNELS.md) states these differences for GPUs: an access traps if its address was
// computed from a buffer's parameter or from local_alloc and misses that buffer or group memory; an access computed
// from the shadow stack traps if it leaves the part that the kernel uses; a store to module memory elsewhere traps if
// its address was not known at compile time.
#ifndef HPVMD_COMPILER_BACK_GPU_GPU_PLAN_H_
#define HPVMD_COMPILER_BACK_GPU_GPU_PLAN_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/diagnostic.h"
#include "base/status.h"
#include "compiler/api/gpu_target.h"
#include "compiler/ir/bounds.h"
#include "compiler/ir/words.h"
#include "compiler/pass/memory/shared_checks.h"
#include "compiler/pass/tile/coarsen.h"

namespace hpvm::gpu {

using namespace ir::words;

// The way in which an instance ends on a trap. A work item must not leave a group that still meets barriers.
enum class TrapExit : uint8_t {
  kReturn,    // No barriers: record the trap and return.
  kPostpone,  // Barriers: record the trap, set the group's flag, and continue as trap_route.h says to the next test of
              // the flag, after which all return.
};

// Bytes that have the same initial content for every instance: module memory, or Space::kState.
struct OwnMemory {
  uint64_t begin = 0, end = 0;  // Addresses (module memory) or offsets (state) that accesses can reach.
  bool is_written = false;      // Each work item has its own copy of [begin, end); else one constant array.
  bool is_scratch = false;      // Written, and every read follows a write: needs no initial content.
  std::vector<uint8_t> bytes;   // Initial content of [begin, end).

  // The part of `bytes` outside of which all bytes are zero; multiples of 8; empty when all are zero.
  struct Filled {
    uint64_t begin = 0, end = 0;
  };
  Filled filled() const;
};

// The memory that an access reaches.
enum class Reach : uint8_t {
  kNone,    // Not an access.
  kParam,   // The buffer of parameter space_index; an access outside it traps.
  kGroup,   // Group memory: the operand is kGroupBase + offset or from local_alloc; an access outside it traps.
  kModule,  // GpuPlan::module_memory alone; an access outside it traps (but see there).
  kState,   // GpuPlan::state alone; an access outside it traps (but see there).
  kFlat,    // Resolved by address at run time: module memory, each buffer, group memory.
};

// The evidence that allows a variant's code to omit range checks.
enum class Trust : uint8_t {
  kNothing,  // None: all checks stay.
  kLaunch,   // The launch proves that accesses stay inside (GpuVariant::needs_proof).
  kWords,    // The launch also knows the range of the words on which offsets depend (GpuVariant::needs_words).
};

struct GpuPlan {
  TrapExit trap_exit = TrapExit::kReturn;
  // Indexed by ValueId of the entry: log2 of a known divisor of the value (0: unknown). Offsets in space param count
  // from the view's first byte.
  std::vector<uint8_t> alignment;
  // Indexed by OpId: true for a memory access whose bytes the bounds program covers, and for an access that it covers
  // when the words are known.
  std::vector<bool> is_proven, is_proven_by_words;
  // Returns true if code that relies on `trust` may omit the access's range check.
  bool IsProven(ir::OpId id, Trust trust) const {
    return (trust != Trust::kNothing && is_proven[id.index]) ||
           (trust == Trust::kWords && is_proven_by_words[id.index]);
  }
  std::vector<Reach> reach;  // Indexed by OpId of the entry, for loads, stores and atomics.
  // The parts of module memory and of the state that accesses reach; sorted, disjoint, begin and end multiples of 8.
  // Other bytes below Module::memory_bytes (state_bytes) are zero and never written: loads there give 0, stores trap.
  // An access may straddle a border; a store that does so traps.
  std::vector<OwnMemory> module_memory;
  std::vector<OwnMemory> state;
  // Indexed by OpId of accesses that reach kModule or kState: the only part of module_memory (state) in which their
  // bytes can lie without a trap; -1: several parts, or bytes in no part.
  std::vector<int32_t> part;
  std::vector<bool> is_inside;  // Indexed by OpId: the access always lies in its part.
  // Returns null when `part` is -1.
  const OwnMemory* PartOf(ir::OpId id) const {
    const auto index = static_cast<size_t>(part[id.index]);
    return part[id.index] < 0 ? nullptr : &(reach[id.index] == Reach::kState ? state : module_memory)[index];
  }
  uint64_t private_bytes = 0;          // Total bytes of all written OwnMemory.
  uint64_t constant_bytes = 0;         // Total bytes of constant OwnMemory and of the initial content of written parts.
  uint64_t local_bytes = 0;            // Group memory that local_alloc hands out; every size is a constant.
  std::vector<uint64_t> local_offset;  // Indexed by OpId of local_alloc: its offset in group memory.
  bool uses_flat = false;              // Some access resolves its address at run time (kFlat).
  // True if buffer addresses are visible beyond accesses, so that the actual ones (kBufferBase) are needed; otherwise
  // every buffer's parameter may have the value StandInBase.
  bool uses_bases = false;
  bool uses_atomics = false;
  // True if there are atomic operations, and plain loads of bytes that other instances may store: S73 requires fences.
  bool needs_fences = false;
  ir::BoundsProgram bounds;
};

// Returns the value of a buffer's parameter where it is not visible: the lowest possible base, the same for all
// buffers.
uint64_t StandInBase(const ir::Module& module);

// Kernels above these limits are refused: drivers keep each work item's memory in registers and spill slots, and
// constants in memory that is 64 KiB on most devices.
inline constexpr uint64_t kPrivateBytesMax = 64 * 1024;
inline constexpr uint64_t kConstantBytesMax = 60 * 1024;

// Plans the entry of a module that has gone through RunGpuPipeline. Each operation that the device or any GPU cannot
// run gives an error diagnostic with the operation, its source position and the reason: calls that could not be
// inlined (recursion, tables), prints, memory_grow, types the device lacks, local_alloc of a non-constant size,
// barriers in divergent control, more group or private memory than available, more buffers than the device takes.
GpuPlan PlanGpu(const ir::Module& module, const GpuTarget& target, Diagnostics& diagnostics);

// Plans a coarse form of the module whose plan is `original`; the bounds program remains the original's.
GpuPlan PlanCoarse(const pass::CoarseModule& coarse, const GpuPlan& original, const GpuTarget& target,
                   Diagnostics& diagnostics);

// Returns the number of tiles for which there is room beside the variants of one instance per work item.
size_t TilesMax(const GpuPlan& plan);

// A module in which one check before a loop replaces the checks in each iteration for accesses that are not proven
// (compiler/pass/tile/guard_loops.h).
struct Guarded {
  pass::CoarseModule form;
  GpuPlan plan;
};
// Returns nothing if no loop qualifies, or the device could not run the form. `plan` is the module's; `report` may be
// null.
std::optional<Guarded> GuardLoops(const ir::Module& module, const GpuPlan& plan, Trust trust, const GpuTarget& target,
                                  KernelReport* report);

// The form of a kernel from which a variant is emitted; all pointers are borrowed.
struct Form {
  const ir::Module* module = nullptr;
  const GpuPlan* plan = nullptr;               // The plan of `module`.
  const pass::CoarseModule* coarse = nullptr;  // Null, or the coarse form whose module is `module`.
  explicit Form(const Guarded& made) : module(&made.form.module), plan(&made.plan), coarse(&made.form) {}
  Form(const ir::Module& m, const GpuPlan& p, const pass::CoarseModule* c) : module(&m), plan(&p), coarse(c) {}
  bool HasWideAccesses() const { return coarse != nullptr && coarse->needs_alignment; }
};

// Merges neighbouring loads (compiler/pass/tile/wide_loads.h) and runs several loop iterations at a time
// (compiler/pass/tile/loads_ahead.h), for a variant that relies on `trust`. Returns nothing if neither applies, or the
// target is a processor, whose compilers do this themselves. `original` is the plan of the kernel.
std::optional<Guarded> ImproveLoads(const Form& form, const GpuPlan& original, Trust trust, const GpuTarget& target);

// Emits the forms with one instance per work item, in order of decreasing trust: `write` makes one variant of each, or
// two if that pays and has_room is true. Stops at the first failure. `written`: number of variants emitted before;
// `report` may be null.
Status WriteSingles(const ir::Module& module, const GpuPlan& plan, const GpuTarget& target, KernelReport* report,
                    size_t written, const std::function<Status(const Form&, Trust, bool has_room)>& write);

// Returns true if offsets can be counted in 32 bits: buffers of 32-bit kernels have less than 4 GiB.
bool HasSmallOffset(const ir::Module& module, const ir::Op& op);
// Finds the checks that can be shared among buffer loads that keep their check and have small offsets.
pass::SharedChecks ShareChecks(const ir::Module& module, const GpuPlan& plan,
                               const std::function<bool(ir::OpId)>& omits_check);

}  // namespace hpvm::gpu

#endif  // HPVMD_COMPILER_BACK_GPU_GPU_PLAN_H_
