// SPDX-License-Identifier: Apache-2.0
// Runs OpenCL C artifacts in a test, on the first device of the first platform, through plain OpenCL calls.
#ifndef HPVMD_COMPILER_BACK_OPENCL_TESTING_PROGRAM_RUNNER_H_
#define HPVMD_COMPILER_BACK_OPENCL_TESTING_PROGRAM_RUNNER_H_

#include <array>
#include <memory>
#include <string>

#include "base/status.h"
#include "compiler/api/artifact.h"
#include "compiler/api/gpu_target.h"
#include "compiler/ir/launch.h"

namespace hpvm::opencl::testing {

// Describes the device; returns false when there is none, with a message on stderr.
bool HasOpenClDevice(GpuTarget* target, std::string* name);

// ProgramRunner holds a built program. Movable.
class ProgramRunner {
 public:
  // `group`: work items per group, declared to the driver; zeros: not declared.
  static StatusOr<ProgramRunner> Build(const Artifact& artifact, const std::array<uint32_t, 3>& group = {});
  ProgramRunner(ProgramRunner&&) noexcept;
  ~ProgramRunner();

  // Runs the whole launch with one variant; the extent must be a multiple of its tile. `start` bytes precede each
  // view. The trap's address and function are the record's.
  StatusOr<ir::TrapReport> Run(const ir::Launch& launch, const ir::AddressSpace& space, uint32_t variant,
                               uint64_t start = 0);

 private:
  struct Impl;
  explicit ProgramRunner(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace hpvm::opencl::testing

#endif  // HPVMD_COMPILER_BACK_OPENCL_TESTING_PROGRAM_RUNNER_H_
