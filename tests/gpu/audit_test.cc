// SPDX-License-Identifier: Apache-2.0
// Audits of proofs (compiler/api/audit.h) on every OpenCL and Vulkan device: a launch with a wrong proof, because its
// bounds program was changed after compilation, ends the process with a message.
#include <cstdlib>

#include "gtest/gtest.h"

#include "compiler/ir/text/text.h"
#include "tests/gpu/device_run.h"

namespace hpvm::gpu_test {
namespace {

constexpr char kKernel[] = R"(module "m"
param buffer inout "r"
entry f0
func f0 "k" (%r: i32) -> () {
  %c0: i32 = const.i32 0
  %c2: i32 = const.i32 2
  %i: i32 = instance_id.i32 %c0
  %o: i32 = shl.i32 %i, %c2
  store.i32 param(0) %o, %i
  return ()
}
)";

// Launches instances [0, 64) on a buffer of `count` elements.
void Launch(const std::string& device, bool is_proof_wrong, uint64_t count) {
  DeviceRun run(device);
  StatusOr<ir::Module> module = ir::ParseModule(kKernel);
  ASSERT_TRUE(module.ok());
  StatusOr<Artifact> artifact = run.Compile(*std::move(module));
  ASSERT_TRUE(artifact.ok()) << artifact.status();
  ASSERT_EQ(artifact->bounds.accesses.size(), 1u);
  if (is_proof_wrong) {
    artifact->bounds.accesses[0].offset = {};
  }
  StatusOr<std::unique_ptr<Executable>> executable = run.Load(*std::move(artifact));
  ASSERT_TRUE(executable.ok()) << executable.status();
  std::vector<uint32_t> r(64);
  ir::Launch launch;
  launch.extent = {64, 1, 1};
  launch.arguments = {{reinterpret_cast<uint8_t*>(r.data()), 4 * count, 0}};
  const StatusOr<ir::TrapReport> trap = run.Launch(**executable, launch);
  ASSERT_TRUE(trap.ok()) << trap.status();
  EXPECT_EQ(trap->code, count < 64 ? ir::TrapCode::kOutOfBounds : ir::TrapCode::kNone);
}

TEST(AuditTest, AWrongProofEndsTheProcess) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";  // Drivers have threads.
  setenv("HPVMD_TEST_AUDIT", "1", /*overwrite=*/1);
  for (const std::string& device : Devices()) {
    SCOPED_TRACE(device);
    Launch(device, false, 64);
    Launch(device, false, 33);
    EXPECT_DEATH(Launch(device, true, 33), "left its buffers although the proof at launch showed that it stays inside");
  }
}

}  // namespace
}  // namespace hpvm::gpu_test
