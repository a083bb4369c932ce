// SPDX-License-Identifier: Apache-2.0
// What both GPU emitters (compiler/back/opencl, compiler/back/vulkan) must know of a kernel before they write a line:
// what to refuse, what memory lies where, which accesses are aligned, where a trap goes. Free of both languages.
//
// Differences from the kernel specification (docs/KERNELS.md), which docs/KERNELS.md states: on a GPU an access whose
// address was computed from a buffer's parameter or from local_alloc and misses that buffer or group memory traps; an
// access computed from the shadow stack that leaves the part of it that the kernel uses traps; so does a store to
// module memory elsewhere whose place was not known when the kernel was compiled.
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

// A trap ends an instance, but a work item must not leave a group that still meets barriers.
enum class TrapExit : uint8_t {
  kReturn,    // Nothing waits: record and return.
  kPostpone,  // The kernel has barriers: record, mark the group, and go on from where trap_route.h says to the next
              // look at the mark, behind which all return.
};

// Bytes that every instance sees in the same initial state: module memory, or Space::kState.
struct OwnMemory {
  uint64_t begin = 0, end = 0;  // Addresses (module memory) or offsets (state) that accesses can reach.
  bool is_written = false;      // Each work item has its own copy of [begin, end); else one constant array.
  bool is_scratch = false;      // Written, and nothing reads what it has not written before: no initial content.
  std::vector<uint8_t> bytes;   // Initial content of [begin, end).

  // The part of `bytes` outside of which all is zero; multiples of 8; empty when there is none.
  struct Filled {
    uint64_t begin = 0, end = 0;
  };
  Filled filled() const;
};

// Where an access finds its bytes.
enum class Reach : uint8_t {
  kNone,    // No access.
  kParam,   // Parameter space_index's buffer; misses trap.
  kGroup,   // Group memory: the operand is kGroupBase + offset, or whatever value local_alloc gives; misses trap.
  kModule,  // GpuPlan::module_memory alone; misses trap (but see there).
  kState,   // GpuPlan::state alone; misses trap (but see there).
  kFlat,    // Found by address: module memory, each buffer, group memory.
};

// The ground on which a variant's code omits range checks.
enum class Trust : uint8_t {
  kNothing,  // It omits none.
  kLaunch,   // The launch shows that accesses stay inside (GpuVariant::needs_proof).
  kWords,    // It also knows the range of the words that offsets rest on (GpuVariant::needs_words).
};

struct GpuPlan {
  TrapExit trap_exit = TrapExit::kReturn;
  // By ValueId of the entry: log2 of a factor that the value is known to be a multiple of (0: unknown). Offsets in
  // space param count from the view's first byte.
  std::vector<uint8_t> alignment;
  // By OpId, true of a memory access whose bytes the bounds program covers, and of one that it covers where words are
  // known.
  std::vector<bool> is_proven, is_proven_by_words;
  // True if code that rests on `trust` may omit the access's range check.
  bool IsProven(ir::OpId id, Trust trust) const {
    return (trust != Trust::kNothing && is_proven[id.index]) ||
           (trust == Trust::kWords && is_proven_by_words[id.index]);
  }
  std::vector<Reach> reach;  // By OpId of the entry: of loads, stores and atomics.
  // What accesses reach of module memory and of the state; sorted, disjoint, begin and end multiples of 8. Other bytes
  // below Module::memory_bytes (state_bytes) are zero and never written: loads there give 0, stores trap. An access may
  // straddle a border; a store that does traps.
  std::vector<OwnMemory> module_memory;
  std::vector<OwnMemory> state;
  // By OpId of accesses that reach kModule or kState: the only part of module_memory (state) that their bytes can lie
  // in without a trap; -1: several, or bytes in no part.
  std::vector<int32_t> part;
  std::vector<bool> is_inside;  // They surely lie in it.
  // Null: several, or none.
  const OwnMemory* PartOf(ir::OpId id) const {
    const auto index = static_cast<size_t>(part[id.index]);
    return part[id.index] < 0 ? nullptr : &(reach[id.index] == Reach::kState ? state : module_memory)[index];
  }
  uint64_t private_bytes = 0;          // All written OwnMemory together.
  uint64_t constant_bytes = 0;         // And all that is not, with what the written ones are filled from.
  uint64_t local_bytes = 0;            // What local_alloc gives out; every size is a constant.
  std::vector<uint64_t> local_offset;  // By OpId of local_alloc: its offset in group memory.
  bool uses_flat = false;              // Some access searches all ranges by its address.
  // Addresses of buffers are seen by something else than accesses, so the true ones (kBufferBase) are needed; else the
  // value of every buffer's parameter may be StandInBase.
  bool uses_bases = false;
  bool uses_atomics = false;
  // Some atomic operation is there, and plain loads of what other instances may store: S73 needs fences.
  bool needs_fences = false;
  ir::BoundsProgram bounds;
};

// What a buffer's parameter may read as where nothing sees it: the lowest base there is, the same for all buffers.
uint64_t StandInBase(const ir::Module& module);

// Above these a kernel is refused: drivers keep each work item's memory in registers and spill slots, and constants in
// memory that is 64 KiB on most devices.
inline constexpr uint64_t kPrivateBytesMax = 64 * 1024;
inline constexpr uint64_t kConstantBytesMax = 60 * 1024;

// Looks at the entry of a module that has gone through RunGpuPipeline. What the device or any GPU cannot run is an
// error diagnostic that names the operation, its place and the reason: calls that could not be inlined (recursion,
// tables), prints, memory_grow, types the device lacks, local_alloc of a size that is no constant, barriers where
// control may differ inside a group, more group or private memory than there is, more buffers than the device takes.
GpuPlan PlanGpu(const ir::Module& module, const GpuTarget& target, Diagnostics& diagnostics);

// Of a coarse form of the module that `original` is the plan of: its bounds program is the original's.
GpuPlan PlanCoarse(const pass::CoarseModule& coarse, const GpuPlan& original, const GpuTarget& target,
                   Diagnostics& diagnostics);

// How many tiles there is room for beside the variants of one instance a work item.
size_t TilesMax(const GpuPlan& plan);

// A module with one check before a loop where accesses that are not proven have one in each iteration
// (compiler/pass/tile/guard_loops.h).
struct Guarded {
  pass::CoarseModule form;
  GpuPlan plan;
};
// Nothing if there is no such loop, or the device could not run the form. `plan` is the module's; `report` may be null.
std::optional<Guarded> GuardLoops(const ir::Module& module, const GpuPlan& plan, Trust trust, const GpuTarget& target,
                                  KernelReport* report);

// The form of a kernel that a variant is written from; all is borrowed.
struct Form {
  const ir::Module* module = nullptr;
  const GpuPlan* plan = nullptr;               // The module's.
  const pass::CoarseModule* coarse = nullptr;  // May be null; else `module` is its module.
  explicit Form(const Guarded& made) : module(&made.form.module), plan(&made.plan), coarse(&made.form) {}
  Form(const ir::Module& m, const GpuPlan& p, const pass::CoarseModule* c) : module(&m), plan(&p), coarse(c) {}
  bool HasWideAccesses() const { return coarse != nullptr && coarse->needs_alignment; }
};

// The form in which neighbouring loads are one (compiler/pass/tile/wide_loads.h) and loops run several iterations at a
// time (compiler/pass/tile/loads_ahead.h), for a variant that rests on `trust`; nothing if there are none such, or the
// target is a processor, whose compilers do so. `original` is the plan of the kernel.
std::optional<Guarded> ImproveLoads(const Form& form, const GpuPlan& original, Trust trust, const GpuTarget& target);

// Writes the forms of one instance a work item, the least trusting last: `write` makes a variant of each, or two if it
// gains by that and has_room says so. The first failure ends it. `written`: variants that are there; `report` may be
// null.
Status WriteSingles(const ir::Module& module, const GpuPlan& plan, const GpuTarget& target, KernelReport* report,
                    size_t written, const std::function<Status(const Form&, Trust, bool has_room)>& write);

// Buffers of 32-bit kernels have less than 4 GiB, so that how many offsets fit is counted in 32 bits.
bool HasSmallOffset(const ir::Module& module, const ir::Op& op);
// Finds the checks that loads of buffers share which keep their check and have small offsets.
pass::SharedChecks ShareChecks(const ir::Module& module, const GpuPlan& plan,
                               const std::function<bool(ir::OpId)>& omits_check);

}  // namespace hpvm::gpu

#endif  // HPVMD_COMPILER_BACK_GPU_GPU_PLAN_H_
