// SPDX-License-Identifier: Apache-2.0
#ifndef HPVMD_BACKENDS_CPU_FAMILY_H_
#define HPVMD_BACKENDS_CPU_FAMILY_H_

#include "backends/contract/device_family.h"

namespace hpvm {

extern const DeviceFamily kCpuFamily;

}  // namespace hpvm

#endif  // HPVMD_BACKENDS_CPU_FAMILY_H_
