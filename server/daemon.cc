// SPDX-License-Identifier: Apache-2.0
#include "server/daemon.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "base/bytes.h"
#include "base/io/secret_file.h"
#include "server/config/config_reload.h"
#include "server/config/device_families.h"
#include "server/executors/executor_confinement.h"
#include "server/front/client_ring.h"
#include "server/front/tls.h"
#include "server/hosts/shared_identity.h"
#include "server/jobs/sqlite/sqlite_job_database.h"
#include "server/process/log.h"
#include "server/process/process_facts.h"
#include "server/rpc/scrape_access.h"

namespace hpvm::server {
namespace {

constexpr char kSpentFile[] = "/spent.json";

// Longest sleep, so that no arithmetic with kNever is needed.
constexpr Duration kLongest = std::chrono::minutes(1);
// Time to kill executors and write their jobs down after work in progress was interrupted.
constexpr Duration kBreakOffMax = std::chrono::milliseconds(1'000);
// Period of telling the cluster which devices the host has.
constexpr Duration kDevicesEvery = std::chrono::seconds(1);
// Period of looking for changes of tenants and tokens by other hosts; the database also tells of them.
constexpr Duration kRefreshEvery = std::chrono::seconds(1);
constexpr Duration kCallGrace = std::chrono::milliseconds(200);

std::string Milliseconds(Duration took) {
  return std::to_string(std::chrono::duration_cast<std::chrono::milliseconds>(took).count());
}

std::string Join(const std::vector<std::string>& parts) {
  std::string joined;
  for (const std::string& part : parts) {
    joined += (joined.empty() ? "" : ", ") + part;
  }
  return joined;
}

// Starts a thread that calls Core::OnTime when it is due. `after_round` is called after each round, at least every
// `longest`: the core is alive.
std::unique_ptr<RoundThread> StartTimer(Core& core, Duration longest, const std::function<void()>& after_round) {
  const auto round = [&core, longest = std::min(longest, kLongest), after_round] {
    const Time due = core.OnTime();
    after_round();
    return std::min(due - core.clock().Now(), longest);
  };
  // No round may start before the core knows which thread to wake.
  auto timer = std::make_unique<RoundThread>(round, kLongest);
  core.SetWake([timer = timer.get()] { timer->Wake(); });
  timer->Wake();
  return timer;
}

}  // namespace

StatusOr<std::unique_ptr<Daemon>> Daemon::Start(DaemonOptions options) {
  std::unique_ptr<Daemon> daemon(new Daemon());
  HPVMD_RETURN_IF_ERROR(daemon->Open(options));
  return daemon;
}

// A daemon that joins a cluster would leave the jobs of its own store alone: those that have not ended would never run.
Status Daemon::RefuseOwnJobs() {
  SqliteJobDatabaseOptions options;
  options.path = folder_->path() + "/jobs.db";
  if (!RealDisk().Open(options.path, Disk::Mode::kRead).ok()) {
    return absl::OkStatus();
  }
  HPVMD_ASSIGN_OR_RETURN(const std::unique_ptr<JobDatabase> database, OpenSqliteJobDatabase(options));
  HPVMD_ASSIGN_OR_RETURN(const auto uses, database->Use());
  uint64_t live = 0, ended = 0;
  for (const auto& [tenant, use] : uses) {
    live += use.live;
    ended += use.jobs - use.live;
  }
  if (live > 0) {
    return FailedPrecondition("The store of this host (\"" + options.path + "\") has " + std::to_string(live) +
                              " jobs that have not ended, and a host of a cluster does not run them. Start without "
                              "cluster.database until they have ended, or move them with `hpvmctl bundle`.");
  }
  if (ended > 0) {
    LogWarning("Jobs that ended before this host joined the cluster are not shown while it is part of it",
               {{"jobs", std::to_string(ended)}});
  }
  return absl::OkStatus();
}

StatusOr<std::unique_ptr<JobStore>> Daemon::JoinCluster(const Config& config) {
  ClusterHostOptions options{.config = config, .room = room_.get(), .limits = nullptr};
  options.limits = [this](const std::string& tenant) {
    const std::shared_ptr<const Config> now = core_->config();
    const TenantPolicyRef policy = identity_->directory().Find(tenant, *now);
    cluster::TenantLimits limits;
    if (policy == nullptr) {  // Another host has deleted the tenant.
      limits.is_disabled = true;
      return limits;
    }
    limits.weight = std::max<uint32_t>(1, policy->weight);
    const uint64_t queued = policy->limits[static_cast<size_t>(scheduler::Resource::kQueuedJobs)];
    limits.waiting_max = queued == 0 ? now->jobs_queued_per_tenant_max : queued;
    limits.is_disabled = policy->disabled;
    return limits;
  };
  HPVMD_RETURN_IF_ERROR(RefuseOwnJobs());
  HPVMD_ASSIGN_OR_RETURN(host_, ClusterHost::Open(std::move(options)));
  return host_->TakeJobs();
}

StatusOr<std::unique_ptr<JobStore>> Daemon::OpenJobs(const DaemonOptions& options) {
  if (!options.config.cluster_database.empty()) {
    return JoinCluster(options.config);
  }
  if (options.config.jobs_store == "memory") {
    return OpenMemoryJobStore(folder_->path(), &events_, room_.get());
  }
  const auto on_broken = [then = options.on_broken](const Status& why) {
    LogError("The job store is broken; no job is acknowledged any more", {{"error", Message(why)}});
    if (then) {
      then(why);
    }
  };
  const ScrubOptions scrub = {options.config.jobs_scrub_bytes_per_second,
                              std::chrono::milliseconds(options.config.jobs_scrub_every_ms)};
  return OpenLocalJobStore(folder_->path(), on_broken, &events_, room_.get(), scrub);
}

Status Daemon::OpenAudit(const Config& config) {
  if (config.audit_enabled) {
    HPVMD_ASSIGN_OR_RETURN(
        kept_audit_, OpenAuditLog(RealDisk(), folder_->path() + "/audit", config.audit_file_bytes_max, RealClock()));
    kept_audit_->SetRetention({config.audit_keep_days, config.audit_bytes_max});
    audit_ = kept_audit_.get();
  }
  audit_observer_ = std::make_unique<AuditObserver>(*audit_);
  events_.Subscribe(observation_->observer());
  events_.Subscribe(*audit_observer_);
  SetOnSlowItem([this](const SlowItem& item) {
    events_.On(item);
    LogWarning("A thread or lock that serves all tenants was busy with one item for long",
               {{"tenant", item.tenant},
                {"thread", item.thread},
                {"item", item.item},
                {"ms", std::to_string(item.spent / std::chrono::milliseconds(1))}});
  });
  return absl::OkStatus();
}

// The thread of SpentKeeper writes the accounts.
void Daemon::OpenAccounts(const SpentByTenant& spent) {
  AccountsOptions options;
  options.path = folder_->path() + kAccountsFile;
  options.clock = &RealClock();
  options.keep_days = [this] { return core_->config()->accounts_keep_days; };
  options.spent = spent;
  accounts_ = std::make_unique<Accounts>(std::move(options));
  events_.Subscribe(*accounts_);
}

// Records an action of the daemon itself.
void Daemon::Note(std::string_view event, std::string_view detail) {
  events_.On(events::Recorded{.who = "hpvmd", .method = event, .verdict = "ok", .detail = detail});
}

// Faulty files change nothing; the watch of the service's certificate logs them.
static HttpEndpoint::Certificates MetricsCertificates(const Config& config) {
  if (config.tls_certificate.empty()) {
    return nullptr;
  }
  return [config]() -> std::optional<HttpCertificate> {
    Diagnostics faults;
    TlsFiles files = ReadTlsFiles(config, &faults);
    return HasErrors(faults) ? std::nullopt
                             : std::optional(HttpCertificate{std::move(files.chain), std::move(files.key)});
  };
}

// Fills the options from open objects and from the files in the state folder.
Status Daemon::FillCoreOptions(const Config& config, CoreOptions* core) {
  core->config = config;
  core->clock = &RealClock();
  core->rng = &SystemRng();
  core->spawner = spawner_.get();
  core->jobs = jobs_.get();
  core->shared = host_ == nullptr ? nullptr : host_->shared();
  core->observer = &events_;
  core->policies = &identity_->directory();
  core->awaits_devices = true;
  HPVMD_ASSIGN_OR_RETURN(const auto secret, LoadSecret(folder_->path() + "/artifact.key"));
  core->page_key = HmacOf(secret, BytesOf("pages of lists"));
  core->cpu_threads =
      static_cast<uint32_t>(config.executor_cpu_threads != 0 ? config.executor_cpu_threads
                                                             : std::max(1u, std::thread::hardware_concurrency()));
  HPVMD_ASSIGN_OR_RETURN(const std::unique_ptr<CpuPartition> cpus, PartitionCpus(config));
  core->cpu_threads = std::min(core->cpu_threads, cpus->threads_max());
  core->cpu_note = cpus->text();
  core->host_bytes_max = MemoryAllowed() / 10 * 6;  // The rest is for executors, drivers and the machine.
  if (const StatusOr<DiskSpace> space = RealDisk().Space(folder_->path()); space.ok()) {
    core->disk_bytes_max = space->size_bytes / 10 * 6;  // The rest is for compiled kernels, the audit and other files.
  }
  StatusOr<SpentByTenant> spent = ReadSpent(folder_->path() + kSpentFile);
  if (!spent.ok()) {
    LogWarning("The tenants' spent quotas cannot be read and count from 0", {{"error", Message(spent.status())}});
    spent = SpentByTenant();
  }
  core->spent = *std::move(spent);
  HPVMD_ASSIGN_OR_RETURN(core->intake, ReadIntake(folder_->path() + "/intake.json"));
  if (core->intake.closed) {
    LogWarning("The server starts nothing until an administrator readmits it (hpvmctl readmit)",
               {{"reason", core->intake.reason}, {"by", core->intake.changed_by}});
  }
  return absl::OkStatus();
}

Status Daemon::Open(DaemonOptions& options) {
  const Time start = RealClock().Now();
  const Config& config = options.config;
  origin_ = options.origin;
  in_force_.Set(config, origin_, RealClock().WallNs(), {});
  HPVMD_ASSIGN_OR_RETURN(const std::vector<ListenAddress> addresses, ParseListen(config.server_listen));
  HPVMD_ASSIGN_OR_RETURN(folder_, StateFolder::Open(config.server_state_dir));
  room_ = std::make_unique<DiskRoom>(DiskRoomOptions{
      .disk = &RealDisk(), .folder = folder_->path(), .reserve_bytes_max = config.server_reserve_bytes});
  HPVMD_RETURN_IF_ERROR(room_->Start());
  if (folder_->tightened() > 0) {
    LogWarning("Other users could read parts of the state folder; the modes of these parts were restricted",
               {{"count", std::to_string(folder_->tightened())}, {"state", folder_->path()}});
  }
  HPVMD_ASSIGN_OR_RETURN(observation_,
                         Observation::Start(config, RealClock(), SystemRng(), MetricsCertificates(config)));
  HPVMD_ASSIGN_OR_RETURN(const StateFolder::Leftovers leftovers, folder_->EndLeftovers());
  if (leftovers.processes + leftovers.files > 0) {
    LogWarning("An earlier daemon left processes or files, which are gone now",
               {{"processes", std::to_string(leftovers.processes)},
                {"files", std::to_string(leftovers.files)},
                {"ms", Milliseconds(leftovers.took)}});
  }
  HPVMD_RETURN_IF_ERROR(OpenAudit(config));
  HPVMD_ASSIGN_OR_RETURN(identity_,
                         Identity::Open(config, folder_->path(), RealClock(), SystemRng(), SharedIdentityOf(config)));
  HPVMD_ASSIGN_OR_RETURN(spawner_, CreateLinkSpawner(config, *folder_));
  HPVMD_ASSIGN_OR_RETURN(jobs_, OpenJobs(options));
  CoreOptions core;
  HPVMD_RETURN_IF_ERROR(FillCoreOptions(config, &core));
  SpentByTenant spent = core.spent;
  OpenAccounts(spent);
  core_ = std::make_unique<Core>(std::move(core));
  spent_ = std::make_unique<SpentKeeper>(folder_->path() + kSpentFile, std::move(spent), [this] {
    SpentByTenant now = core_->tenants().Spent();
    accounts_->Keep(now);
    return now;
  });
  core_->OnRoom(!room_->is_full());  // Before jobs are restored, because they would start.
  HPVMD_RETURN_IF_ERROR(While(core_->Restore(), "reading the jobs of \"" + folder_->path() + "\""));
  timer_ =
      StartTimer(*core_, options.alive_every, [heart = &observation_->heart(), on_alive = std::move(options.on_alive)] {
        heart->Beat();
        if (on_alive) {
          on_alive();
        }
      });
  HPVMD_RETURN_IF_ERROR(Serve(config, addresses));
  Watch();
  probe_ = std::make_unique<ProbeThread>(*core_, *spawner_);
  WatchHealth(config);
  WatchRoom();
  jobs_->SetOnDamage([this](const JobDamage& damage) { core_->OnDamage(damage); });
  HPVMD_RETURN_IF_ERROR(StartHost());
  LogInfo("Started", {{"ms", Milliseconds(RealClock().Now() - start)},
                      {"state", folder_->path()},
                      {"config_sha256", in_force_.Get().sha256}});
  return absl::OkStatus();
}

Status Daemon::Serve(const Config& config, const std::vector<ListenAddress>& addresses) {
  std::vector<std::string> unix_paths;
  for (const ListenAddress& address : addresses) {
    if (address.is_unix) {
      unix_paths.push_back(address.target);
    }
  }
  // Opened before the service, so that a client that reaches the service also finds the ticket socket.
  HPVMD_RETURN_IF_ERROR(identity_->OpenTicketSockets(config, unix_paths));
  Access access{&identity_->directory(), &identity_->authenticator(), audit_, folder_->path() + kAccountsFile,
                &in_force_};
  if (host_ != nullptr) {
    cluster_admin_ = std::make_unique<ClusterAdmin>(host_->store(), host_->name());
    access.hosts = cluster_admin_.get();
  }
  access.keep_intake = [path = folder_->path() + "/intake.json"](const Intake& next) {
    return WriteIntake(path, next);
  };
  if (!unix_paths.empty()) {
    HPVMD_ASSIGN_OR_RETURN(
        inbox_, DescriptorInbox::Start(unix_paths, static_cast<mode_t>(config.server_socket_mode), RealClock()));
  }
  HPVMD_ASSIGN_OR_RETURN(server_,
                         GrpcServer::Start(*core_, addresses, access, LocalCallers{inbox_.get(), spawner_->events()}));
  if (identity_->directory().is_open()) {
    LogWarning("No credentials are configured: every caller that reaches these addresses is accepted",
               {{"tenant", config.tenants_default}, {"addresses", Join(server_->addresses())}});
  } else if (config.tenants_from_metadata || config.server_reflection) {
    LogWarning("Credentials are configured, so tenants.from_metadata and server.reflection have no effect");
  }
  Note("daemon start", "The daemon listens on " + Join(server_->addresses()) + ".");
  return absl::OkStatus();
}

ProbeThread::ProbeThread(Core& core, ExecutorSpawner& spawner)
    : core_(core), spawner_(spawner), thread_([this] { return Round(); }, kLongest) {
  core_.devices().SetProbeWake([this] { thread_.Wake(); });
  thread_.Wake();
}

void ProbeThread::Rediscover() {
  discover_.store(true);
  thread_.Wake();
}

void ProbeThread::Discover() {
  const StatusOr<std::vector<std::string>> families = FamiliesOf(core_.config()->devices_backends);
  for (const std::string& family : families.value_or(std::vector<std::string>{"cpu"})) {
    core_.devices().SetFound(family, spawner_.Probe(family));
  }
  LookForDefects();
  core_.devices().LookAtSandbox();  // Before anything runs: a machine that does not meet executor.sandbox_min must
                                    // never report ready.
  core_.devices().DevicesKnown();
}

// Defects of an unchanged driver do not change, so each driver is probed once.
void ProbeThread::LookForDefects() {
  for (const auto& [id, identity] : core_.devices().DriverDevices()) {
    auto known = defects_.find(identity);
    if (known == defects_.end()) {
      StatusOr<std::vector<v1::DriverDefect>> found = spawner_.ProbeDefects(id);
      if (!found.ok()) {
        LogWarning("Looking for known defects failed", {{"device", id}, {"error", Message(found.status())}});
        continue;
      }
      known = defects_.emplace(identity, *std::move(found)).first;
    }
    core_.devices().SetDefects(id, known->second);
  }
}

// Probes one device alone; it must be present and work.
void ProbeThread::TryOut(const std::string& id) {
  const StatusOr<internal::Ready> found = spawner_.Probe(id);
  Status outcome = found.status();
  if (found.ok() && found->devices().empty()) {
    outcome = Unavailable(found->broken().empty() ? "The device is no longer there." : found->broken(0).detail());
  }
  core_.devices().OnProbed(id, outcome);
}

Duration ProbeThread::Round() {
  if (discover_.exchange(false)) {
    Discover();
  }
  Time next = kNever;
  while (const std::optional<std::string> due = core_.devices().DueProbe(&next)) {
    TryOut(*due);
  }
  return std::min(next - core_.clock().Now(), kLongest);
}

void Daemon::Watch() {
  WatchedParts parts;
  parts.snapshot = [this](bool with_tenants) { return core_->Snapshot(with_tenants); };
  parts.config = [this] { return core_->config(); };
  parts.wake_timer = [this] { timer_->Wake(); };
  parts.set_health = [this](bool live, bool ready) { server_->SetHealth(live, ready); };
  parts.store_folder = folder_->path();
  parts.in_force = [this] { return in_force_.Get(); };
  if (host_ != nullptr) {
    parts.cluster = [this] { return host_->Facts(); };
  }
  parts.may_see_tenants = [this](std::string_view authorization) {
    return MaySeeTenants(authorization, *core_->config(), identity_->authenticator(), identity_->directory().is_open());
  };
  observation_->Watch(std::move(parts));
}

void Daemon::WatchHealth(const Config& config) {
  if (config.devices_health) {
    health_ = std::make_unique<HealthWatch>(
        HealthWatchOptions{.library = config.devices_nvml_library,
                           .interval = std::chrono::milliseconds(config.devices_health_interval_ms)},
        [this](const HealthWatch::Readings& readings) { core_->devices().OnHealth(readings); });
  }
}

// Other hosts change tenants and tokens, too. Policies apply to what runs here at once.
Duration Daemon::RefreshIdentities() {
  const StatusOr<bool> changed = identity_->directory().Refresh();
  if (changed.ok() && *changed) {
    core_->SetConfig(*core_->config());
  }
  for (const std::string& name : identity_->directory().TakeGone()) {
    core_->tenant_removal().Follow(name, [&directory = identity_->directory(), name] {
      const TenantRecordRef tenant = directory.FindTenant(name);
      return tenant == nullptr || tenant->deleting();
    });
  }
  return std::min<Duration>(kRefreshEvery, std::chrono::milliseconds(core_->config()->identity_stale_ms) / 4);
}

Status Daemon::StartHost() {
  if (host_ == nullptr) {
    return absl::OkStatus();
  }
  identities_ = std::make_unique<RoundThread>([this] { return RefreshIdentities(); });
  host_->SetOnNotice([this](const std::string& channel) {
    if (channel == kIdentityChannel || channel.empty()) {
      identities_->Wake();
    }
  });
  HPVMD_RETURN_IF_ERROR(host_->Start(*core_));
  host_devices_ = std::make_unique<RoundThread>([this] {
    host_->SetDevices(core_->Snapshot(/*with_tenants=*/false).devices);
    host_->SetPaused(core_->intake().closed || !core_->Health().is_ready);
    return kDevicesEvery;
  });
  return absl::OkStatus();
}

// Tells components that wait for disk room, and retries devices that failed meanwhile.
void Daemon::WatchRoom() {
  jobs_->SetOnRoom([this, had_room = true](bool has_room) mutable {
    core_->OnRoom(has_room);
    if (std::exchange(had_room, has_room) && has_room) {
      return;
    }
    if (!has_room) {
      LogWarning("The disk is full: no job is accepted or started until there is room",
                 {{"reason", jobs_->Health().reason}});
      return;
    }
    LogInfo("The disk has room again: jobs go on");
    const std::vector<v1::Device> devices = core_->Snapshot(/*with_tenants=*/false).devices;
    if (std::any_of(devices.begin(), devices.end(),
                    [](const v1::Device& device) { return device.state() == v1::Device::STATE_BROKEN; })) {
      probe_->Rediscover();
    }
  });
}

Status Daemon::Reload(const StatusOr<Config>& next) {
  const std::shared_ptr<const Config> current = core_->config();
  const StatusOr<ConfigReload> reload = next.ok() ? MergeReload(*current, *next) : next.status();
  core_->observer().On(events::Reloaded{reload.ok()});
  if (!reload.ok()) {
    LogError("The new configuration was rejected; the old one stays in force", {{"error", Message(reload.status())}});
    return reload.status();
  }
  std::vector<std::string> changes;
  for (const std::string& key : reload->changed) {
    changes.push_back(DescribeChange(*current, reload->config, key));
  }
  if (const Status made = identity_->Reload(reload->config); !made.ok()) {
    LogError("The default tenant could not be created", {{"error", Message(made)}});
  }
  core_->SetConfig(reload->config);
  in_force_.Set(reload->config, origin_, RealClock().WallNs(), reload->kept);
  spawner_->SetConfig(reload->config);
  audit_->SetRetention({reload->config.audit_keep_days, reload->config.audit_bytes_max});
  StartLog(reload->config.log_level, reload->config.log_format);
  LogInfo("The configuration was read again",
          {{"changed", changes.empty() ? "nothing" : Join(changes)}, {"sha256", in_force_.Get().sha256}});
  if (!reload->kept.empty()) {
    LogWarning("Some keys keep their values until a restart", {{"keys", Join(reload->kept)}});
  }
  return absl::OkStatus();
}

void Daemon::AwaitOperations(Duration within, const std::function<bool()>& hurry) {
  const Time deadline = RealClock().Now() + within;
  while (core_->operations() > 0 && RealClock().Now() < deadline && !(hurry && hurry())) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
}

void Daemon::Stop(const std::function<bool()>& hurry) {
  Note("daemon stop", "");
  core_->Drain();
  if (host_ != nullptr) {
    host_->Drain();
  }
  server_->AnnounceEnd();
  AwaitOperations(std::chrono::milliseconds(core_->config()->server_drain_ms), hurry);
  if (const size_t left = core_->operations(); left > 0) {
    LogWarning("Work in progress is stopped; its jobs stay in the queue", {{"operations", std::to_string(left)}});
    core_->StopRunning();
    AwaitOperations(kBreakOffMax, nullptr);
  }
  if (host_ != nullptr) {
    host_->Leave();
  }
  spawner_->StopProbes();
  core_->Stop();
  server_->Shutdown(kCallGrace);
}

Daemon::~Daemon() {
  SetOnSlowItem(nullptr);
  if (observation_ != nullptr) {
    observation_->Unwatch();
  }
  if (jobs_ != nullptr) {
    jobs_->SetOnRoom(nullptr);
    jobs_->SetOnDamage(nullptr);
  }
  health_.reset();
  probe_.reset();
  host_devices_.reset();
  if (host_ != nullptr) {
    host_->Stop();
  }
  identities_.reset();
  if (core_ != nullptr) {
    core_->Stop();
  }
  // Calls in progress read the store; the store's last answers reach the core.
  server_.reset();
  jobs_.reset();
  spent_.reset();
  timer_.reset();
  core_.reset();
}

}  // namespace hpvm::server
