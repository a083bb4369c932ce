// SPDX-License-Identifier: Apache-2.0
// A complete device that accepts everything, checks it, and runs nothing. For tests, simulation and fuzzing of the
// layers above devices.
#ifndef HPVMD_BACKENDS_NULL_DEVICE_H_
#define HPVMD_BACKENDS_NULL_DEVICE_H_

#include <memory>
#include <vector>

#include "backends/contract/device_family.h"

namespace hpvm {

enum class NullCall : uint8_t { kLoad, kAllocate, kSubmit, kCommand };

// The `index`-th call (from 0) of that kind fails with `status`, which is not OK. A failing kCommand fails its
// submission.
struct InjectedFailure {
  NullCall call = NullCall::kCommand;
  uint64_t index = 0;
  Status status;
};

struct NullOptions {
  std::vector<InjectedFailure> failures;
};

std::unique_ptr<Device> CreateNullDevice(Hub& hub, NullOptions options = {});
extern const DeviceFamily kNullFamily;

}  // namespace hpvm

#endif  // HPVMD_BACKENDS_NULL_DEVICE_H_
