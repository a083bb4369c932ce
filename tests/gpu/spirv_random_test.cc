// SPDX-License-Identifier: Apache-2.0
// Random kernels (tests/spmd) as SPIR-V: every module is valid, whatever its control flow, for a device with all
// features and for one with few.
//   HPVMD_SEEDS=0..9999 gpu_spirv_random_test     other seeds than the few of every test run
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>

#include "compiler/back/vulkan/vulkan_back.h"
#include "compiler/pass/pipeline.h"
#include "tests/spmd/generate.h"

namespace hpvm::gpu_test {
namespace {

GpuTarget Target(bool is_full) {
  GpuTarget target;
  target.has_int64 = true;
  target.has_fp64 = target.has_8_bit_storage = target.has_16_bit_storage = is_full;
  target.has_int64_atomics = target.exact_fma = target.keeps_denormals = target.rounds_to_even = is_full;
  target.group_size_max = 1024;
  target.group_extent_max = {1024, 1024, 64};
  target.group_count_max = {0x7fffffff, 65535, 65535};
  target.local_bytes_max = 65536;
  target.buffer_bytes_max = 0xffffffff;
  target.buffers_max = 1024;
  target.push_bytes_max = is_full ? 256 : 16;
  target.subgroup_size = 32;
  target.api_version = is_full ? 13 : 12;
  return target;
}

TEST(SpirvRandomTest, ModulesAreValid) {
  unsigned long long first = 0, last = 149;
  if (const char* seeds = std::getenv("HPVMD_SEEDS"); seeds != nullptr) {
    ASSERT_EQ(std::sscanf(seeds, "%llu..%llu", &first, &last), 2);
  }
  uint64_t emitted = 0, refused = 0;
  for (uint64_t seed = first; seed <= last; ++seed) {
    ir::Module module = spmd::Generate(seed).module;
    const Status passed = pass::RunGpuPipeline(module, {.verify_each = true});
    ASSERT_TRUE(passed.ok()) << "seed " << seed << ": " << passed;
    for (const bool is_full : {true, false}) {
      Diagnostics diagnostics;
      const std::optional<Artifact> artifact = vulkan::EmitVulkan(module, Target(is_full), {}, diagnostics);
      ++(artifact.has_value() ? emitted : refused);
      ASSERT_EQ(ToString(diagnostics).find("not valid"), std::string::npos)
          << "seed " << seed << ": " << ToString(diagnostics);
    }
  }
  std::printf("%llu modules, %llu kernels refused\n", static_cast<unsigned long long>(emitted),
              static_cast<unsigned long long>(refused));
  EXPECT_GT(emitted, (last - first) / 2);  // GPUs can run most of the generated kernels.
}

}  // namespace
}  // namespace hpvm::gpu_test
