// SPDX-License-Identifier: Apache-2.0
// Runs kernel IR on an OpenCL or Vulkan device for tests: compiled by our emitters, launched with host memory, which
// afterwards holds the device's results.
#ifndef HPVMD_TESTS_GPU_DEVICE_RUN_H_
#define HPVMD_TESTS_GPU_DEVICE_RUN_H_

#include <memory>
#include <string>
#include <vector>

#include "backends/contract/device.h"
#include "backends/gpu/forced_variant.h"
#include "backends/registry.h"
#include "compiler/ir/ir.h"
#include "compiler/ir/launch.h"
#include "compiler/pass/tile/coarsen.h"

namespace hpvm::gpu_test {

// Returns every device behind a driver on this machine, "opencl:0", "vulkan:0". Ends the program if a driver is
// broken.
std::vector<std::string> Devices();
// Queries only the device's own driver.
bool HasDevice(const std::string& device);

class DeviceRun {
 public:
  // `variant` is the one of GpuCode::variants that every launch uses.
  explicit DeviceRun(const std::string& backend, uint32_t variant = kAutoVariant);

  Device& device() { return *device_; }
  const DeviceInfo& info() const { return device_->info(); }
  // Compiles the kernel through the pipeline and the device's emitter. kFailedPrecondition when it is refused, with
  // the diagnostics.
  StatusOr<Artifact> Compile(ir::Module module, const std::vector<pass::GpuTile>& tiles = {}) const;
  // Compiles for a device that is assumed to have fewer features, or for a node with "math": "fast".
  StatusOr<Artifact> CompileFor(const GpuTarget& target, ir::Module module, const std::vector<pass::GpuTile>& tiles,
                                bool fast_math = false) const;
  StatusOr<std::unique_ptr<Executable>> Load(Artifact artifact) { return device_->Load(std::move(artifact)); }
  // Arguments that overlap in host memory share a buffer.
  StatusOr<ir::TrapReport> Launch(Executable& executable, const ir::Launch& launch);

 private:
  Status Submit(const CommandList& commands, std::span<Buffer* const> buffers, ir::TrapReport* trap);

  gpu::ForcedVariant forced_;
  Hub hub_;
  std::unique_ptr<Device> device_;
};

}  // namespace hpvm::gpu_test

#endif  // HPVMD_TESTS_GPU_DEVICE_RUN_H_
