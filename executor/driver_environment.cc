// SPDX-License-Identifier: Apache-2.0
#include "executor/driver_environment.h"

#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>

#include "backends/opencl/pocl.h"
#include "base/io/child_process.h"

namespace hpvm::executor {
namespace {

using sandbox::PathAccess;

constexpr char kFolderPrefix[] = "hpvm-run-";
constexpr int kLockTriesMax = 16;

// Libraries, and files that drivers and their loaders read for discovery and configuration.
constexpr const char* kReadable[] = {
    "/usr/lib", "/usr/lib64", "/lib", "/lib64", "/usr/local/lib", "/opt/rocm*", "/etc/ld.so.cache",
    // Lists of drivers, and their data.
    "/etc/OpenCL", "/etc/vulkan", "/usr/share/vulkan", "/usr/local/share/vulkan", "/usr/local/etc/vulkan",
    "/usr/share/glvnd", "/usr/share/drirc.d", "/usr/share/libdrm", "/usr/share/pocl", "/usr/share/clc",
    "/usr/share/nvidia", "/etc/nvidia", "/usr/local/nvidia", "/etc/glvnd", "/usr/share/egl", "/etc/localtime",
    // Information about the processor, memory and bus.
    "/sys/devices/system", "/sys/kernel/mm/hugepages", "/sys/kernel/mm/transparent_hugepage", "/sys/bus/pci",
    "/sys/devices/pci*", "/sys/class/drm", "/sys/class/kfd", "/sys/dev/char", "/sys/module/nvidia*", "/proc/cpuinfo",
    "/proc/stat", "/proc/meminfo", "/proc/self", "/proc/devices", "/proc/modules", "/proc/filesystems", "/proc/version",
    "/proc/driver", "/proc/sys/vm", "/proc/sys/kernel", "/dev/urandom", "/dev/zero"};
// Device nodes of GPUs; of display nodes only those that render and cannot set modes.
constexpr const char* kDevices[] = {"/dev/nvidia[0-9]*",
                                    "/dev/nvidiactl",
                                    "/dev/nvidia-uvm",
                                    "/dev/nvidia-uvm-tools",
                                    "/dev/nvidia-modeset",
                                    "/dev/nvidia-caps",
                                    "/dev/dri/renderD*",
                                    "/dev/kfd",
                                    "/dev/dxg"};
// Number of GPUs with explicit names; others are found only by the patterns.
constexpr int kDevicesNamed = 16;
// The linker started by PoCL's compiler, with the names that lead to it.
constexpr const char* kPrograms[] = {"/usr/bin/ld", "/usr/bin/*-linux-gnu-ld", "/usr/bin/*-linux-gnu-ld.bfd"};

void AddMatches(const char* pattern, PathAccess access, std::vector<sandbox::PathRule>& rules) {
  glob_t found{};
  if (glob(pattern, GLOB_NOSORT, nullptr, &found) == 0) {
    for (size_t i = 0; i < found.gl_pathc; ++i) {
      rules.push_back({found.gl_pathv[i], access});
    }
  }
  globfree(&found);
}

// A variable holds one or several paths, separated by colons; a file's folder also holds the library that the file
// names.
void AddVariable(const std::string& name, std::vector<sandbox::PathRule>& rules) {
  const char* value = getenv(name.c_str());
  std::string_view rest = value == nullptr ? "" : value;
  while (!rest.empty()) {
    const size_t colon = rest.find(':');
    const std::string path(rest.substr(0, colon));
    rest = colon == std::string_view::npos ? "" : rest.substr(colon + 1);
    struct stat info {};
    if (path.starts_with('/') && stat(path.c_str(), &info) == 0) {
      rules.push_back({S_ISDIR(info.st_mode) ? path : path.substr(0, path.rfind('/') + 1), PathAccess::kRead});
    }
  }
}

void AddDeviceNodes(std::vector<sandbox::PathRule>& rules) {
  for (const char* pattern : kDevices) {
    AddMatches(pattern, PathAccess::kDevice, rules);
  }
  // Also by name: a builder starts when the folder of nodes can no longer be read, so that patterns match nothing.
  for (int i = 0; i < kDevicesNamed; ++i) {
    AddMatches(("/dev/nvidia" + std::to_string(i)).c_str(), PathAccess::kDevice, rules);
    AddMatches(("/dev/dri/renderD" + std::to_string(128 + i)).c_str(), PathAccess::kDevice, rules);
  }
}

// Returns false when another process took the folder for an abandoned one before it was locked, and removes it.
StatusOr<bool> LockFolder(PrivateFolder* folder) {
  folder->lock.reset(open(folder->path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  const bool is_locked = folder->lock.valid() && flock(folder->lock.get(), LOCK_EX | LOCK_NB) == 0;
  if (!is_locked && errno != ENOENT && errno != EWOULDBLOCK) {
    return FromErrno(errno, "Locking the folder \"" + folder->path + "\"");
  }
  struct stat held {
  }, named{};
  return is_locked && fstat(folder->lock.get(), &held) == 0 && lstat(folder->path.c_str(), &named) == 0 &&
         held.st_dev == named.st_dev && held.st_ino == named.st_ino;
}

std::string FolderOfPrograms() {
  std::error_code error;
  return std::filesystem::read_symlink("/proc/self/exe", error).parent_path().string();
}

}  // namespace

std::vector<sandbox::PathRule> DriverPaths(const std::string& private_folder, bool is_builder, bool has_nodes) {
  std::vector<sandbox::PathRule> rules;
  for (const char* pattern : kReadable) {
    AddMatches(pattern, PathAccess::kRead, rules);
  }
  AddMatches("/dev/null", PathAccess::kDevice, rules);
  if (has_nodes) {
    AddDeviceNodes(rules);
  }
  for (const std::string& variable : DriverVariables()) {
    AddVariable(variable, rules);
  }
  // A relocated installation has its libraries beside its programs.
  if (const std::string folder = FolderOfPrograms(); !folder.empty()) {
    rules.push_back({folder + "/../lib", PathAccess::kRead});
    rules.push_back({folder + "/../share", PathAccess::kRead});
    rules.push_back({folder + "/../etc", PathAccess::kRead});
  }
  if (is_builder) {
    for (const char* pattern : kPrograms) {
      AddMatches(pattern, PathAccess::kExecute, rules);
    }
    AddMatches((FolderOfPrograms() + "/ld*").c_str(), PathAccess::kExecute, rules);
    // A program's interpreter is also executed.
    AddMatches("/lib64/ld-linux*", PathAccess::kExecute, rules);
  }
  if (!private_folder.empty()) {
    rules.push_back({private_folder, PathAccess::kPrivate});
  }
  return rules;
}

std::vector<uint32_t> DeviceNodeGroups() {
  std::vector<sandbox::PathRule> nodes;
  AddDeviceNodes(nodes);
  std::vector<uint32_t> groups;
  for (const sandbox::PathRule& node : nodes) {
    struct stat info {};
    const bool needs_group = stat(node.path.c_str(), &info) == 0 && S_ISCHR(info.st_mode) && info.st_gid != 0 &&
                             (info.st_mode & S_IRWXG) != 0 && (info.st_mode & S_IRWXO) == 0;
    if (needs_group && std::find(groups.begin(), groups.end(), info.st_gid) == groups.end()) {
      groups.push_back(info.st_gid);
    }
  }
  return groups;
}

void SetDriverEnvironment(const std::string& private_folder, const std::string& kept_folder) {
  opencl::SetPoclEnvironment(/*keeps=*/false);
  setenv("MESA_SHADER_CACHE_DISABLE", "true", 1);
  setenv("__GL_SHADER_DISK_CACHE", "0", 1);
  // NVIDIA's driver compiles its own kernels when it opens, for more than a second, unless it may cache them.
  if (kept_folder.empty()) {
    setenv("CUDA_CACHE_DISABLE", "1", 1);
  } else {
    setenv("CUDA_CACHE_PATH", kept_folder.c_str(), 1);
    setenv("CUDA_CACHE_MAXSIZE", "67108864", 1);
  }
  // Layers are for applications with windows; some connect to a display.
  setenv("VK_LOADER_LAYERS_DISABLE", "~implicit~", 1);
  setenv("NODEVICE_SELECT", "1", 1);
  unsetenv("HOME");
  // For the linker, which Landlock permits only to builders; a relocated installation may bring its own.
  setenv("PATH", (FolderOfPrograms() + ":/usr/bin:/bin").c_str(), 1);
  if (!private_folder.empty()) {
    setenv("POCL_CACHE_DIR", (private_folder + "/pocl").c_str(), 1);
    setenv("TMPDIR", private_folder.c_str(), 1);
    setenv("XDG_CACHE_HOME", private_folder.c_str(), 1);
  }
}

void RemoveFolder(const std::string& path) {
  std::error_code error;  // Folders that cannot be removed stay until the next attempt.
  std::filesystem::remove_all(path, error);
}

StatusOr<PrivateFolder> MakePrivateFolder(const std::string& parent) {
  std::error_code error;
  std::string root = parent;
  if (root.empty()) {
    root = "/tmp";
  } else {
    std::filesystem::create_directories(root, error);
  }
  // Folders of processes that ended by SIGKILL.
  for (const auto& entry : std::filesystem::directory_iterator(root, error)) {
    struct stat info {};
    if (!entry.path().filename().string().starts_with(kFolderPrefix) || lstat(entry.path().c_str(), &info) != 0 ||
        info.st_uid != geteuid() || !S_ISDIR(info.st_mode)) {
      continue;
    }
    UniqueFd other(open(entry.path().c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
    if (other.valid() && flock(other.get(), LOCK_EX | LOCK_NB) == 0) {
      RemoveFolder(entry.path().string());
    }
  }
  for (int tries = 0; tries < kLockTriesMax; ++tries) {
    PrivateFolder folder;
    folder.path = root + "/" + kFolderPrefix + "XXXXXX";
    if (mkdtemp(folder.path.data()) == nullptr) {
      return FromErrno(errno, "Creating a folder for drivers in \"" + root + "\"");
    }
    HPVMD_ASSIGN_OR_RETURN(const bool is_ours, LockFolder(&folder));
    if (is_ours) {
      return folder;
    }
  }
  return Unavailable("Other processes removed each of " + std::to_string(kLockTriesMax) + " folders for drivers in \"" +
                     root + "\" before it could be locked.");
}

}  // namespace hpvm::executor
