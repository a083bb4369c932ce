// SPDX-License-Identifier: Apache-2.0
// Builders are processes that load a driver, compile a tenant's module with it, and return the driver's binary. A
// driver's compiler that crashes, hangs or exhausts memory costs one module, not the tenant's resident buffers.
//
// The runner communicates with a supervisor, `hpvm-executor --driver-builder=opencl|vulkan`, which never loads a
// driver: it caches results on disk (base/io/cache_folder.h) and forks builders as needed, a few at a time. A builder
// locks itself down (no network, no files but the driver's and a private folder), loads the driver, and serves one
// request after another until it has been idle for a while. When a builder dies, its request fails with
// kInvalidArgument; when it exceeds its time, with kResourceExhausted; the next request gets a new builder.
#ifndef HPVMD_EXECUTOR_DRIVER_PROCESS_H_
#define HPVMD_EXECUTOR_DRIVER_PROCESS_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "backends/contract/driver_builder.h"
#include "base/clock.h"
#include "base/io/fd.h"
#include "base/limits.h"
#include "builder/message.h"

namespace hpvm::executor {

// Operations of a builder with its driver.
struct DriverFunctions {
  // Loads the driver; a builder that dies or fails here is not blamed on a module.
  std::function<Status()> load;
  std::function<StatusOr<DriverBinary>(const DriverBuild& build)> build;
};

struct DriverSupervisorOptions {
  int socket = -1;  // Connected to the runner.
  uint64_t cache_bytes_max = 512 * limits::kMiB;
  DriverFunctions driver;
  uint32_t builders_max = 2;  // Drivers' compilers use one thread.
  Duration build_max = std::chrono::seconds(60);  // Limit of the builder's processor time.
  // Elapsed time limit, for a driver that waits for something, or gets no processor time.
  Duration build_wall_max = std::chrono::seconds(600);
  Duration load_max = std::chrono::seconds(20);
  Duration idle_max = std::chrono::seconds(30);
  // Limit of data, not of addresses, because drivers reserve far more addresses than they use.
  uint64_t memory_bytes_max = 4 * limits::kGiB;
  bool is_sandboxed = true;  // False only for debuggers.
  bool has_nodes = true;     // GPU device nodes are available.
};

// Serves until the runner goes away; returns the process's exit status. Requires one thread; call only from main, since
// it forks.
int RunDriverSupervisor(const DriverSupervisorOptions& options);

// Returns the driver identity of a device, under which results are cached; called once per device, at its first build.
using DriverIdentities = std::function<StatusOr<std::string>(const std::string& device)>;
// Creates the runner's end; the supervisor locks itself down for the tenant whose folder the hello names. Thread-safe.
std::unique_ptr<DriverBuilder> ConnectDriverBuilder(UniqueFd socket, const builder::BuildHello& hello,
                                                    DriverIdentities identity);

}  // namespace hpvm::executor

#endif  // HPVMD_EXECUTOR_DRIVER_PROCESS_H_
