// SPDX-License-Identifier: Apache-2.0
// Whether a device still works. A fault of a kernel ends an OpenCL context for good, and drivers say so with whatever
// error the next call happens to give.
#ifndef HPVMD_BACKENDS_OPENCL_HEALTH_H_
#define HPVMD_BACKENDS_OPENCL_HEALTH_H_

#include <atomic>
#include <string>
#include <string_view>

#include "backends/opencl/cl.h"

namespace hpvm::opencl {

// Any thread.
class Health {
 public:
  // `device`: "opencl:0"; `name` as people know it.
  Health(std::string device, std::string name) : device_(std::move(device)), name_(std::move(name)) {}

  // kUnavailable once the device is lost.
  Status Check() const;
  // The status of a call. After an error that may mean a loss the queue is asked to finish: if it cannot, the device is
  // lost.
  Status Judge(cl_int error, cl_command_queue queue, std::string_view doing);
  // The status of a command whose event ended with `error`.
  Status JudgeEvent(cl_int error, std::string_view doing);

 private:
  Status Lose(cl_int error, std::string_view doing);

  const std::string device_, name_;
  std::atomic<bool> is_lost_{false};
};

}  // namespace hpvm::opencl

#endif  // HPVMD_BACKENDS_OPENCL_HEALTH_H_
