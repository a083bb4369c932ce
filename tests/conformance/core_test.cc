// SPDX-License-Identifier: Apache-2.0
// Tests the facts that a device reports about itself, and the launches that it accepts.
#include "backends/registry.h"
#include "tests/conformance/conformance.h"

namespace hpvm::conformance {
namespace {

// Facts that the layers above depend on.
void Info(Bench& bench) {
  const DeviceInfo& info = bench.device().info();
  EXPECT_FALSE(info.id.empty());
  EXPECT_EQ(info.id.find(std::string(bench.backend().substr(0, bench.backend().find(':'))) + ":"), 0u) << info.id;
  EXPECT_FALSE(info.name.empty());
  EXPECT_FALSE(info.silicon.empty());
  EXPECT_GE(info.compute_units, 1u);
  EXPECT_GT(info.memory_bytes, 0u);
  EXPECT_GT(info.allocation_bytes_max, 0u);
  EXPECT_LE(info.allocation_bytes_max, info.memory_bytes);
}

// A device supports plain kernels of the kind it asks for, and gives a sentence for what it refuses.
void Supports(Bench& bench) {
  KernelNeeds plain;
  plain.kind = bench.device().artifact_kind();
  EXPECT_TRUE(bench.device().Supports(plain).ok);
  KernelNeeds grouped = plain;
  grouped.uses_barrier = grouped.uses_group_memory = true;
  grouped.group = {16, 4, 1};
  EXPECT_TRUE(bench.device().Supports(grouped).ok);
  for (uint64_t huge : {uint64_t{1} << 20, ~uint64_t{0}}) {
    grouped.group = {huge, huge, 3};
    const Support support = bench.device().Supports(grouped);
    EXPECT_EQ(support.ok, support.reason.empty()) << support.reason;
  }
}

// An executable remembers its source artifact.
void Load(Bench& bench) {
  std::unique_ptr<Executable> executable = bench.Load("saxpy");
  ASSERT_NE(executable, nullptr);
  ASSERT_EQ(executable->artifact().params.size(), 3u);
  EXPECT_TRUE(executable->artifact().params[0].is_writable);
  EXPECT_FALSE(executable->artifact().params[1].is_writable);
  EXPECT_FALSE(executable->artifact().params[2].is_buffer);
}

// Invalid code returns a status and does not crash.
void LoadRefusesNonsense(Bench& bench) {
  Artifact artifact;
  artifact.kind = bench.device().artifact_kind();
  artifact.entry = "nothing";
  artifact.entry_offset = 100;
  artifact.code = {'h', 'i'};
  EXPECT_FALSE(bench.device().Load(std::move(artifact)).ok());
  Artifact foreign;
  const bool is_interp = bench.device().artifact_kind() == ArtifactKind::kInterp;
  foreign.kind = is_interp ? ArtifactKind::kCpuImage : ArtifactKind::kInterp;
  foreign.code = {0xc3};
  EXPECT_FALSE(bench.device().Load(std::move(foreign)).ok());
}

// Unknown names are refused with the list of known names.
TEST(RegistryTest, RefusesUnknownNames) {
  Hub hub;
  const StatusOr<std::unique_ptr<Device>> device = backends::CreateDevice("fpga", hub, {});
  ASSERT_EQ(device.status().code(), absl::StatusCode::kNotFound);
  for (std::string_view name : backends::BackendNames()) {
    EXPECT_NE(Message(device.status()).find(name), std::string::npos);
    const StatusOr<std::vector<std::string>> devices = backends::ListDevices(name);
    ASSERT_TRUE(devices.ok()) << devices.status();
    for (const std::string& listed : *devices) {
      const Status status = backends::CreateDevice(listed, hub, {}).status();
      EXPECT_TRUE(status.ok()) << listed << ": " << status;
    }
  }
}

}  // namespace

std::vector<Case> CoreCases() {
  return {{"core_info", Info},
          {"core_supports", Supports},
          {"core_load", Load, true},
          {"core_load_refuses_nonsense", LoadRefusesNonsense}};
}

}  // namespace hpvm::conformance
