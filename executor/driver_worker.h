// SPDX-License-Identifier: Apache-2.0
// A builder, from its fork to its end.
#ifndef HPVMD_EXECUTOR_DRIVER_WORKER_H_
#define HPVMD_EXECUTOR_DRIVER_WORKER_H_

#include <string>

#include "executor/driver_process.h"

namespace hpvm::executor {

struct DriverWorkerOptions {
  int socket = -1;             // Connected to the supervisor.
  int parent = -1;             // The supervisor's process.
  std::string private_folder;  // Used by this builder alone.
  const DriverSupervisorOptions* supervisor = nullptr;
};

// Locks the process down, loads the driver, reports it, and serves until the supervisor goes away. Runs in a forked
// child.
[[noreturn]] void RunDriverWorker(const DriverWorkerOptions& options);

}  // namespace hpvm::executor

#endif  // HPVMD_EXECUTOR_DRIVER_WORKER_H_
