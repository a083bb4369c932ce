// SPDX-License-Identifier: Apache-2.0
// restart/N: SIGKILL with N jobs queued on disk, then the time until calls are answered and until a job runs. drain:
// SIGTERM under load, and the time until the daemon has exited.
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <thread>

#include "bench/service/service.h"
#include "bench/service/service_setup.h"

namespace hpvm::bench {
namespace {

double Ms(Duration time) { return static_cast<double>(time.count()) / 1e6; }

// Waits until a job is RUNNING or has SUCCEEDED.
StatusOr<Duration> AwaitFirst(ServiceDaemon& daemon) {
  const Time start = RealClock().Now();
  v1::ListJobsRequest request;
  request.set_page_size(1);
  request.add_states(v1::JOB_STATE_RUNNING);
  request.add_states(v1::JOB_STATE_SUCCEEDED);
  while (RealClock().Now() - start < std::chrono::seconds(120)) {
    HPVMD_ASSIGN_OR_RETURN(v1::ListJobsResponse response, daemon.client().ListJobs(request));
    if (response.jobs_size() > 0) {
      return RealClock().Now() - start;
    }
    usleep(1'000);
  }
  return DeadlineExceeded("No job runs after the restart.");
}

StatusOr<ServiceResult> MeasureRestart(const ServiceOptions& options, uint32_t jobs) {
  const uint32_t count = options.quick ? 200 : jobs;
  DaemonSettings settings = RoomySettings();
  HPVMD_ASSIGN_OR_RETURN(std::unique_ptr<ServiceDaemon> daemon, ServiceDaemon::Start(settings));
  HPVMD_ASSIGN_OR_RETURN(const std::string handle, daemon->Prepare("copy"));
  HPVMD_RETURN_IF_ERROR(HoldJobsBack(*daemon));
  std::vector<std::string> acknowledged;
  {
    HPVMD_ASSIGN_OR_RETURN(std::unique_ptr<ServiceLoad> load,
                           ServiceLoad::Make(CopyLoad(LoadKind::kSubmit, daemon->endpoint(), handle, 64)));
    HPVMD_ASSIGN_OR_RETURN(LoadResult filled, load->Closed(64, count));
    acknowledged = std::move(filled.job_ids);
  }
  const double rss_full = static_cast<double>(daemon->RssBytes()) / (1 << 20);
  std::vector<double> serving, first;
  Time restarted{0};
  for (int round = 0; round < (options.quick ? 1 : 5); ++round) {
    daemon->SignalExecutors(SIGCONT).IgnoreError();
    daemon->Kill();
    // Only the last round lets jobs run: the others find all of them queued again.
    const bool last = round + 1 == (options.quick ? 1 : 5);
    settings.keys["jobs.running_per_tenant_max"] = last ? "16" : "1";
    restarted = RealClock().Now();
    HPVMD_ASSIGN_OR_RETURN(const Duration took, daemon->Restart(settings));
    serving.push_back(Ms(took));
    HPVMD_ASSIGN_OR_RETURN(const Duration more, AwaitFirst(*daemon));
    first.push_back(Ms(took + more));
  }
  const double rss = static_cast<double>(daemon->RssBytes()) / (1 << 20);
  HPVMD_RETURN_IF_ERROR(AwaitAllEnded(*daemon, std::chrono::seconds(600)));
  const Duration ran = RealClock().Now() - restarted;
  HPVMD_RETURN_IF_ERROR(CheckListed(*daemon, acknowledged));
  HPVMD_ASSIGN_OR_RETURN(const std::set<std::string> succeeded, ListIds(*daemon, {v1::JOB_STATE_SUCCEEDED}));
  ServiceResult result;
  result.Add("jobs", count);
  result.Add("serving_ms", Median(serving));
  result.Add("first_running_ms", Median(first));
  result.Add("all_ended_s", static_cast<double>(ran.count()) / 1e9);
  result.Add("rss_queued_mib", rss_full);
  result.Add("rss_restarted_mib", rss);
  if (jobs <= 10'000) {
    result.reach.push_back({.figure = "serving_ms", .at_least = false, .bound = 1'000});
  }
  result.note = "SIGKILL with the jobs queued; times from the start of the next daemon.";
  // The job that blocked the others loses an attempt with each daemon, and may be DEAD.
  uint64_t missing = 0;
  for (const std::string& id : acknowledged) {
    missing += succeeded.contains(id) ? 0 : 1;
  }
  result.Add("not_succeeded", static_cast<double>(missing));
  result.verified = missing == 0 && acknowledged.size() == count;
  return result;
}

// Submits and runs continue until the daemon has exited.
StatusOr<ServiceResult> MeasureDrain(const ServiceOptions& options) {
  DaemonSettings settings = RoomySettings();
  settings.keys["jobs.running_per_tenant_max"] = "16";
  settings.keys["server.drain_ms"] = "30000";
  std::vector<double> drained;
  std::unique_ptr<ServiceDaemon> daemon;
  std::vector<std::string> acknowledged;
  for (int round = 0; round < (options.quick ? 1 : 5); ++round) {
    if (daemon == nullptr) {
      HPVMD_ASSIGN_OR_RETURN(daemon, ServiceDaemon::Start(settings));
    } else {
      HPVMD_RETURN_IF_ERROR(daemon->Restart(settings).status());
    }
    HPVMD_ASSIGN_OR_RETURN(const std::string handle, daemon->Prepare("work"));
    LoadSpec spec = CopyLoad(LoadKind::kSubmit, daemon->endpoint(), handle, 16);
    spec.input = [](uint32_t) { return WorkInput(4'000'000, 1); };
    spec.output = [expected = WorkOutput(4'000'000, 1)](uint32_t) { return expected; };
    HPVMD_ASSIGN_OR_RETURN(std::unique_ptr<ServiceLoad> submits, ServiceLoad::Make(spec));
    spec.kind = LoadKind::kRun;
    HPVMD_ASSIGN_OR_RETURN(std::unique_ptr<ServiceLoad> runs, ServiceLoad::Make(spec));
    const Duration length = options.quick ? std::chrono::milliseconds(300) : std::chrono::seconds(1);
    StatusOr<LoadResult> submitted, ran;
    // Open loops at moderate rates: calls refused during the drain must not become a storm.
    std::thread submitting([&] { submitted = submits->Open(200, length + std::chrono::milliseconds(500), 1); });
    std::thread running([&] { ran = runs->Open(50, length + std::chrono::milliseconds(500), 2); });
    std::this_thread::sleep_for(length);
    const StatusOr<Duration> took = daemon->Stop();
    submitting.join();
    running.join();
    HPVMD_RETURN_IF_ERROR(took.status());
    HPVMD_RETURN_IF_ERROR(submitted.status());
    HPVMD_RETURN_IF_ERROR(ran.status());
    drained.push_back(Ms(*took));
    acknowledged.insert(acknowledged.end(), submitted->job_ids.begin(), submitted->job_ids.end());
  }
  HPVMD_RETURN_IF_ERROR(daemon->Restart(settings).status());
  HPVMD_RETURN_IF_ERROR(CheckListed(*daemon, acknowledged));
  HPVMD_RETURN_IF_ERROR(AwaitAllEnded(*daemon, std::chrono::seconds(120)));
  HPVMD_ASSIGN_OR_RETURN(const std::set<std::string> succeeded, ListIds(*daemon, {v1::JOB_STATE_SUCCEEDED}));
  ServiceResult result;
  result.Add("drain_ms", Median(drained));
  result.Add("drain_max_ms", *std::max_element(drained.begin(), drained.end()));
  result.Add("acknowledged", static_cast<double>(acknowledged.size()));
  result.Add("succeeded", static_cast<double>(succeeded.size()));
  result.note = "SIGTERM to exit code 0, with jobs and runs of some milliseconds in progress.";
  // An unacknowledged job may have been stored nevertheless, when its response was lost.
  result.verified = succeeded.size() >= acknowledged.size() && !acknowledged.empty();
  return result;
}

}  // namespace

void AddRestartCases(std::vector<ServiceCase>& cases) {
  cases.push_back({"restart/10000", [](const ServiceOptions& options) { return MeasureRestart(options, 10'000); }});
  cases.push_back({"restart/100000", [](const ServiceOptions& options) { return MeasureRestart(options, 100'000); }});
  cases.push_back({"drain", MeasureDrain});
}

}  // namespace hpvm::bench
