// SPDX-License-Identifier: Apache-2.0
// The reference interpreter as a device: slow, and correct by definition. Results of other backends are compared with
// it.
#ifndef HPVMD_BACKENDS_INTERP_DEVICE_H_
#define HPVMD_BACKENDS_INTERP_DEVICE_H_

#include <memory>

#include "backends/contract/device_family.h"

namespace hpvm {

std::unique_ptr<Device> CreateInterpDevice(Hub& hub);
extern const DeviceFamily kInterpFamily;

}  // namespace hpvm

#endif  // HPVMD_BACKENDS_INTERP_DEVICE_H_
