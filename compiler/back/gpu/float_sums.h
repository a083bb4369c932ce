// SPDX-License-Identifier: Apache-2.0
// Selects how GPUs perform atomic floating-point sums. A native atomic add is used where the device has it. The
// alternative, a compare-and-exchange loop, takes at least two accesses, and instances that add to one address delay
// each other.
//
// A native add may flush denormal numbers to zero: NVIDIA's does for f32 in buffers (PTX ISA, "atom"). Exact sums use
// it only for operands x for which flushing is harmless: |x| >= 2^(p + 1) n, where p is the precision in bits and n
// the smallest normal number, and infinities and NaNs.
//
// - A denormal old value m is flushed, but could not have changed the sum. x and its neighbours are at least 2n
//   apart, also below a power of two, and |m| < n: x + m rounds to x.
// - No other sum is denormal, so none is flushed. |x + m| < n requires |m| >= 2^p n. Then x and m are multiples of
//   2n, and so is their sum: it is 0, or at least 2n.
// - Zeros, infinities and NaNs behave as in IEEE 754; S54 does not specify which NaN results.
//
// Smaller operands use the exchange loop. Adding a zero changes only a zero of the other sign, so it is one exchange
// of -0 for the operand.
//
// In fast math the work items of a subgroup that arrive at a sum together first add up their operands, and one of them
// adds the total. This is done where only the order of the terms can differ:
//
// - The old value is not used.
// - Every partner would have added to the same address: their addresses are computed alike from launch-wide values,
//   or the work items compare addresses first and add individually if any differs.
// - Work items do not observe each other's sums before a barrier or the end of the launch: the entry loads nothing
//   from a writable buffer, and no atomic operation in it returns an old value that is used. The work item that adds
//   reaches the barrier or the end itself, so it has added by then.
//
// Consecutive sums to one address, such as those of a tile's instances, are merged first.
//
// Control need not be uniform. The device decides which work items are partners, and any choice is correct: every
// operand is in exactly one total, and every total is added once.
#ifndef HPVMD_COMPILER_BACK_GPU_FLOAT_SUMS_H_
#define HPVMD_COMPILER_BACK_GPU_FLOAT_SUMS_H_

#include <cstdint>
#include <functional>
#include <vector>

#include "compiler/api/gpu_target.h"
#include "compiler/api/report.h"
#include "compiler/back/gpu/gpu_plan.h"
#include "compiler/ir/ir.h"

namespace hpvm::gpu {

enum class FloatSum : uint8_t {
  kExchange,  // Compare-and-exchange loop: the device has no native add.
  kGuarded,   // Native add, unless the operand is too small.
  kDevice,    // Native add.
};

// `flushes`: the native add may flush denormal numbers to zero. `fast_math`: the node's setting.
FloatSum FloatSumOf(const ir::Module& module, const ir::Op& op, bool has_operation, bool flushes, bool fast_math);

// The work items with which a work item adds up its operand before one of them adds atomically.
enum class SumPartners : uint8_t {
  kNone,    // None.
  kAll,     // The active work items of its subgroup.
  kAtOnce,  // The same if a comparison shows that all have one address; otherwise none.
  kNext,    // None: the operand is added to that of the region's next sum, which has the same address.
};

// Returns, by OpId of the entry, the partners for float sums in buffers and group memory, and kNone for all other
// operations. `fast_math`: the node's setting.
std::vector<SumPartners> FindSumPartners(const ir::Module& module, const GpuPlan& plan, const GpuTarget& target,
                                         bool fast_math);

// Returns, by ValueId, true for values that some operation takes as an operand.
std::vector<bool> FindUsed(const ir::Function& function);

// Returns the bits of 2^(p + 1) n. Bits of magnitudes are ordered as the magnitudes are, with infinities and NaNs
// last.
constexpr uint64_t LeastGuardedOperand(ir::Type type) {
  return type == ir::Type::kF32 ? uint64_t{127 - 101} << 23 : uint64_t{1023 - 968} << 52;
}

// Reports for each atomic float sum of the entry how it is performed. Calls `form` for sums in buffers and in group
// memory; `partners` is indexed by OpId.
void ReportFloatSums(const ir::Module& module, const GpuPlan& plan,
                     const std::function<FloatSum(const ir::Op&, bool is_group)>& form,
                     const std::vector<SumPartners>& partners, KernelReport& report);

}  // namespace hpvm::gpu

#endif  // HPVMD_COMPILER_BACK_GPU_FLOAT_SUMS_H_
