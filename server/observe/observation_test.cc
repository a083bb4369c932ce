// SPDX-License-Identifier: Apache-2.0
#include "server/observe/observation.h"

#include <gtest/gtest.h>

#include <atomic>
#include <fstream>
#include <iostream>
#include <map>
#include <mutex>
#include <regex>
#include <set>
#include <sstream>
#include <thread>
#include <vector>

#include "server/core/state/run_outcome.h"
#include "server/observe/testing/http_client.h"
#include "supervisor/testing/messages.h"

namespace hpvm::server {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

struct Metric {
  std::string type;
  std::set<std::string> labels;
};
using Metrics = std::map<std::string, Metric>;

// Parses the rows of the document's tables: | `name` | type | label, label | meaning |
Metrics ReadDocument() {
  std::ifstream file(std::string(HPVMD_SOURCE_DIR) + "/docs/METRICS.md");
  const std::regex row(R"(\| `((?:hpvm|process)_[a-z_]+)` \| (counter|gauge|histogram) \|([a-z_, ]*)\| .*\|)");
  Metrics metrics;
  for (std::string line; std::getline(file, line);) {
    std::smatch match;
    if (std::regex_match(line, match, row)) {
      Metric& metric = metrics[match[1]];
      metric.type = match[2];
      std::istringstream labels(match[3]);
      for (std::string label; std::getline(labels, label, ',');) {
        label.erase(std::remove(label.begin(), label.end(), ' '), label.end());
        if (!label.empty()) {
          metric.labels.insert(label);
        }
      }
    }
  }
  return metrics;
}

// Parses names, types and labels of the exported metrics.
Metrics ReadText(const std::string& text) {
  Metrics metrics;
  std::istringstream lines(text);
  const std::regex type(R"(# TYPE (\S+) (\S+))"), sample(R"(([a-z_]+)(?:\{(.*)\})? \S+)"),
      label(R"(([a-z_]+)="[^"]*")");
  std::string family;
  for (std::string line; std::getline(lines, line);) {
    std::smatch match;
    if (std::regex_match(line, match, type)) {
      family = match[1];
      metrics[family].type = match[2];
    } else if (std::regex_match(line, match, sample)) {
      const std::string labels = match[2];
      for (auto at = std::sregex_iterator(labels.begin(), labels.end(), label); at != std::sregex_iterator(); ++at) {
        if ((*at)[1] != "le") {
          metrics[family].labels.insert((*at)[1]);
        }
      }
    }
  }
  return metrics;
}

// Gives every family a sample.
void LetEverythingHappen(Observer& observer) {
  RunOutcome outcome;
  *outcome.reply.done.add_nodes() = supervisor::testing::Placement("n", "cpu:0", 0, 1);
  observer.On(events::RunEnded{"local", "", "g", "", outcome});
  outcome.outcome = Aborted("x");
  observer.On(events::RunEnded{"local", "", "g", "", outcome});
  observer.On(events::Rejected{"local", "run", ResourceExhausted("x")});
  observer.On(events::Prepared{"local", {}, absl::OkStatus()});
  observer.On(events::Committed{1, milliseconds(1), Unavailable("x")});
  observer.On(events::CallEnded{"/hpvm.v1.Hpvm/Run", absl::OkStatus(), milliseconds(1)});
  observer.On(events::ExecutorChanged{"local", "started"});
  observer.On(events::Decided{milliseconds(1)});
  observer.On(SlowItem{"grpc", "/hpvm.v1.Hpvm/Run", "local", milliseconds(7)});
  observer.On(events::Reloaded{true});
  observer.On(events::ConnectionEnded{"silent"});
  observer.On(events::CertificateLoaded{absl::OkStatus(), 1});
  v1::Job job;
  job.set_state(v1::JOB_STATE_SUCCEEDED);
  observer.On(events::JobChanged{"local", job});
}

CoreSnapshot SnapshotOf(bool with_tenants) {
  CoreSnapshot snapshot;
  snapshot.devices_known = true;
  v1::Device& cpu = snapshot.devices.emplace_back();
  cpu.set_id("cpu:0");
  cpu.set_kind(v1::Device::KIND_CPU);
  cpu.set_state(v1::Device::STATE_READY);
  v1::DeviceHealth& health = *cpu.mutable_health();  // As if a management library had reported it.
  health.set_read_unix_ns(1);
  health.set_temperature_c(40);
  health.set_power_w(80);
  health.set_power_limit_w(700);
  health.set_busy(0.5);
  health.set_memory_used_bytes(1);
  health.set_ecc_corrected(1);
  health.set_ecc_uncorrected(0);
  health.set_last_xid(43);
  snapshot.jobs_running = 3;
  if (with_tenants) {
    TenantSnapshot& tenant = snapshot.tenants.emplace_back();
    tenant.name = "local";
    tenant.queued = {1, 2, 3};
    tenant.stored_job_bytes = 4'711;
  }
  return snapshot;
}

class ObservationTest : public ::testing::Test {
 protected:
  void Start(Config config) {
    config.metrics_listen = "127.0.0.1:0";
    config.server_state_dir = "/tmp";
    auto started = Observation::Start(config, RealClock(), rng_);
    ASSERT_TRUE(started.ok()) << started.status();
    observation_ = *std::move(started);
  }
  void Watch() {
    WatchedParts parts;
    parts.snapshot = SnapshotOf;
    parts.config = [] { return std::make_shared<const Config>(); };
    parts.wake_timer = [this] { observation_->heart().Beat(); };
    parts.store_folder = "/nowhere";
    parts.cluster = [] { return ClusterFacts{.hosts_lost = 2, .runs_jobs = true}; };
    parts.in_force = [] {
      return ConfigFacts{.toml = "",
                         .sha256 = "c0ffee",
                         .file = "",
                         .loaded_unix_ns = 1'500'000'000,
                         .awaiting_restart = {"server.listen"}};
    };
    parts.may_see_tenants = [](std::string_view authorization) -> StatusOr<bool> {
      if (authorization == "old") {
        return Unavailable("Old.");
      }
      return authorization == "wrong" ? MakeStatus(absl::StatusCode::kUnauthenticated, "Wrong.")
                                      : StatusOr<bool>(authorization != "none");
    };
    observation_->Watch(std::move(parts));
  }
  void WaitReady() {
    const Time end = RealClock().Now() + seconds(5);
    while (!Get("/readyz").starts_with("HTTP/1.1 200 ") && RealClock().Now() < end) {
      std::this_thread::sleep_for(milliseconds(5));
    }
  }
  std::string Get(const std::string& path) { return testing::Get(observation_->metrics_address(), path); }
  SeededRng rng_{3};
  std::unique_ptr<Observation> observation_;
};

// The document lists exactly the exported metrics, with types and labels.
TEST_F(ObservationTest, DocumentListsEveryMetric) {
  Start({});
  Watch();
  WaitReady();
  LetEverythingHappen(observation_->observer());
  const Metrics documented = ReadDocument(), exported = ReadText(Get("/metrics"));
  ASSERT_GT(exported.size(), 50u);
  for (const auto& [name, metric] : exported) {
    const auto found = documented.find(name);
    ASSERT_NE(found, documented.end()) << name << " is not in docs/METRICS.md";
    EXPECT_EQ(found->second.type, metric.type) << name;
    EXPECT_EQ(found->second.labels, metric.labels) << name;
  }
  for (const auto& [name, metric] : documented) {
    EXPECT_TRUE(exported.contains(name)) << name << " is documented and not exported";
  }
}

TEST_F(ObservationTest, ServesWhatAHostKnowsOfItsCluster) {
  Start({});
  Watch();
  WaitReady();
  const std::string text = Get("/metrics");
  EXPECT_NE(text.find("\nhpvm_cluster_hosts{state=\"lost\"} 2\n"), std::string::npos);
  EXPECT_NE(text.find("\nhpvm_cluster_has_lease 0\n"), std::string::npos);
  EXPECT_NE(text.find("\nhpvm_cluster_database_answers 0\n"), std::string::npos);
}

// The core's state at the scrape is exported; the daemon is live before it is ready.
TEST_F(ObservationTest, ServesHealthAndSnapshot) {
  Start({});
  EXPECT_TRUE(Get("/livez").starts_with("HTTP/1.1 200 ")) << Get("/livez");
  EXPECT_TRUE(Get("/livez").ends_with("{\"live\":true,\"reasons\":[]}\n"));
  EXPECT_TRUE(Get("/readyz").starts_with("HTTP/1.1 503 "));
  EXPECT_NE(Get("/readyz").find("\"reason\":\"starting\""), std::string::npos);
  EXPECT_NE(Get("/metrics").find("\nhpvm_ready 0\n"), std::string::npos);
  Watch();
  WaitReady();
  EXPECT_TRUE(Get("/readyz").ends_with("{\"ready\":true,\"reasons\":[]}\n"));
  const std::string text = Get("/metrics");
  for (const char* line :
       {"hpvm_ready 1", "hpvm_queue_depth{tenant=\"local\",priority=\"low\"} 1",
        "hpvm_queue_depth{tenant=\"local\",priority=\"normal\"} 2", "hpvm_jobs{state=\"running\"} 3",
        "hpvm_store_job_bytes{tenant=\"local\"} 4711",
        "hpvm_device_state{device=\"cpu:0\",kind=\"cpu\",state=\"ready\"} 1", "hpvm_store_bytes{file=\"wal\"} 0"}) {
    EXPECT_NE(text.find("\n" + std::string(line) + "\n"), std::string::npos) << line;
  }
  observation_->Unwatch();
  EXPECT_TRUE(Get("/metrics").starts_with("HTTP/1.1 200 ")) << "A daemon that ends still answers.";
}

// Without a credential the metrics of tenants are replaced by sums; with a wrong one nothing is shown.
TEST_F(ObservationTest, TenantsAreNamedWithACredential) {
  Start({});
  EXPECT_EQ(Get("/metrics").find("tenant="), std::string::npos) << "Before anybody can tell who asks.";
  Watch();
  WaitReady();
  LetEverythingHappen(observation_->observer());
  const auto get = [this](const std::string& credentials) {
    const std::string& address = observation_->metrics_address();
    return testing::Exchange(
        address, "GET /metrics HTTP/1.1\r\nHost: " + address + "\r\nAuthorization: " + credentials + "\r\n\r\n");
  };
  EXPECT_NE(get("right").find("tenant=\"local\""), std::string::npos);
  const std::string text = get("none");
  EXPECT_EQ(text.find("tenant="), std::string::npos);
  EXPECT_EQ(text.find("local"), std::string::npos);
  for (const char* line : {"hpvm_queue_depth{priority=\"low\"} 1", "hpvm_store_job_bytes 4711",
                           "hpvm_graph_completed_total{kind=\"job\"} 1", "hpvm_running 0"}) {
    EXPECT_NE(text.find("\n" + std::string(line) + "\n"), std::string::npos) << line;
  }
  const std::string refused = get("wrong");
  EXPECT_TRUE(refused.starts_with("HTTP/1.1 401 ")) << refused;
  EXPECT_NE(refused.find("WWW-Authenticate: Bearer"), std::string::npos);
  EXPECT_EQ(refused.find("hpvm_"), std::string::npos);
  const std::string unknown = get("old");
  EXPECT_TRUE(unknown.starts_with("HTTP/1.1 503 ")) << unknown;
  EXPECT_TRUE(unknown.ends_with("Old.\n")) << unknown;
}

// Clients that scrape at full speed share few texts, cause no work in the core, and do not wait for it.
TEST_F(ObservationTest, ScrapesAtFullSpeedLeaveTheCoreAlone) {
  Start({});
  std::atomic<int> snapshots{0};
  WatchedParts parts;
  parts.snapshot = [&](bool with_tenants) {
    ++snapshots;
    std::this_thread::sleep_for(milliseconds(200));  // Simulates a busy core.
    return SnapshotOf(with_tenants);
  };
  parts.config = [] { return std::make_shared<const Config>(); };
  observation_->Watch(std::move(parts));
  const Time end = RealClock().Now() + seconds(3);
  std::mutex mutex;
  std::set<std::string> texts;
  int answers = 0;
  std::vector<std::thread> clients;
  for (int i = 0; i < 4; ++i) {
    clients.emplace_back([&] {
      while (RealClock().Now() < end) {
        observation_->observer().On(events::Reloaded{true});  // No two renderings are equal.
        std::string text = Get("/metrics");
        std::lock_guard lock(mutex);
        answers += text.starts_with("HTTP/1.1 200 ") ? 1 : 0;
        texts.insert(std::move(text));
      }
    });
  }
  for (std::thread& client : clients) {
    client.join();
  }
  observation_->Unwatch();  // Otherwise its thread would count in what ends with this test.
  std::cout << answers << " answers of " << texts.size() << " texts, from " << snapshots << " snapshots\n";
  EXPECT_GT(answers, 100);
  EXPECT_LE(texts.size(), 4u * (3 + 2));
  EXPECT_LE(snapshots, 3 + 2);
}

// With an endpoint, events are both counted and traced; without one there is no tracer.
TEST_F(ObservationTest, TracesWhereConfigured) {
  testing::Collector collector;
  Config config;
  config.tracing_endpoint = "http://127.0.0.1:" + collector.port();
  Start(config);
  const auto begin_call = [&] {
    v1::RequestOptions options;
    const auto itself = [](void* request) { return static_cast<v1::RequestOptions*>(request); };
    observation_->observer().On(events::CallBegan{&options, itself, &options});
    return options.traceparent();
  };
  EXPECT_FALSE(begin_call().empty());
  RunOutcome outcome;
  outcome.reply.done.mutable_timing()->set_run_ns(1'000'000);
  outcome.SetTotals(Duration{0}, milliseconds(2));
  observation_->observer().On(
      events::RunEnded{"local", "", "g", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", outcome});
  EXPECT_NE(Get("/metrics").find("hpvm_graph_submitted_total{kind=\"run\"} 1\n"), std::string::npos);
  observation_.reset();
  ASSERT_EQ(collector.requests().size(), 1u);
  EXPECT_NE(collector.requests()[0].find("0af7651916cd43dd8448eb211c80319c"), std::string::npos);
  Start({});
  EXPECT_TRUE(begin_call().empty());
}

}  // namespace
}  // namespace hpvm::server
