// SPDX-License-Identifier: Apache-2.0
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <condition_variable>
#include <filesystem>
#include <mutex>
#include <optional>
#include <utility>

#include "base/bytes.h"
#include "base/hash.h"
#include "base/io/fd.h"
#include "base/io/secret_file.h"
#include "server/config/config.h"
#include "server/executors/executor_confinement.h"
#include "server/executors/executor_pool.h"
#include "server/executors/executor_spawner.h"
#include "server/process/state_folder.h"

namespace hpvm::server {
namespace {

using supervisor::ExecutorOptions;

constexpr Duration kProbeWithin = std::chrono::seconds(10);
constexpr Duration kDefectsWithin = std::chrono::seconds(40);  // More than the probe's own limit.

void SetLimits(const Config& config, ExecutorOptions& options) {
  options.ready_within = std::chrono::milliseconds(config.executor_spawn_ms_max);
  internal::Hello& hello = options.hello;
  hello.set_document_bytes_max(config.limits_document_bytes_max);
  hello.set_nodes_max(static_cast<uint32_t>(config.graph_nodes_max));
  hello.set_edges_max(static_cast<uint32_t>(config.graph_edges_max));
  hello.set_jobs_max(static_cast<uint32_t>(config.jobs_running_per_tenant_max));
  hello.set_sandbox_level_max_plus_1(static_cast<uint32_t>(config.executor_sandbox_max) + 1);
  hello.set_sandbox_level_min(static_cast<uint32_t>(config.executor_sandbox_min));
  hello.set_tasks_max(static_cast<uint32_t>(config.executor_tasks_max));
  hello.set_spill_bytes_max(config.executor_spill_bytes_max);
  hello.set_host_bytes_max(config.executor_host_bytes_max);
  hello.set_device_bytes_max(config.executor_device_bytes_max);
}

struct SpillFile {
  UniqueFd fd;
  uint64_t bytes_max = 0;
};

// Opens a file without a name, which is removed with the last process that has it. Its limit is at most a quarter of
// the free space, so that a few executors do not fill the disk that jobs are stored on. Returns none where there is no
// room or such a file is not possible.
SpillFile OpenSpillFile(const std::string& folder, uint64_t bytes_max) {
  SpillFile file;
  struct statvfs facts {};
  if (bytes_max == 0 || statvfs(folder.c_str(), &facts) != 0) {
    return file;
  }
  file.bytes_max = std::min<uint64_t>(bytes_max, uint64_t{facts.f_bavail} * facts.f_frsize / 4);
  file.fd.reset(open(folder.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600));
  return file;
}

CgroupLimits LimitsOf(const Config& config) { return {config.executor_memory_bytes_max, config.executor_tasks_max}; }

class LinkSpawner final : public ExecutorSpawner {
 public:
  LinkSpawner(std::unique_ptr<supervisor::ExecutorHub> hub, std::unique_ptr<ConfinementPool> confinements,
              ExecutorOptions options, const Config& config, StateFolder& folder, std::array<uint8_t, 32> secret)
      : hub_(std::move(hub)),
        confinements_(std::move(confinements)),
        folder_(folder),
        options_(std::move(options)),
        limits_(LimitsOf(config)),
        secret_(secret),
        pool_([this](const SpareProfile& profile, std::function<void(const Status&)> on_end) {
          return StartSpare(profile, std::move(on_end));
        }) {
    pool_.SetCount(config.executor_spares);
  }

  StatusOr<std::unique_ptr<supervisor::ExecutorProcess>> Spawn(
      const SpawnRequest& request, std::function<void(const supervisor::ExecutorReady&)> on_ready,
      std::function<void(const Status&)> on_end) override {
    ExecutorOptions options = OptionsFor(request);
    const SpillFile spill = OpenSpillFile(folder_.path(), options.hello.spill_bytes_max());
    options.spill_fd = spill.fd.get();
    options.hello.set_spill_bytes_max(spill.bytes_max);
    while (std::optional<SpareExecutor> spare = pool_.Take(options)) {
      HPVMD_ASSIGN_OR_RETURN(*options.hello.mutable_cache_folder(),
                             confinements_->CacheFolder(request.tenant, *spare->confinement));
      if (spare->link->Greet(options, on_ready, Forgetting(spare->pid, on_end)).ok()) {
        return std::move(spare->link);
      }
    }
    HPVMD_ASSIGN_OR_RETURN(ExecutorConfinement* const confinement, Settle(options));
    HPVMD_ASSIGN_OR_RETURN(*options.hello.mutable_cache_folder(),
                           confinements_->CacheFolder(request.tenant, *confinement));
    const auto pid = std::make_shared<int>(-1);
    options.on_spawned = Recording(pid, *confinement);
    return supervisor::ExecutorLink::Start(*hub_, options, std::move(on_ready), Forgetting(pid, std::move(on_end)));
  }

  void Expect(const std::vector<std::string>& backends, bool without_device_nodes) override {
    pool_.Expect({backends, without_device_nodes});
  }

  EventHub* events() override { return &hub_->events(); }

  StatusOr<internal::Ready> Probe(const std::string& backend) override {
    return WithProbe([&](const auto& on_spawned) {
      return supervisor::ProbeDevices(Options().program, backend, kProbeWithin, on_spawned);
    });
  }
  StatusOr<std::vector<v1::DriverDefect>> ProbeDefects(const std::string& device) override {
    HPVMD_ASSIGN_OR_RETURN(const internal::Ready answer, WithProbe([&](const auto& on_spawned) {
                             return supervisor::ProbeDefects(Options().program, device, kDefectsWithin, on_spawned);
                           }));
    return std::vector<v1::DriverDefect>(answer.defects().begin(), answer.defects().end());
  }

  StatusOr<SandboxFacts> ProbeSandbox(const std::vector<std::string>& backends, bool without_device_nodes) override {
    ExecutorOptions options = Options();
    SetProfile(backends, without_device_nodes, options.hello);
    options.hello.set_sandbox_level_min(0);
    HPVMD_ASSIGN_OR_RETURN(ExecutorConfinement* const confinement, Settle(options));
    const auto pid = std::make_shared<int>(-1);
    options.on_spawned = Recording(pid, *confinement);
    std::optional<StatusOr<SandboxFacts>> answer;  // Guarded by mutex_.
    const auto take = [&](StatusOr<SandboxFacts> said) {
      std::lock_guard lock(mutex_);
      if (!answer.has_value()) {
        answer = std::move(said);
        probe_changed_.notify_all();
      }
    };
    // Destroyed before the objects that its callbacks use; none is called afterwards.
    HPVMD_ASSIGN_OR_RETURN(const std::unique_ptr<supervisor::ExecutorLink> link,
                           supervisor::ExecutorLink::Start(
                               *hub_, options,
                               [&](const supervisor::ExecutorReady& ready) {
                                 take(SandboxFacts{ready.said.sandbox_level(), ready.said.sandbox_detail()});
                               },
                               Forgetting(pid, [&](const Status& why) {
                                 take(why.ok() ? Unavailable("The executor ended before it was ready.") : why);
                               })));
    std::unique_lock lock(mutex_);
    probe_changed_.wait(lock, [&] { return answer.has_value() || probes_stopped_; });
    return answer.has_value() ? *answer : Unavailable("The server is stopping.");
  }

  // Runs `ask` with the callback for the process that it starts, which is then recorded, and killed when the daemon
  // stops.
  template <typename Ask>
  StatusOr<internal::Ready> WithProbe(const Ask& ask) {
    int pid = -1;
    const std::function<Status(int)> on_spawned = [&](int spawned) -> Status {
      pid = spawned;
      HPVMD_RETURN_IF_ERROR(folder_.Record(spawned));
      std::lock_guard lock(mutex_);
      if (probes_stopped_) {
        return Unavailable("The server is stopping.");
      }
      // The process is not reaped before this call returns, so the descriptor refers to it.
      probe_.reset(static_cast<int>(syscall(SYS_pidfd_open, spawned, 0)));
      return absl::OkStatus();
    };
    StatusOr<internal::Ready> answer = ask(on_spawned);
    if (pid >= 0) {
      folder_.Forget(pid);
    }
    std::lock_guard lock(mutex_);
    probe_.reset();
    return answer;
  }

  void StopProbes() override {
    std::lock_guard lock(mutex_);
    probes_stopped_ = true;
    probe_changed_.notify_all();
    if (probe_.valid()) {
      syscall(SYS_pidfd_send_signal, probe_.get(), SIGKILL, nullptr, 0);
    }
  }

  void SetConfig(const Config& config) override {
    {
      std::lock_guard lock(mutex_);
      SetLimits(config, options_);
      limits_ = LimitsOf(config);
    }
    pool_.SetCount(config.executor_spares);
    pool_.Renew();
  }

 private:
  static void SetProfile(const std::vector<std::string>& backends, bool without_device_nodes, internal::Hello& hello) {
    hello.mutable_backends()->Assign(backends.begin(), backends.end());
    hello.set_without_device_nodes(without_device_nodes);
  }

  ExecutorOptions OptionsFor(const SpawnRequest& request) {
    ExecutorOptions options = Options();
    options.grant_page = request.grant_page;
    options.on_usage = request.on_usage;
    options.waits_for_starved = !request.has_driver;
    internal::Hello& hello = options.hello;
    SetProfile(request.backends, request.without_device_nodes, hello);
    hello.set_sandbox_level_min(std::max(hello.sandbox_level_min(), request.sandbox_level_min));
    hello.mutable_emitted_refused()->Assign(request.emitted_refused.begin(), request.emitted_refused.end());
    if (request.stop_grace > Duration{0}) {
      options.stop_grace = request.stop_grace;
    }
    // Each tenant has a folder and a key of its own, so that none loads the output of another tenant's compiler.
    hello.set_artifact_key(std::string(Raw(HmacOf(secret_, BytesOf(request.tenant)))));
    return options;
  }

  // Takes a confinement for a new process and writes it into the options, which keep it.
  StatusOr<ExecutorConfinement*> Settle(ExecutorOptions& options) {
    CgroupLimits limits;
    {
      std::lock_guard lock(mutex_);
      limits = limits_;
    }
    HPVMD_ASSIGN_OR_RETURN(std::shared_ptr<ExecutorConfinement> confinement, confinements_->Take(limits));
    options.hello.set_uid(confinement->uid());
    options.hello.set_gid(confinement->uid());
    options.hello.set_scratch_folder(confinement->scratch());
    options.hello.set_has_cgroup(confinement->cgroup() != nullptr);
    options.cpus = confinement->cpus();
    options.why_ended = [raw = confinement.get()] { return raw->WhyEnded(); };
    options.belongings = confinement;
    return confinement.get();
  }

  // Recording and forgetting happen on the hub's thread, which also reaps: no other process has the number before it
  // is forgotten.
  std::function<Status(int)> Recording(std::shared_ptr<int> pid, const ExecutorConfinement& confinement) {
    return [this, pid = std::move(pid), cgroup = confinement.cgroup()](int spawned) {
      *pid = spawned;
      HPVMD_RETURN_IF_ERROR(cgroup != nullptr ? cgroup->Add(spawned) : absl::OkStatus());
      return folder_.Record(spawned);
    };
  }
  std::function<void(const Status&)> Forgetting(std::shared_ptr<int> pid, std::function<void(const Status&)> on_end) {
    return [this, pid = std::move(pid), on_end = std::move(on_end)](const Status& why) {
      folder_.Forget(*pid);
      on_end(why);
    };
  }

  StatusOr<SpareExecutor> StartSpare(const SpareProfile& profile, std::function<void(const Status&)> on_end) {
    SpareExecutor spare;
    spare.options = Options();
    SetProfile(profile.backends, profile.without_device_nodes, spare.options.hello);
    HPVMD_ASSIGN_OR_RETURN(spare.confinement, Settle(spare.options));
    spare.pid = std::make_shared<int>(-1);
    spare.programs = ProgramsOf(spare.options);
    spare.options.on_spawned = Recording(spare.pid, *spare.confinement);
    HPVMD_ASSIGN_OR_RETURN(spare.link, supervisor::ExecutorLink::StartSpare(*hub_, spare.options,
                                                                            Forgetting(spare.pid, std::move(on_end))));
    return spare;
  }

  ExecutorOptions Options() {
    std::lock_guard lock(mutex_);
    return options_;
  }

  std::unique_ptr<supervisor::ExecutorHub> hub_;
  std::unique_ptr<ConfinementPool> confinements_;
  StateFolder& folder_;
  std::mutex mutex_;
  ExecutorOptions options_;  // This and the following members up to probe_changed_ are guarded by mutex_.
  CgroupLimits limits_;
  UniqueFd probe_;  // Process of the probe in progress; one at a time.
  bool probes_stopped_ = false;
  std::condition_variable probe_changed_;
  const std::array<uint8_t, 32> secret_;
  ExecutorPool pool_;  // Destroyed first, since it uses all other members.
};

}  // namespace

std::string ExecutorProgram(const Config& config) {
  std::error_code error;
  return config.executor_path.empty()
             ? (std::filesystem::read_symlink("/proc/self/exe", error).parent_path() / "hpvm-executor").string()
             : config.executor_path;
}

StatusOr<std::unique_ptr<ExecutorSpawner>> CreateLinkSpawner(const Config& config, StateFolder& folder) {
  ExecutorOptions options;
  options.program = ExecutorProgram(config);
  if (access(options.program.c_str(), X_OK) != 0) {
    return FromErrno(errno, "Looking for the executor program \"" + options.program + "\"");
  }
  options.hello.set_cpu_threads(static_cast<uint32_t>(config.executor_cpu_threads));
  SetLimits(config, options);
  HPVMD_ASSIGN_OR_RETURN(std::unique_ptr<ConfinementPool> confinements,
                         ConfinementPool::Create(config, folder.path(), options.program));
  HPVMD_ASSIGN_OR_RETURN(const auto secret, LoadSecret(folder.path() + "/artifact.key"));
  HPVMD_ASSIGN_OR_RETURN(std::unique_ptr<supervisor::ExecutorHub> hub, supervisor::ExecutorHub::Create());
  return std::unique_ptr<ExecutorSpawner>(std::make_unique<LinkSpawner>(std::move(hub), std::move(confinements),
                                                                        std::move(options), config, folder, secret));
}

}  // namespace hpvm::server
