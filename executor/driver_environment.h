// SPDX-License-Identifier: Apache-2.0
// Sets up the environment of drivers: the files that a process that loads them may access, their environment variables,
// and the process's private folder.
//
// Drivers are libraries that read the environment, look for configuration in system folders, open device nodes and keep
// caches. All of this is set here, identically for the probe, the runner and the builder; nothing comes from tenants.
#ifndef HPVMD_EXECUTOR_DRIVER_ENVIRONMENT_H_
#define HPVMD_EXECUTOR_DRIVER_ENVIRONMENT_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/io/fd.h"
#include "base/status.h"
#include "sandbox/sandbox.h"

namespace hpvm::executor {

// Returns the paths that a process that loads drivers may access: libraries, the drivers' lists and data, information
// about processor and bus, device nodes unless GPUs are withheld, paths named by the environment (DriverVariables), and
// `private_folder` (empty: none). A builder may also start the linker.
std::vector<sandbox::PathRule> DriverPaths(const std::string& private_folder, bool is_builder, bool has_nodes = true);
// Returns the groups, besides the superuser's, that may open device nodes which are not open to all.
std::vector<uint32_t> DeviceNodeGroups();

// Sets the environment of drivers: caches in these folders or off, nothing from a home folder. `kept_folder` may
// outlive the process, for data that a driver takes long to regenerate; it belongs to one tenant. Call with one thread,
// before the first driver is loaded.
void SetDriverEnvironment(const std::string& private_folder, const std::string& kept_folder);

// An initially empty folder of this process alone; locked as long as the process lives, so that other processes know
// whether they may remove it.
struct PrivateFolder {
  std::string path;
  UniqueFd lock;
};
// Creates the folder below `parent` (created if missing; empty: the system's folder for temporary files). Removes
// folders whose owners are gone.
StatusOr<PrivateFolder> MakePrivateFolder(const std::string& parent);
// Removes `path` and everything below it.
void RemoveFolder(const std::string& path);

}  // namespace hpvm::executor

#endif  // HPVMD_EXECUTOR_DRIVER_ENVIRONMENT_H_
