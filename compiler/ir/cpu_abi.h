// SPDX-License-Identifier: Apache-2.0
// The contract between a CPU image (compiler/back/llvm emits it) and the runner (backends/cpu calls it): plain C
// layout, fixed offsets.
//
// An image is position-independent machine code and constants without relocations; its only link to the runner is
// CpuContext. The runner maps it read-only and executable and calls CpuEntry. An image never makes a system call and
// accesses no memory other than the context, the arguments' buffers, the module memory and its dirty list, and the
// worker's stack.
#ifndef HPVMD_COMPILER_IR_CPU_ABI_H_
#define HPVMD_COMPILER_IR_CPU_ABI_H_

#include <cstddef>
#include <cstdint>

namespace hpvm::ir {

inline constexpr uint32_t kCpuAbiVersion = 4;

struct CpuArgument {
  uint8_t* data;      // For buffers: host address.
  uint64_t bytes;     // For buffers: size. For scalars: 0.
  uint64_t base;      // For buffers: virtual base address. For scalars: the bits.
  uint64_t writable;  // For buffers: 0 or 1. For scalars: kCpuScalar, so that no address lies in them.
};

inline constexpr uint64_t kCpuScalar = 2;

// Module memory is private to an instance. The runner keeps one copy per worker; the image records the granules that
// it wrote, and the runner (or the image's own loop, through `restore`) restores them before the next instance.
inline constexpr uint64_t kDirtyGranuleBytes = 512;

struct CpuContext {
  const CpuArgument* arguments;  // 0  one per kernel parameter
  // 8  number of arguments in which flat addresses may lie: all, or 0 when each buffer has an address space of its
  // own (AddressSpace::separate).
  uint64_t argument_count;
  uint8_t* memory;                  //  16  module memory, `memory_bytes` usable, reserved up to the module's maximum
  uint64_t memory_bytes;            //  24  grows by memory_grow
  uint64_t memory_bytes_max;        //  32
  uint64_t* dirty_bits;             // 40  one bit per granule of [0, memory_bytes_max)
  uint32_t* dirty_list;             //  48  indices of granules whose bit is set, in order of setting
  uint64_t dirty_count;             //  56
  uint64_t* globals;                // 64  one 8-byte slot per global, mutable or not
  const uint32_t* stop;             //  72  the stop word; never null
  uint64_t extent[3];               //  80
  uint64_t group[3];                // 104
  uint8_t* group_memory;            // 128
  uint64_t group_memory_base;       // 136  virtual
  uint64_t group_memory_used;       // 144  bytes handed out by local_alloc to the running instance
  uint64_t group_memory_bytes_max;  // 152
  uint64_t stack_limit;             // 160  the image traps when its stack pointer falls below
  // The trap record; written once, before returning kCpuTrapped.
  uint32_t trap_code;      // 168
  uint32_t trap_function;  // 172
  uint32_t trap_source;    // 176
  // 180  set by the image when it stores to `state` (space state, not scratch). An image that stores to many globals
  // sets it for those stores, too; an image that stores to few compares them itself.
  uint32_t state_written;
  uint64_t trap_instance[3];  // 184
  uint64_t trap_address;      // 208
  uint64_t trap_bytes;        // 216
  // Restores module memory and globals to their initial state; the image calls it between instances when anything was
  // written.
  void (*restore)(CpuContext*);  // 224
  // Waits until every instance of the group has arrived (fibers); returns 0, or the trap code to end with. `site`
  // distinguishes barrier operations: instances that wait at different ones diverge. Set only when uses_barrier.
  uint32_t (*barrier)(CpuContext*, uint64_t site);  // 232
  void* runner;                                     // 240  for the runner's own use
  uint8_t* state;                                   // 248  Module::state_bytes
  // Calls a function of another module (HostCalls::Call of the Launch); returns the trap code. Set only when
  // Module::is_linked.
  uint32_t (*host)(CpuContext*, uint32_t reference, uint32_t type, uint64_t* values);  // 256
  // Appends a print record: `values` are the instance's id (3) and the operands' bits. Set only when Module::formats
  // is not empty.
  void (*print)(CpuContext*, uint32_t format, const uint64_t* values);  // 264
  // For units of groups: values that live across barriers, CpuVariant::value_bytes per lane; 64-byte aligned, not
  // zeroed.
  uint8_t* group_values;  // 272
};
static_assert(sizeof(CpuContext) == 280 && offsetof(CpuContext, globals) == 64 && offsetof(CpuContext, extent) == 80 &&
              offsetof(CpuContext, trap_code) == 168 && offsetof(CpuContext, restore) == 224 &&
              offsetof(CpuContext, state) == 248 && offsetof(CpuContext, group_values) == 272);

// kCpuFrameBytesMax bounds the frames of an image; leaf functions do not check stack_limit. The runner therefore sets
// stack_limit at least kCpuStackReserveBytes above the lowest usable byte, which also covers `restore` and `barrier`,
// and keeps an unmapped page below: frames are probed page by page.
inline constexpr uint64_t kCpuFrameBytesMax = 48 * 1024;
inline constexpr uint64_t kCpuStackReserveBytes = 56 * 1024;

enum CpuOutcome : uint32_t { kCpuDone = 0, kCpuTrapped = 1 };

// Runs units [begin, end), in order. Returns at the first trap. The entry (CpuVariant) determines the kind of unit:
//   instance  the instance with that linear index, x fastest. For kernels that use barriers the runner calls the entry
//             once per instance, each on a fiber of its own.
//   tile      `rows` instances along y by `width` = lanes * columns along x, from (tx * width, ty * rows, z); instances
//             outside the extent do not run. There are ceil(X / width) * ceil(Y / rows) * Z tiles. With one row they
//             count tx fastest, then ty, then z; with more rows, ty fastest, then tx, so that the data that a column of
//             tiles reads stays in the caches. With lanes along y a tile is `width` instances along y and one along x;
//             ty counts fastest.
//   group     all instances of the group with that linear index, x fastest, barriers included. Before each group the
//             runner zeroes group memory and group_memory_used; it calls with end == begin + 1.
using CpuEntry = uint32_t (*)(CpuContext* context, uint64_t begin, uint64_t end);

}  // namespace hpvm::ir

#endif  // HPVMD_COMPILER_IR_CPU_ABI_H_
