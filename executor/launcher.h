// SPDX-License-Identifier: Apache-2.0
// From a fresh process to a serving runner: greet, isolate, start the compiler and the drivers' builders, confine, open
// the devices, serve.
#ifndef HPVMD_EXECUTOR_LAUNCHER_H_
#define HPVMD_EXECUTOR_LAUNCHER_H_

#include <string>

#include "backends/contract/device.h"
#include "base/status.h"
#include "executor/driver_environment.h"
#include "proto/internal/executor.pb.h"
#include "sandbox/sandbox.h"

namespace hpvm::executor {

// The private socket's descriptor, by agreement with whoever starts the process.
inline constexpr int kExecutorSocket = 3;

// Runs the executor on kExecutorSocket until its peer goes away. Returns only on failure, after telling the peer.
Status RunExecutor();

// Prints the devices of `backend` ("cpu"; "opencl" for all of its devices, "opencl:1" for one), a JSON line each, and
// sends them as Ready if kExecutorSocket is a socket. Locked down like the runner.
Status RunProbe(const std::string& backend);

// A device's facts as Ready has them.
void Describe(const DeviceInfo& info, internal::DeviceReport* described);
// One that is there and cannot be used.
v1::Device BrokenDevice(const std::string& id, const Status& why);
// What the lock-down leaves for these devices, in a folder of the process's own where drivers need one; also sets the
// environment that drivers see. With one thread.
struct DriverSandbox {
  sandbox::ConfineOptions confine;
  PrivateFolder folder;
};
struct DriverFolders {
  std::string cache;    // The tenant's; empty: none.
  std::string scratch;  // The process's own, made by the daemon; empty: one is made.
};
StatusOr<DriverSandbox> PrepareSandbox(bool has_drivers, const DriverFolders& folders, bool has_nodes);

}  // namespace hpvm::executor

#endif  // HPVMD_EXECUTOR_LAUNCHER_H_
