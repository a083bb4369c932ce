// SPDX-License-Identifier: Apache-2.0
// Every sentence of docs/KERNELS.md on the CPU device: the golden kernels of tests/golden/ir, compiled to images
// (with and without the passes), must give bit for bit what the reference interpreter recorded.
#include "compiler/ir/testing/golden.h"

#include <set>

#include "gtest/gtest.h"

#include "compiler/back/llvm/llvm_back.h"
#include "compiler/pass/pipeline.h"
#include "tests/audit.h"
#include "tests/conformance/conformance.h"

namespace hpvm::conformance {
namespace {

// Sentences that a device does not satisfy, each with its reason.
const std::set<std::string> kUnsupported = {};

StatusOr<ir::TrapReport> RunOnDevice(Bench& bench, ir::Module module, bool passes, const ir::Launch& launch) {
  if (passes) {
    HPVMD_RETURN_IF_ERROR(pass::RunCpuPipeline(module, {.verify_each = true}));
  }
  cpu::InitializeLlvm();
  HPVMD_ASSIGN_OR_RETURN(const cpu::CpuTarget target, cpu::HostCpuTarget());
  HPVMD_ASSIGN_OR_RETURN(Artifact artifact, cpu::EmitCpuImage(module, target, {.audits_proofs = TestsAuditProofs()}));
  HPVMD_ASSIGN_OR_RETURN(std::unique_ptr<Executable> executable, bench.device().Load(std::move(artifact)));
  Work work;
  work.stop = launch.stop;
  std::vector<std::unique_ptr<Buffer>> buffers;
  std::vector<Arg> args;
  for (size_t k = 0; k < launch.arguments.size(); ++k) {
    const ir::Argument& argument = launch.arguments[k];
    if (k < module.params.size() && !module.params[k].is_buffer) {
      args.push_back(Arg::Scalar(argument.scalar));
      continue;
    }
    HPVMD_ASSIGN_OR_RETURN(std::unique_ptr<Buffer> buffer,
                           bench.device().Allocate({.bytes = argument.bytes, .import = argument.data}));
    args.push_back(Arg::Of(*buffer));
    buffers.push_back(std::move(buffer));
  }
  work.Dispatch(*executable, launch.extent, launch.group, args);
  Status status = bench.Run(work);
  if (work.failure.trap.code != ir::TrapCode::kNone) {
    return work.failure.trap;
  }
  if (status.code() == absl::StatusCode::kCancelled) {
    ir::TrapReport stopped;
    stopped.code = ir::TrapCode::kStopped;
    return stopped;
  }
  HPVMD_RETURN_IF_ERROR(status);
  return ir::TrapReport();
}

TEST(GoldenConformance, CpuDoesWhatTheInterpreterWroteDown) {
  Bench bench("cpu");
  for (const std::string& path : ir::testing::GoldenFiles(HPVMD_SOURCE_DIR "/tests/golden/ir")) {
    const std::string name = path.substr(path.rfind('/') + 1);
    for (const bool passes : {false, true}) {
      SCOPED_TRACE(name + (passes ? " after the passes" : ""));
      if (!kUnsupported.contains(name)) {
        ir::testing::CheckGoldenFile(path, [&](const ir::Module& module, const ir::Launch& launch) {
          return RunOnDevice(bench, module, passes, launch);
        });
      }
    }
  }
}

}  // namespace
}  // namespace hpvm::conformance
