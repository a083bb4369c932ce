// SPDX-License-Identifier: Apache-2.0
#include "server/hosts/cluster_host.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <utility>

#include "base/hash.h"
#include "base/io/disk.h"
#include "server/cluster/postgres/postgres_listener.h"
#include "server/cluster/postgres/postgres_session.h"
#include "server/cluster/sql/cluster_schema.h"
#include "server/cluster/sql/cluster_transaction.h"
#include "server/cluster/sql/sql_cluster_store.h"
#include "server/cluster/sqlite/sqlite_session.h"
#include "server/hosts/blob_sweep.h"
#include "server/hosts/shared_identity.h"
#include "server/process/log.h"

namespace hpvm::server {
namespace {

constexpr std::string_view kSqlitePrefix = "sqlite:";
// Channels of the database (SqlSession::Notify).
// Between two looks at the hosts of the cluster, for the metrics, and how long an answer counts as one.
constexpr Duration kLookEvery = std::chrono::seconds(5), kAnswersFor = std::chrono::seconds(12);
constexpr Duration kSweepEvery = std::chrono::hours(1);
constexpr Duration kLeaveMax = std::chrono::seconds(5);
// Connections to PostgreSQL for calls; another one listens.
constexpr uint32_t kConnections = 4;

bool IsSqlite(const Config& config) { return config.cluster_database.starts_with(kSqlitePrefix); }

// LoggedOnce logs warnings when they differ from those of the last connection: after a fail-over the server is another
// one. Thread-safe.
class LoggedOnce {
 public:
  void Warn(const std::vector<std::string>& warnings) {
    std::lock_guard lock(mutex_);
    if (warnings != last_) {
      for (const std::string& warning : warnings) {
        LogWarning(warning);
      }
      last_ = warnings;
    }
  }

 private:
  std::mutex mutex_;
  std::vector<std::string> last_;
};

cluster::PostgresOptions PostgresOf(const Config& config) { return {.dsn = config.cluster_database}; }

// Each start is a process of its own for the store.
std::string NewProcessName() {
  std::array<uint8_t, 16> bytes;
  SystemRng().Fill(bytes);
  return ToHex(bytes);
}

std::string KindOf(const v1::Device& device) {
  switch (device.kind()) {
    case v1::Device::KIND_CPU:
      return "kind:cpu";
    case v1::Device::KIND_GPU:
      return "kind:gpu";
    case v1::Device::KIND_FPGA:
      return "kind:fpga";
    default:
      return "";
  }
}

}  // namespace

ClusterHost::Connect ConnectTo(const Config& config) {
  if (IsSqlite(config)) {
    return [path = config.cluster_database.substr(
                kSqlitePrefix.size())]() -> StatusOr<std::unique_ptr<cluster::SqlSession>> {
      return cluster::SqliteSession::Open(path, RealDisk(), RealClock());
    };
  }
  return [options = PostgresOf(config),
          logged = std::make_shared<LoggedOnce>()]() -> StatusOr<std::unique_ptr<cluster::SqlSession>> {
    HPVMD_ASSIGN_OR_RETURN(auto session, cluster::PostgresSession::Open(options));
    logged->Warn(session->durability().Warnings());
    return session;
  };
}

Status GrantToAgent(const Config& config, const std::string& user) {
  HPVMD_ASSIGN_OR_RETURN(const std::unique_ptr<cluster::SqlSession> session, ConnectTo(config)());
  HPVMD_RETURN_IF_ERROR(cluster::MigrateClusterSchema(*session));
  return cluster::GrantToAgents(*session, user);
}

std::set<std::string> SplitWords(const std::string& text) {
  std::set<std::string> words;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find(',', begin), text.size());
    const auto is_space = [](char c) { return std::isspace(static_cast<unsigned char>(c)) != 0; };
    std::string word = text.substr(begin, end - begin);
    word.erase(word.begin(), std::find_if_not(word.begin(), word.end(), is_space));
    word.erase(std::find_if_not(word.rbegin(), word.rend(), is_space).base(), word.end());
    if (!word.empty()) {
      words.insert(std::move(word));
    }
    begin = end + 1;
  }
  return words;
}

std::string HostNameOf(const Config& config) {
  if (!config.cluster_host.empty()) {
    return config.cluster_host;
  }
  char name[256] = "";
  return gethostname(name, sizeof(name) - 1) == 0 ? name : "";
}

class ClusterHost::Notices {
 public:
  static StatusOr<std::unique_ptr<Notices>> Start(const Config& config, ClusterHost& host) {
    auto notices = std::make_unique<Notices>();
    if (IsSqlite(config)) {
      return notices;
    }
    HPVMD_ASSIGN_OR_RETURN(notices->listener_,
                           cluster::PostgresListener::Start(
                               PostgresOf(config), {cluster::kClusterChannel, kIdentityChannel},
                               {.on_notice = [&host](const std::string& channel,
                                                     const std::string& payload) { host.OnNotice(channel, payload); },
                                .on_gap = [&host] { host.OnNotice("", ""); }}));
    return notices;
  }

 private:
  std::unique_ptr<cluster::PostgresListener> listener_;
};

ClusterHost::ClusterHost(ClusterHostOptions options, std::string name)
    : options_(std::move(options)), name_(std::move(name)), connect_(ConnectTo(options_.config)) {}

ClusterHost::~ClusterHost() { Stop(); }

StatusOr<std::unique_ptr<ClusterHost>> ClusterHost::Open(ClusterHostOptions options) {
  const std::string name = HostNameOf(options.config);
  HPVMD_RETURN_IF_ERROR(cluster::CheckName("The name of the host (cluster.host)", name));
  std::unique_ptr<ClusterHost> host(new ClusterHost(std::move(options), name));
  HPVMD_RETURN_IF_ERROR(While(host->OpenStore(), "opening the cluster's database"));
  const std::string& blobs = host->options_.config.cluster_blob_dir;
  struct stat facts;
  if (stat(blobs.c_str(), &facts) != 0 || !S_ISDIR(facts.st_mode) || access(blobs.c_str(), R_OK | W_OK | X_OK) != 0) {
    return FailedPrecondition("The folder of the cluster's files (cluster.blob_dir, \"" + blobs +
                              "\") is missing, or the daemon may not write to it.");
  }
  host->claims_ = std::make_unique<ClaimTable>(
      [raw = host.get()](std::string tenant, std::function<void()> work) {
        raw->shared_->PostOnce(std::move(tenant), std::move(work));
      },
      name);
  SharedJobStoreOptions jobs;
  jobs.store = host->store_.get();
  jobs.claims = host->claims_.get();
  jobs.host = name;
  jobs.blob_folder = blobs;
  jobs.room = host->options_.room;
  jobs.accepts_jobs = host->options_.config.cluster_role != "agent";
  jobs.limits = host->options_.limits;
  jobs.on_watched = [raw = host.get()](const std::string& tenant, bool is_watched) {
    std::lock_guard lock(raw->mutex_);
    if (raw->feed_ != nullptr) {
      raw->feed_->SetWatched(tenant, is_watched);
    }
  };
  host->jobs_ = std::make_unique<SharedJobStore>(std::move(jobs));
  host->shared_ = host->jobs_.get();
  return host;
}

Status ClusterHost::OpenStore() {
  cluster::SqlClusterStoreOptions options;
  options.store.lease = std::chrono::milliseconds(options_.config.cluster_lease_ms);
  options.store.keep_ended = std::chrono::milliseconds(options_.config.jobs_kept_ms);
  options.connections = IsSqlite(options_.config) ? 1 : kConnections;
  HPVMD_ASSIGN_OR_RETURN(store_, cluster::SqlClusterStore::Open(options, connect_));
  return absl::OkStatus();
}

Status ClusterHost::Start(Core& core) {
  {
    std::lock_guard lock(mutex_);
    feed_ = std::make_shared<SharedFeed>(*store_, core.job_claims());
  }
  if (options_.config.cluster_role != "api") {
    claims_->SetParts(&core.job_claims(), nullptr);
    cluster::AgentLoopOptions options;
    options.agent.worker.name = name_;
    options.agent.worker.process = NewProcessName();
    options.agent.worker.memory_bytes = options_.config.cluster_memory_bytes;
    options.agent.worker.has = Words({});
    options.agent.on_join = [last = Status(), name = name_](const Status& joined) mutable {
      if (joined.ok()) {
        LogInfo("Takes jobs of the cluster", {{"host", name}});
      } else if (joined != last) {  // It is tried again twice a second.
        LogWarning("The host cannot take jobs of the cluster", {{"host", name}, {"error", Message(joined)}});
      }
      last = joined;
    };
    options.agent.runs_max = static_cast<uint32_t>(options_.config.cluster_claims_max);
    auto loop = std::make_shared<cluster::AgentLoop>(std::move(options), *store_, *claims_);
    claims_->SetParts(&core.job_claims(), loop.get());
    std::lock_guard lock(mutex_);
    loop_ = std::move(loop);
  }
  HPVMD_ASSIGN_OR_RETURN(notices_, Notices::Start(options_.config, *this));
  sweeps_ = std::make_unique<RoundThread>(
      [this, sweep = std::make_shared<BlobSweep>(BlobSweepOptions{.folder = options_.config.cluster_blob_dir}, *store_,
                                                 RealDisk(), RealClock())] {
        if (const StatusOr<uint64_t> removed = sweep->Run(); !removed.ok()) {
          LogWarning("Unneeded files of the cluster's jobs cannot be removed", {{"error", Message(removed.status())}});
        } else if (*removed > 0) {
          LogInfo("Unneeded files of the cluster's jobs were removed", {{"files", std::to_string(*removed)}});
        }
        return kSweepEvery;
      },
      kSweepEvery);
  looks_ = std::make_unique<RoundThread>([this] {
    LookAround();
    return kLookEvery;
  });
  LogInfo("Part of a cluster", {{"host", name_}, {"role", options_.config.cluster_role}});
  return absl::OkStatus();
}

std::set<std::string> ClusterHost::Words(const std::vector<v1::Device>& devices) const {
  std::set<std::string> words = {"host:" + name_, std::string("version:") + HPVMD_VERSION};
  for (const std::string& label : SplitWords(options_.config.cluster_labels)) {
    words.insert("label:" + label);
  }
  if (!options_.config.cluster_address.empty()) {
    words.insert("address:" + options_.config.cluster_address);
  }
  for (const v1::Device& device : devices) {
    if (device.state() == v1::Device::STATE_READY && !device.has_paused()) {
      words.insert("device:" + device.id());
      if (std::string kind = KindOf(device); !kind.empty()) {
        words.insert(std::move(kind));
      }
    }
  }
  return words;
}

void ClusterHost::SetDevices(const std::vector<v1::Device>& devices) {
  std::set<std::string> words = Words(devices);
  std::lock_guard lock(mutex_);
  if (loop_ != nullptr && words != words_) {
    words_ = words;
    loop_->SetWords(std::move(words));
  }
}

void ClusterHost::LookAround() {
  store_->ListHosts([look = look_, name = name_](const StatusOr<std::vector<cluster::HostView>>& hosts) {
    if (!hosts.ok()) {
      return;
    }
    ClusterFacts facts;
    for (const cluster::HostView& host : *hosts) {
      ++(host.is_live ? facts.hosts_live : host.has_left ? facts.hosts_left : facts.hosts_lost);
      facts.running += host.running;
      if (host.name == name) {
        facts.running_here = host.running;
        facts.has_lease = host.is_live;
      }
    }
    std::lock_guard lock(look->mutex);
    look->facts = facts;
    look->answered = RealClock().Now();
  });
}

ClusterFacts ClusterHost::Facts() const {
  std::lock_guard lock(look_->mutex);
  ClusterFacts facts = look_->facts;
  facts.runs_jobs = options_.config.cluster_role != "api";
  facts.database_answers = look_->answered != Time{0} && RealClock().Now() < look_->answered + kAnswersFor;
  return facts;
}

void ClusterHost::SetPaused(bool is_paused) {
  std::lock_guard lock(mutex_);
  if (loop_ != nullptr) {
    loop_->SetPaused(is_paused);
  }
}

void ClusterHost::OnNotice(const std::string& channel, const std::string& payload) {
  if (on_notice_) {
    on_notice_(channel);
  }
  if (channel == kIdentityChannel) {
    return;
  }
  std::shared_ptr<SharedFeed> feed;
  std::shared_ptr<cluster::AgentLoop> loop;
  {
    std::lock_guard lock(mutex_);
    feed = feed_;
    loop = loop_;
  }
  if (loop != nullptr && (payload.empty() || payload.find('+') != std::string::npos)) {
    loop->Wake();
  }
  if (feed != nullptr) {
    feed->Wake("");
  }
}

void ClusterHost::Drain() {
  std::lock_guard lock(mutex_);
  if (loop_ != nullptr) {
    loop_->Drain(/*gives_back=*/false);
  }
}

void ClusterHost::Leave() {
  std::shared_ptr<cluster::AgentLoop> loop;
  {
    std::lock_guard lock(mutex_);
    loop = loop_;
  }
  if (loop != nullptr) {
    loop->Drain(/*gives_back=*/true);
    if (!loop->WaitUntilLeft(kLeaveMax)) {
      LogWarning("The host did not leave the cluster in order; its jobs go on elsewhere when its lease has ended");
    }
  }
}

void ClusterHost::Stop() {
  notices_.reset();
  looks_.reset();
  sweeps_.reset();
  if (claims_ != nullptr) {
    claims_->SetParts(nullptr, nullptr);
  }
  std::shared_ptr<SharedFeed> feed;
  std::shared_ptr<cluster::AgentLoop> loop;
  {
    std::lock_guard lock(mutex_);
    feed = std::move(feed_);
    loop = std::move(loop_);
  }
}

}  // namespace hpvm::server
