// SPDX-License-Identifier: Apache-2.0
#include "client/ctl/text/job_text.h"

#include <functional>

#include "client/ctl/text/text.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "base/status.h"

namespace hpvm::ctl {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

constexpr int64_t kSecond = 1'000'000'000;
constexpr int64_t kNow = 1'700'000'000 * kSecond;
constexpr char kId[] = "job-0123456789abcdef0123456789abcdef";

v1::Job JobWith(v1::JobState state, absl::StatusCode code = absl::StatusCode::kOk, const std::string& message = "") {
  v1::Job job;
  job.set_id(kId);
  job.set_state(state);
  job.mutable_error()->set_code(static_cast<int>(code));
  job.mutable_error()->set_message(message);
  return job;
}

// Each outcome names a fitting next step, and exits with the documented code.
TEST(JobTextTest, NextStepsAndExitCodes) {
  using Code = absl::StatusCode;
  struct Case {
    const char* name;
    v1::JobState state;
    Code code;
    const char* next;
    ExitCode exit;
  };
  const Case cases[] = {
      {"Succeeded", v1::JOB_STATE_SUCCEEDED, Code::kOk, "", kOk},
      {"Running", v1::JOB_STATE_RUNNING, Code::kOk, "", kFailed},
      {"Trap", v1::JOB_STATE_FAILED, Code::kAborted, "run --local --check", kFailed},
      {"Late", v1::JOB_STATE_FAILED, Code::kDeadlineExceeded, "--deadline", kDeadline},
      {"Full", v1::JOB_STATE_FAILED, Code::kResourceExhausted, "names the limit", kFailed},
      {"LostBuffer", v1::JOB_STATE_FAILED, Code::kDataLoss, "write the buffer again", kFailed},
      {"NoDevice", v1::JOB_STATE_FAILED, Code::kFailedPrecondition, "hpvmctl devices", kCannotPlace},
      {"InPlace", v1::JOB_STATE_FAILED, Code::kUnavailable, "in place", kFailed},
      {"Wrong", v1::JOB_STATE_FAILED, Code::kInvalidArgument, "correct them", kUsage},
      {"OurFault", v1::JOB_STATE_FAILED, Code::kInternal, "report", kFailed},
      {"Cancelled", v1::JOB_STATE_CANCELLED, Code::kCancelled, "hpvmctl retry", kCancelled},
      {"Expired", v1::JOB_STATE_EXPIRED, Code::kDeadlineExceeded, "--priority", kDeadline},
      {"Dead", v1::JOB_STATE_DEAD, Code::kUnavailable, "run --local", kFailed},
  };
  for (const Case& c : cases) {
    const v1::Job job = JobWith(c.state, c.code, "Why.");
    EXPECT_THAT(NextStep(job), HasSubstr(c.next)) << c.name;
    EXPECT_EQ(NextStep(job).empty(), c.next[0] == '\0') << c.name;
    EXPECT_EQ(ExitCodeOf(job), c.exit) << c.name;
  }
}

// A job whose dependency can no longer be fulfilled points at the dependency, not at a lack of devices.
TEST(JobTextTest, FailedDependency) {
  v1::Job job = JobWith(v1::JOB_STATE_FAILED, absl::StatusCode::kFailedPrecondition, "job-first ended as FAILED.");
  job.add_after()->set_job_id("job-first");
  v1::ErrorDetail detail;
  detail.set_job_id("job-first");
  job.mutable_error()->add_details()->PackFrom(detail);
  EXPECT_THAT(NextStep(job), AllOf(HasSubstr("hpvmctl get job-first"), HasSubstr("--after")));
  EXPECT_EQ(ExitCodeOf(job), kFailed);
  job.set_attempt(1);  // It did run, so the error is about devices.
  EXPECT_EQ(ExitCodeOf(job), kCannotPlace);
}

// Node, cause, lost attempts and the next step, once each.
TEST(JobTextTest, FailuresTellEverything) {
  v1::Job job = JobWith(v1::JOB_STATE_DEAD, absl::StatusCode::kUnavailable, "The executor was lost.");
  job.set_attempt(2);
  v1::ErrorDetail detail;
  detail.set_node("outer[3]/blur");
  job.mutable_error()->add_details()->PackFrom(detail);
  v1::LostAttempt& lost = *job.add_lost_attempts();
  lost.set_attempt(1);
  lost.set_ended_unix_ns(kNow);
  lost.mutable_error()->set_code(14);
  lost.mutable_error()->set_message("The daemon ended.");
  const std::string text = FailureText(job);
  EXPECT_THAT(text, AllOf(HasSubstr("UNAVAILABLE: The executor was lost."), HasSubstr("In node \"outer[3]/blur\""),
                          HasSubstr("Attempt 1 was lost at "), HasSubstr("UNAVAILABLE: The daemon ended."),
                          HasSubstr("DEAD after 2 attempts"), HasSubstr("hpvmctl retry")));
  job.mutable_error()->set_message("Node \"outer[3]/blur\" trapped.");
  EXPECT_THAT(FailureText(job), Not(HasSubstr("In node")));
}

// Every row of the narrow table fits 100 columns with whole ids, whatever the jobs' names.
TEST(JobTextTest, TablesFit) {
  v1::Job job = JobWith(v1::JOB_STATE_CANCELLED);
  job.set_name(std::string(255, 'n'));
  job.set_graph_name("\xc3\xa4" + std::string(100, 'g'));
  job.set_array_id("array-1");
  job.set_array_index(999'999);
  job.set_created_unix_ns(kNow - 400 * 86'400 * kSecond);
  job.set_started_unix_ns(kNow - 86'400 * kSecond);
  job.set_ended_unix_ns(kNow);
  for (const std::string& host : {std::string(), std::string(255, 'h')}) {
    job.set_host(host);
    const std::string table = Table(JobRows({job}, kNow, false));
    EXPECT_THAT(table, AllOf(HasSubstr(kId), HasSubstr("400d")));
    for (size_t at = 0; at < table.size();) {
      const size_t end = table.find('\n', at);
      EXPECT_LE(end - at, 100u) << table;
      at = end + 1;
    }
  }
  EXPECT_THAT(Table(JobRows({job}, kNow, true)),
              AllOf(HasSubstr(job.name()), HasSubstr("array-1"), HasSubstr(job.host())));
}

// Hosts have a column once some job has one; the facts of a job name what it needs, too.
TEST(JobTextTest, Hosts) {
  v1::Job job = JobWith(v1::JOB_STATE_RUNNING), waiting = JobWith(v1::JOB_STATE_QUEUED);
  EXPECT_THAT(Table(JobRows({job, waiting}, kNow, false)), Not(HasSubstr("HOST")));
  EXPECT_THAT(JobDetails(job, kNow), AllOf(Not(HasSubstr("host")), Not(HasSubstr("needs"))));
  job.set_host("lab-a");
  job.set_tenant("ann");
  const auto rows = JobRows({job, waiting}, kNow, false);
  EXPECT_THAT(rows[0], testing::ElementsAre("TENANT", "JOB", "STATE", "AGE", "TIME", "HOST", "GRAPH", "NAME"));
  EXPECT_EQ(rows[1][5], "lab-a");
  EXPECT_EQ(rows[2][5], "-");
  EXPECT_EQ(rows[2][0], "-");
  job.mutable_host_needs()->add_words("kind:gpu");
  job.mutable_host_needs()->set_host("lab-a");
  job.mutable_host_needs()->set_memory_bytes(4096);
  EXPECT_THAT(JobDetails(job, kNow), AllOf(HasSubstr("host        lab-a"),
                                           HasSubstr("needs       kind:gpu, the host lab-a, 4.00 KiB of the host's "
                                                     "memory")));
}

// Text is cut between characters: a partial character never reaches a terminal.
TEST(JobTextTest, CutsBetweenCharacters) {
  v1::Job job = JobWith(v1::JOB_STATE_QUEUED);
  std::string name;
  for (int i = 0; i < 20; ++i) {
    name += "\xe2\x82\xac";
  }
  job.set_name("x" + name);
  const std::string cell = JobRows({job}, kNow, false)[1][5];
  EXPECT_EQ(cell, "x\xe2\x82\xac\xe2\x82\xac\xe2\x82\xac\xe2\x82\xac..");
}

// Ages change their unit where the smaller one adds no information.
TEST(JobTextTest, Ages) {
  struct Case {
    int64_t seconds;
    const char* want;
  };
  for (const Case& c :
       {Case{0, "0s"}, {119, "119s"}, {120, "2m"}, {7199, "119m"}, {7200, "2h"}, {172'800, "2d"}, {-5, "0s"}}) {
    EXPECT_EQ(AgeText(kNow - c.seconds * kSecond, kNow), c.want);
  }
}

// The text about a waiting job says what it waits for, when it continues, and until when.
TEST(JobTextTest, DetailsOfAWaitingJob) {
  v1::Job job = JobWith(v1::JOB_STATE_ACCEPTED);
  job.set_waits_for("Attempt 1 of 3 was lost; the next follows.");
  job.set_not_before_unix_ns(kNow + 2 * kSecond);
  job.set_deadline_unix_ns(kNow + 600 * kSecond);
  job.set_cancel_requested(true);
  job.set_attempt(1);
  job.set_attempts_max(3);
  job.add_after()->set_job_id("job-a");
  v1::OutputValue& output = *job.add_outputs();
  output.set_name("C");
  output.mutable_stored()->set_type(v1::ELEMENT_TYPE_F32);
  output.mutable_stored()->add_shape(3);
  output.mutable_stored()->set_size_bytes(12);
  const std::string text = JobDetails(job, kNow);
  EXPECT_THAT(text, AllOf(HasSubstr("ACCEPTED, cancellation requested"), HasSubstr("waits       Attempt 1 of 3"),
                          HasSubstr("next try    in 2.00 s"), HasSubstr("(in 10m)"), HasSubstr("job-a (succeeded)"),
                          HasSubstr("attempt     1 of 3"), HasSubstr("C: f32[3], 12 B kept with the job"),
                          Not(HasSubstr("next  "))));
}

// A job that waited in its executor for another of its tenant's jobs shows its own work beside its running time.
TEST(JobTextTest, OwnWorkAndTurns) {
  v1::Job job = JobWith(v1::JOB_STATE_SUCCEEDED);
  job.set_started_unix_ns(kNow - 10 * kSecond);
  job.set_ended_unix_ns(kNow - 4 * kSecond);
  EXPECT_THAT(JobDetails(job, kNow), HasSubstr(", ran 6.00 s)"));
  job.mutable_timing()->set_run_ns(kSecond);
  job.mutable_timing()->set_copy_in_ns(kSecond / 2);
  job.mutable_timing()->set_queue_ns(3 * kSecond);
  EXPECT_THAT(JobDetails(job, kNow), HasSubstr(", ran 6.00 s, its own work 1.50 s)"));
}

// Attempts interrupted by a drain or a disabled tenant do not count: the number may exceed the limit of lost
// attempts.
TEST(JobTextTest, AttemptsThatDoNotCount) {
  v1::Job job;
  job.set_attempt(5);
  job.set_attempts_max(3);
  job.set_attempts_counted(2);
  EXPECT_THAT(JobDetails(job, kNow), HasSubstr("attempt     5 (2 of 3 counted)"));
  job.set_attempt(2);
  EXPECT_THAT(JobDetails(job, kNow), HasSubstr("attempt     2 of 3"));
}

// Unknown values from a hostile server are shown, not used as table indices.
TEST(JobTextTest, UnknownValuesAreShown) {
  v1::Job job = JobWith(static_cast<v1::JobState>(77));
  v1::OutputValue& output = *job.add_outputs();
  output.mutable_stored()->set_type(static_cast<v1::ElementType>(99));
  EXPECT_THAT(JobDetails(job, kNow), AllOf(HasSubstr("STATE 77"), HasSubstr("?")));
  EXPECT_EQ(StateCounts({job, JobWith(v1::JOB_STATE_DEAD)}), "1 DEAD, 1 STATE 77");
}

}  // namespace
}  // namespace hpvm::ctl
