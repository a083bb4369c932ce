// SPDX-License-Identifier: Apache-2.0
#include "server/executors/executor_place.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <filesystem>
#include <sstream>
#include <utility>

#include "base/bytes.h"
#include "base/hash.h"
#include "base/io/fd.h"
#include "server/process/log.h"
#include "server/process/object_id.h"
#include "server/process/process_facts.h"

namespace hpvm::server {
namespace {

namespace fs = std::filesystem;

constexpr int kEndStepsMax = 200;
constexpr timespec kEndStep{0, 5'000'000};

Status MakeFolder(const std::string& path, mode_t mode) {
  if (mkdir(path.c_str(), 0700) != 0 && errno != EEXIST) {
    return FromErrno(errno, "Creating the folder \"" + path + "\"");
  }
  return chmod(path.c_str(), mode) == 0 ? absl::OkStatus() : FromErrno(errno, "Setting the mode of \"" + path + "\"");
}

bool BelongsTo(int pid, uint32_t uid) {
  std::istringstream status(ReadSmallFile("/proc/" + std::to_string(pid) + "/status"));
  const std::string wanted = "Uid:\t" + std::to_string(uid) + "\t";
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with("Uid:")) {
      return line.starts_with(wanted);
    }
  }
  return false;
}

// Ends every process of a user that is an executor's alone. True when none is left.
bool EndProcessesOf(uint32_t uid) {
  for (int step = 0; step < kEndStepsMax; ++step) {
    bool is_any_left = false;
    for (const ProcessFacts& process : ListProcesses()) {
      if (process.has_ended || !BelongsTo(process.pid, uid)) {
        continue;
      }
      is_any_left = true;
      UniqueFd held(static_cast<int>(syscall(SYS_pidfd_open, process.pid, 0)));
      if (held.valid() && BelongsTo(process.pid, uid)) {
        syscall(SYS_pidfd_send_signal, held.get(), SIGKILL, nullptr, 0);
      }
    }
    if (!is_any_left) {
      return true;
    }
    nanosleep(&kEndStep, nullptr);
  }
  return false;
}

std::string NameOf(const std::string& state_folder) { return ToHex(HashOf(state_folder)).substr(0, 12); }

}  // namespace

ExecutorPlace::~ExecutorPlace() {
  cgroup_.reset();  // Ends everything in it.
  bool is_free = true;
  if (uid_ != 0) {
    is_free = EndProcessesOf(uid_);
    if (!is_free) {
      LogError("A user id stays taken: processes of an ended executor do not end", {{"uid", std::to_string(uid_)}});
    }
  }
  std::error_code error;
  fs::remove_all(scratch_, error);  // What cannot be removed stays until the next start.
  if (uid_ != 0 && is_free) {
    ids_->GiveBack(uid_);
  }
}

std::string ExecutorPlace::WhyEnded() const {
  if (cgroup_ == nullptr || !cgroup_->RanOutOfMemory()) {
    return "";
  }
  const uint64_t limit = cgroup_->memory_bytes_max();
  return "The kernel ended it because its memory" +
         (limit == 0 ? std::string(", with others', was more than the machine or the daemon's group has.")
                     : " reached the limit (" + std::to_string(limit) + " bytes).");
}

StatusOr<std::unique_ptr<ExecutorPlaces>> ExecutorPlaces::Create(const Config& config, const std::string& state_folder,
                                                                 const std::string& program) {
  std::unique_ptr<ExecutorPlaces> places(new ExecutorPlaces);
  places->state_folder_ = state_folder;
  places->ids_ = std::make_unique<ExecutorIds>(config, state_folder, program, SystemRng());
  if (config.executor_cgroup != "none") {
    StatusOr<std::unique_ptr<ExecutorCgroups>> groups = ExecutorCgroups::Create(
        FindCgroups(ReadSmallFile("/proc/self/cgroup"), ReadSmallFile("/proc/self/mountinfo")), NameOf(state_folder));
    if (groups.ok()) {
      places->cgroups_ = *std::move(groups);
      LogInfo("Executors have control groups", {{"cgroup", places->cgroups_->Describe()}});
    } else {
      LogInfo("Executors have no control groups", {{"reason", Message(groups.status())}});
    }
  }
  HPVMD_RETURN_IF_ERROR(places->PrepareFolders());
  return places;
}

Status ExecutorPlaces::PrepareFolders() {
  const bool has_identities = ids_->any();
  // To be passed through by those who know where they are going; everything in it has a mode of its own.
  const mode_t mode = has_identities ? 0711 : 0700;
  if (has_identities) {
    HPVMD_RETURN_IF_ERROR(MakeFolder(state_folder_, mode));
    if (const std::string folder = ImpassableFolder(state_folder_); !folder.empty()) {
      LogWarning("Executors' users cannot reach the state folder: compiled kernels are not kept", {{"folder", folder}});
    }
  }
  HPVMD_RETURN_IF_ERROR(MakeFolder(state_folder_ + "/cache", mode));
  std::error_code error;
  fs::remove_all(state_folder_ + "/scratch", error);  // Of an earlier daemon, whose processes are gone.
  return MakeFolder(state_folder_ + "/scratch", mode);
}

StatusOr<std::unique_ptr<ExecutorPlace>> ExecutorPlaces::Take(const CgroupLimits& limits) {
  std::unique_ptr<ExecutorPlace> place(new ExecutorPlace);
  if (ids_->any()) {
    place->ids_ = ids_.get();
    HPVMD_ASSIGN_OR_RETURN(place->uid_, ids_->Take());
  }
  // The process knows the folder's name, which must not say how many others there were.
  place->scratch_ = state_folder_ + "/scratch/" + NewObjectId("run", SystemRng());
  HPVMD_RETURN_IF_ERROR(MakeFolder(place->scratch_, 0700));
  if (place->uid_ != 0 && chown(place->scratch_.c_str(), place->uid_, place->uid_) != 0) {
    return FromErrno(errno, "Giving away the folder \"" + place->scratch_ + "\"");
  }
  if (cgroups_ != nullptr) {
    HPVMD_ASSIGN_OR_RETURN(place->cgroup_, cgroups_->Make(limits));
  }
  return place;
}

StatusOr<std::string> ExecutorPlaces::CacheFolder(const std::string& tenant, const ExecutorPlace& place) const {
  const std::string path = state_folder_ + "/cache/" + tenant;
  HPVMD_RETURN_IF_ERROR(MakeFolder(path, place.uid() != 0 ? 0770 : 0700));
  if (place.uid() != 0 && chown(path.c_str(), static_cast<uid_t>(-1), place.uid()) != 0) {
    return FromErrno(errno, "Giving the folder \"" + path + "\" to its tenant's executor");
  }
  return path;
}

}  // namespace hpvm::server
