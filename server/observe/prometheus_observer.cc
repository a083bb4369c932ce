// SPDX-License-Identifier: Apache-2.0
#include "server/observe/prometheus_observer.h"

#include <algorithm>
#include <string>

#include "server/core/state/run_outcome.h"
#include "server/observe/families.h"

namespace hpvm::server {
namespace {

constexpr const char* kKindNames[] = {"run", "job"};
constexpr const char* kRejectedNames[] = {"run", "submit", "prepare", "upload", "other"};
constexpr const char* kLostNames[] = {"executor", "device", "daemon"};
constexpr const char* kPhaseNames[] = {"queue", "bind", "copy_in", "run", "copy_out", "total"};
constexpr const char* kEventNames[] = {"started", "failed", "crashed", "retired", "killed"};
constexpr const char* kEndNames[] = {"succeeded", "failed", "cancelled", "expired", "dead"};
// Canonical codes in their order, then what jobs add.
constexpr const char* kReasonNames[] = {"ok",
                                        "cancelled",
                                        "unknown",
                                        "invalid_argument",
                                        "deadline_exceeded",
                                        "not_found",
                                        "already_exists",
                                        "permission_denied",
                                        "resource_exhausted",
                                        "failed_precondition",
                                        "aborted",
                                        "out_of_range",
                                        "unimplemented",
                                        "internal",
                                        "unavailable",
                                        "data_loss",
                                        "unauthenticated",
                                        "expired",
                                        "dead"};
constexpr size_t kExpired = PrometheusObserver::kCodes, kDead = PrometheusObserver::kCodes + 1;

// Services whose methods are labels; what a caller makes up is none.
constexpr std::string_view kServices[] = {"/hpvm.v1.Hpvm/", "/grpc.health.v1.Health/", "/grpc.reflection."};

size_t CodeOf(int code) {
  return code >= 0 && static_cast<size_t>(code) < PrometheusObserver::kCodes ? static_cast<size_t>(code)
                                                                             : 2;  // Unknown.
}
size_t CodeOf(const Status& status) { return CodeOf(static_cast<int>(status.code())); }

// "cpu:0": how we name devices. Everything else an executor might say is "other".
bool IsDeviceId(std::string_view id) {
  const size_t colon = id.find(':');
  if (colon == std::string_view::npos || colon == 0 || colon > 16 || id.size() - colon - 1 < 1 ||
      id.size() - colon - 1 > 3) {
    return false;
  }
  const std::string_view family = id.substr(0, colon), number = id.substr(colon + 1);
  return std::all_of(family.begin(), family.end(), [](char c) { return c >= 'a' && c <= 'z'; }) &&
         std::all_of(number.begin(), number.end(), [](char c) { return c >= '0' && c <= '9'; });
}

Duration Between(int64_t from_unix_ns, int64_t to_unix_ns) {
  int64_t ns = 0;
  return __builtin_sub_overflow(to_unix_ns, from_unix_ns, &ns) ? Duration{0} : Duration{ns};
}

}  // namespace

void PrometheusObserver::Take(const events::Rejected& event) {
  const auto found = std::find(std::begin(kRejectedNames), std::end(kRejectedNames) - 1, event.what);
  tenants_.Find(event.tenant)
      .value.rejected[static_cast<size_t>(found - std::begin(kRejectedNames))][CodeOf(event.why)]
      .Add();
}

void PrometheusObserver::Take(const events::JobChanged& event) {
  const v1::Job& job = event.job;
  TenantTallies& tallies = tenants_.Find(event.tenant).value;
  switch (job.state()) {
    case v1::JOB_STATE_ACCEPTED:
    case v1::JOB_STATE_QUEUED:
      if (job.attempt() == 0) {
        tallies.submitted[kJob].Add();
      } else {
        CountLost(event);
      }
      break;
    case v1::JOB_STATE_RUNNING:
      if (job.attempt() == 1 && !job.cancel_requested()) {
        queue_[kJob].Observe(Between(job.created_unix_ns(), job.started_unix_ns()));
      }
      break;
    default:
      CountEnd(tallies, event);
      break;
  }
}

// The attempt that the job's last words are about, if it was lost.
void PrometheusObserver::CountLost(const events::JobChanged& event) {
  const int count = event.job.lost_attempts_size();
  if (count == 0 || event.job.lost_attempts(count - 1).attempt() != event.job.attempt()) {
    return;  // Put back by a daemon that stops.
  }
  lost_[static_cast<size_t>(event.cause)].Add();
}

void PrometheusObserver::CountEnd(TenantTallies& tallies, const events::JobChanged& event) {
  const v1::Job& job = event.job;
  const auto end = static_cast<size_t>(job.state()) - static_cast<size_t>(v1::JOB_STATE_SUCCEEDED);
  if (end >= std::size(kEndNames)) {
    return;
  }
  job_seconds_[end].Observe(Between(job.created_unix_ns(), job.ended_unix_ns()));
  switch (job.state()) {
    case v1::JOB_STATE_SUCCEEDED:
      tallies.completed[kJob].Add();
      break;
    case v1::JOB_STATE_CANCELLED:
      tallies.cancelled[kJob].Add();
      break;
    case v1::JOB_STATE_EXPIRED:
      tallies.failed[kJob][kExpired].Add();
      break;
    case v1::JOB_STATE_DEAD:
      tallies.failed[kJob][kDead].Add();
      CountLost(event);
      break;
    default:
      tallies.failed[kJob][CodeOf(job.error().code())].Add();
      if (job.error().code() == static_cast<int>(absl::StatusCode::kUnavailable)) {
        CountLost(event);  // It may not be tried again.
      }
      break;
  }
}

void PrometheusObserver::Take(const events::RunEnded& event) {
  if (event.job_id.empty()) {
    TenantTallies& tallies = tenants_.Find(event.tenant).value;
    tallies.submitted[kRun].Add();
    if (event.outcome.outcome.ok()) {
      tallies.completed[kRun].Add();
    } else if (absl::IsCancelled(event.outcome.outcome.status)) {
      tallies.cancelled[kRun].Add();
    } else {
      tallies.failed[kRun][CodeOf(event.outcome.outcome.status)].Add();
    }
    queue_[kRun].Observe(event.outcome.timing().queue_ns());
  } else {
    attempts_.Add();
  }
  const v1::RunTiming& timing = event.outcome.timing();
  const uint64_t phases[] = {timing.queue_ns(), timing.bind_ns(),     timing.copy_in_ns(),
                             timing.run_ns(),   timing.copy_out_ns(), timing.total_ns()};
  static_assert(std::size(phases) == kPhases);
  for (size_t i = 0; i < kPhases; ++i) {
    phases_[i].Observe(phases[i]);
  }
  bytes_in_.Add(event.outcome.input_bytes);
  uint64_t bytes_out = 0;
  for (const RunOutput& output : event.outcome.outputs) {
    bytes_out += output.bytes;
  }
  bytes_out_.Add(bytes_out);
  CountNodes(event.outcome);
}

void PrometheusObserver::CountNodes(const RunOutcome& outcome) {
  nodes_.Add(outcome.reply.done.nodes_run());
  for (const v1::NodePlacement& node : outcome.reply.done.nodes()) {
    devices_.Find(IsDeviceId(node.device()) ? std::string_view(node.device()) : "other")
        .value.Observe(Between(static_cast<int64_t>(node.start_ns()), static_cast<int64_t>(node.end_ns())));
  }
}

void PrometheusObserver::Take(const events::Prepared& event) {
  prepared_[CodeOf(event.status)].Add();
  cache_hits_.Add(event.timing.from_cache());
  cache_misses_.Add(event.timing.compiled());
  if (event.timing.compiled() > 0) {
    compile_.Observe(event.timing.compile_ns());
  }
}

void PrometheusObserver::Take(const events::ExecutorChanged& event) {
  const auto found = std::find(std::begin(kEventNames), std::end(kEventNames), event.what);
  if (found == std::end(kEventNames)) {
    return;
  }
  executors_[static_cast<size_t>(found - std::begin(kEventNames))].Add();
  if (event.what == "failed") {
    last_failure_ns_.store(clock_.Now().count(), std::memory_order_relaxed);
    failures_in_a_row_.fetch_add(1, std::memory_order_relaxed);
  } else if (event.what == "started") {
    failures_in_a_row_.store(0, std::memory_order_relaxed);
  }
}

PrometheusObserver::SpawnFailures PrometheusObserver::spawn_failures() const {
  return {failures_in_a_row_.load(std::memory_order_relaxed), Time(last_failure_ns_.load(std::memory_order_relaxed))};
}

void PrometheusObserver::Take(const events::Decided& event) { decisions_.Observe(event.took); }

void PrometheusObserver::Take(const events::Committed& event) {
  commits_.Observe(event.took);
  commit_writes_.Observe(uint64_t{event.writes});
  if (!event.status.ok()) {
    commit_failures_[CodeOf(event.status)].Add();
  }
  last_commit_ns_.store(clock_.Now().count(), std::memory_order_relaxed);
}

void PrometheusObserver::Take(const SlowItem& item) {
  std::lock_guard lock(slow_mutex_);
  SlowItems& items = slow_items_[{item.thread, item.item}];
  ++items.count;
  items.spent += item.spent;
}

void PrometheusObserver::Take(const events::Reloaded& event) { reloads_[event.ok ? 1 : 0].Add(); }

void PrometheusObserver::Take(const events::CertificateLoaded& event) {
  certificates_[event.status.ok() ? 1 : 0].Add();
  certificate_refused_.store(!event.status.ok(), std::memory_order_relaxed);
  certificate_ends_s_.store(event.not_after_unix_s, std::memory_order_relaxed);
}

void PrometheusObserver::Take(const events::ConnectionEnded& event) { connection_ends_.Find(event.reason).value.Add(); }

void PrometheusObserver::Take(const events::CallEnded& event) {
  const bool is_ours = std::any_of(std::begin(kServices), std::end(kServices),
                                   [&](std::string_view service) { return event.method.starts_with(service); });
  CallTallies& call = methods_.Find(is_ours ? event.method.substr(1) : "other").value;
  call.codes[CodeOf(event.status)].Add();
  call.seconds.Observe(event.took);
}

// --- As families ---

void PrometheusObserver::Describe(Families& families) const {
  DescribeGraphs(families);
  DescribeJobs(families);
  DescribeSlowItems(families);
  DescribeWork(families);
  DescribeCalls(families);
  DescribeCertificate(families);
  DescribeConnections(families);
}

void PrometheusObserver::DescribeGraphs(Families& families) const {
  const auto by_kind = [&](const std::array<Tally, 2> TenantTallies::*member) {
    tenants_.ForEach([&](const auto& tenant) {
      for (const Kind kind : {kRun, kJob}) {
        families.Add({{"tenant", tenant.name}, {"kind", kKindNames[kind]}}, (tenant.value.*member)[kind]);
      }
    });
  };
  families.Counter("hpvm_graph_submitted_total", "Jobs acknowledged, and runs once they have ended.");
  by_kind(&TenantTallies::submitted);
  families.Counter("hpvm_graph_completed_total", "Jobs and runs that succeeded.");
  by_kind(&TenantTallies::completed);
  families.Counter("hpvm_graph_cancelled_total", "Jobs and runs that were cancelled.");
  by_kind(&TenantTallies::cancelled);
  families.Counter("hpvm_graph_failed_total", "Jobs and runs that failed, by the code of the reason.");
  tenants_.ForEach([&](const auto& tenant) {
    for (const Kind kind : {kRun, kJob}) {
      for (size_t reason = 0; reason < kReasons; ++reason) {
        families.AddUsed({{"tenant", tenant.name}, {"kind", kKindNames[kind]}, {"reason", kReasonNames[reason]}},
                         tenant.value.failed[kind][reason]);
      }
    }
  });
  families.Counter("hpvm_graph_rejected_total", "Requests turned away before they became a run or a job.");
  tenants_.ForEach([&](const auto& tenant) {
    for (size_t what = 0; what < std::size(kRejectedNames); ++what) {
      for (size_t code = 0; code < kCodes; ++code) {
        families.AddUsed({{"tenant", tenant.name}, {"kind", kRejectedNames[what]}, {"reason", kReasonNames[code]}},
                         tenant.value.rejected[what][code]);
      }
    }
  });
  families.Counter("hpvm_graph_prepared_total", "Graphs that were to be prepared, by the code of the outcome.");
  for (size_t code = 0; code < kCodes; ++code) {
    families.AddUsed({{"reason", kReasonNames[code]}}, prepared_[code]);
  }
}

void PrometheusObserver::DescribeJobs(Families& families) const {
  families.Histograms("hpvm_job_seconds", "From a job's creation to its end, by its final state.");
  for (size_t end = 0; end < std::size(kEndNames); ++end) {
    families.Add({{"state", kEndNames[end]}}, job_seconds_[end]);
  }
  families.Counter("hpvm_job_attempts_total", "Attempts of jobs that have ended.");
  families.Add({}, attempts_);
  families.Counter("hpvm_job_attempts_lost_total", "Attempts of jobs that were lost, by what they were lost with.");
  for (size_t cause = 0; cause < std::size(kLostNames); ++cause) {
    families.Add({{"reason", kLostNames[cause]}}, lost_[cause]);
  }
  families.Histograms("hpvm_store_commit_seconds", "Group commits of the job store.");
  families.Add({}, commits_);
  families.Histograms("hpvm_store_commit_writes", "Writes in one group commit.");
  families.Add({}, commit_writes_);
  families.Counter("hpvm_store_commit_failures_total", "Group commits that failed.");
  for (size_t code = 0; code < kCodes; ++code) {
    families.AddUsed({{"reason", kReasonNames[code]}}, commit_failures_[code]);
  }
}

void PrometheusObserver::DescribeSlowItems(Families& families) const {
  std::lock_guard lock(slow_mutex_);
  families.Counter("hpvm_slow_items_total",
                   "Items of threads, and holds of locks, that serve all tenants and took 5 ms or more.");
  for (const auto& [name, items] : slow_items_) {
    families.Add({{"thread", name.first}, {"item", name.second}}, static_cast<double>(items.count));
  }
  families.Counter("hpvm_slow_item_seconds_total", "Processor time of those, or time for which the lock was held.");
  for (const auto& [name, items] : slow_items_) {
    families.Add({{"thread", name.first}, {"item", name.second}}, std::chrono::duration<double>(items.spent).count());
  }
}

void PrometheusObserver::DescribeWork(Families& families) const {
  families.Histograms("hpvm_graph_seconds", "Phases of runs and of jobs' attempts.");
  for (size_t phase = 0; phase < kPhases; ++phase) {
    families.Add({{"phase", kPhaseNames[phase]}}, phases_[phase]);
  }
  families.Histograms("hpvm_queue_seconds", "Wait of a run for its turn, and of a job from its creation to its start.");
  for (const Kind kind : {kRun, kJob}) {
    families.Add({{"kind", kKindNames[kind]}}, queue_[kind]);
  }
  families.Histograms("hpvm_node_seconds", "Nodes by device, of runs whose nodes are recorded (jobs; placements).");
  devices_.ForEach([&](const auto& device) { families.Add({{"device", device.name}}, device.value); });
  families.Counter("hpvm_nodes_total", "Nodes run, counted with replication and repeats.");
  families.Add({}, nodes_);
  families.Histograms("hpvm_scheduler_decision_seconds", "One decision of the scheduler.");
  families.Add({}, decisions_);
  families.Counter("hpvm_transfer_bytes_total", "Bytes of tensors between the daemon and executors.");
  families.Add({{"direction", "in"}}, bytes_in_);
  families.Add({{"direction", "out"}}, bytes_out_);
  families.Histograms("hpvm_module_compile_seconds", "Compiling the kernels of one graph that were in no cache.");
  families.Add({}, compile_);
  families.Counter("hpvm_module_cache_hits_total", "Kernels found compiled.");
  families.Add({}, cache_hits_);
  families.Counter("hpvm_module_cache_misses_total", "Kernels that had to be compiled.");
  families.Add({}, cache_misses_);
  families.Counter("hpvm_executor_events_total", "What became of executor processes.");
  for (size_t event = 0; event < kEvents; ++event) {
    families.Add({{"event", kEventNames[event]}}, executors_[event]);
  }
}

void PrometheusObserver::DescribeCalls(Families& families) const {
  families.Counter("hpvm_grpc_calls_total", "gRPC calls that have ended.");
  methods_.ForEach([&](const auto& method) {
    for (size_t code = 0; code < kCodes; ++code) {
      families.AddUsed({{"method", method.name}, {"code", kReasonNames[code]}}, method.value.codes[code]);
    }
  });
  families.Histograms("hpvm_grpc_call_seconds", "gRPC calls from their first byte to their status.");
  methods_.ForEach([&](const auto& method) { families.Add({{"method", method.name}}, method.value.seconds); });
  families.Counter("hpvm_config_reloads_total", "Times the configuration was read again.");
  families.Add({{"result", "refused"}}, reloads_[0]);
  families.Add({{"result", "taken"}}, reloads_[1]);
}

void PrometheusObserver::DescribeCertificate(Families& families) const {
  const int64_t ends = certificate_ends_s_.load(std::memory_order_relaxed);
  families.Gauge("hpvm_tls_certificate_not_after_seconds", "When the server's certificate ends, since the Unix epoch.");
  if (ends != 0) {
    families.Add({}, static_cast<double>(ends));
  }
  families.Gauge("hpvm_tls_certificate_refused", "1 while the TLS files hold what cannot be served with.");
  families.Add({}, certificate_refused_.load(std::memory_order_relaxed) ? 1.0 : 0.0);
  families.Counter("hpvm_tls_certificate_loads_total", "Times a changed certificate was loaded or refused.");
  families.Add({{"result", "refused"}}, certificates_[0]);
  families.Add({{"result", "taken"}}, certificates_[1]);
}

void PrometheusObserver::DescribeConnections(Families& families) const {
  families.Counter("hpvm_connections_ended_total", "Connections of clients that were ended or let in no further.");
  connection_ends_.ForEach([&](const auto& end) { families.Add({{"reason", end.name}}, end.value); });
}

}  // namespace hpvm::server
