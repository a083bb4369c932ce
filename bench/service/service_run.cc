// SPDX-License-Identifier: Apache-2.0
// run/N: latency of Run for a prepared tiny graph from N clients, in a closed loop, then with random arrivals at half
// of its rate. run/no_store: Run does not access the job store, and does not wait for its disk.
#include <algorithm>
#include <atomic>
#include <thread>

#include "bench/service/service.h"
#include "bench/service/service_setup.h"

namespace hpvm::bench {
namespace {

constexpr int kRounds = 5;

struct Latencies {
  std::vector<double> p50, p90, p99, p999, ratio, per_second;

  void Take(const LoadResult& result) {
    const std::vector<int64_t> times = SortedTimes(result, Verdict::kOk);
    p50.push_back(Quantile(times, 500) / 1e3);
    p90.push_back(Quantile(times, 900) / 1e3);
    p99.push_back(Quantile(times, 990) / 1e3);
    p999.push_back(Quantile(times, 999) / 1e3);
    ratio.push_back(p99.back() / std::max(1e-3, p50.back()));
    per_second.push_back(static_cast<double>(times.size()) * 1e9 / static_cast<double>(result.elapsed.count()));
  }
  void Report(const std::string& name, ServiceResult& result) const {
    result.Add(name + "_per_s", Median(per_second));
    result.Add(name + "_p50_us", Median(p50));
    result.Add(name + "_p90_us", Median(p90));
    result.Add(name + "_p99_us", Median(p99));
    result.Add(name + "_p999_us", Median(p999));
  }
};

struct Contender {
  std::string name;
  std::unique_ptr<ServiceLoad> load = {};
  Latencies closed = {}, half = {};

  Status Closed(uint32_t clients, uint64_t calls, bool counts) {
    StatusOr<LoadResult> result = load->Closed(clients, calls);
    if (result.ok() && counts) {
      closed.Take(*result);
    }
    return result.status();
  }
  Status Half(Duration length, uint64_t seed) {
    HPVMD_ASSIGN_OR_RETURN(LoadResult result, load->Open(Median(closed.per_second) / 2, length, seed));
    if (Count(result, Verdict::kOk) != result.calls.size() || result.unsent > 0) {
      return Internal("At half load calls of \"" + name + "\" were not answered: " + result.failure);
    }
    half.Take(result);
    return absl::OkStatus();
  }
};

StatusOr<ServiceResult> MeasureRuns(const ServiceOptions& options, uint32_t clients) {
  HPVMD_ASSIGN_OR_RETURN(std::unique_ptr<ServiceDaemon> daemon, ServiceDaemon::Start(RoomySettings()));
  HPVMD_ASSIGN_OR_RETURN(const std::string handle, daemon->Prepare("copy"));
  HPVMD_ASSIGN_OR_RETURN(std::unique_ptr<EchoPeer> peer, EchoPeer::Start());
  Contender ours{.name = "ours"}, echo{.name = "grpc_echo"};
  HPVMD_ASSIGN_OR_RETURN(ours.load, ServiceLoad::Make(CopyLoad(LoadKind::kRun, daemon->endpoint(), handle, clients)));
  HPVMD_ASSIGN_OR_RETURN(echo.load, peer->Connect(ours.load->RequestBytes(), clients));
  const uint64_t calls = options.quick ? clients * 20 : std::clamp<uint64_t>(clients * 1'000, 3'000, 20'000);
  const int rounds = options.quick ? 1 : kRounds;
  for (int round = -1; round < rounds; ++round) {
    for (Contender* contender : {&ours, &echo}) {
      HPVMD_RETURN_IF_ERROR(contender->Closed(clients, calls, round >= 0));
    }
  }
  const Duration length = options.quick ? std::chrono::milliseconds(200) : std::chrono::seconds(3);
  for (int round = 0; round < rounds; ++round) {
    for (Contender* contender : {&ours, &echo}) {
      HPVMD_RETURN_IF_ERROR(contender->Half(length, static_cast<uint64_t>(round) + 1));
    }
  }
  ServiceResult result;
  ours.closed.Report("ours", result);
  echo.closed.Report("grpc_echo", result);
  ours.half.Report("ours_half_load", result);
  echo.half.Report("grpc_echo_half_load", result);
  result.Add("ours_half_load_p99_over_p50", Median(ours.half.ratio));
  result.Add("grpc_echo_half_load_p99_over_p50", Median(echo.half.ratio));
  result.Add("ratio_grpc_echo", result.Get("ours_per_s") / result.Get("grpc_echo_per_s"));
  result.reach.push_back({.figure = "ours_half_load_p99_over_p50", .at_least = false, .bound = 3});
  result.note = "Every answer was compared. Half load: Poisson, times count from when a call was due.";
  result.verified = true;
  return result;
}

// Closed loops of a few clients, twice: normally, and with every commit of the job store delayed by 50 ms, while
// submits keep the store busy.
StatusOr<ServiceResult> MeasureNoStore(const ServiceOptions& options) {
  const uint64_t calls = options.quick ? 100 : 10'000;
  DaemonSettings settings = RoomySettings();
  // A job occupies its turn while its commits are delayed; runs of the same tenant must not wait for that turn.
  settings.keys["jobs.running_per_tenant_max"] = "16";
  HPVMD_ASSIGN_OR_RETURN(std::unique_ptr<ServiceDaemon> daemon, ServiceDaemon::Start(settings));
  Latencies before, slow;
  const auto measure = [&](Latencies& into) -> Status {
    HPVMD_ASSIGN_OR_RETURN(const std::string handle, daemon->Prepare("copy"));
    HPVMD_ASSIGN_OR_RETURN(std::unique_ptr<ServiceLoad> load,
                           ServiceLoad::Make(CopyLoad(LoadKind::kRun, daemon->endpoint(), handle, 4)));
    for (int round = -1; round < (options.quick ? 1 : 3); ++round) {
      HPVMD_ASSIGN_OR_RETURN(LoadResult result, load->Closed(4, calls));
      if (round >= 0) {
        into.Take(result);
      }
    }
    return absl::OkStatus();
  };
  const std::string files = daemon->StoreFingerprint();
  HPVMD_RETURN_IF_ERROR(measure(before));
  const bool is_untouched = !files.empty() && daemon->StoreFingerprint() == files;
  settings.failpoints = "store.commit.before=sleep(50)";
  HPVMD_ASSIGN_OR_RETURN(daemon, ServiceDaemon::Start(settings));
  HPVMD_ASSIGN_OR_RETURN(const std::string handle, daemon->Prepare("copy"));
  HPVMD_ASSIGN_OR_RETURN(std::unique_ptr<ServiceLoad> submits,
                         ServiceLoad::Make(CopyLoad(LoadKind::kSubmit, daemon->endpoint(), handle, 1)));
  StatusOr<LoadResult> submitted;
  std::atomic<bool> done{false};
  std::thread busy([&] {
    while (!done) {
      submitted = submits->Closed(1, options.quick ? 3 : 20);
    }
  });
  const Status measured = measure(slow);
  done = true;
  busy.join();
  HPVMD_RETURN_IF_ERROR(measured);
  HPVMD_RETURN_IF_ERROR(submitted.status());
  ServiceResult result;
  before.Report("ours", result);
  slow.Report("ours_slow_disk", result);
  result.Add("submit_slow_disk_p50_us", Quantile(SortedTimes(*submitted, Verdict::kOk), 500) / 1e3);
  result.Add("ratio_slow_disk_p50", result.Get("ours_slow_disk_p50_us") / result.Get("ours_p50_us"));
  result.Add("ratio_slow_disk_p99", result.Get("ours_slow_disk_p99_us") / result.Get("ours_p99_us"));
  result.reach.push_back({.figure = "ratio_slow_disk_p50", .at_least = false, .bound = 1.5});
  const bool is_slow = result.Get("submit_slow_disk_p50_us") >= 50'000;
  result.note = std::string("The store's files ") + (is_untouched ? "did not change" : "CHANGED") +
                " while runs went on; with commits 50 ms late a submit " + (is_slow ? "was" : "was NOT") + " as late.";
  result.verified = is_untouched && is_slow;
  return result;
}

}  // namespace

void AddRunCases(std::vector<ServiceCase>& cases) {
  for (const uint32_t clients : {1u, 4u, 16u, 64u}) {
    cases.push_back({"run/" + std::to_string(clients),
                     [clients](const ServiceOptions& options) { return MeasureRuns(options, clients); }});
  }
  cases.push_back({"run/no_store", MeasureNoStore});
}

}  // namespace hpvm::bench
