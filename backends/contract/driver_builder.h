// SPDX-License-Identifier: Apache-2.0
// Where drivers compile: in a process of its own, so that a driver's compiler that crashes, hangs or eats memory costs
// one module and not the tenant's resident buffers. What it returns is the driver's own binary form, which the device
// then loads.
//
// The implementation (executor/driver_process.*) keeps results on disk, by a hash of the whole request and the driver's
// identity.
#ifndef HPVMD_BACKENDS_CONTRACT_DRIVER_BUILDER_H_
#define HPVMD_BACKENDS_CONTRACT_DRIVER_BUILDER_H_

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "backends/contract/patience.h"
#include "base/status.h"
#include "compiler/api/gpu_code.h"

namespace hpvm {

struct DriverBuild {
  std::string device;  // As CreateDevice takes it: "opencl:0".
  GpuFormat format = GpuFormat::kNone;
  std::span<const uint8_t> code;  // Borrowed during the call.
  std::string options;
  std::vector<std::string> entries;
  // PoCL makes machine code for each group size apart: those to prepare; may be empty.
  std::vector<std::array<uint32_t, 3>> groups;
  // kSpirvShader: how pipelines are laid out.
  std::vector<GpuVariant> variants;
};

struct DriverBinary {
  std::vector<uint8_t> bytes;  // OpenCL: the program's binary; Vulkan: pipeline cache data.
  std::string log;             // The driver's, if it said anything.
};

class DriverBuilder {
 public:
  virtual ~DriverBuilder() = default;
  // kInvalidArgument: the driver refuses the module (the message has its log), or died on it. kResourceExhausted: it
  // took longer than this server allows. kUnavailable: no process could be started. kCancelled, kDeadlineExceeded: the
  // caller's patience ended, and so does the driver's work. Any thread.
  virtual StatusOr<DriverBinary> Build(const DriverBuild& build, const Patience& patience) = 0;
};

}  // namespace hpvm

#endif  // HPVMD_BACKENDS_CONTRACT_DRIVER_BUILDER_H_
