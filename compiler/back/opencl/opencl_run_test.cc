// SPDX-License-Identifier: Apache-2.0
// What the emitter writes, built and run by whatever OpenCL driver is there, against the interpreter.
#include <map>

#include "compiler/back/opencl/opencl_back.h"
#include "compiler/back/opencl/testing/program_runner.h"
#include "compiler/ir/testing/golden.h"
#include "compiler/pass/pipeline.h"
#include "gtest/gtest.h"

namespace hpvm {
namespace {

using testing::ProgramRunner;

// Golden kernels that a GPU does not do as written, each with the reason.
constexpr char kRecord[] = "The record of a trap holds the low half of the address.";
constexpr char kMisses[] = "An access computed from a buffer or group memory that misses it traps.";
constexpr char kStack[] = "There is no call stack.";
constexpr char kMeets[] = "Drivers do not say what happens when not all of a group meet a barrier.";
const std::map<std::string, std::string> kUnsupported = {
    {"s04-no-wrap-64.ir", kRecord},
    {"s04-no-wrap.ir", kRecord},
    {"s10-negative-offset.ir", kMisses},
    {"s10-other-buffer.ir", kMisses},
    {"s12-group-first.ir", kMisses},
    {"s13-zero-bytes-outside.ir", "It fills module memory at an address that is not known."},
    {"s19-grow.ir", "Memory cannot grow."},
    {"s20-grow-private.ir", "Memory cannot grow."},
    {"s21-gap-until-grown.ir", "Memory cannot grow."},
    {"s36-table.ir", kStack},
    {"s37-depth-100.ir", kStack},
    {"s37-recursion.ir", kStack},
    {"s38-endless.ir", "A launch cannot be stopped; its process is ended."},
    {"s41-alone.ir", kMeets},
    {"s41-some-end.ir", kMeets},
    {"s42-elsewhere.ir", kMeets},
};

StatusOr<ir::TrapReport> RunGolden(ir::Module module, const ir::Launch& launch) {
  GpuTarget target;
  std::string name;
  testing::HasOpenClDevice(&target, &name);
  HPVMD_RETURN_IF_ERROR(RunGpuPipeline(module, {.verify_each = true}));
  HPVMD_RETURN_IF_ERROR(ir::CheckLaunch(module, launch));
  HPVMD_ASSIGN_OR_RETURN(const ir::AddressSpace space, ir::AssignAddresses(module, launch.arguments));
  Diagnostics diagnostics;
  GpuOptions options;
  options.chooses_tiles = false;
  const std::optional<Artifact> artifact = EmitOpenCl(module, target, options, diagnostics);
  if (!artifact.has_value()) {
    return ToStatus(diagnostics);
  }
  HPVMD_ASSIGN_OR_RETURN(ProgramRunner runner, ProgramRunner::Build(*artifact));
  // The last variant checks everything.
  return runner.Run(launch, space, static_cast<uint32_t>(artifact->gpu.variants.size() - 1));
}

// Every golden kernel of the specification.
TEST(OpenClRunTest, DoesWhatTheInterpreterWroteDown) {
  GpuTarget target;
  std::string name;
  if (!testing::HasOpenClDevice(&target, &name)) {
    GTEST_SKIP() << "There is no OpenCL device.";
  }
  for (const std::string& path : ir::testing::GoldenFiles(HPVMD_SOURCE_DIR "/tests/golden/ir")) {
    SCOPED_TRACE(path);
    if (kUnsupported.count(path.substr(path.rfind('/') + 1)) == 0) {
      ir::testing::CheckGoldenFile(path, RunGolden);
    }
  }
}

}  // namespace
}  // namespace hpvm
