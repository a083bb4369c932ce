// SPDX-License-Identifier: Apache-2.0
// The golden kernels of tests/golden/ir on every OpenCL and Vulkan device: what the interpreter wrote down comes out,
// in the variants that a device chooses and in the one that checks everything; or the kernel is refused, for a reason
// that stands here.
#include <cstdlib>
#include <fstream>
#include <set>
#include <sstream>

#include "compiler/ir/testing/golden.h"
#include "compiler/ir/text.h"
#include "gtest/gtest-spi.h"
#include "gtest/gtest.h"
#include "tests/gpu/device_run.h"

namespace hpvm::gpu_test {
namespace {

struct Exception {
  const char* file;
  const char* reason;
  uint64_t local_bytes = 0;    // Only on devices with less group memory; 0: on all.
  bool is_lavapipe = false;    // Only on processors behind Vulkan.
};

// Never run: what runs on a GPU cannot be stopped.
const std::set<std::string> kEndless = {"s38-endless.ir"};

// What GPUs do otherwise, as docs/KERNELS.md says.
constexpr Exception kExpectedFailures[] = {
    {"s04-no-wrap-64.ir", "A trap's record has the low half of the address."},
    {"s04-no-wrap.ir", "A trap's record has the low half of the address."},
    {"s10-negative-offset.ir", "An access that misses its buffer traps."},
    {"s10-other-buffer.ir", "An access that misses its buffer traps."},
    {"s12-group-first.ir", "An access to group memory that misses it traps."},
    {"s13-zero-bytes-outside.ir", "Fills of an instance's own memory anywhere are refused."},
    {"s16-does-not-fit.ir", "The device allocates less than the buffer's bytes."},
    {"s16-escapes.ir", "The device allocates less than the buffer's bytes."},
    {"s16-separate.ir", "The device allocates less than the buffer's bytes."},
    {"s17-private-restored.ir", "The driver would take minutes for so much private memory.", 0, true},
    {"s19-grow.ir", "Memory that grows is refused."},
    {"s20-grow-private.ir", "Memory that grows is refused."},
    {"s36-table.ir", "Indirect calls are refused."},
    {"s37-depth-100.ir", "Recursion is refused."},
    {"s37-recursion.ir", "Recursion is refused."},
    {"s41-alone.ir", "A barrier that not every instance may reach is refused."},
    {"s41-some-end.ir", "A barrier that not every instance may reach is refused."},
    {"s42-elsewhere.ir", "A barrier that not every instance may reach is refused."},
    {"s48-exhausted.ir", "More group memory than there is is refused."},
    {"s48-most.ir", "The device has less group memory.", 65536},
    {"s57-call.ir", "Indirect calls are refused."},
    {"s57-first.ir", "Indirect calls are refused."},
    {"s58-alike.ir", "Indirect calls are refused."},
};

const Exception* ExpectedFailure(const std::string& name, const GpuTarget& target, bool is_vulkan) {
  for (const Exception& exception : kExpectedFailures) {
    const bool applies = (exception.local_bytes == 0 || target.local_bytes_max < exception.local_bytes) &&
                         (!exception.is_lavapipe || (target.is_processor && is_vulkan));
    if (name == exception.file && applies) {
      return &exception;
    }
  }
  return nullptr;
}

std::string NameOf(const std::string& path) { return path.substr(path.rfind('/') + 1); }

class GoldenTest : public ::testing::TestWithParam<std::string> {};

// What Vulkan promises of every device, beside 64-bit integers: no narrow accesses, no f64, little room for values.
GpuTarget Plain(GpuTarget target) {
  target.has_fp64 = target.has_8_bit_storage = target.has_16_bit_storage = target.has_int64_atomics = false;
  target.keeps_nan_and_zero = target.rounds_to_even = target.keeps_denormals = false;
  target.push_bytes_max = 16;
  return target;
}

void CheckFile(DeviceRun& device, const GpuTarget& target, const std::string& path) {
  ir::testing::CheckGoldenFile(path, [&](const ir::Module& module, const ir::Launch& launch) {
    const auto run = [&]() -> StatusOr<ir::TrapReport> {
      HPVMD_ASSIGN_OR_RETURN(Artifact artifact, device.CompileFor(target, module, {}));
      HPVMD_ASSIGN_OR_RETURN(std::unique_ptr<Executable> executable, device.Load(std::move(artifact)));
      return device.Launch(*executable, launch);
    };
    return run();
  });
}

// Kernels with f64 are refused by devices without it.
bool IsRefusedForFloats(DeviceRun& device, const GpuTarget& target, const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  StatusOr<ir::Module> module = ir::ParseModule(text.str());
  if (!module.ok()) {
    return false;
  }
  const Status status = device.CompileFor(target, *std::move(module), {}).status();
  return Message(status).find("it has no 64-bit floats (f64)") != std::string::npos;
}

// A file that is listed must fail, so that the list stays true.
void CheckAll(DeviceRun& device, const GpuTarget& target) {
  for (const std::string& path : ir::testing::GoldenFiles(HPVMD_SOURCE_DIR "/tests/golden/ir")) {
    const std::string name = NameOf(path);
    if (kEndless.contains(name)) {
      continue;
    }
    SCOPED_TRACE(name);
    if (!target.has_fp64 && IsRefusedForFloats(device, target, path)) {
      continue;
    }
    const Exception* expected = ExpectedFailure(name, target, device.info().id.rfind("vulkan", 0) == 0);
    if (expected == nullptr) {
      CheckFile(device, target, path);
      continue;
    }
    ::testing::TestPartResultArray results;
    {
      ::testing::ScopedFakeTestPartResultReporter reporter(
          ::testing::ScopedFakeTestPartResultReporter::INTERCEPT_ALL_THREADS, &results);
      CheckFile(device, target, path);
    }
    EXPECT_GT(results.size(), 0) << "Passes, although it is listed as an expected failure: " << expected->reason;
  }
}

TEST_P(GoldenTest, DoesWhatTheInterpreterWroteDown) {
  DeviceRun device(GetParam());
  CheckAll(device, device.info().gpu);
}

// The same for a Vulkan device taken to have next to nothing: narrow stores by bits of words, values in a buffer.
TEST_P(GoldenTest, NeedsLittleOfTheDevice) {
  DeviceRun device(GetParam());
  if (GetParam().rfind("vulkan", 0) != 0) {
    GTEST_SKIP() << "What an OpenCL device lacks is told to its compiler otherwise.";
  }
  CheckAll(device, Plain(device.info().gpu));
}

std::string TestName(const ::testing::TestParamInfo<std::string>& info) {
  std::string name = info.param;
  name[name.find(':')] = '_';
  return name;
}

GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(GoldenTest);
INSTANTIATE_TEST_SUITE_P(All, GoldenTest, ::testing::ValuesIn(Devices()), TestName);

}  // namespace
}  // namespace hpvm::gpu_test

int main(int argc, char** argv) {
  setenv("POCL_WORK_GROUP_SPECIALIZATION", "0", /*overwrite=*/0);  // As executors do, before the driver is loaded.
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
