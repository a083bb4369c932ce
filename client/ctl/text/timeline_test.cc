// SPDX-License-Identifier: Apache-2.0
#include "client/ctl/text/timeline.h"

#include "client/ctl/text/text.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace hpvm::ctl {
namespace {

using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr int64_t kSecond = 1'000'000'000, kBegin = 1'700'000'000 * kSecond;

v1::Job JobIn(v1::JobState state, uint32_t attempt = 0) {
  v1::Job job;
  job.set_id("job-1");
  job.set_state(state);
  job.set_attempt(attempt);
  job.set_attempts_max(3);
  job.set_created_unix_ns(kBegin);
  return job;
}

v1::JobEvent Event(int64_t after_ns, const v1::Job& job) {
  v1::JobEvent event;
  event.set_time_unix_ns(kBegin + after_ns);
  *event.mutable_job() = job;
  return event;
}

v1::JobEvent Placement(const std::string& device) {
  v1::JobEvent event;
  event.mutable_placement()->set_node("blur");
  event.mutable_placement()->set_device(device);
  event.mutable_placement()->set_end_ns(2'000'000);
  return event;
}

std::string Timeline(const v1::Job& job, const std::vector<v1::JobEvent>& events, int64_t after_ns) {
  return Table(TimelineRows(job, events, kBegin + after_ns));
}

TEST(TimelineTest, AJobThatLostAnAttempt) {
  v1::Job waiting = JobIn(v1::JOB_STATE_ACCEPTED);
  waiting.set_waits_for("Waits for job-0 to succeed.");
  v1::Job job = JobIn(v1::JOB_STATE_SUCCEEDED, 2);
  job.set_started_unix_ns(kBegin + 6 * kSecond);
  job.set_ended_unix_ns(kBegin + 7 * kSecond);
  job.mutable_prepare()->set_compile_ns(300'000'000);
  job.mutable_prepare()->set_compiled(1);
  job.mutable_timing()->set_run_ns(400'000'000);
  job.mutable_timing()->set_total_ns(1);
  v1::LostAttempt& lost = *job.add_lost_attempts();
  lost.set_attempt(1);
  lost.mutable_error()->set_message("The executor ended.\nMore.");
  lost.mutable_error()->set_code(14);
  const std::vector<v1::JobEvent> events = {
      Event(0, waiting),
      Event(2 * kSecond, JobIn(v1::JOB_STATE_QUEUED)),
      Event(3 * kSecond, JobIn(v1::JOB_STATE_RUNNING, 1)),
      Placement("cpu:0"),
      Event(5 * kSecond, JobIn(v1::JOB_STATE_QUEUED, 1)),
      Event(6 * kSecond, JobIn(v1::JOB_STATE_RUNNING, 2)),
      Placement("opencl:0"),
      Event(7 * kSecond, job),
  };
  const std::string text = Timeline(job, events, 100 * kSecond);
  EXPECT_THAT(text, ContainsRegex("0 ns +2.00 s +waited: Waits for job-0 to succeed."));
  EXPECT_THAT(text, ContainsRegex("2.00 s +1.00 s +waited for its turn"));
  EXPECT_THAT(text, ContainsRegex("3.00 s +2.00 s +attempt 1 of 3, lost: The executor ended.\n"));
  EXPECT_THAT(text, ContainsRegex("6.00 s +1.00 s +attempt 2 of 3\n"));
  EXPECT_THAT(text, ContainsRegex(" 300 ms +prepare: .*1 compiled"));
  EXPECT_THAT(text, Not(HasSubstr("copies in")));  // Phases of zero duration.
  EXPECT_THAT(text, ContainsRegex(" 400 ms +compute"));
  EXPECT_THAT(text, ContainsRegex("7.00 s +- +SUCCEEDED\n$"));
  const std::vector<v1::NodePlacement> placements = PlacementsOf(events);
  ASSERT_EQ(placements.size(), 1u);
  EXPECT_EQ(placements[0].device(), "opencl:0");
  EXPECT_EQ(NowText(job, kBegin), "");
}

TEST(TimelineTest, AJobOfWhichNoEventIsLeft) {
  v1::Job job = JobIn(v1::JOB_STATE_FAILED, 1);
  job.set_started_unix_ns(kBegin + kSecond);
  job.set_ended_unix_ns(kBegin + 3 * kSecond);
  job.mutable_error()->set_code(10);
  job.mutable_error()->set_message("Node \"n\" trapped.");
  for (const std::vector<v1::JobEvent>& events : {std::vector<v1::JobEvent>(), {Event(3 * kSecond, job)}}) {
    const std::string text = Timeline(job, events, 100 * kSecond);
    EXPECT_THAT(text, ContainsRegex("0 ns +1.00 s +waited for its turn"));
    EXPECT_THAT(text, ContainsRegex("1.00 s +2.00 s +attempt 1 of 3\n"));
    EXPECT_THAT(text, ContainsRegex("3.00 s +- +FAILED: Node \"n\" trapped."));
  }
}

// The first job of a graph finds it prepared by its own submission.
TEST(TimelineTest, PreparedBefore) {
  v1::Job job = JobIn(v1::JOB_STATE_SUCCEEDED, 1);
  job.set_started_unix_ns(kBegin + kSecond);
  job.set_ended_unix_ns(kBegin + kSecond + 1000);
  job.mutable_prepare()->set_compile_ns(300'000'000);
  job.mutable_timing()->set_run_ns(500);
  EXPECT_THAT(Timeline(job, {}, 100 * kSecond), ContainsRegex("300 ms +prepare, before it ran: parse 0 ns"));
}

TEST(TimelineTest, NeverStarted) {
  v1::Job job = JobIn(v1::JOB_STATE_EXPIRED);
  job.set_ended_unix_ns(kBegin + 3 * kSecond);
  EXPECT_THAT(Timeline(job, {}, 100 * kSecond), AllOf(ContainsRegex("0 ns +3.00 s +waited for its turn"),
                                                      HasSubstr("EXPIRED"), Not(HasSubstr("attempt"))));
}

TEST(TimelineTest, NowAndNext) {
  v1::Job job = JobIn(v1::JOB_STATE_ACCEPTED);
  job.set_waits_for("Waits for job-0 to succeed.");
  job.add_after()->set_job_id("job-0");
  EXPECT_EQ(NowText(job, kBegin), "Waits for job-0 to succeed.");
  EXPECT_THAT(NextStepNow(job), HasSubstr("`hpvmctl describe job-0`"));
  EXPECT_THAT(Timeline(job, {Event(0, job)}, 5 * kSecond), HasSubstr("5.00 s so far"));
  job.mutable_after(0)->set_job_id("array-0");
  EXPECT_THAT(NextStepNow(job), HasSubstr("`hpvmctl list --array array-0`"));
  job.set_not_before_unix_ns(kBegin + 2 * kSecond);
  EXPECT_THAT(NowText(job, kBegin), HasSubstr("in 2.00 s"));
  job = JobIn(v1::JOB_STATE_QUEUED);
  EXPECT_THAT(NowText(job, kBegin), HasSubstr("its turn"));
  EXPECT_THAT(NextStepNow(job), HasSubstr("`hpvmctl wait job-1`"));
  job = JobIn(v1::JOB_STATE_RUNNING, 2);
  job.set_started_unix_ns(kBegin);
  job.set_nodes_total(10);
  job.set_nodes_run(3);
  EXPECT_EQ(NowText(job, kBegin + kSecond), "The job runs, attempt 2 of 3, for 1.00 s: 3 of 10 nodes.");
  EXPECT_THAT(NextStepNow(job), HasSubstr("`hpvmctl cancel job-1`"));
  job = JobIn(v1::JOB_STATE_SUCCEEDED, 1);
  EXPECT_EQ(NextStepNow(job), "");
  v1::OutputValue& output = *job.add_outputs();
  output.set_name("C");
  output.mutable_stored();
  EXPECT_THAT(NextStepNow(job), HasSubstr("`hpvmctl wait job-1 --output C=C.npy`"));
  job.set_dropped(true);
  EXPECT_THAT(NextStepNow(job), HasSubstr("submit the job again"));
  job = JobIn(v1::JOB_STATE_DEAD, 3);
  EXPECT_THAT(NextStepNow(job), HasSubstr("`hpvmctl retry job-1`"));
}

TEST(TimelineTest, EventLines) {
  EXPECT_EQ(EventText(Placement("cpu:0")), "blur on cpu:0, 2.00 ms");
  EXPECT_EQ(EventText(Event(0, JobIn(v1::JOB_STATE_RUNNING, 2))), "RUNNING, attempt 2 of 3");
  v1::JobEvent event;
  event.mutable_progress()->set_nodes_run(3);
  event.mutable_progress()->set_nodes_total(10);
  EXPECT_EQ(EventText(event), "3 of 10 nodes");
  event.mutable_phase()->set_phase(v1::JobEvent::PHASE_COPY_IN);
  event.mutable_phase()->set_duration_ns(1000);
  EXPECT_EQ(EventText(event), "copies in took 1.00 us");
}

}  // namespace
}  // namespace hpvm::ctl
