// SPDX-License-Identifier: Apache-2.0
// Builders: processes that load a driver, compile a tenant's module with it, and hand over the driver's binary. A
// driver's compiler that crashes, hangs or eats memory costs one module, not the tenant's resident buffers.
//
// The runner speaks with a supervisor, `hpvm-executor --driver-builder=opencl|vulkan`, which never loads a driver: it
// keeps results on disk (base/io/cache_folder.h) and forks builders as they are needed, a few at a time. A builder
// locks itself down (no network, no file but the driver's and a folder of its own), loads the driver, and serves one
// request after another until it has been idle for a while. One that dies makes its request kInvalidArgument, one that
// takes longer than allowed kResourceExhausted; the next request gets a new builder.
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

// What a builder does with its driver.
struct DriverFunctions {
  // Loads the driver; a builder that dies or fails here is nobody's module's fault.
  std::function<Status()> load;
  std::function<StatusOr<DriverBinary>(const DriverBuild& build)> build;
};

struct DriverSupervisorOptions {
  int socket = -1;  // To the runner.
  uint64_t cache_bytes_max = 512 * limits::kMiB;
  DriverFunctions driver;
  uint32_t builders_max = 2;  // Drivers' compilers use one thread.
  Duration build_max = std::chrono::seconds(60);  // Of the builder's processor time.
  // By the clock, for a driver that waits for something, or gets no processor time.
  Duration build_wall_max = std::chrono::seconds(600);
  Duration load_max = std::chrono::seconds(20);
  Duration idle_max = std::chrono::seconds(30);
  // Of data, not of addresses: drivers reserve far more of these than they use.
  uint64_t memory_bytes_max = 4 * limits::kGiB;
  bool is_sandboxed = true;  // False only for debuggers.
  bool has_nodes = true;     // Of GPUs.
};

// Serves until the runner goes away; the process's exit status. One thread; call from main only, since it forks.
int RunDriverSupervisor(const DriverSupervisorOptions& options);

// The driver of a device; called once a device, when it is first built for. Results are kept under it.
using DriverIdentities = std::function<StatusOr<std::string>(const std::string& device)>;
// The runner's end; the supervisor locks itself down for the tenant whose folder the hello names. Any thread.
std::unique_ptr<DriverBuilder> ConnectDriverBuilder(UniqueFd socket, const builder::BuildHello& hello,
                                                    DriverIdentities identity);

}  // namespace hpvm::executor

#endif  // HPVMD_EXECUTOR_DRIVER_PROCESS_H_
