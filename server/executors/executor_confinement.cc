// SPDX-License-Identifier: Apache-2.0
#include "server/executors/executor_confinement.h"

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

// Kills every process of a user id that only executors have. Returns true when none is left.
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

ExecutorConfinement::~ExecutorConfinement() {
  cgroup_.reset();  // Kills everything in it.
  bool is_free = true;
  if (uid_ != 0) {
    is_free = EndProcessesOf(uid_);
    if (!is_free) {
      LogError("A user id stays taken: processes of an ended executor do not end", {{"uid", std::to_string(uid_)}});
    }
  }
  std::error_code error;
  fs::remove_all(scratch_, error);  // A leftover that cannot be removed stays until the next start.
  if (uid_ != 0 && is_free) {
    ids_->GiveBack(uid_);
  }
}

std::string ExecutorConfinement::WhyEnded() const {
  if (cgroup_ == nullptr || !cgroup_->RanOutOfMemory()) {
    return "";
  }
  const uint64_t limit = cgroup_->memory_bytes_max();
  return "The kernel killed the process because its memory" +
         (limit == 0
              ? std::string(
                    ", with that of other processes, was more than the machine or the daemon's control group has.")
              : " reached the limit (" + std::to_string(limit) + " bytes).");
}

StatusOr<std::unique_ptr<CpuPartition>> PartitionCpus(const Config& config) {
  StatusOr<std::vector<Processor>> processors = ReadProcessors();
  HPVMD_RETURN_IF_ERROR(processors.status());
  return CpuPartition::Make(*processors, config.cpu_reserved_cores, config.cpu_numa == "node",
                            static_cast<uint32_t>(config.executor_cpu_threads));
}

StatusOr<std::unique_ptr<ConfinementPool>> ConfinementPool::Create(const Config& config,
                                                                   const std::string& state_folder,
                                                                   const std::string& program) {
  std::unique_ptr<ConfinementPool> confinements(new ConfinementPool);
  confinements->state_folder_ = state_folder;
  confinements->ids_ = std::make_unique<ExecutorIds>(config, state_folder, program, SystemRng());
  if (config.executor_cgroup != "none") {
    StatusOr<std::unique_ptr<ExecutorCgroups>> groups = ExecutorCgroups::Create(
        FindCgroups(ReadSmallFile("/proc/self/cgroup"), ReadSmallFile("/proc/self/mountinfo")), NameOf(state_folder));
    if (groups.ok()) {
      confinements->cgroups_ = *std::move(groups);
      LogInfo("Executors have control groups", {{"cgroup", confinements->cgroups_->Describe()}});
    } else {
      LogInfo("Executors have no control groups", {{"reason", Message(groups.status())}});
    }
  }
  HPVMD_ASSIGN_OR_RETURN(confinements->cpus_, PartitionCpus(config));
  if (!confinements->cpus_->text().empty()) {
    LogInfo("Executors have processors of their own", {{"cpus", confinements->cpus_->text()}});
  }
  HPVMD_RETURN_IF_ERROR(confinements->PrepareFolders());
  return confinements;
}

Status ConfinementPool::PrepareFolders() {
  const bool has_identities = ids_->any();
  // Passable, but not readable: everything in it has a mode of its own.
  const mode_t mode = has_identities ? 0711 : 0700;
  if (has_identities) {
    HPVMD_RETURN_IF_ERROR(MakeFolder(state_folder_, mode));
    if (const std::string folder = ImpassableFolder(state_folder_); !folder.empty()) {
      LogWarning("Executors' users cannot reach the state folder: compiled kernels are not kept", {{"folder", folder}});
    }
  }
  HPVMD_RETURN_IF_ERROR(MakeFolder(state_folder_ + "/cache", mode));
  std::error_code error;
  fs::remove_all(state_folder_ + "/scratch", error);  // Left by an earlier daemon, whose processes are gone.
  return MakeFolder(state_folder_ + "/scratch", mode);
}

StatusOr<std::unique_ptr<ExecutorConfinement>> ConfinementPool::Take(const CgroupLimits& limits) {
  std::unique_ptr<ExecutorConfinement> confinement(new ExecutorConfinement);
  if (ids_->any()) {
    confinement->ids_ = ids_.get();
    HPVMD_ASSIGN_OR_RETURN(confinement->uid_, ids_->Take());
  }
  // The process knows the folder's name, which must not reveal how many others there were.
  confinement->scratch_ = state_folder_ + "/scratch/" + NewObjectId("run", SystemRng());
  HPVMD_RETURN_IF_ERROR(MakeFolder(confinement->scratch_, 0700));
  if (confinement->uid_ != 0 && chown(confinement->scratch_.c_str(), confinement->uid_, confinement->uid_) != 0) {
    return FromErrno(errno, "Changing the owner of the folder \"" + confinement->scratch_ + "\"");
  }
  confinement->cpus_ = cpus_->Take();
  if (cgroups_ != nullptr) {
    HPVMD_ASSIGN_OR_RETURN(confinement->cgroup_, cgroups_->Make(limits));
  }
  return confinement;
}

StatusOr<std::string> ConfinementPool::CacheFolder(const std::string& tenant,
                                                   const ExecutorConfinement& confinement) const {
  const std::string path = state_folder_ + "/cache/" + tenant;
  HPVMD_RETURN_IF_ERROR(MakeFolder(path, confinement.uid() != 0 ? 0770 : 0700));
  if (confinement.uid() != 0 && chown(path.c_str(), static_cast<uid_t>(-1), confinement.uid()) != 0) {
    return FromErrno(errno, "Giving the folder \"" + path + "\" to its tenant's executor");
  }
  return path;
}

}  // namespace hpvm::server
