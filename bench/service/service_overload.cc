// SPDX-License-Identifier: Apache-2.0
// overload/run, overload/submit: offer the daemon ten times its capacity, of work that takes some milliseconds, so
// that refusing a call is much cheaper than carrying it out. overload/tiny: as many runs of a tiny graph as the load
// can send; there a call costs about what its rejection costs, and the load shares the processor.
#include <algorithm>
#include <thread>

#include "bench/service/service.h"
#include "bench/service/service_setup.h"

namespace hpvm::bench {
namespace {

constexpr double kMiB = 1 << 20;
constexpr uint32_t kConnections = 64;
constexpr double kWorkMs = 20;
constexpr Duration kWindow = std::chrono::milliseconds(250);

// The defaults except for paths: the limits are what is measured.
DaemonSettings DefaultSettings() {
  DaemonSettings settings;
  settings.keys = {{"devices.backends", "\"cpu\""}, {"server.drain_ms", "500"}, {"log.level", "\"warning\""}};
  return settings;
}

struct Plan {
  double peak_per_s = 0, p99_before_us = 0;
  Duration length{0}, probe{0}, after{0};
};

LoadSpec WorkLoad(const ServiceDaemon& daemon, LoadKind kind, const std::string& handle, uint32_t steps,
                  uint32_t connections) {
  LoadSpec spec = CopyLoad(kind, daemon.endpoint(), handle, connections);
  spec.input = [steps](uint32_t) { return WorkInput(steps, 1); };
  const std::string expected = WorkOutput(steps, 1);
  spec.output = [expected](uint32_t) { return expected; };
  return spec;
}

// Returns the steps of the graph "work" that take about kWorkMs of one core.
StatusOr<uint32_t> Calibrate(ServiceDaemon& daemon, const std::string& handle) {
  constexpr uint32_t kSteps = 4'000'000;
  HPVMD_ASSIGN_OR_RETURN(std::unique_ptr<ServiceLoad> load,
                         ServiceLoad::Make(WorkLoad(daemon, LoadKind::kRun, handle, kSteps, 1)));
  HPVMD_ASSIGN_OR_RETURN(LoadResult result, load->Closed(1, 5));
  const double ms = Quantile(SortedTimes(result, Verdict::kOk), 500) / 1e6;
  return static_cast<uint32_t>(std::max(1.0, kSteps * kWorkMs / std::max(ms, 0.01)));
}

uint64_t AnsweredBefore(const LoadResult& result, Verdict verdict, Time end) {
  return static_cast<uint64_t>(std::count_if(result.calls.begin(), result.calls.end(), [&](const CallRecord& call) {
    return call.verdict == verdict && call.done <= end;
  }));
}

// Returns the time until the last window in which a call was refused or took longer than three times what it took
// before.
double RecoveryMs(const LoadResult& after, Time start, double p99_before_us) {
  Time bad = start;
  for (const CallRecord& call : after.calls) {
    const double us = static_cast<double>((call.done - call.due).count()) / 1e3;
    if (call.verdict != Verdict::kOk || us > std::max(3 * p99_before_us, 20e3)) {
      bad = std::max(bad, start + (call.due - start) / kWindow * kWindow + kWindow);
    }
  }
  return static_cast<double>((bad - start).count()) / 1e6;
}

struct Storm {
  LoadResult during, after;
  Time start{0}, end{0};
  double goodput_per_s = 0, rss_before = 0, rss_max = 0;
  std::string failure;
};

// Offers ten times the peak over many connections; from the moment it ends, half of the peak over others. `ended`
// counts what the daemon has carried out, when that is not what it has answered.
StatusOr<Storm> Overload(ServiceDaemon& daemon, const LoadSpec& spec, const Plan& plan,
                         const std::function<StatusOr<uint64_t>()>& ended) {
  HPVMD_ASSIGN_OR_RETURN(std::unique_ptr<ServiceLoad> heavy, ServiceLoad::Make(spec));
  LoadSpec calm_spec = spec;
  calm_spec.connections = 8;
  HPVMD_ASSIGN_OR_RETURN(std::unique_ptr<ServiceLoad> calm, ServiceLoad::Make(calm_spec));
  Storm storm;
  storm.rss_before = static_cast<double>(daemon.RssBytes());
  RssWatch watch(daemon);
  uint64_t before = 0, after = 0;
  if (ended) {
    HPVMD_ASSIGN_OR_RETURN(before, ended());
  }
  storm.start = RealClock().Now();
  StatusOr<LoadResult> during;
  std::thread thread([&] { during = heavy->Open(plan.peak_per_s * 10, plan.length, 7); });
  std::this_thread::sleep_for(plan.length);
  storm.end = RealClock().Now();
  StatusOr<LoadResult> calmer;
  std::thread calm_thread([&] { calmer = calm->Open(plan.peak_per_s / 2, plan.after, 8); });
  StatusOr<uint64_t> count = ended ? ended() : StatusOr<uint64_t>(0);
  const Time counted = RealClock().Now();
  thread.join();
  calm_thread.join();
  HPVMD_RETURN_IF_ERROR(during.status());
  HPVMD_RETURN_IF_ERROR(calmer.status());
  HPVMD_RETURN_IF_ERROR(count.status());
  after = *count;
  storm.during = *std::move(during);
  storm.after = *std::move(calmer);
  storm.rss_max = static_cast<double>(watch.max_bytes());
  const uint64_t good = ended ? after - before : AnsweredBefore(storm.during, Verdict::kOk, storm.end);
  const Duration time = (ended ? counted : storm.end) - storm.start;
  storm.goodput_per_s = static_cast<double>(good) * 1e9 / static_cast<double>(time.count());
  return storm;
}

ServiceResult Report(const Plan& plan, const Storm& storm) {
  ServiceResult result;
  const std::vector<int64_t> good = SortedTimes(storm.during, Verdict::kOk);
  const std::vector<int64_t> rejected = SortedTimes(storm.during, Verdict::kRejected);
  const uint64_t failed = Count(storm.during, Verdict::kFailed);
  const uint64_t hints = static_cast<uint64_t>(std::count_if(storm.during.calls.begin(), storm.during.calls.end(),
                                                             [](const CallRecord& call) { return call.names_wait; }));
  result.Add("peak_per_s", plan.peak_per_s);
  result.Add("offered_per_s",
             static_cast<double>(storm.during.calls.size()) * 1e9 / static_cast<double>(plan.length.count()));
  result.Add("goodput_per_s", storm.goodput_per_s);
  result.Add("ratio_goodput", storm.goodput_per_s / plan.peak_per_s);
  result.Add("rejected", static_cast<double>(rejected.size()));
  result.Add("rejected_p50_ms", Quantile(rejected, 500) / 1e6);
  result.Add("rejected_p99_ms", Quantile(rejected, 990) / 1e6);
  result.Add("rejected_sent_p99_ms", Quantile(SortedSentTimes(storm.during, Verdict::kRejected), 990) / 1e6);
  result.Add("rejected_with_wait", static_cast<double>(hints));
  result.Add("failed", static_cast<double>(failed));
  result.Add("accepted_p50_ms", Quantile(good, 500) / 1e6);
  result.Add("accepted_p99_ms", Quantile(good, 990) / 1e6);
  result.Add("generator_late_max_ms", static_cast<double>(storm.during.late_max.count()) / 1e6);
  result.Add("recovery_ms", RecoveryMs(storm.after, storm.end, plan.p99_before_us));
  result.Add("rss_before_mib", storm.rss_before / kMiB);
  result.Add("rss_max_mib", storm.rss_max / kMiB);
  result.reach = {{.figure = "ratio_goodput", .at_least = true, .bound = 0.9},
                  {.figure = "rejected_p99_ms", .at_least = false, .bound = 10},
                  {.figure = "recovery_ms", .at_least = false, .bound = 5'000},
                  {.figure = "rss_max_mib", .at_least = false, .bound = 512}};
  result.note = failed == 0 ? "" : "First failure: " + storm.during.failure;
  result.verified = failed == 0 && storm.during.unsent == 0;
  return result;
}

Plan MakePlan(const ServiceOptions& options) {
  Plan plan;
  plan.length = options.quick ? std::chrono::milliseconds(500) : std::chrono::seconds(10);
  plan.probe = options.quick ? std::chrono::milliseconds(300) : std::chrono::seconds(3);
  plan.after = options.quick ? std::chrono::milliseconds(500) : std::chrono::seconds(8);
  return plan;
}

// Measures the maximum of a closed loop again after the storm, because others use this machine too.
StatusOr<double> PeakAgain(const LoadSpec& spec, uint32_t clients, const Plan& plan) {
  HPVMD_ASSIGN_OR_RETURN(std::unique_ptr<ServiceLoad> load, ServiceLoad::Make(spec));
  HPVMD_ASSIGN_OR_RETURN(LoadResult result, load->ClosedFor(clients, plan.probe));
  return static_cast<double>(Count(result, Verdict::kOk)) * 1e9 / static_cast<double>(result.elapsed.count());
}

// Measures the maximum of a closed loop, as the median of three; then the p99 of a calm load.
Status FindPeak(const LoadSpec& spec, uint32_t clients, Plan& plan) {
  HPVMD_ASSIGN_OR_RETURN(std::unique_ptr<ServiceLoad> load, ServiceLoad::Make(spec));
  std::vector<double> per_second;
  for (int round = 0; round < 3; ++round) {
    HPVMD_ASSIGN_OR_RETURN(LoadResult result, load->ClosedFor(clients, plan.probe));
    per_second.push_back(static_cast<double>(Count(result, Verdict::kOk)) * 1e9 /
                         static_cast<double>(result.elapsed.count()));
  }
  plan.peak_per_s = Median(per_second);
  HPVMD_ASSIGN_OR_RETURN(LoadResult calm, load->Open(plan.peak_per_s / 2, plan.probe, 3));
  plan.p99_before_us = Quantile(SortedTimes(calm, Verdict::kOk), 990) / 1e3;
  return absl::OkStatus();
}

StatusOr<ServiceResult> MeasureRunOverload(const ServiceOptions& options, bool tiny) {
  DaemonSettings settings = DefaultSettings();
  settings.keys["limits.calls_per_peer_max"] = "1000000";  // One user stands for many.
  HPVMD_ASSIGN_OR_RETURN(std::unique_ptr<ServiceDaemon> daemon, ServiceDaemon::Start(settings));
  HPVMD_ASSIGN_OR_RETURN(const std::string handle, daemon->Prepare(tiny ? "copy" : "work"));
  LoadSpec spec = CopyLoad(LoadKind::kRun, daemon->endpoint(), handle, kConnections);
  if (!tiny) {
    HPVMD_ASSIGN_OR_RETURN(const uint32_t steps, Calibrate(*daemon, handle));
    spec = WorkLoad(*daemon, LoadKind::kRun, handle, steps, kConnections);
  }
  Plan plan = MakePlan(options);
  HPVMD_RETURN_IF_ERROR(FindPeak(spec, kConnections, plan));
  HPVMD_ASSIGN_OR_RETURN(Storm storm, Overload(*daemon, spec, plan, nullptr));
  HPVMD_ASSIGN_OR_RETURN(const double again, PeakAgain(spec, kConnections, plan));
  ServiceResult result = Report(plan, storm);
  result.Add("peak_after_per_s", again);
  result.Add("ratio_goodput_both_peaks", storm.goodput_per_s * 2 / (plan.peak_per_s + again));
  if (tiny) {
    result.reach = {{.figure = "rss_max_mib", .at_least = false, .bound = 512}};
  }
  return result;
}

// The peak is the number of jobs that end per second while the queue never runs dry.
StatusOr<ServiceResult> MeasureSubmitOverload(const ServiceOptions& options) {
  DaemonSettings settings = DefaultSettings();
  settings.keys["jobs.kept_max"] = "1000000";              // All jobs must be kept, to be counted.
  settings.keys["limits.calls_per_peer_max"] = "1000000";  // One user stands for many.
  HPVMD_ASSIGN_OR_RETURN(std::unique_ptr<ServiceDaemon> daemon, ServiceDaemon::Start(settings));
  HPVMD_ASSIGN_OR_RETURN(const std::string handle, daemon->Prepare("work"));
  HPVMD_ASSIGN_OR_RETURN(const uint32_t steps, Calibrate(*daemon, handle));
  const LoadSpec spec = WorkLoad(*daemon, LoadKind::kSubmit, handle, steps, kConnections);
  const auto ended = [&]() -> StatusOr<uint64_t> {
    HPVMD_ASSIGN_OR_RETURN(const std::set<std::string> ids, ListIds(*daemon, {v1::JOB_STATE_SUCCEEDED}));
    return ids.size();
  };
  Plan plan = MakePlan(options);
  HPVMD_ASSIGN_OR_RETURN(std::unique_ptr<ServiceLoad> load, ServiceLoad::Make(spec));
  // Fills the queue first, so that the peak is the daemon's and not the load's.
  HPVMD_ASSIGN_OR_RETURN(LoadResult filled, load->Closed(16, options.quick ? 100 : 800));
  HPVMD_ASSIGN_OR_RETURN(const uint64_t before, ended());
  const Time start = RealClock().Now();
  std::this_thread::sleep_for(plan.probe);
  HPVMD_ASSIGN_OR_RETURN(const uint64_t after, ended());
  plan.peak_per_s =
      static_cast<double>(after - before) * 1e9 / static_cast<double>((RealClock().Now() - start).count());
  HPVMD_RETURN_IF_ERROR(AwaitAllEnded(*daemon, std::chrono::seconds(60)));
  if (plan.peak_per_s <= 0) {
    return Internal("No job ended while the peak was measured.");
  }
  HPVMD_ASSIGN_OR_RETURN(LoadResult calm, load->Open(plan.peak_per_s / 2, plan.probe, 3));
  plan.p99_before_us = Quantile(SortedTimes(calm, Verdict::kOk), 990) / 1e3;
  HPVMD_ASSIGN_OR_RETURN(Storm storm, Overload(*daemon, spec, plan, ended));
  ServiceResult result = Report(plan, storm);
  HPVMD_RETURN_IF_ERROR(AwaitAllEnded(*daemon, std::chrono::seconds(120)));
  HPVMD_ASSIGN_OR_RETURN(const uint64_t all, ended());
  const uint64_t acknowledged =
      filled.job_ids.size() + calm.job_ids.size() + storm.during.job_ids.size() + storm.after.job_ids.size();
  result.Add("acknowledged", static_cast<double>(acknowledged));
  result.Add("succeeded", static_cast<double>(all));
  result.verified = result.verified && acknowledged == all;
  return result;
}

}  // namespace

void AddOverloadCases(std::vector<ServiceCase>& cases) {
  cases.push_back({"overload/run", [](const ServiceOptions& options) { return MeasureRunOverload(options, false); }});
  cases.push_back({"overload/submit", MeasureSubmitOverload});
  cases.push_back({"overload/tiny", [](const ServiceOptions& options) { return MeasureRunOverload(options, true); }});
}

}  // namespace hpvm::bench
