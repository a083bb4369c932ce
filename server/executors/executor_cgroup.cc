// SPDX-License-Identifier: Apache-2.0
#include "server/executors/executor_cgroup.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <utility>

#include "base/clock.h"
#include "base/io/fd.h"
#include "server/process/log.h"
#include "server/process/object_id.h"
#include "server/process/process_facts.h"

namespace hpvm::server {
namespace {

namespace fs = std::filesystem;

// Time for killed processes to end, and the interval between checks.
constexpr Duration kEndWithin = std::chrono::milliseconds(500);
constexpr timespec kEndStep{0, 2'000'000};
// Far more than passes between the making of a group and the first process in it.
constexpr int64_t kAbandonedSeconds = 60;

Status WriteText(const std::string& path, const std::string& text) {
  UniqueFd file(open(path.c_str(), O_WRONLY | O_CLOEXEC));
  if (!file.valid() || write(file.get(), text.data(), text.size()) != static_cast<ssize_t>(text.size())) {
    return FromErrno(errno, "Writing \"" + text + "\" to \"" + path + "\"");
  }
  return absl::OkStatus();
}

bool HasFile(const std::string& path) { return access(path.c_str(), F_OK) == 0; }

bool Lists(std::string_view list, char separator, std::string_view item) {
  const std::vector<std::string_view> parts = Split(list, separator);
  return std::find(parts.begin(), parts.end(), item) != parts.end();
}

// Returns the folder in which the hierarchy with `controller` ("": version 2) shows `group`, the daemon's own; empty
// when there is none.
std::string FolderOf(std::string_view mountinfo, std::string_view controller, std::string_view group) {
  for (const std::string_view line : Split(mountinfo, '\n')) {
    const size_t dash = line.find(" - ");
    if (dash == std::string_view::npos) {
      continue;
    }
    const std::vector<std::string_view> before = Split(line.substr(0, dash), ' ');
    const std::vector<std::string_view> after = Split(line.substr(dash + 3), ' ');
    if (before.size() < 5 || after.size() < 3) {
      continue;
    }
    const bool is_it =
        controller.empty() ? after[0] == "cgroup2" : after[0] == "cgroup" && Lists(after.back(), ',', controller);
    if (!is_it) {
      continue;
    }
    // Perhaps only a part is mounted, and the group's path may be relative to another root.
    const std::string_view root = before[3] == "/" ? "" : before[3];
    const bool is_below = group.starts_with(root) && (root.size() == group.size() || group[root.size()] == '/');
    std::string folder = std::string(before[4]) + std::string(is_below ? group.substr(root.size()) : "");
    if (folder.ends_with('/')) {
      folder.pop_back();
    }
    return folder;
  }
  return "";
}

std::vector<int> Members(const std::string& folder) {
  std::vector<int> pids;
  std::ifstream file(folder + "/cgroup.procs");
  for (int pid = 0; file >> pid;) {
    pids.push_back(pid);
  }
  return pids;
}

// The number may be reused after it is read: the process must still be a member once its descriptor is held.
void KillMember(const std::string& folder, int pid) {
  UniqueFd process(static_cast<int>(syscall(SYS_pidfd_open, pid, 0)));
  const std::vector<int> now = Members(folder);
  if (process.valid() && std::find(now.begin(), now.end(), pid) != now.end()) {
    syscall(SYS_pidfd_send_signal, process.get(), SIGKILL, nullptr, 0);
  }
}

// Returns the processes in the group, and where in the kernel each is.
std::string DescribeMembers(const std::string& folder) {
  std::string text;
  for (const int pid : Members(folder)) {
    std::string state, place;
    std::ifstream stat("/proc/" + std::to_string(pid) + "/stat"), wchan("/proc/" + std::to_string(pid) + "/wchan");
    std::getline(stat, state);
    std::getline(wchan, place);
    const size_t name_end = state.rfind(')');
    text += (text.empty() ? "" : ", ") + std::to_string(pid) + " " +
            (name_end < state.size() - 2 ? state.substr(name_end + 2, 1) : "?") + " " + place;
  }
  return text;
}

// Kills everything in the group, and removes it. Processes that have not ended by `end` are left to the next start
// (RemoveLeftovers).
void Remove(const std::string& folder, Time end) {
  while (true) {
    if (rmdir(folder.c_str()) == 0 || errno != EBUSY) {
      return;
    }
    if (RealClock().Now() >= end) {
      LogWarning("An executor's control group stays until the next start: its processes do not end",
                 {{"cgroup", folder}, {"processes", DescribeMembers(folder)}});
      return;
    }
    if (!WriteText(folder + "/cgroup.kill", "1").ok()) {
      for (const int pid : Members(folder)) {
        KillMember(folder, pid);
      }
    }
    nanosleep(&kEndStep, nullptr);
  }
}

// Returns the number after `key` in a file of lines "key number".
uint64_t CounterIn(const std::string& path, std::string_view key) {
  std::ifstream file(path);
  std::string name;
  for (uint64_t value = 0; file >> name >> value;) {
    if (name == key) {
      return value;
    }
  }
  return 0;
}

}  // namespace

CgroupPaths FindCgroups(std::string_view self_cgroup, std::string_view mountinfo) {
  CgroupPaths paths;
  for (const std::string_view line : Split(self_cgroup, '\n')) {
    const size_t first = line.find(':'), second = line.find(':', first + 1);
    if (first == std::string_view::npos || second == std::string_view::npos) {
      continue;
    }
    const std::string_view controllers = line.substr(first + 1, second - first - 1), group = line.substr(second + 1);
    if (controllers.empty()) {
      paths.unified = FolderOf(mountinfo, "", group);
    }
    if (Lists(controllers, ',', "memory")) {
      paths.memory = FolderOf(mountinfo, "memory", group);
    }
    if (Lists(controllers, ',', "pids")) {
      paths.pids = FolderOf(mountinfo, "pids", group);
    }
  }
  return paths;
}

ExecutorCgroup::ExecutorCgroup(std::vector<std::string> folders, bool unified)
    : folders_(std::move(folders)), unified_(unified) {}

ExecutorCgroup::~ExecutorCgroup() {
  const Time end = RealClock().Now() + kEndWithin;
  for (const std::string& folder : folders_) {
    Remove(folder, end);
  }
}

Status ExecutorCgroup::Limit(const CgroupLimits& limits) {
  const std::string memory = limits.memory_bytes_max == 0 ? "" : std::to_string(limits.memory_bytes_max);
  for (const std::string& folder : folders_) {
    if (limits.tasks_max != 0 && HasFile(folder + "/pids.max")) {
      HPVMD_RETURN_IF_ERROR(WriteText(folder + "/pids.max", std::to_string(limits.tasks_max)));
    }
    if (unified_ && HasFile(folder + "/memory.max")) {
      HPVMD_RETURN_IF_ERROR(WriteText(folder + "/memory.max", memory.empty() ? "max" : memory));
      // Processes over the limit are killed together, and nothing of them is swapped out. Without swap the second file
      // does not exist.
      WriteText(folder + "/memory.oom.group", "1").IgnoreError();
      WriteText(folder + "/memory.swap.max", "0").IgnoreError();
    } else if (!unified_ && HasFile(folder + "/memory.limit_in_bytes")) {
      HPVMD_RETURN_IF_ERROR(WriteText(folder + "/memory.limit_in_bytes", memory.empty() ? "-1" : memory));
      WriteText(folder + "/memory.memsw.limit_in_bytes", memory.empty() ? "-1" : memory).IgnoreError();
    }
  }
  memory_bytes_max_ = limits.memory_bytes_max;
  return absl::OkStatus();
}

Status ExecutorCgroup::Add(int pid) const {
  for (const std::string& folder : folders_) {
    HPVMD_RETURN_IF_ERROR(WriteText(folder + "/cgroup.procs", std::to_string(pid)));
  }
  return absl::OkStatus();
}

bool ExecutorCgroup::RanOutOfMemory() const {
  return std::any_of(folders_.begin(), folders_.end(), [&](const std::string& folder) {
    return CounterIn(folder + (unified_ ? "/memory.events" : "/memory.oom_control"), "oom_kill") > 0;
  });
}

StatusOr<std::unique_ptr<ExecutorCgroups>> ExecutorCgroups::Create(const CgroupPaths& paths, std::string_view name) {
  std::unique_ptr<ExecutorCgroups> groups(new ExecutorCgroups(paths, "hpvmd-" + std::string(name) + "-"));
  if (const Status unified = groups->UseUnified(); unified.ok()) {
    groups->paths_.memory = groups->paths_.pids = "";
  } else {
    groups->paths_.unified = "";
    if (paths.memory.empty() && paths.pids.empty()) {
      return unified;
    }
  }
  groups->RemoveLeftovers();
  HPVMD_RETURN_IF_ERROR(groups->TryOut());
  return groups;
}

// A group of version 2 has either processes or controllers for groups below it: the daemon moves one level down.
Status ExecutorCgroups::UseUnified() {
  const std::string& own = paths_.unified;
  const std::string controllers = ReadSmallFile(own + "/cgroup.controllers");
  if (own.empty() || controllers.find("memory") == std::string::npos || controllers.find("pids") == std::string::npos) {
    return FailedPrecondition("No control group with the memory and pids controllers is delegated to this process.");
  }
  const std::string wanted = "+memory +pids";
  const std::string control = own + "/cgroup.subtree_control";
  Status status = WriteText(control, wanted);
  if (status.ok()) {
    return status;
  }
  const std::string daemon = own + "/hpvmd";
  if (mkdir(daemon.c_str(), 0755) != 0 && errno != EEXIST) {
    return FromErrno(errno, "Creating the control group \"" + daemon + "\"");
  }
  HPVMD_RETURN_IF_ERROR(WriteText(daemon + "/cgroup.procs", std::to_string(getpid())));
  status = WriteText(control, wanted);
  if (!status.ok()) {
    WriteText(own + "/cgroup.procs", std::to_string(getpid())).IgnoreError();
    rmdir(daemon.c_str());
  }
  return status;
}

std::vector<std::string> ExecutorCgroups::Parents() const {
  std::vector<std::string> parents;
  for (const std::string& place : {paths_.unified, paths_.memory, paths_.pids}) {
    if (!place.empty() && std::find(parents.begin(), parents.end(), place) == parents.end()) {
      parents.push_back(place);
    }
  }
  return parents;
}

// Leaves out controllers of version 1 that cannot be used.
Status ExecutorCgroups::TryOut() {
  Status last = FailedPrecondition("No control group can be created.");
  for (std::string* place : {&paths_.unified, &paths_.memory, &paths_.pids}) {
    if (place->empty()) {
      continue;
    }
    const std::string folder = *place + "/" + prefix_ + "0";
    if (mkdir(folder.c_str(), 0755) != 0) {
      last = FromErrno(errno, "Creating the control group \"" + folder + "\"");
      place->clear();
    } else if (rmdir(folder.c_str()); access((*place + "/cgroup.procs").c_str(), W_OK) != 0) {
      last = FromErrno(errno, "Writing to the control group \"" + *place + "\"");
      place->clear();
    }
  }
  return Parents().empty() ? last : absl::OkStatus();
}

void ExecutorCgroups::RemoveLeftovers() const {
  for (const std::string& parent : Parents()) {
    std::vector<std::string> left;
    std::error_code error;
    for (const fs::directory_entry& entry : fs::directory_iterator(parent, error)) {
      const std::string name = entry.path().filename().string();
      struct stat info {};
      if (name.starts_with(prefix_)) {
        left.push_back(entry.path().string());
      } else if (name.starts_with("hpvmd-") && stat(entry.path().c_str(), &info) == 0 &&
                 time(nullptr) - info.st_mtime > kAbandonedSeconds) {
        // Left by a daemon that never came back. Fails, as it should, when a process lives in it.
        rmdir(entry.path().c_str());
      }
    }
    for (const std::string& folder : left) {
      Remove(folder, RealClock().Now() + kEndWithin);
    }
  }
}

StatusOr<std::unique_ptr<ExecutorCgroup>> ExecutorCgroups::Make(const CgroupLimits& limits) {
  // Processes in a group may read its name, which must not reveal how many others there were.
  const std::string name = prefix_ + NewObjectId("", SystemRng()).substr(1);
  std::vector<std::string> made;
  for (const std::string& parent : Parents()) {
    const std::string folder = parent + "/" + name;
    if (mkdir(folder.c_str(), 0755) != 0) {
      const Status status = FromErrno(errno, "Creating the control group \"" + folder + "\"");
      for (const std::string& other : made) {
        rmdir(other.c_str());
      }
      return status;
    }
    made.push_back(folder);
  }
  auto group = std::make_unique<ExecutorCgroup>(std::move(made), !paths_.unified.empty());
  HPVMD_RETURN_IF_ERROR(group->Limit(limits));
  return group;
}

bool ExecutorCgroups::bounds_memory() const { return !paths_.unified.empty() || !paths_.memory.empty(); }

std::string ExecutorCgroups::Describe() const {
  if (!paths_.unified.empty()) {
    return "version 2";
  }
  return std::string("version 1 (") + (paths_.memory.empty() ? "" : "memory") +
         (!paths_.memory.empty() && !paths_.pids.empty() ? ", " : "") + (paths_.pids.empty() ? "" : "pids") + ")";
}

}  // namespace hpvm::server
