// SPDX-License-Identifier: Apache-2.0
// Turns a new process into a serving runner: greets, isolates, starts the compiler and the drivers' builders, confines,
// opens the devices, serves.
#ifndef HPVMD_EXECUTOR_LAUNCHER_H_
#define HPVMD_EXECUTOR_LAUNCHER_H_

#include <string>

#include "backends/contract/device.h"
#include "base/status.h"
#include "executor/driver_environment.h"
#include "proto/internal/executor.pb.h"
#include "sandbox/sandbox.h"

namespace hpvm::executor {

// The private socket's descriptor, by agreement with the parent process.
inline constexpr int kExecutorSocket = 3;

// Runs the executor on kExecutorSocket until its peer goes away. Returns only on failure, after reporting it to the
// peer.
Status RunExecutor();

// Prints the devices of `backend` ("cpu"; "opencl" for all of its devices, "opencl:1" for one), one JSON line each, and
// sends them as Ready if kExecutorSocket is a socket. Locked down like the runner.
Status RunProbe(const std::string& backend);

// Fills in a device's properties as in Ready.
void Describe(const DeviceInfo& info, internal::DeviceReport* described);
// Describes a device that is present but unusable.
v1::Device BrokenDevice(const std::string& id, const Status& why);
// Returns the sandbox for these devices, with a private folder if drivers need one; also sets the environment for
// drivers. Requires one thread.
struct DriverSandbox {
  sandbox::ConfineOptions confine;
  PrivateFolder folder;
};
struct DriverFolders {
  std::string cache;  // Belongs to the tenant; empty: none.
  // Belongs to the process, created by the daemon; empty: one is created.
  std::string scratch;
};
StatusOr<DriverSandbox> PrepareSandbox(bool has_drivers, const DriverFolders& folders, bool has_nodes);

}  // namespace hpvm::executor

#endif  // HPVMD_EXECUTOR_LAUNCHER_H_
