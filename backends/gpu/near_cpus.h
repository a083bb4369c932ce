// SPDX-License-Identifier: Apache-2.0
// Finds the processors near a device: copies through host memory are fastest in the memory node to which the device's
// bus is attached, and by threads that run there.
#ifndef HPVMD_BACKENDS_GPU_NEAR_CPUS_H_
#define HPVMD_BACKENDS_GPU_NEAR_CPUS_H_

#include <cstdint>
#include <string>
#include <vector>

namespace hpvm::gpu {

// System processor numbers in increasing order. Empty: all are equally near, or it is unknown.
using NearCpus = std::vector<uint32_t>;

struct PciAddress {
  uint32_t domain = 0, bus = 0, device = 0, function = 0;
};

// Returns "0000:3b:00.0", the form used by the system and NVIDIA's management library.
std::string ToText(const PciAddress& address);

// Returns the processors that the system lists for the device (`folder`/0000:3b:00.0/local_cpulist); empty if it lists
// all.
NearCpus CpusNear(const PciAddress& address, const std::string& folder = "/sys/bus/pci/devices");

// Binds the calling thread, and the memory that it touches first, to the near processors. Does nothing when it may run
// on none of them.
void StayNear(const NearCpus& cpus);

}  // namespace hpvm::gpu

#endif  // HPVMD_BACKENDS_GPU_NEAR_CPUS_H_
