// SPDX-License-Identifier: Apache-2.0
#include "backends/cpu/family.h"

#include "backends/cpu/device.h"

namespace hpvm {
namespace {

StatusOr<std::unique_ptr<Device>> Open(std::string_view device, Hub& hub, const DeviceOptions& options) {
  return CreateCpuDevice(hub,
                         {options.cpu_threads, options.cpu_grant, options.learnt, options.cpu_variant, options.gate});
}

}  // namespace

const DeviceFamily kCpuFamily = {.name = "cpu", .open = Open};

}  // namespace hpvm
