// SPDX-License-Identifier: Apache-2.0
#include "server/executors/executor_ids.h"

#include <glob.h>
#include <linux/capability.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <numeric>
#include <utility>

#include "server/process/log.h"

namespace hpvm::server {
namespace {

namespace fs = std::filesystem;

// Ids that no distribution, container or systemd assigns (systemd's documentation, "Users, Groups, UIDs and GIDs on
// systemd Systems": 1879048192 to 2147483647 are unused).
constexpr uint64_t kUnusedFirst = 1'879'048'192, kUnusedEnd = 2'147'483'648;

bool HasCapability(int capability) {
  __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
  __user_cap_data_struct data[2] = {};
  return syscall(SYS_capget, &header, data) == 0 &&
         (data[CAP_TO_INDEX(capability)].effective & CAP_TO_MASK(capability)) != 0;
}

// Returns the names of missing capabilities that the daemon needs for another user's process and its files.
std::string MissingForIdentities() {
  const struct {
    int number;
    const char* name;
  } needed[] = {{CAP_SETUID, "CAP_SETUID"},
                {CAP_SETGID, "CAP_SETGID"},
                {CAP_CHOWN, "CAP_CHOWN"},
                {CAP_KILL, "CAP_KILL"},
                {CAP_DAC_OVERRIDE, "CAP_DAC_OVERRIDE"}};
  std::string missing;
  for (const auto& capability : needed) {
    if (!HasCapability(capability.number)) {
      missing += (missing.empty() ? "" : ", ") + std::string(capability.name);
    }
  }
  return missing;
}

// Returns true when this user namespace has all of these ids. The file has lines of first, first outside, count.
bool IsMapped(const char* map, uint64_t first, uint64_t count) {
  std::ifstream file(map);
  for (uint64_t inside = 0, outside = 0, mapped = 0; file >> inside >> outside >> mapped;) {
    if (first >= inside && first + count <= inside + mapped) {
      return true;
    }
  }
  return false;
}

// Returns a GPU's device node that only root may open, as often in a container; empty when there is none.
std::string NodeOfRootAlone() {
  std::string found;
  glob_t nodes{};
  for (const char* pattern : {"/dev/nvidia*", "/dev/dri/renderD*", "/dev/kfd", "/dev/dxg"}) {
    if (glob(pattern, GLOB_NOSORT, nullptr, &nodes) == 0) {
      for (size_t i = 0; i < nodes.gl_pathc; ++i) {
        struct stat info {};
        const bool is_node = stat(nodes.gl_pathv[i], &info) == 0 && S_ISCHR(info.st_mode);
        const bool is_open = (info.st_mode & S_IWOTH) != 0 || (info.st_gid != 0 && (info.st_mode & S_IWGRP) != 0);
        found = is_node && !is_open ? nodes.gl_pathv[i] : found;
      }
      globfree(&nodes);
    }
  }
  return found;
}

// Returns why executors would not work under ids that the configuration did not request; empty when they would.
std::string WhyNotUnasked(uint64_t first, uint64_t count, const std::string& state_folder, const std::string& program) {
  if (const std::string missing = MissingForIdentities(); !missing.empty()) {
    return "The daemon does not have " + missing + ".";
  }
  if (!IsMapped("/proc/self/uid_map", first, count) || !IsMapped("/proc/self/gid_map", first, count)) {
    return "This container's user namespace has no unused user ids for executors; executor.uid_first can name some.";
  }
  for (const std::string& path : {state_folder, program}) {
    if (const std::string folder = ImpassableFolder(path); !folder.empty()) {
      return "Only its owner may enter the folder \"" + folder + "\".";
    }
  }
  if (const std::string node = NodeOfRootAlone(); !node.empty()) {
    return "Only root may open the device \"" + node + "\".";
  }
  return "";
}

}  // namespace

std::string ImpassableFolder(const std::string& path) {
  for (fs::path folder = fs::path(path).parent_path(); folder.has_relative_path(); folder = folder.parent_path()) {
    struct stat info {};
    if (stat(folder.c_str(), &info) == 0 && (info.st_mode & S_IXOTH) == 0) {
      return folder.string();
    }
  }
  return "";
}

ExecutorIds::ExecutorIds(const Config& config, const std::string& state_folder, const std::string& program, Rng& rng) {
  const auto count = static_cast<uint32_t>(config.executor_uid_count);
  if (count == 0) {
    return;
  }
  if (config.executor_uid_first != 0) {
    if (const std::string missing = MissingForIdentities(); !missing.empty()) {
      LogWarning("Executors keep the daemon's user id", {{"missing", missing}});
    } else {
      Draw(static_cast<uint32_t>(config.executor_uid_first), count, rng);
    }
    return;
  }
  // Draws another block at each start, so that two daemons do not use the same one.
  const uint64_t first = kUnusedFirst + rng.Below((kUnusedEnd - kUnusedFirst) / count) * count;
  if (const std::string reason = WhyNotUnasked(first, count, state_folder, program); !reason.empty()) {
    LogInfo("Executors keep the daemon's user id", {{"reason", reason}});
    return;
  }
  LogInfo("Executors have user ids of their own", {{"first", std::to_string(first)}, {"count", std::to_string(count)}});
  Draw(static_cast<uint32_t>(first), count, rng);
}

void ExecutorIds::Draw(uint32_t first, uint32_t count, Rng& rng) {
  order_.resize(count);
  std::iota(order_.begin(), order_.end(), first);
  for (size_t left = count; left > 1; --left) {
    std::swap(order_[left - 1], order_[rng.Below(left)]);
  }
}

StatusOr<uint32_t> ExecutorIds::Take() {
  std::lock_guard lock(mutex_);
  for (size_t tries = 0; tries < order_.size(); ++tries) {
    const uint32_t uid = order_[next_];
    next_ = (next_ + 1) % order_.size();
    if (taken_.insert(uid).second) {
      return uid;
    }
  }
  return ResourceExhausted("All " + std::to_string(order_.size()) +
                           " user ids of executors (executor.uid_count) are taken.");
}

void ExecutorIds::GiveBack(uint32_t uid) {
  std::lock_guard lock(mutex_);
  taken_.erase(uid);
}

}  // namespace hpvm::server
