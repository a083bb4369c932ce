// SPDX-License-Identifier: Apache-2.0
// Cases of `hpvm-bench gpu`: those of `hpvm-bench cpu` that suit GPUs, in larger sizes, and a few of its own.
#ifndef HPVMD_BENCH_GPU_GPU_CASE_H_
#define HPVMD_BENCH_GPU_GPU_CASE_H_

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "bench/cpu/cpu_case.h"

namespace hpvm::bench {

struct GpuCaseMaker {
  std::string name;  // "matmul_4096"; the kernel's name is CpuCase::name.
  std::function<CpuCase()> make;
};
// kFull: for a large GPU; kQuick: for a processor behind a GPU's driver; kCheck: tiny.
std::vector<GpuCaseMaker> GpuCases(CpuSize size);

// Cases that only GPUs have: gpu_stream_cases.cc, gpu_array_cases.cc, gpu_group_cases.cc.
std::span<const CpuCaseMaker> GpuStreamCases();
std::span<const CpuCaseMaker> GpuArrayCases();
std::span<const CpuCaseMaker> GpuGroupCases();

}  // namespace hpvm::bench

#endif  // HPVMD_BENCH_GPU_GPU_CASE_H_
