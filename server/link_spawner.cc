// SPDX-License-Identifier: Apache-2.0
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <filesystem>
#include <mutex>
#include <utility>

#include "base/fd.h"
#include "base/hash.h"
#include "server/config.h"
#include "server/executor_process.h"
#include "server/state_folder.h"

namespace hpvm {
namespace {

constexpr Duration kProbeWithin = std::chrono::seconds(10);

class LinkProcess final : public ExecutorProcess {
 public:
  explicit LinkProcess(std::unique_ptr<ExecutorLink> link) : link_(std::move(link)) {}
  RequestId Prepare(const PrepareInput& input, std::function<void(StatusOr<PrepareReply>)> done) override {
    return link_->Prepare(input, std::move(done));
  }
  RequestId Run(const RunInput& input, std::function<void(StatusOr<RunReply>)> done) override {
    return link_->Run(input, std::move(done));
  }
  void Release(uint64_t handle) override { link_->Release(handle); }
  void Cancel(RequestId id) override { link_->Cancel(id); }
  void GrantChanged(uint32_t entry, uint32_t epoch, std::function<void(Status)> done) override {
    link_->GrantChanged(entry, epoch, std::move(done));
  }
  void Forget(uint64_t memory_id) override { link_->Forget(memory_id); }
  void Shutdown() override { link_->Shutdown(); }
  void Kill(std::string_view why) override { link_->Kill(why); }

 private:
  std::unique_ptr<ExecutorLink> link_;
};

// A folder of mode 0700 and its parents.
Status MakePrivateFolder(const std::string& path) {
  std::error_code error;
  std::filesystem::create_directories(std::filesystem::path(path).parent_path(), error);
  if (mkdir(path.c_str(), 0700) != 0 && errno != EEXIST) {
    return FromErrno(errno, "Creating the folder \"" + path + "\"");
  }
  return absl::OkStatus();
}

// The secret from which tenants' artifact keys come: read from `path`, or made there.
StatusOr<std::array<uint8_t, 32>> LoadSecret(const std::string& path) {
  std::array<uint8_t, 32> secret;
  UniqueFd file(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW));
  if (file.valid()) {
    if (read(file.get(), secret.data(), secret.size()) == static_cast<ssize_t>(secret.size())) {
      return secret;
    }
    // Cut short by a full disk: the cache is worthless without its key, so make a new one.
    unlink(path.c_str());
  }
  for (size_t i = 0; i < secret.size(); i += 8) {
    const uint64_t word = SystemRng().Next();
    __builtin_memcpy(&secret[i], &word, 8);
  }
  file.reset(open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
  if (!file.valid() || write(file.get(), secret.data(), secret.size()) != static_cast<ssize_t>(secret.size())) {
    return FromErrno(errno, "Writing \"" + path + "\"");
  }
  return secret;
}

void SetLimits(const Config& config, ExecutorOptions& options) {
  options.ready_within = std::chrono::milliseconds(config.executor_spawn_ms_max);
  options.document_bytes_max = config.limits_document_bytes_max;
  options.nodes_max = static_cast<uint32_t>(config.graph_nodes_max);
  options.edges_max = static_cast<uint32_t>(config.graph_edges_max);
  options.jobs_max = static_cast<uint32_t>(config.jobs_running_per_tenant_max);
}

class LinkSpawner final : public ExecutorSpawner {
 public:
  LinkSpawner(std::unique_ptr<ExecutorHub> hub, ExecutorOptions options, StateFolder& folder,
              std::array<uint8_t, 32> secret)
      : hub_(std::move(hub)), folder_(folder), options_(std::move(options)), secret_(secret) {}

  StatusOr<std::unique_ptr<ExecutorProcess>> Spawn(const SpawnRequest& request,
                                                std::function<void(const ExecutorReady&)> on_ready,
                                                std::function<void(const Status&)> on_end) override {
    ExecutorOptions options = Options();
    options.grant_page = request.grant_page;
    options.backends = request.backends;
    if (request.stop_grace > Duration{0}) {
      options.stop_grace = request.stop_grace;
    }
    // One folder and one key a tenant: nobody loads what another tenant's compiler wrote.
    options.cache_folder = folder_.path() + "/cache/" + request.tenant;
    HPVMD_RETURN_IF_ERROR(MakePrivateFolder(options.cache_folder));
    options.artifact_key = HmacOf(secret_, {reinterpret_cast<const uint8_t*>(request.tenant.data()),
                                            request.tenant.size()}).bytes;
    // Both on the hub's thread, which also reaps: no other process has the number before it is forgotten.
    const auto pid = std::make_shared<int>(-1);
    options.on_spawned = [this, pid](int spawned) {
      *pid = spawned;
      return folder_.Record(spawned);
    };
    const auto on_reaped = [this, pid, on_end = std::move(on_end)](const Status& why) {
      folder_.Forget(*pid);
      on_end(why);
    };
    HPVMD_ASSIGN_OR_RETURN(std::unique_ptr<ExecutorLink> link,
                           ExecutorLink::Start(*hub_, options, std::move(on_ready), on_reaped));
    return std::unique_ptr<ExecutorProcess>(std::make_unique<LinkProcess>(std::move(link)));
  }

  StatusOr<ProbedDevices> Probe(const std::string& backend) override {
    int pid = -1;
    const auto on_spawned = [&](int spawned) -> Status {
      pid = spawned;
      HPVMD_RETURN_IF_ERROR(folder_.Record(spawned));
      std::lock_guard lock(mutex_);
      if (probes_stopped_) {
        return Unavailable("The server is stopping.");
      }
      // The process is not reaped before this call returns, so the descriptor is its own.
      probe_.reset(static_cast<int>(syscall(SYS_pidfd_open, spawned, 0)));
      return absl::OkStatus();
    };
    StatusOr<ProbedDevices> devices = ProbeDevices(Options().program, backend, kProbeWithin, on_spawned);
    if (pid >= 0) {
      folder_.Forget(pid);
    }
    std::lock_guard lock(mutex_);
    probe_.reset();
    return devices;
  }

  void StopProbes() override {
    std::lock_guard lock(mutex_);
    probes_stopped_ = true;
    if (probe_.valid()) {
      syscall(SYS_pidfd_send_signal, probe_.get(), SIGKILL, nullptr, 0);
    }
  }

  void SetConfig(const Config& config) override {
    std::lock_guard lock(mutex_);
    SetLimits(config, options_);
  }

 private:
  ExecutorOptions Options() {
    std::lock_guard lock(mutex_);
    return options_;
  }

  std::unique_ptr<ExecutorHub> hub_;
  StateFolder& folder_;
  std::mutex mutex_;
  ExecutorOptions options_;        // Guarded by mutex_, as below.
  UniqueFd probe_;                 // Of the probe in progress; one at a time.
  bool probes_stopped_ = false;
  std::array<uint8_t, 32> secret_;
};

std::string BesideThisProgram(const std::string& name) {
  std::error_code error;
  return (std::filesystem::read_symlink("/proc/self/exe", error).parent_path() / name).string();
}

}  // namespace

StatusOr<std::unique_ptr<ExecutorSpawner>> CreateLinkSpawner(const Config& config, StateFolder& folder) {
  ExecutorOptions options;
  options.program = config.executor_path.empty() ? BesideThisProgram("hpvm-executor") : config.executor_path;
  if (access(options.program.c_str(), X_OK) != 0) {
    return FromErrno(errno, "Looking for the executor program \"" + options.program + "\"");
  }
  options.cpu_threads = static_cast<uint32_t>(config.executor_cpu_threads);
  SetLimits(config, options);
  HPVMD_RETURN_IF_ERROR(MakePrivateFolder(folder.path() + "/cache"));
  HPVMD_ASSIGN_OR_RETURN(const auto secret, LoadSecret(folder.path() + "/artifact.key"));
  HPVMD_ASSIGN_OR_RETURN(std::unique_ptr<ExecutorHub> hub, ExecutorHub::Create());
  return std::unique_ptr<ExecutorSpawner>(
      std::make_unique<LinkSpawner>(std::move(hub), std::move(options), folder, secret));
}

}  // namespace hpvm
