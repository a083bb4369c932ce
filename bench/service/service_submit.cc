// SPDX-License-Identifier: Apache-2.0
// submit/N: durable submits per second from N clients, compared with a daemon that keeps jobs in memory, plain SQLite
// writing the same rows, and a gRPC server that does nothing. jobs/N: the same, but the jobs run.
#include <algorithm>
#include <optional>

#include "bench/service/service.h"
#include "bench/service/service_setup.h"
#include "bench/service/service_sqlite.h"

namespace hpvm::bench {
namespace {

constexpr int kRounds = 5;

double PerSecond(uint64_t count, Duration elapsed) {
  return static_cast<double>(count) * 1e9 / static_cast<double>(std::max<int64_t>(1, elapsed.count()));
}

uint64_t CallsOf(uint32_t clients, bool quick) {
  return quick ? clients * 4 : std::clamp<uint64_t>(clients * 250, 500, 10'000);
}

// One contender: a server under a closed load.
struct Contender {
  std::string name;
  std::unique_ptr<ServiceLoad> load = {};
  std::vector<double> per_second = {}, p50_us = {}, p99_us = {};

  StatusOr<LoadResult> Round(uint32_t clients, uint64_t calls, bool counts) {
    StatusOr<LoadResult> result = load->Closed(clients, calls);
    if (!result.ok()) {
      return While(result.status(), "measuring \"" + name + "\"");
    }
    if (counts) {
      const std::vector<int64_t> times = SortedTimes(*result, Verdict::kOk);
      per_second.push_back(PerSecond(times.size(), result->elapsed));
      p50_us.push_back(Quantile(times, 500) / 1e3);
      p99_us.push_back(Quantile(times, 990) / 1e3);
    }
    return result;
  }
};

// A daemon whose jobs are held back, and the load on it.
StatusOr<std::unique_ptr<ServiceDaemon>> StartHeld(const std::string& store, uint32_t clients, Contender& contender) {
  DaemonSettings settings = RoomySettings();
  settings.keys["jobs.store"] = "\"" + store + "\"";
  HPVMD_ASSIGN_OR_RETURN(std::unique_ptr<ServiceDaemon> daemon, ServiceDaemon::Start(settings));
  HPVMD_ASSIGN_OR_RETURN(const std::string handle, daemon->Prepare("copy"));
  HPVMD_RETURN_IF_ERROR(HoldJobsBack(*daemon));
  HPVMD_ASSIGN_OR_RETURN(contender.load,
                         ServiceLoad::Make(CopyLoad(LoadKind::kSubmit, daemon->endpoint(), handle, clients)));
  return daemon;
}

StatusOr<ServiceResult> MeasureSubmits(const ServiceOptions& options, uint32_t clients) {
  const uint64_t calls = CallsOf(clients, options.quick);
  Contender durable{.name = "ours"}, memory{.name = "memory"}, empty{.name = "grpc_echo_empty"},
      same{.name = "grpc_echo"};
  HPVMD_ASSIGN_OR_RETURN(std::unique_ptr<ServiceDaemon> daemon, StartHeld("sqlite", clients, durable));
  HPVMD_ASSIGN_OR_RETURN(std::unique_ptr<ServiceDaemon> volatile_daemon, StartHeld("memory", clients, memory));
  HPVMD_ASSIGN_OR_RETURN(std::unique_ptr<EchoPeer> peer, EchoPeer::Start());
  HPVMD_ASSIGN_OR_RETURN(empty.load, peer->Connect(0, clients));
  HPVMD_ASSIGN_OR_RETURN(same.load, peer->Connect(durable.load->RequestBytes(), clients));
  TemporaryFolder folder;
  std::unique_ptr<SqliteRaw> raw;
  std::vector<double> raw_per_second, daemon_cpu_us;
  std::vector<std::string> acknowledged;
  for (int round = -1; round < (options.quick ? 1 : kRounds); ++round) {
    const uint64_t cpu = daemon->CpuUs();
    HPVMD_ASSIGN_OR_RETURN(LoadResult result, durable.Round(clients, calls, round >= 0));
    daemon_cpu_us.push_back(static_cast<double>(daemon->CpuUs() - cpu) / static_cast<double>(calls));
    acknowledged.insert(acknowledged.end(), result.job_ids.begin(), result.job_ids.end());
    if (round < 0) {
      // Rows of the warm-up are copied untimed, so that the peer's tables are as full as ours.
      HPVMD_ASSIGN_OR_RETURN(raw, SqliteRaw::Open(folder.path() + "/raw.db", daemon->DatabasePath()));
    } else {
      HPVMD_ASSIGN_OR_RETURN(const Duration took, raw->WriteNew(calls, clients));
      raw_per_second.push_back(PerSecond(calls, took));
    }
    for (Contender* other : {&memory, &empty, &same}) {
      HPVMD_RETURN_IF_ERROR(other->Round(clients, calls, round >= 0).status());
    }
  }
  HPVMD_RETURN_IF_ERROR(raw->Verify());
  HPVMD_RETURN_IF_ERROR(CheckListed(*daemon, acknowledged));
  ServiceResult result;
  result.Add("ours_per_s", Median(durable.per_second));
  result.Add("ours_p50_us", Median(durable.p50_us));
  result.Add("ours_p99_us", Median(durable.p99_us));
  result.Add("ours_daemon_cpu_us", Median(daemon_cpu_us));
  result.Add("sqlite_raw_per_s", Median(raw_per_second));
  result.Add("memory_per_s", Median(memory.per_second));
  result.Add("grpc_echo_per_s", Median(same.per_second));
  result.Add("grpc_echo_empty_per_s", Median(empty.per_second));
  result.Add("ratio_sqlite_raw", result.Get("ours_per_s") / result.Get("sqlite_raw_per_s"));
  result.Add("ratio_memory", result.Get("ours_per_s") / result.Get("memory_per_s"));
  result.Add("ratio_grpc_echo", result.Get("ours_per_s") / result.Get("grpc_echo_per_s"));
  result.reach.push_back({.figure = "ratio_sqlite_raw", .at_least = true, .bound = 0.5});
  result.note = "Rows of " + std::to_string(calls) + " jobs: " + raw->Describe();
  result.verified = true;
  return result;
}

// From the first submit until the last job has ended.
StatusOr<ServiceResult> MeasureJobs(const ServiceOptions& options, uint32_t clients) {
  ServiceResult result;
  for (const char* store : {"sqlite", "memory"}) {
    DaemonSettings settings = RoomySettings();
    settings.keys["jobs.store"] = "\"" + std::string(store) + "\"";
    settings.keys["jobs.running_per_tenant_max"] = "16";
    HPVMD_ASSIGN_OR_RETURN(std::unique_ptr<ServiceDaemon> daemon, ServiceDaemon::Start(settings));
    HPVMD_ASSIGN_OR_RETURN(const std::string handle, daemon->Prepare("copy"));
    HPVMD_ASSIGN_OR_RETURN(std::unique_ptr<ServiceLoad> load,
                           ServiceLoad::Make(CopyLoad(LoadKind::kSubmit, daemon->endpoint(), handle, clients)));
    const uint64_t calls = options.quick ? clients * 2 : 3'000;
    std::vector<double> per_second;
    std::vector<std::string> ids;
    for (int round = -1; round < (options.quick ? 1 : 3); ++round) {
      const Time start = RealClock().Now();
      HPVMD_ASSIGN_OR_RETURN(LoadResult submitted, load->Closed(clients, calls));
      HPVMD_RETURN_IF_ERROR(AwaitAllEnded(*daemon, std::chrono::seconds(120)));
      if (round >= 0) {
        per_second.push_back(PerSecond(calls, RealClock().Now() - start));
      }
      ids.insert(ids.end(), submitted.job_ids.begin(), submitted.job_ids.end());
    }
    HPVMD_ASSIGN_OR_RETURN(const std::set<std::string> succeeded, ListIds(*daemon, {v1::JOB_STATE_SUCCEEDED}));
    if (succeeded.size() != ids.size()) {
      return Internal(std::to_string(succeeded.size()) + " of " + std::to_string(ids.size()) + " jobs succeeded.");
    }
    HPVMD_ASSIGN_OR_RETURN(const Tensor output, daemon->client().FetchOutput(ids.back(), "y"));
    if (output.data.size() != kCopyBytes) {
      return Internal("The output of job " + ids.back() + " is not there.");
    }
    result.Add(store == std::string("sqlite") ? "ours_per_s" : "memory_per_s", Median(per_second));
  }
  result.Add("ratio_memory", result.Get("ours_per_s") / result.Get("memory_per_s"));
  result.note = "Jobs a second from the first submit to the last end, 16 at a time.";
  result.verified = true;
  return result;
}

}  // namespace

void AddSubmitCases(std::vector<ServiceCase>& cases) {
  for (const uint32_t clients : {1u, 8u, 32u, 64u, 256u}) {
    cases.push_back({"submit/" + std::to_string(clients),
                     [clients](const ServiceOptions& options) { return MeasureSubmits(options, clients); }});
  }
  for (const uint32_t clients : {1u, 64u}) {
    cases.push_back({"jobs/" + std::to_string(clients),
                     [clients](const ServiceOptions& options) { return MeasureJobs(options, clients); }});
  }
}

}  // namespace hpvm::bench
