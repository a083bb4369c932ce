// SPDX-License-Identifier: Apache-2.0
// The machine's processors as a device: images of machine code (compiler/ir/cpu_abi.h) over our own worker pool.
#ifndef HPVMD_BACKENDS_CPU_DEVICE_H_
#define HPVMD_BACKENDS_CPU_DEVICE_H_

#include <cstdint>
#include <memory>

#include "backends/contract/device_family.h"
#include "backends/contract/grant_gate.h"
#include "compiler/api/learnt.h"

namespace hpvm {

struct CpuDeviceOptions {
  uint32_t threads = 0;               // The submitting one included; 0 = as many as this process may run on.
  const GrantEntry* grant = nullptr;  // Optional; borrowed for the device's life.
  LearntStore* learnt = nullptr;      // Optional; borrowed for the device's life. Keeps what was measured of kernels.
  // For tests: the variant that launches run wherever they allow it, a number in Artifact::variants; a number beyond
  // those: one instance at a time, which also stands in where a launch does not allow it.
  uint32_t variant = kAutoVariant;
  GrantGate* gate = nullptr;  // Optional; borrowed for the device's life. Counts the chunks that are being computed.
};

std::unique_ptr<Device> CreateCpuDevice(Hub& hub, const CpuDeviceOptions& options);
extern const DeviceFamily kCpuFamily;

}  // namespace hpvm

#endif  // HPVMD_BACKENDS_CPU_DEVICE_H_
