// SPDX-License-Identifier: Apache-2.0
#include "backends/null/family.h"

#include "backends/null/device.h"

namespace hpvm {
namespace {

StatusOr<std::unique_ptr<Device>> Open(std::string_view device, Hub& hub, const DeviceOptions& options) {
  return CreateNullDevice(hub);
}

}  // namespace

const DeviceFamily kNullFamily = {.name = "null", .open = Open};

}  // namespace hpvm
