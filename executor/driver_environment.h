// SPDX-License-Identifier: Apache-2.0
// What drivers find around them: which files a process that loads them may reach, which environment they see, and the
// folder that is its own.
//
// Drivers are libraries that read the environment, look for configuration in the system's folders, open device nodes
// and keep caches. Everything of this is set here, the same for the probe, the runner and the builder; nothing comes
// from tenants.
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

// What a process that loads drivers may reach: libraries, the drivers' lists and data, facts about processor and bus,
// device nodes unless GPUs are withheld, what the environment names (DriverVariables), and `private_folder` (empty:
// none). A builder may start the linker, too.
std::vector<sandbox::PathRule> DriverPaths(const std::string& private_folder, bool is_builder, bool has_nodes = true);
// Groups, beside the superuser's, that open the device nodes which not everybody may.
std::vector<uint32_t> DeviceNodeGroups();

// Sets what drivers should see: caches in these folders or off, nothing from a home folder. `kept_folder` may outlive
// the process, for what takes a driver long to make anew; it belongs to one tenant. With one thread, before the first
// driver is loaded.
void SetDriverEnvironment(const std::string& private_folder, const std::string& kept_folder);

// A folder of this process's own, empty; locked as long as the process lives, so that the next one knows whether it may
// remove it.
struct PrivateFolder {
  std::string path;
  UniqueFd lock;
};
// Below `parent` (made if missing; empty: the system's folder for temporary files). Removes those whose owners are
// gone.
StatusOr<PrivateFolder> MakePrivateFolder(const std::string& parent);
// Removes everything below `path`, and it.
void RemoveFolder(const std::string& path);

}  // namespace hpvm::executor

#endif  // HPVMD_EXECUTOR_DRIVER_ENVIRONMENT_H_
