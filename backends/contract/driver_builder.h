// SPDX-License-Identifier: Apache-2.0
// DriverBuilder runs a driver's compiler in a separate process, so that a compiler that crashes, hangs or exhausts
// memory costs one module and not the tenant's resident buffers. It returns the driver's binary form, which the device
// then loads.
//
// The implementation (executor/driver_process.*) caches results on disk, by a hash of the whole request and the
// driver's identity.
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
  std::string device;  // The name taken by CreateDevice: "opencl:0".
  GpuFormat format = GpuFormat::kNone;
  std::span<const uint8_t> code;  // Borrowed during the call.
  std::string options;
  std::vector<std::string> entries;
  // Group sizes to prepare, because PoCL generates machine code for each group size separately; may be empty.
  std::vector<std::array<uint32_t, 3>> groups;
  // kSpirvShader: the layouts of pipelines.
  std::vector<GpuVariant> variants;
};

struct DriverBinary {
  std::vector<uint8_t> bytes;  // OpenCL: the program's binary; Vulkan: pipeline cache data.
  std::string log;             // The driver's log, if any.
};

class DriverBuilder {
 public:
  virtual ~DriverBuilder() = default;
  // kInvalidArgument: the driver rejects the module (the message has its log), or crashed on it. kResourceExhausted: it
  // took longer than this server allows. kUnavailable: no process could be started. kCancelled, kDeadlineExceeded: the
  // caller's patience ended, and the driver's work was stopped. Thread-safe.
  virtual StatusOr<DriverBinary> Build(const DriverBuild& build, const Patience& patience) = 0;
};

}  // namespace hpvm

#endif  // HPVMD_BACKENDS_CONTRACT_DRIVER_BUILDER_H_
