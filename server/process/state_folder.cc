// SPDX-License-Identifier: Apache-2.0
#include "server/process/state_folder.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <set>
#include <string_view>
#include <utility>
#include <vector>

#include "server/process/process_facts.h"

namespace hpvm::server {
namespace {

constexpr char kLockName[] = "/lock";
constexpr char kExecutorsName[] = "/executors";
constexpr char kCacheName[] = "/cache";
constexpr char kTemporaryRoot[] = "/tmp";
constexpr char kTemporaryPrefix[] = "hpvmd-dev-";
// A daemon between making its folder and locking it needs far less.
constexpr int64_t kEmptyFolderSeconds = 60;
// A process that a killed daemon was just starting shares its lock until it executes another program.
constexpr Duration kLockPatience = std::chrono::milliseconds(500);

namespace fs = std::filesystem;

Status MakePrivateFolder(const std::string& path) {
  std::error_code error;
  fs::create_directories(fs::path(path).parent_path(), error);
  return mkdir(path.c_str(), 0700) == 0 || errno == EEXIST
             ? absl::OkStatus()
             : FromErrno(errno, "Creating the state folder \"" + path + "\"");
}

StatusOr<UniqueFd> TakeLock(const std::string& folder) {
  const std::string path = folder + kLockName;
  UniqueFd lock(open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!lock.valid()) {
    return FromErrno(errno, "Opening \"" + path + "\"");
  }
  const Time deadline = RealClock().Now() + kLockPatience;
  while (flock(lock.get(), LOCK_EX | LOCK_NB) != 0) {
    if (errno != EWOULDBLOCK && errno != EINTR) {
      return FromErrno(errno, "Locking \"" + path + "\"");
    }
    if (RealClock().Now() >= deadline) {
      std::string holder = ReadSmallFile(path);
      holder.erase(std::remove(holder.begin(), holder.end(), '\n'), holder.end());
      return FailedPrecondition("The state folder \"" + folder + "\" is in use by another hpvmd (process " +
                                (holder.empty() ? "unknown" : holder) +
                                "). Stop that process, or give this daemon a folder of its own (server.state_dir).");
    }
    const timespec pause{0, 10'000'000};
    nanosleep(&pause, nullptr);
  }
  const std::string pid = std::to_string(getpid()) + "\n";
  // The number is for people: a full disk does not prevent the start.
  if (ftruncate(lock.get(), 0) != 0 || (pwrite(lock.get(), pid.data(), pid.size(), 0) < 0 && errno != ENOSPC)) {
    return FromErrno(errno, "Writing \"" + path + "\"");
  }
  return lock;
}

// Removes the permissions of others from its files and folders; failures are ignored. Executors' own users pass
// through the folder, the cache and the scratch folder, whose modes are set elsewhere, and reach nothing else.
uint64_t TightenModes(const std::string& folder) {
  uint64_t tightened = 0;
  const auto tighten = [&tightened](const fs::path& path, mode_t keep) {
    struct stat info {};
    if (lstat(path.c_str(), &info) == 0 && (S_ISREG(info.st_mode) || S_ISDIR(info.st_mode)) &&
        (info.st_mode & 0777 & ~keep) != 0 && chmod(path.c_str(), info.st_mode & keep) == 0) {
      ++tightened;
    }
  };
  tighten(folder, 0711);
  std::error_code error;
  std::vector<fs::path> paths;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, error)) {
    paths.push_back(entry.path());
  }
  for (const fs::path& path : paths) {
    if (path.filename() != "cache" && path.filename() != "scratch") {
      tighten(path, 0700);
    }
  }
  return tightened;
}

// A record is a symbolic link, whose text ("START BOOT NAME") is stored in the inode up to 59 bytes: an executor or a
// probe can be recorded on a full disk. So the record holds only as much of the boot's id as distinguishes boots.
std::string RecordOf(const ProcessFacts& process, const std::string& boot) {
  constexpr size_t kBootBytes = 18;
  return std::to_string(process.start_ticks) + " " + boot.substr(0, kBootBytes) + " " + process.name;
}

std::string ReadRecord(const fs::path& path) {
  std::error_code error;
  return fs::read_symlink(path, error).string();
}

void AddDescendants(const std::vector<ProcessFacts>& all, std::vector<ProcessFacts>& family) {
  for (size_t i = 0; i < family.size(); ++i) {
    for (const ProcessFacts& process : all) {
      if (process.parent == family[i].pid) {
        family.push_back(process);
      }
    }
  }
}

// Returns the recorded processes that still exist, and their descendants.
StatusOr<std::vector<ProcessFacts>> RecordedFamilies(const std::string& folder) {
  HPVMD_ASSIGN_OR_RETURN(const std::string boot, BootId());
  std::vector<ProcessFacts> family;
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, error)) {
    const int pid = atoi(entry.path().filename().c_str());
    const std::optional<ProcessFacts> process = pid > 0 ? ReadProcess(pid) : std::nullopt;
    if (process.has_value() && ReadRecord(entry.path()) == RecordOf(*process, boot)) {
      family.push_back(*process);
    }
  }
  AddDescendants(ListProcesses(), family);
  return family;
}

// Returns processes that use one of our caches: compilers, drivers' builders, and their children. Their arguments
// name the cache; executors are dead by now, so none of these has an owner.
std::vector<ProcessFacts> CacheUsers(const std::string& cache) {
  std::vector<ProcessFacts> users;
  for (const ProcessFacts& process : ListProcesses()) {
    const std::vector<std::string> arguments = ReadArguments(process.pid);
    for (size_t i = 1; i + 1 < arguments.size(); ++i) {
      const bool is_child = arguments[0].ends_with("hpvm-compiler") || arguments[1].starts_with("--driver-builder=");
      if (is_child && arguments[i] == "--cache" && arguments[i + 1].starts_with(cache + "/")) {
        users.push_back(process);
        break;
      }
    }
  }
  return users;
}

// Returns those without a living executor as parent: the same folder may have the same name in another container.
std::vector<ProcessFacts> Orphans(std::vector<ProcessFacts> users) {
  std::set<int> pids;
  for (const ProcessFacts& user : users) {
    pids.insert(user.pid);
  }
  std::erase_if(users, [&](const ProcessFacts& user) {
    const std::optional<ProcessFacts> parent = ReadProcess(user.parent);
    return !pids.contains(user.parent) && parent.has_value() && parent->name.starts_with("hpvm-executor");
  });
  return users;
}

// Matches files that a killed process was writing, and folders of its own.
bool IsProcessOwn(const std::string& name) {
  return name.starts_with(".partial-") || name.starts_with(".driver-") || name.starts_with("hpvm-run-");
}

uint64_t SweepCache(const std::string& cache) {
  std::vector<fs::path> dead;
  std::error_code error;
  for (const fs::directory_entry& tenant : fs::directory_iterator(cache, error)) {
    for (const fs::directory_entry& entry : fs::directory_iterator(tenant.path(), error)) {
      if (IsProcessOwn(entry.path().filename().string())) {
        dead.push_back(entry.path());
      }
    }
  }
  for (const fs::path& path : dead) {
    fs::remove_all(path, error);  // A remaining file stays until the next start.
  }
  return dead.size();
}

// Leaves what the daemon's death would leave until the lock is removed last: a folder without a lock is not removed
// by others.
void RemoveStateFolder(const std::string& path) {
  std::error_code error;
  std::vector<fs::path> parts;
  for (const fs::directory_entry& entry : fs::directory_iterator(path, error)) {
    if (entry.path().filename() != std::string_view(kLockName).substr(1)) {
      parts.push_back(entry.path());
    }
  }
  for (const fs::path& part : parts) {
    fs::remove_all(part, error);
  }
  unlink((path + kLockName).c_str());
  rmdir(path.c_str());
}

void SweepTemporaryFolder(const std::string& path) {
  struct stat info {};
  if (lstat(path.c_str(), &info) != 0 || !S_ISDIR(info.st_mode) || info.st_uid != geteuid()) {
    return;
  }
  // The owner writes its number once it has the lock; before that the folder may be about to be used.
  if (ReadSmallFile(path + kLockName).empty()) {
    if (time(nullptr) - info.st_mtime > kEmptyFolderSeconds) {
      rmdir(path.c_str());  // Fails, as intended, unless it is empty.
    }
    return;
  }
  const StatusOr<std::unique_ptr<StateFolder>> folder = StateFolder::Open(path);
  if (folder.ok() && (*folder)->EndLeftovers().ok()) {
    RemoveStateFolder(path);
  }
}

}  // namespace

StatusOr<std::unique_ptr<StateFolder>> StateFolder::Open(const std::string& path) {
  HPVMD_RETURN_IF_ERROR(MakePrivateFolder(path));
  HPVMD_ASSIGN_OR_RETURN(UniqueFd lock, TakeLock(path));
  HPVMD_RETURN_IF_ERROR(MakePrivateFolder(path + kExecutorsName));
  return std::unique_ptr<StateFolder>(new StateFolder(path, std::move(lock), TightenModes(path)));
}

StatusOr<StateFolder::Leftovers> StateFolder::EndLeftovers(Duration within) {
  const Time start = RealClock().Now();
  KilledProcesses killed;
  HPVMD_ASSIGN_OR_RETURN(const std::vector<ProcessFacts> families, RecordedFamilies(path_ + kExecutorsName));
  for (const ProcessFacts& process : families) {
    killed.Kill(process);
  }
  HPVMD_RETURN_IF_ERROR(While(killed.AwaitEnds(start + within), "ending the processes that an earlier daemon left"));
  for (const ProcessFacts& process : Orphans(CacheUsers(path_ + kCacheName))) {
    killed.Kill(process);
  }
  HPVMD_RETURN_IF_ERROR(While(killed.AwaitEnds(start + within), "ending the processes that an earlier daemon left"));
  std::error_code error;
  std::vector<fs::path> records;
  for (const fs::directory_entry& entry : fs::directory_iterator(path_ + kExecutorsName, error)) {
    records.push_back(entry.path());
  }
  for (const fs::path& record : records) {
    fs::remove(record, error);
  }
  Leftovers leftovers;
  leftovers.processes = killed.count();
  leftovers.files = SweepCache(path_ + kCacheName);
  leftovers.took = RealClock().Now() - start;
  return leftovers;
}

Status StateFolder::Record(int pid) {
  HPVMD_ASSIGN_OR_RETURN(const std::string boot, BootId());
  const std::optional<ProcessFacts> process = ReadProcess(pid);
  if (!process.has_value()) {
    return Unavailable("The new process " + std::to_string(pid) + " does not appear in /proc.");
  }
  // Not synced, because processes end with the machine.
  const std::string path = path_ + kExecutorsName + "/" + std::to_string(pid);
  unlink(path.c_str());
  if (symlink(RecordOf(*process, boot).c_str(), path.c_str()) != 0) {
    return FromErrno(errno, "Recording a new process in \"" + path + "\"");
  }
  return absl::OkStatus();
}

void StateFolder::Forget(int pid) { unlink((path_ + kExecutorsName + "/" + std::to_string(pid)).c_str()); }

StatusOr<std::string> MakeTemporaryStateFolder() {
  std::error_code error;
  std::vector<std::string> earlier;
  for (const fs::directory_entry& entry : fs::directory_iterator(kTemporaryRoot, error)) {
    if (entry.path().filename().string().starts_with(kTemporaryPrefix)) {
      earlier.push_back(entry.path().string());
    }
  }
  for (const std::string& path : earlier) {
    SweepTemporaryFolder(path);
  }
  std::string path = std::string(kTemporaryRoot) + "/" + kTemporaryPrefix + "XXXXXX";
  if (mkdtemp(path.data()) == nullptr) {
    return FromErrno(errno, "Creating a temporary state folder");
  }
  return path;
}

void RemoveTemporaryStateFolder(const std::string& path) {
  if (path.starts_with(std::string(kTemporaryRoot) + "/" + kTemporaryPrefix)) {
    RemoveStateFolder(path);
  }
}

}  // namespace hpvm::server
