// SPDX-License-Identifier: Apache-2.0
// submit_many/NxB: durable submits per second from N clients whose calls have B jobs each, compared with the same
// daemon's Submit and with plain SQLite writing the same rows. run_many/N: RunMany with kBatch runs per call compared
// with Run.
#include <algorithm>

#include "bench/service/service.h"
#include "bench/service/service_setup.h"
#include "bench/service/service_sqlite.h"

namespace hpvm::bench {
namespace {

constexpr int kRounds = 5;
constexpr uint32_t kBatch = 16;
// Number of jobs in one transaction of the daemon, when enough wait.
constexpr uint64_t kGroupMax = 256;

// One kind of call, and its results.
struct Way {
  std::string name;
  uint32_t batch = 1;
  std::unique_ptr<ServiceLoad> load = {};
  std::vector<double> per_second = {}, p50_us = {}, p99_us = {}, daemon_cpu_us = {};

  Status Connect(LoadKind kind, const ServiceDaemon& daemon, const std::string& handle, uint32_t clients) {
    LoadSpec spec = CopyLoad(kind, daemon.endpoint(), handle, clients);
    spec.batch = batch;
    HPVMD_ASSIGN_OR_RETURN(load, ServiceLoad::Make(spec));
    return absl::OkStatus();
  }
  StatusOr<LoadResult> Round(const ServiceDaemon& daemon, uint32_t clients, uint64_t items, bool counts) {
    const uint64_t cpu = daemon.CpuUs();
    StatusOr<LoadResult> result = load->Closed(clients, items / batch);
    if (!result.ok()) {
      return While(result.status(), "measuring \"" + name + "\"");
    }
    if (counts) {
      const std::vector<int64_t> times = SortedTimes(*result, Verdict::kOk);
      per_second.push_back(static_cast<double>(times.size() * batch) * 1e9 /
                           static_cast<double>(std::max<int64_t>(1, result->elapsed.count())));
      p50_us.push_back(Quantile(times, 500) / 1e3);
      p99_us.push_back(Quantile(times, 990) / 1e3);
      daemon_cpu_us.push_back(static_cast<double>(daemon.CpuUs() - cpu) / static_cast<double>(items));
    }
    return result;
  }
  void Report(ServiceResult& result) const {
    result.Add(name + "_per_s", Median(per_second));
    result.Add(name + "_p50_us", Median(p50_us));
    result.Add(name + "_p99_us", Median(p99_us));
    result.Add(name + "_daemon_cpu_us", Median(daemon_cpu_us));
  }
};

// Plain SQLite with a given number of jobs per transaction.
struct Raw {
  uint64_t group = 1;
  std::unique_ptr<SqliteRaw> copy = {};
  std::vector<double> per_second = {};

  // Repeats what the daemon has written since the last call. `counts` is false in the warm-up.
  Status Follow(const ServiceDaemon& daemon, const TemporaryFolder& folder, uint64_t jobs, bool counts) {
    if (copy == nullptr) {
      const std::string path = folder.path() + "/raw-" + std::to_string(group) + ".db";
      HPVMD_ASSIGN_OR_RETURN(copy, SqliteRaw::Open(path, daemon.DatabasePath()));
      return absl::OkStatus();
    }
    HPVMD_ASSIGN_OR_RETURN(const Duration took, copy->WriteNew(jobs, group));
    if (counts) {
      per_second.push_back(static_cast<double>(jobs) * 1e9 / static_cast<double>(took.count()));
    }
    return absl::OkStatus();
  }
};

StatusOr<ServiceResult> MeasureSubmits(const ServiceOptions& options, uint32_t clients, uint32_t batch) {
  const uint64_t jobs = options.quick ? clients * batch : std::max<uint64_t>(10'240, clients * batch * 4);
  DaemonSettings settings = RoomySettings();
  settings.keys["jobs.store"] = "\"sqlite\"";
  HPVMD_ASSIGN_OR_RETURN(std::unique_ptr<ServiceDaemon> daemon, ServiceDaemon::Start(settings));
  HPVMD_ASSIGN_OR_RETURN(const std::string handle, daemon->Prepare("copy"));
  HPVMD_RETURN_IF_ERROR(HoldJobsBack(*daemon));
  Way many{.name = "ours", .batch = batch}, single{.name = "ours_single"};
  HPVMD_RETURN_IF_ERROR(many.Connect(LoadKind::kSubmitMany, *daemon, handle, clients));
  HPVMD_RETURN_IF_ERROR(single.Connect(LoadKind::kSubmit, *daemon, handle, clients));
  TemporaryFolder folder;
  Raw raw{.group = clients}, raw_large{.group = kGroupMax};
  std::vector<std::string> acknowledged;
  for (int round = -1; round < (options.quick ? 1 : kRounds); ++round) {
    for (Way* way : {&many, &single}) {
      HPVMD_ASSIGN_OR_RETURN(LoadResult result, way->Round(*daemon, clients, jobs, round >= 0));
      acknowledged.insert(acknowledged.end(), result.job_ids.begin(), result.job_ids.end());
      for (Raw* peer : {&raw, &raw_large}) {
        HPVMD_RETURN_IF_ERROR(peer->Follow(*daemon, folder, result.job_ids.size(), round >= 0));
      }
    }
  }
  HPVMD_RETURN_IF_ERROR(raw.copy->Verify());
  HPVMD_RETURN_IF_ERROR(CheckListed(*daemon, acknowledged));
  ServiceResult result;
  many.Report(result);
  single.Report(result);
  result.Add("sqlite_raw_per_s", Median(raw.per_second));
  result.Add("sqlite_raw_256_per_s", Median(raw_large.per_second));
  result.Add("ratio_sqlite_raw", result.Get("ours_per_s") / result.Get("sqlite_raw_per_s"));
  result.Add("ratio_sqlite_raw_256", result.Get("ours_per_s") / result.Get("sqlite_raw_256_per_s"));
  result.Add("ratio_single_sqlite_raw", result.Get("ours_single_per_s") / result.Get("sqlite_raw_per_s"));
  result.Add("ratio_single", result.Get("ours_per_s") / result.Get("ours_single_per_s"));
  result.reach.push_back({.figure = "ratio_sqlite_raw", .at_least = true, .bound = 0.5});
  result.reach.push_back({.figure = "ratio_single_sqlite_raw", .at_least = true, .bound = 0.3});
  result.note =
      std::to_string(batch) + " jobs a call; rows of " + std::to_string(jobs) + " jobs: " + raw.copy->Describe();
  result.verified = true;
  return result;
}

StatusOr<ServiceResult> MeasureRuns(const ServiceOptions& options, uint32_t clients) {
  const uint64_t items = options.quick ? clients * kBatch * 2 : std::clamp<uint64_t>(clients * 4'000, 8'000, 20'000);
  HPVMD_ASSIGN_OR_RETURN(std::unique_ptr<ServiceDaemon> daemon, ServiceDaemon::Start(RoomySettings()));
  HPVMD_ASSIGN_OR_RETURN(const std::string handle, daemon->Prepare("copy"));
  Way many{.name = "ours", .batch = kBatch}, single{.name = "ours_single"};
  HPVMD_RETURN_IF_ERROR(many.Connect(LoadKind::kRunMany, *daemon, handle, clients));
  HPVMD_RETURN_IF_ERROR(single.Connect(LoadKind::kRun, *daemon, handle, clients));
  for (int round = -1; round < (options.quick ? 1 : kRounds); ++round) {
    for (Way* way : {&many, &single}) {
      HPVMD_RETURN_IF_ERROR(way->Round(*daemon, clients, items, round >= 0).status());
    }
  }
  ServiceResult result;
  many.Report(result);
  single.Report(result);
  result.Add("ratio_single", result.Get("ours_per_s") / result.Get("ours_single_per_s"));
  result.note = std::to_string(kBatch) + " runs a call, whose times are of a whole call. Every answer was compared.";
  result.verified = true;
  return result;
}

}  // namespace

void AddManyCases(std::vector<ServiceCase>& cases) {
  constexpr std::pair<uint32_t, uint32_t> kSubmits[] = {{1, 16}, {64, 16}, {64, 64}};
  for (const auto& [clients, batch] : kSubmits) {
    cases.push_back({"submit_many/" + std::to_string(clients) + "x" + std::to_string(batch),
                     [clients = clients, batch = batch](const ServiceOptions& options) {
                       return MeasureSubmits(options, clients, batch);
                     }});
  }
  for (const uint32_t clients : {1u, 4u, 64u}) {
    cases.push_back({"run_many/" + std::to_string(clients),
                     [clients](const ServiceOptions& options) { return MeasureRuns(options, clients); }});
  }
}

}  // namespace hpvm::bench
