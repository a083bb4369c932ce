// SPDX-License-Identifier: Apache-2.0
// Health tracks whether a device still works. A fault of a kernel ends an OpenCL context permanently, and drivers
// report it as an arbitrary error of the next call.
#ifndef HPVMD_BACKENDS_OPENCL_HEALTH_H_
#define HPVMD_BACKENDS_OPENCL_HEALTH_H_

#include <atomic>
#include <string>
#include <string_view>

#include "backends/opencl/cl.h"

namespace hpvm::opencl {

// Thread-safe.
class Health {
 public:
  // `device`: "opencl:0"; `name` is for people.
  Health(std::string device, std::string name) : device_(std::move(device)), name_(std::move(name)) {}

  // Returns kUnavailable once the device is lost.
  Status Check() const;
  // Returns the status of a call. After an error that may mean a loss, the queue is asked to finish: if it cannot, the
  // device is lost.
  Status Judge(cl_int error, cl_command_queue queue, std::string_view doing);
  // Returns the status of a command whose event ended with `error`.
  Status JudgeEvent(cl_int error, std::string_view doing);

 private:
  Status Lose(cl_int error, std::string_view doing);

  const std::string device_, name_;
  std::atomic<bool> is_lost_{false};
};

}  // namespace hpvm::opencl

#endif  // HPVMD_BACKENDS_OPENCL_HEALTH_H_
