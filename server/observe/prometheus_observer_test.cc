// SPDX-License-Identifier: Apache-2.0
#include "server/observe/prometheus_observer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <thread>

#include "server/core/state/run_outcome.h"
#include "server/observe/families.h"
#include "supervisor/testing/messages.h"

namespace hpvm::server {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

std::string TextOf(const PrometheusObserver& metrics) {
  Families families;
  metrics.Describe(families);
  return families.Text();
}

v1::Job Job(v1::JobState state, uint32_t attempt = 0, uint32_t lost = 0, const std::string& why = "") {
  v1::Job job;
  job.set_id("job-1");
  job.set_name("secret name\nx 1");
  job.set_state(state);
  job.set_attempt(attempt);
  job.set_created_unix_ns(1'000'000'000);
  job.set_started_unix_ns(3'000'000'000);
  job.set_ended_unix_ns(10'000'000'000);
  if (lost > 0) {
    v1::LostAttempt& last = *job.add_lost_attempts();
    last.set_attempt(lost);
    last.mutable_error()->set_message(why);
  }
  return job;
}

v1::Job Ended(v1::JobState state, absl::StatusCode code, v1::Job job) {
  job.set_state(state);
  job.mutable_error()->set_code(static_cast<int>(code));
  return job;
}

// A job is counted once, whatever events come in between.
TEST(PrometheusObserverTest, CountsJobs) {
  PrometheusObserver metrics(RealClock());
  metrics.On(events::JobChanged{"a", Job(v1::JOB_STATE_ACCEPTED)});
  metrics.On(events::JobChanged{"a", Job(v1::JOB_STATE_RUNNING, 1)});
  v1::Job cancel = Job(v1::JOB_STATE_RUNNING, 1);
  cancel.set_cancel_requested(true);
  metrics.On(events::JobChanged{"a", cancel});
  metrics.On(events::JobChanged{"a", Job(v1::JOB_STATE_ACCEPTED, 1, 1, "The executor process ended (signal 9).")});
  metrics.On(events::JobChanged{"a", Job(v1::JOB_STATE_RUNNING, 2, 1)});
  metrics.On(
      events::JobChanged{"a", Job(v1::JOB_STATE_ACCEPTED, 2, 2, "A run lost the device."), events::LostCause::kDevice});
  metrics.On(events::JobChanged{"a", Job(v1::JOB_STATE_ACCEPTED, 3, 3, "It ended."), events::LostCause::kDaemon});
  metrics.On(events::JobChanged{"a", Job(v1::JOB_STATE_ACCEPTED, 4, 3, "It ended.")});  // Requeued, not lost.
  metrics.On(events::JobChanged{"a", Job(v1::JOB_STATE_SUCCEEDED, 5, 3)});
  const std::string text = TextOf(metrics);
  EXPECT_THAT(text, HasSubstr("hpvm_graph_submitted_total{tenant=\"a\",kind=\"job\"} 1\n"));
  EXPECT_THAT(text, HasSubstr("hpvm_graph_completed_total{tenant=\"a\",kind=\"job\"} 1\n"));
  EXPECT_THAT(text, HasSubstr("hpvm_queue_seconds_count{kind=\"job\"} 1\n"));
  EXPECT_THAT(text, HasSubstr("hpvm_queue_seconds_sum{kind=\"job\"} 2\n"));
  EXPECT_THAT(text, HasSubstr("hpvm_job_seconds_sum{state=\"succeeded\"} 9\n"));
  for (const char* reason : {"executor", "device", "daemon"}) {
    EXPECT_THAT(text, HasSubstr("hpvm_job_attempts_lost_total{reason=\"" + std::string(reason) + "\"} 1\n"));
  }
}

// A job's outcome determines its counter; lost attempts that ended it are counted too.
TEST(PrometheusObserverTest, CountsEnds) {
  PrometheusObserver metrics(RealClock());
  const auto lost = Job(v1::JOB_STATE_FAILED, 3, 3, "The executor process ended.");
  metrics.On(
      events::JobChanged{"a", Ended(v1::JOB_STATE_FAILED, absl::StatusCode::kAborted, Job(v1::JOB_STATE_FAILED, 1))});
  metrics.On(events::JobChanged{"a", Ended(v1::JOB_STATE_FAILED, absl::StatusCode::kUnavailable, lost)});
  metrics.On(events::JobChanged{"a", Ended(v1::JOB_STATE_DEAD, absl::StatusCode::kUnavailable, lost)});
  metrics.On(events::JobChanged{"a", Ended(v1::JOB_STATE_CANCELLED, absl::StatusCode::kCancelled, lost)});
  metrics.On(events::JobChanged{
      "a", Ended(v1::JOB_STATE_EXPIRED, absl::StatusCode::kDeadlineExceeded, Job(v1::JOB_STATE_EXPIRED))});
  metrics.On(events::JobChanged{
      "a", Ended(v1::JOB_STATE_FAILED, static_cast<absl::StatusCode>(99), Job(v1::JOB_STATE_FAILED, 1))});
  const std::string text = TextOf(metrics);
  for (const char* reason : {"aborted", "unavailable", "dead", "expired", "unknown"}) {
    EXPECT_THAT(text, HasSubstr("hpvm_graph_failed_total{tenant=\"a\",kind=\"job\",reason=\"" + std::string(reason) +
                                "\"} 1\n"));
  }
  EXPECT_THAT(text, HasSubstr("hpvm_graph_cancelled_total{tenant=\"a\",kind=\"job\"} 1\n"));
  EXPECT_THAT(text, HasSubstr("hpvm_job_attempts_lost_total{reason=\"executor\"} 2\n"));
}

RunOutcome Outcome(Status status) {
  RunOutcome outcome;
  outcome.outcome = std::move(status);
  outcome.SetTotals(std::chrono::milliseconds(2), std::chrono::milliseconds(20));
  outcome.reply.done.mutable_timing()->set_run_ns(10'000'000);
  outcome.reply.done.set_nodes_run(7);
  outcome.outputs.emplace_back().bytes = 1'000;
  return outcome;
}

// A run is counted by its outcome; an attempt of a job only in the totals of all runs.
TEST(PrometheusObserverTest, CountsRuns) {
  PrometheusObserver metrics(RealClock());
  metrics.On(events::RunEnded{"a", "", "graph", "", Outcome(absl::OkStatus())});
  metrics.On(events::RunEnded{"a", "", "graph", "", Outcome(Cancelled("x"))});
  metrics.On(events::RunEnded{"a", "", "graph", "", Outcome(Aborted("x"))});
  metrics.On(events::RunEnded{"a", "job-1", "graph", "", Outcome(absl::OkStatus())});
  metrics.On(events::Rejected{"a", "submit", ResourceExhausted("The queue is full.")});
  metrics.On(events::Rejected{"a", "what else", InvalidArgument("x")});
  metrics.On(events::CallEnded{"/hpvm.v1.Hpvm/Run", absl::OkStatus(), std::chrono::milliseconds(3)});
  metrics.On(events::CallEnded{"/made.up/Method", absl::OkStatus(), std::chrono::milliseconds(3)});
  const std::string text = TextOf(metrics);
  EXPECT_THAT(text, HasSubstr("hpvm_graph_submitted_total{tenant=\"a\",kind=\"run\"} 3\n"));
  EXPECT_THAT(text, HasSubstr("hpvm_graph_completed_total{tenant=\"a\",kind=\"run\"} 1\n"));
  EXPECT_THAT(text, HasSubstr("hpvm_graph_completed_total{tenant=\"a\",kind=\"job\"} 0\n"));
  EXPECT_THAT(text, HasSubstr("hpvm_graph_failed_total{tenant=\"a\",kind=\"run\",reason=\"aborted\"} 1\n"));
  EXPECT_THAT(text, HasSubstr("hpvm_graph_seconds_count{phase=\"run\"} 4\n"));
  EXPECT_THAT(text, HasSubstr("hpvm_graph_seconds_bucket{phase=\"run\",le=\"0.01\"} 4\n"));
  EXPECT_THAT(text, HasSubstr("hpvm_graph_seconds_bucket{phase=\"run\",le=\"0.005\"} 0\n"));
  EXPECT_THAT(text, HasSubstr("hpvm_transfer_bytes_total{direction=\"out\"} 4000\n"));
  EXPECT_THAT(text, HasSubstr("hpvm_nodes_total 28\n"));
  EXPECT_THAT(text,
              HasSubstr("hpvm_graph_rejected_total{tenant=\"a\",kind=\"submit\",reason=\"resource_exhausted\"} 1\n"));
  EXPECT_THAT(text,
              HasSubstr("hpvm_graph_rejected_total{tenant=\"a\",kind=\"other\",reason=\"invalid_argument\"} 1\n"));
  EXPECT_THAT(text, HasSubstr("hpvm_grpc_calls_total{method=\"hpvm.v1.Hpvm/Run\",code=\"ok\"} 1\n"));
  EXPECT_THAT(text, HasSubstr("hpvm_grpc_calls_total{method=\"other\",code=\"ok\"} 1\n"));
  EXPECT_THAT(text, Not(HasSubstr("made.up")));
}

// Thousands of tenants, invented device ids and names of jobs make no labels.
TEST(PrometheusObserverTest, LabelsAreBounded) {
  PrometheusObserver metrics(RealClock());
  for (int i = 0; i < 5'000; ++i) {
    metrics.On(
        events::RunEnded{"tenant-" + std::to_string(i), "", "graph-" + std::to_string(i), "", Outcome(Aborted("x"))});
    RunOutcome outcome = Outcome(absl::OkStatus());
    for (const v1::NodePlacement& node :
         {supervisor::testing::Placement("secret/path", "gpu:" + std::to_string(i), 0, 5),
          supervisor::testing::Placement("secret/path", "x\ny \"" + std::to_string(i), 5, 0),
          supervisor::testing::Placement("secret/path", "", UINT64_MAX / 2 + 1, UINT64_MAX / 2),
          supervisor::testing::Placement("secret/path", "cpu:0", 0, 1'000'000)}) {
      *outcome.reply.done.add_nodes() = node;
    }
    metrics.On(events::RunEnded{"tenant-0", "job-1", "graph", "", outcome});
    metrics.On(events::JobChanged{"tenant-0", Job(v1::JOB_STATE_SUCCEEDED, 1)});
  }
  const std::string text = TextOf(metrics);
  EXPECT_LT(text.size(), 300'000u);
  EXPECT_THAT(text, HasSubstr("hpvm_graph_submitted_total{tenant=\"tenant-99\",kind=\"run\"} 1\n"));
  EXPECT_THAT(text, HasSubstr("hpvm_graph_submitted_total{tenant=\"other\",kind=\"run\"} 4900\n"));
  EXPECT_THAT(text, HasSubstr("hpvm_node_seconds_count{device=\"cpu:0\"} 5000\n"));
  EXPECT_THAT(text, HasSubstr("hpvm_node_seconds_count{device=\"gpu:61\"} 1\n"));
  EXPECT_THAT(text, Not(HasSubstr("gpu:63")));
  for (const char* hidden : {"secret", "graph-", "x\\ny", "gpu:4999"}) {
    EXPECT_THAT(text, Not(HasSubstr(hidden)));
  }
}

// Failures to start executors count until one starts.
TEST(PrometheusObserverTest, SpawnFailures) {
  ManualClock clock;
  PrometheusObserver metrics(clock);
  metrics.On(events::ExecutorChanged{"a", "failed"});
  clock.Advance(std::chrono::seconds(3));
  metrics.On(events::ExecutorChanged{"a", "failed"});
  metrics.On(events::ExecutorChanged{"a", "crashed"});
  metrics.On(events::ExecutorChanged{"a", "made up"});
  EXPECT_EQ(metrics.spawn_failures().in_a_row, 2u);
  EXPECT_EQ(metrics.spawn_failures().last, std::chrono::seconds(3));
  metrics.On(events::ExecutorChanged{"b", "started"});
  EXPECT_EQ(metrics.spawn_failures().in_a_row, 0u);
}

// Counting a run costs far less than a microsecond, alone and from several threads.
TEST(PrometheusObserverTest, OnRunIsCheap) {
  PrometheusObserver metrics(RealClock());
  const RunOutcome outcome = Outcome(absl::OkStatus());
  const auto measure = [&](int threads) {
    constexpr int kRounds = 200'000;
    std::vector<std::thread> running;
    const Time start = RealClock().Now();
    for (int t = 0; t < threads; ++t) {
      running.emplace_back([&] {
        for (int i = 0; i < kRounds; ++i) {
          metrics.On(events::RunEnded{"local", "", "graph", "", outcome});
        }
      });
    }
    for (std::thread& thread : running) {
      thread.join();
    }
    return (RealClock().Now() - start).count() / kRounds;
  };
  const int64_t alone = measure(1), four = measure(4);
  std::printf("OnRun: %ld ns alone, %ld ns of four threads at once (each)\n", alone, four);
  EXPECT_LT(alone, 20'000);  // Generous, for sanitizers and busy machines.
}

}  // namespace
}  // namespace hpvm::server
