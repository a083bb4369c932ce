// SPDX-License-Identifier: Apache-2.0
// Addresses that wrap around in an intermediate result, on every OpenCL and Vulkan device, each variant and a tile,
// against the interpreter. A driver that gets them wrong accesses memory 4 GiB after the buffer: it faults, or values
// differ.
#include "gtest/gtest.h"

#include "backends/opencl/pocl.h"
#include "compiler/ir/interpret/interpret.h"
#include "compiler/ir/testing/wrap_kernels.h"
#include "compiler/ir/text/text.h"
#include "tests/gpu/device_run.h"

namespace hpvm::gpu_test {
namespace {

using ir::testing::WrapBuffers;
using ir::testing::WrapKernel;

class WrapTest : public ::testing::TestWithParam<std::string> {
 protected:
  // The variant together with the fully checked one, for launches that it cannot take.
  static Artifact Only(const Artifact& artifact, size_t variant) {
    Artifact one = artifact;
    one.gpu.variants = {artifact.gpu.variants[variant]};
    if (variant + 1 != artifact.gpu.variants.size()) {
      one.gpu.variants.push_back(artifact.gpu.variants.back());
    }
    return one;
  }
};

TEST_P(WrapTest, SumsWrapBeforeTheyAreAddresses) {
  DeviceRun device(GetParam(), 0);
  for (const WrapKernel& kernel : ir::testing::WrapKernels()) {
    SCOPED_TRACE(kernel.name);
    const StatusOr<ir::Module> module = ir::ParseModule(kernel.text);
    ASSERT_TRUE(module.ok()) << module.status();
    WrapBuffers want;
    const StatusOr<ir::TrapReport> ran = ir::Interpret(*module, want.On());
    ASSERT_TRUE(ran.ok() && ran->code == ir::TrapCode::kNone) << ran.status();
    pass::GpuTile tile;
    tile.size = {4, 1, 1};
    const StatusOr<Artifact> artifact = device.Compile(*module, {tile});
    ASSERT_TRUE(artifact.ok()) << artifact.status();
    for (size_t i = 0; i < artifact->gpu.variants.size(); ++i) {
      SCOPED_TRACE(artifact->gpu.variants[i].entry);
      const StatusOr<std::unique_ptr<Executable>> executable = device.Load(Only(*artifact, i));
      ASSERT_TRUE(executable.ok()) << executable.status();
      WrapBuffers found;
      const StatusOr<ir::TrapReport> trap = device.Launch(**executable, found.On());
      ASSERT_TRUE(trap.ok()) << trap.status();
      EXPECT_EQ(trap->code, ir::TrapCode::kNone);
      EXPECT_EQ(found.r, want.r);
    }
  }
}

std::string TestName(const ::testing::TestParamInfo<std::string>& info) {
  std::string name = info.param;
  name[name.find(':')] = '_';
  return name;
}

GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(WrapTest);
INSTANTIATE_TEST_SUITE_P(All, WrapTest, ::testing::ValuesIn(Devices()), TestName);

}  // namespace
}  // namespace hpvm::gpu_test

int main(int argc, char** argv) {
  hpvm::opencl::SetPoclEnvironment(/*keeps=*/true);  // As executors do.
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
