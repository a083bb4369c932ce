// SPDX-License-Identifier: Apache-2.0
// What both GPU emitters (compiler/back/opencl, compiler/back/vulkan) must know of a kernel before they write a line:
// what to refuse, what memory lies where, which accesses are aligned, where a trap goes. Free of both languages.
//
// Differences from the kernel specification (docs/KERNELS.md), which docs/KERNELS.md states: on a GPU an access whose
// address was computed from a buffer's parameter and misses that buffer traps, as in lockstep; an access computed from
// the shadow stack that leaves the part of it that the kernel uses traps.
#ifndef HPVMD_COMPILER_BACK_GPU_GPU_PLAN_H_
#define HPVMD_COMPILER_BACK_GPU_GPU_PLAN_H_

#include <cstdint>
#include <string>
#include <vector>

#include "base/diagnostic.h"
#include "compiler/gpu_target.h"
#include "compiler/ir/bounds.h"
#include "compiler/ir/ir.h"

namespace hpvm::gpu {

// A trap ends an instance, but a work item must not leave a group that still meets barriers.
enum class TrapExit : uint8_t {
  kReturn,    // Nothing waits: record and return.
  kPostpone,  // The kernel has barriers: record, mark the group, leave the outermost construct without a barrier, and
              // go on with accesses switched off until the next barrier or trap check, behind which all return.
};

// Bytes that every instance sees in the same initial state: module memory, or Space::kState.
struct OwnMemory {
  uint64_t begin = 0, end = 0;  // Addresses (module memory) or offsets (state) that accesses can reach.
  bool is_written = false;      // Each work item has its own copy of [begin, end); else one constant array.
  std::vector<uint8_t> bytes;   // Initial content of [begin, end).
};

struct GpuPlan {
  TrapExit trap_exit = TrapExit::kReturn;
  // By ValueId of the entry: log2 of a factor that the value is known to be a multiple of (0: unknown). Offsets in
  // space param count from the view's first byte.
  std::vector<uint8_t> alignment;
  // By OpId: a memory access whose bytes the bounds program covers, so unchecked code may omit its range check.
  std::vector<bool> is_proven;
  // Constant data of module memory; written parts (shadow stack, globals in memory) apart.
  std::vector<OwnMemory> module_memory;  // Sorted, disjoint.
  OwnMemory state;
  uint64_t private_bytes = 0;  // All written OwnMemory together.
  uint64_t local_bytes = 0;    // What local_alloc gives out; every size is a constant.
  std::vector<uint64_t> local_offset;  // By OpId of local_alloc: its offset in group memory.
  bool uses_flat = false;      // Some access searches all ranges by its address.
  bool uses_bases = false;     // Addresses of buffers are seen by something else than accesses.
  ir::BoundsProgram bounds;
};

// Above these a kernel is refused: drivers keep each work item's memory in registers and spill slots.
inline constexpr uint64_t kPrivateBytesMax = 64 * 1024;

// Looks at the entry of a module that has gone through RunGpuPipeline. What the device or any GPU cannot run is an
// error diagnostic that names the operation, its place and the reason: calls that could not be inlined (recursion, tables),
// prints, memory_grow, types the device lacks, local_alloc of a size that is no constant, barriers where control may
// differ inside a group, more group or private memory than there is, more buffers than the device takes.
GpuPlan PlanGpu(const ir::Module& module, const GpuTarget& target, Diagnostics& diagnostics);

}  // namespace hpvm::gpu

#endif  // HPVMD_COMPILER_BACK_GPU_GPU_PLAN_H_
