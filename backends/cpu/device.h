// SPDX-License-Identifier: Apache-2.0
// The machine's processors as a device: runs machine code images (compiler/ir/cpu_abi.h) on its own worker pool.
#ifndef HPVMD_BACKENDS_CPU_DEVICE_H_
#define HPVMD_BACKENDS_CPU_DEVICE_H_

#include <cstdint>
#include <memory>

#include "backends/contract/device_family.h"
#include "backends/contract/grant_gate.h"
#include "compiler/api/tuning_record.h"

namespace hpvm {

struct CpuDeviceOptions {
  // Including the submitting thread; 0 means as many as this process may run on.
  uint32_t threads = 0;
  const GrantEntry* grant = nullptr;  // Optional; borrowed for the device's life.
  // Optional; borrowed for the device's life. Stores measurements of kernels.
  TuningStore* tuning = nullptr;
  // For tests: the variant used by launches that allow it, a number in Artifact::variants. A number beyond those means
  // one instance at a time, which is also used when a launch does not allow the variant.
  uint32_t variant = kAutoVariant;
  // Optional; borrowed for the device's life. Counts the chunks that are being computed.
  GrantGate* gate = nullptr;
};

std::unique_ptr<Device> CreateCpuDevice(Hub& hub, const CpuDeviceOptions& options);
extern const DeviceFamily kCpuFamily;

}  // namespace hpvm

#endif  // HPVMD_BACKENDS_CPU_DEVICE_H_
