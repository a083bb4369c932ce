// SPDX-License-Identifier: Apache-2.0
// Builders measure the cost of compiling a kernel, even if the driver defers it to the first dispatch.
#include "backends/vulkan/early_compile.h"

#include <stdlib.h>

#include <chrono>
#include <filesystem>
#include <string>
#include <thread>

#include "gtest/gtest.h"

#include "backends/contract/driver_builder.h"
#include "backends/vulkan/build.h"
#include "backends/vulkan/instance.h"
#include "backends/vulkan/testing/shaders.h"

namespace hpvm::vulkan {
namespace {

// Returns true when there are files with more than an index entry; the driver writes them on its own thread.
bool HasCode(const std::string& folder) {
  std::error_code error;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder, error)) {
    if (entry.is_regular_file(error) && entry.path().filename() != "index" && entry.file_size(error) > 100) {
      return true;
    }
  }
  return false;
}

// Mesa stores generated machine code in a folder: a build that leaves none has compiled nothing.
TEST(EarlyCompileTest, BuildsCompile) {
  std::string folder = ::testing::TempDir() + "hpvm-early-XXXXXX";
  ASSERT_NE(mkdtemp(folder.data()), nullptr);
  setenv("MESA_SHADER_CACHE_DIR", folder.c_str(), 1);
  unsetenv("MESA_SHADER_CACHE_DISABLE");
  const StatusOr<const Instance*> instance = Instance::Get(false);
  if (absl::IsNotFound(instance.status())) {
    GTEST_SKIP() << Message(instance.status());
  }
  ASSERT_TRUE(instance.ok()) << instance.status();
  if ((*instance)->devices().empty() || !(*instance)->devices()[0].compiles_at_dispatch) {
    GTEST_SKIP() << "The driver compiles when a pipeline is made.";
  }
  const Artifact artifact = StepArtifact();
  DriverBuild build;
  build.device = "vulkan:0";
  build.format = GpuFormat::kSpirvShader;
  build.code = artifact.code;
  build.variants = artifact.gpu.variants;
  const StatusOr<DriverBinary> built = BuildForVulkan(build);
  ASSERT_TRUE(built.ok()) << built.status();
  for (int i = 0; i < 1000 && !HasCode(folder); ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  EXPECT_TRUE(HasCode(folder));
  std::error_code ignored;
  std::filesystem::remove_all(folder, ignored);
}

}  // namespace
}  // namespace hpvm::vulkan
