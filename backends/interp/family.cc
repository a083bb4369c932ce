// SPDX-License-Identifier: Apache-2.0
#include "backends/interp/family.h"

#include "backends/interp/device.h"

namespace hpvm {
namespace {

StatusOr<std::unique_ptr<Device>> Open(std::string_view device, Hub& hub, const DeviceOptions& options) {
  return CreateInterpDevice(hub);
}

}  // namespace

const DeviceFamily kInterpFamily = {.name = "interp", .open = Open};

}  // namespace hpvm
