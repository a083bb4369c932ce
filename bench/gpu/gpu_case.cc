// SPDX-License-Identifier: Apache-2.0
#include "bench/gpu/gpu_case.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "base/status.h"

namespace hpvm::bench {
namespace {

CpuCase (*FindMaker(std::string_view name))(CpuSize) {
  for (std::span<const CpuCaseMaker> makers : {ParboilCases(), OtherCases(), SmallArrayCases()}) {
    const auto found = std::find_if(makers.begin(), makers.end(), [&](const auto& one) { return name == one.name; });
    if (found != makers.end()) {
      return found->make;
    }
  }
  return nullptr;
}

}  // namespace

// The large sizes are multiples of 256, so that the peers' launches need no superfluous work items and no guard.
std::vector<GpuCaseMaker> GpuCases(CpuSize size) {
  std::vector<GpuCaseMaker> cases;
  for (std::span<const CpuCaseMaker> makers : {GpuStreamCases(), GpuArrayCases(), GpuGroupCases()}) {
    for (const CpuCaseMaker& maker : makers) {
      cases.push_back({maker.name, [make = maker.make, size] { return make(size); }});
    }
  }
  for (const char* name :
       {"heat", "tree_sum", "spmv", "mri_q", "cutcp", "n_body", "black_scholes", "complex_product", "unit_vectors",
        "complex_matrices", "xtea", "sha256", "binomial", "sort_rows", "docking", "stencil27"}) {
    CpuCase (*make)(CpuSize) = FindMaker(name);
    HPVMD_CHECK(make != nullptr);
    cases.push_back({name, [make, size] { return make(size == CpuSize::kFull ? CpuSize::kGpu : size); }});
  }
  const std::vector<uint64_t> orders = size == CpuSize::kFull    ? std::vector<uint64_t>{1'024, 2'048, 4'096, 8'192}
                                       : size == CpuSize::kQuick ? std::vector<uint64_t>{256}
                                                                 : std::vector<uint64_t>{48};
  for (uint64_t order : orders) {
    cases.push_back({"matmul_" + std::to_string(order), [order] {
                       CpuCase c = MakeSgemmOf(order, order, order);
                       c.magnitude = static_cast<double>(order) / 32;  // Sums of that many terms.
                       c.samples = std::min<uint64_t>(c.samples, 4'000);
                       return c;
                     }});
  }
  return cases;
}

}  // namespace hpvm::bench
