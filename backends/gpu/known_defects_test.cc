// SPDX-License-Identifier: Apache-2.0
#include "backends/gpu/known_defects.h"

#include <stdlib.h>

#include <map>
#include <set>
#include <string>
#include <utility>

#include "gtest/gtest.h"

#include "backends/gpu/defect_probe.h"
#include "backends/opencl/pocl.h"
#include "backends/registry.h"

namespace hpvm::gpu {
namespace {

Time Soon() { return RealClock().Now() + std::chrono::seconds(120); }

std::vector<std::string> Devices() {
  std::vector<std::string> names;
  for (const char* family : {"opencl", "vulkan"}) {
    const StatusOr<std::vector<std::string>> found = backends::ListDevices(family);
    names.insert(names.end(), found->begin(), found->end());
  }
  return names;
}

// People and records need only one line per defect.
TEST(KnownDefects, SayWhatPeopleRead) {
  std::map<std::string_view, const KnownDefect*> first;
  std::string_view last;
  for (const KnownDefect& defect : KnownDefects()) {
    const auto [known, is_new] = first.emplace(defect.name, &defect);
    EXPECT_TRUE(is_new || last == defect.name) << defect.name << ": its probes do not stand together";
    EXPECT_EQ(known->second->reason, defect.reason);
    EXPECT_EQ(known->second->is_ours, defect.is_ours);
    EXPECT_TRUE(defect.reason.ends_with('.') && defect.reason.size() > 30) << defect.name;
    EXPECT_FALSE(defect.seen_with.empty());
    EXPECT_LE(defect.name.size(), 64u);
    last = defect.name;
  }
}

// Probes of emitted code come from the emitters, for both interfaces, checked and unchecked; the others do not.
TEST(KnownDefects, OursAreEmitted) {
  std::set<std::pair<ArtifactKind, bool>> emitted;
  for (const KnownDefect& defect : KnownDefects()) {
    const Artifact artifact = defect.probe.code();
    EXPECT_EQ(artifact.gpu.is_native, !defect.is_ours) << defect.name;
    if (defect.is_ours) {
      emitted.emplace(artifact.kind, artifact.gpu.variants[0].needs_proof);
    }
  }
  for (const ArtifactKind kind : {ArtifactKind::kOpenCl, ArtifactKind::kVulkan}) {
    EXPECT_TRUE(emitted.contains({kind, false}) && emitted.contains({kind, true}));
  }
}

// On all drivers present, emitted code is correct, and every other probe gives an answer. A driver that shows a defect
// is one that the table names.
TEST(KnownDefects, OnTheDevicesHere) {
  Hub hub;
  for (const std::string& name : Devices()) {
    StatusOr<std::unique_ptr<Device>> device = backends::CreateDevice(name, hub, {});
    ASSERT_TRUE(device.ok()) << device.status();
    for (const KnownDefect& defect : KnownDefects()) {
      if (!Concerns(defect.probe, **device)) {
        continue;
      }
      SCOPED_TRACE(name + ": " + std::string(defect.name));
      const StatusOr<bool> right = ComputesRightly(defect.probe, **device, Soon());
      ASSERT_TRUE(right.ok()) << right.status();
      EXPECT_TRUE(*right || !defect.is_ours);
      const bool is_wrapped = defect.name == "wrapped-address" && (*device)->info().gpu.is_processor;
      EXPECT_TRUE(*right || !is_wrapped);
      const bool is_pocl_3_1 =
          (*device)->info().name.find("Portable Computing Language, driver 3.1") != std::string::npos;
      EXPECT_FALSE(*right && defect.name == "barriers-in-branches" && is_pocl_3_1);
    }
  }
}

// Wrong results are detected: the expected output of one probe fails the check of another.
TEST(KnownDefects, WrongResultsShow) {
  Hub hub;
  for (const std::string& name : Devices()) {
    StatusOr<std::unique_ptr<Device>> device = backends::CreateDevice(name, hub, {});
    ASSERT_TRUE(device.ok()) << device.status();
    for (const KnownDefect& defect : KnownDefects()) {
      DefectProbe short_probe = defect.probe;
      short_probe.instances /= 2;  // The other half of `out` stays zero.
      if (Concerns(short_probe, **device)) {
        const StatusOr<bool> right = ComputesRightly(short_probe, **device, Soon());
        ASSERT_TRUE(right.ok()) << right.status();
        EXPECT_FALSE(*right) << name << ": " << defect.name;
      }
    }
  }
}

}  // namespace
}  // namespace hpvm::gpu

int main(int argc, char** argv) {
  hpvm::opencl::SetPoclEnvironment(/*keeps=*/true);  // As executors do.
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
