// SPDX-License-Identifier: Apache-2.0
#include "backends/opencl/family.h"

#include "backends/opencl/device.h"

namespace hpvm {
namespace {

StatusOr<std::unique_ptr<Device>> Open(std::string_view device, Hub& hub, const DeviceOptions& options) {
  return CreateOpenClDevice(device, hub,
                            {.builder = options.builder,
                             .learnt = options.learnt,
                             .gate = options.gate,
                             .forced = options.gpu_forced,
                             .fpga = options.fpga});
}

StatusOr<std::vector<std::string>> List() { return ListOpenClDevices(); }

}  // namespace

const DeviceFamily kOpenClFamily = {.name = "opencl",
                                    .open = Open,
                                    .list = List,
                                    .build = BuildForOpenCl,
                                    .identity = OpenClDriverIdentity,
                                    .reads_opencl = true};

}  // namespace hpvm
