// SPDX-License-Identifier: Apache-2.0
// How atomic sums of floats are made on GPUs: by an operation of the device's own where it has one. Exchanging a word
// until no other instance came between takes two accesses and more, and many instances at one address hold each other
// up.
//
// But devices may take denormal numbers for zeros in their operation: NVIDIA's do for f32 in buffers (PTX ISA, "atom").
// Exact sums use it only for operands x that make this harmless: |x| >= 2^(p + 1) n, where p is the precision in bits
// and n the smallest normal number, infinities and NaNs.
//
// - A denormal old value m is lost, and could not have changed the sum. x and its neighbours are at least 2n apart,
//   also below a power of two, and |m| < n: x + m rounds to x.
// - No other sum is denormal, so none is lost. |x + m| < n needs |m| >= 2^p n. Then x and m are multiples of 2n, and so
//   is their sum: it is 0, or at least 2n.
// - Zeros, infinities and NaNs come about as always; S54 leaves open which NaN.
//
// Smaller operands are exchanged. A zero changes nothing but a zero of the other sign, so its sum is one exchange of
// -0 for the operand.
//
// In fast math the work items of a subgroup that have come to a sum together add up their operands, and one of them
// adds the total. A sum is made so where nobody can tell, but for the order of the terms:
//
// - Nobody asks for the old value.
// - The total goes to where each of them would have added: their addresses are computed alike from what the launch
//   gives to all, or they compare addresses first, and add alone if any differs.
// - Work items do not see each other's sums before a barrier or the launch's end: the entry loads nothing from a buffer
//   that somebody writes, and no atomic operation in it gives an old value. At a barrier, and at the end, the one that
//   adds has done so, since it comes there itself.
//
// Sums to one place that follow each other, as those of a tile's instances do, become one first.
//
// Control need not be uniform. The device decides about partners, and any will do: every operand is in one total,
// and every total is added once.
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
  kExchange,  // The device has no such operation.
  kGuarded,   // By the device's operation unless the operand is too small.
  kDevice,    // By the device's operation.
};

// `flushes`: the operation may take denormal numbers for zeros. `fast_math`: the node's.
FloatSum FloatSumOf(const ir::Module& module, const ir::Op& op, bool has_operation, bool flushes, bool fast_math);

// Names those with whom a work item adds up its operand before one of them adds atomically.
enum class SumPartners : uint8_t {
  kNone,    // With nobody.
  kAll,     // With those of its subgroup that are there.
  kAtOnce,  // With the same if all have one address, which they compare; else with nobody.
  kNext,    // With itself: the operand goes to the next sum of the region, which is to the same place.
};

// By OpId of the entry: of sums of floats in buffers and in group memory, kNone of all else. `fast_math`: the node's.
std::vector<SumPartners> FindSumPartners(const ir::Module& module, const GpuPlan& plan, const GpuTarget& target,
                                         bool fast_math);

// By ValueId: true of what is an operand of something.
std::vector<bool> FindUsed(const ir::Function& function);

// The bits of 2^(p + 1) n. Bits of magnitudes are ordered as the magnitudes are, infinities and NaNs last.
constexpr uint64_t LeastGuardedOperand(ir::Type type) {
  return type == ir::Type::kF32 ? uint64_t{127 - 101} << 23 : uint64_t{1023 - 968} << 52;
}

// Says of each atomic sum of the entry how it is made. `form` is asked about sums in buffers and in group memory;
// `partners` is by OpId.
void ReportFloatSums(const ir::Module& module, const GpuPlan& plan,
                     const std::function<FloatSum(const ir::Op&, bool is_group)>& form,
                     const std::vector<SumPartners>& partners, KernelReport& report);

}  // namespace hpvm::gpu

#endif  // HPVMD_COMPILER_BACK_GPU_FLOAT_SUMS_H_
