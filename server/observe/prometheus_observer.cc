// SPDX-License-Identifier: Apache-2.0
#include "server/observe/prometheus_observer.h"

#include <algorithm>
#include <string>

#include "server/core/state/run_outcome.h"
#include "server/observe/families.h"

namespace hpvm::server {
namespace {

constexpr std::string_view kKindNames[] = {"run", "job"};
constexpr std::string_view kRejectedNames[] = {"run", "submit", "prepare", "upload", "other"};
constexpr std::string_view kLostNames[] = {"executor", "device", "daemon"};
constexpr std::string_view kPhaseNames[] = {"queue", "bind", "copy_in", "run", "copy_out", "total"};
constexpr std::string_view kEventNames[] = {"started", "failed", "crashed", "retired", "killed"};
constexpr std::string_view kEndNames[] = {"succeeded", "failed", "cancelled", "expired", "dead"};
constexpr std::string_view kResultNames[] = {"refused", "taken"};
constexpr std::string_view kDirectionNames[] = {"in", "out"};
// Canonical codes, in order.
constexpr std::string_view kReasonNames[] = {"ok", "cancelled", "unknown", "invalid_argument", "deadline_exceeded",
                                             "not_found", "already_exists", "permission_denied", "resource_exhausted",
                                             "failed_precondition", "aborted", "out_of_range", "unimplemented",
                                             "internal", "unavailable", "data_loss", "unauthenticated",
                                             // Reasons that only jobs have.
                                             "expired", "dead"};
constexpr size_t kExpired = PrometheusObserver::kCodes, kDead = PrometheusObserver::kCodes + 1;

// Services whose methods become labels; methods that a caller makes up do not.
constexpr std::string_view kServices[] = {"/hpvm.v1.Hpvm/", "/grpc.health.v1.Health/", "/grpc.reflection."};

size_t CodeOf(int code) {
  return code >= 0 && static_cast<size_t>(code) < PrometheusObserver::kCodes ? static_cast<size_t>(code)
                                                                             : 2;  // Unknown states.
}
size_t CodeOf(const Status& status) { return CodeOf(static_cast<int>(status.code())); }

// Returns true for our form of device ids, such as "cpu:0". Any other text from an executor becomes "other".
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

// Counts the attempt that the job's last event is about, if it was lost.
void PrometheusObserver::CountLost(const events::JobChanged& event) {
  const int count = event.job.lost_attempts_size();
  if (count == 0 || event.job.lost_attempts(count - 1).attempt() != event.job.attempt()) {
    return;  // Requeued by a daemon that stops.
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
        CountLost(event);  // The job may not be retried.
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
  bytes_[kIn].Add(event.outcome.input_bytes);
  uint64_t bytes_out = 0;
  for (const RunOutput& output : event.outcome.outputs) {
    bytes_out += output.bytes;
  }
  bytes_[kOut].Add(bytes_out);
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
}

void PrometheusObserver::DescribeGraphs(Families& families) const {
  const auto by_kind = [&](const char* name, const char* help,
                           const std::array<AtomicCounter, 2> TenantTallies::*member) {
    families.Counter(name, help);
    tenants_.ForEach([&](const auto& tenant) {
      families.AddEach({{"tenant", tenant.name}}, "kind", kKindNames, tenant.value.*member);
    });
  };
  by_kind("hpvm_graph_submitted_total", "Jobs acknowledged, and runs once they have ended.", &TenantTallies::submitted);
  by_kind("hpvm_graph_completed_total", "Jobs and runs that succeeded.", &TenantTallies::completed);
  by_kind("hpvm_graph_cancelled_total", "Jobs and runs that were cancelled.", &TenantTallies::cancelled);
  const auto by_reason = [&](const char* name, const char* help, Families::Names kinds, auto member) {
    families.Counter(name, help);
    tenants_.ForEach([&](const auto& tenant) {
      for (size_t kind = 0; kind < kinds.size(); ++kind) {
        families.AddUsed({{"tenant", tenant.name}, {"kind", kinds[kind]}}, "reason", kReasonNames,
                         (tenant.value.*member)[kind]);
      }
    });
  };
  by_reason("hpvm_graph_failed_total", "Jobs and runs that failed, by the code of the reason.", kKindNames,
            &TenantTallies::failed);
  by_reason("hpvm_graph_rejected_total", "Requests turned away before they became a run or a job.", kRejectedNames,
            &TenantTallies::rejected);
  families.Counter("hpvm_graph_prepared_total", "Preparations of graphs, by the code of the outcome.");
  families.AddUsed({}, "reason", kReasonNames, prepared_);
}

void PrometheusObserver::DescribeJobs(Families& families) const {
  families.Histograms("hpvm_job_seconds", "From a job's creation to its end, by its final state.");
  families.AddEach({}, "state", kEndNames, job_seconds_);
  families.Counter("hpvm_job_attempts_total", "Attempts of jobs that have ended.", attempts_);
  families.Counter("hpvm_job_attempts_lost_total", "Attempts of jobs that were lost, by the cause.");
  families.AddEach({}, "reason", kLostNames, lost_);
  families.Histograms("hpvm_store_commit_seconds", "Time of group commits of the job store.", commits_);
  families.Histograms("hpvm_store_commit_writes", "Writes in one group commit.", commit_writes_);
  families.Counter("hpvm_store_commit_failures_total", "Group commits that failed.");
  families.AddUsed({}, "reason", kReasonNames, commit_failures_);
}

void PrometheusObserver::DescribeSlowItems(Families& families) const {
  std::lock_guard lock(slow_mutex_);
  families.Counter("hpvm_slow_items_total",
                   "Items of work of 5 ms or more on threads or under locks that serve all tenants.");
  for (const auto& [name, items] : slow_items_) {
    families.Add({{"thread", name.first}, {"item", name.second}}, items.count);
  }
  families.Counter("hpvm_slow_item_seconds_total",
                   "Processor time of the items in hpvm_slow_items_total, or time for which the lock was held.");
  for (const auto& [name, items] : slow_items_) {
    families.Add({{"thread", name.first}, {"item", name.second}}, std::chrono::duration<double>(items.spent).count());
  }
}

void PrometheusObserver::DescribeWork(Families& families) const {
  families.Histograms("hpvm_graph_seconds", "Time of the phases of runs and of jobs' attempts.");
  families.AddEach({}, "phase", kPhaseNames, phases_);
  families.Histograms("hpvm_queue_seconds", "Wait of a run for its turn, and of a job from its creation to its start.");
  families.AddEach({}, "kind", kKindNames, queue_);
  families.Histograms("hpvm_node_seconds",
                      "Time of nodes by device, in runs whose nodes are recorded (jobs; placements).");
  devices_.ForEach([&](const auto& device) { families.Add({{"device", device.name}}, device.value); });
  families.Counter("hpvm_nodes_total", "Nodes run, counted with replication and repeats.", nodes_);
  families.Histograms("hpvm_scheduler_decision_seconds", "Time of one decision of the scheduler.", decisions_);
  families.Counter("hpvm_transfer_bytes_total", "Bytes of tensors between the daemon and executors.");
  families.AddEach({}, "direction", kDirectionNames, bytes_);
  families.Histograms("hpvm_module_compile_seconds", "Time to compile the kernels of one graph that were in no cache.",
                      compile_);
  families.Counter("hpvm_module_cache_hits_total", "Kernels that were found compiled in a cache.", cache_hits_);
  families.Counter("hpvm_module_cache_misses_total", "Kernels that had to be compiled.", cache_misses_);
  families.Counter("hpvm_executor_events_total", "Starts and ends of executor processes, by event.");
  families.AddEach({}, "event", kEventNames, executors_);
}

void PrometheusObserver::DescribeCalls(Families& families) const {
  families.Counter("hpvm_grpc_calls_total", "gRPC calls that have ended.");
  methods_.ForEach([&](const auto& method) {
    families.AddUsed({{"method", method.name}}, "code", kReasonNames, method.value.codes);
  });
  families.Histograms("hpvm_grpc_call_seconds", "Time of gRPC calls from their first byte to their status.");
  methods_.ForEach([&](const auto& method) { families.Add({{"method", method.name}}, method.value.seconds); });
  families.Counter("hpvm_config_reloads_total", "Times the configuration was read again.");
  families.AddEach({}, "result", kResultNames, reloads_);
  families.Counter("hpvm_connections_ended_total",
                   "Connections of clients that the server ended or refused, by the reason.");
  connection_ends_.ForEach([&](const auto& end) { families.Add({{"reason", end.name}}, end.value); });
}

void PrometheusObserver::DescribeCertificate(Families& families) const {
  const int64_t ends = certificate_ends_s_.load(std::memory_order_relaxed);
  families.Gauge("hpvm_tls_certificate_not_after_seconds",
                 "When the server's certificate expires, since the Unix epoch.");
  if (ends != 0) {
    families.Add({}, ends);
  }
  families.Gauge("hpvm_tls_certificate_refused", "1 while the TLS files cannot be used.",
                 certificate_refused_.load(std::memory_order_relaxed));
  families.Counter("hpvm_tls_certificate_loads_total", "Times a changed certificate was loaded or refused.");
  families.AddEach({}, "result", kResultNames, certificates_);
}

}  // namespace hpvm::server
