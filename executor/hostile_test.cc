// SPDX-License-Identifier: Apache-2.0
// The daemon's end against executors that violate the protocol: each violation costs the process and is named, and has
// no other effect.
#include <future>
#include <thread>

#include "executor/testing/fixture.h"

namespace hpvm::executor {
namespace {

using ::testing::HasSubstr;

class HostileTest : public testing::ExecutorFixture {
 protected:
  HostileTest() { options_.program = HPVMD_HOSTILE_EXECUTOR; }

  StatusOr<supervisor::RunReply> RunAgainst(const std::string& fault) {
    options_.hello.set_cache_folder(fault);
    Start();
    supervisor::RunInput input;
    input.handle = 1;
    input.options.set_node_records_max(fault == "uninvited records" ? 0 : 1000);
    return Run(input);
  }
};

// The stand-in itself is accepted when it obeys the rules; otherwise the cases below would prove nothing.
TEST_F(HostileTest, AcceptsAGoodAnswer) {
  const StatusOr<supervisor::RunReply> reply = RunAgainst("none");
  ASSERT_TRUE(reply.ok()) << Message(reply.status());
  EXPECT_EQ(reply->DataOf(reply->done.outputs(0)).size(), 16u);
  EXPECT_TRUE(link_->alive());
}

// Every kind of false statement in an answer.
TEST_F(HostileTest, KillsWhatBreaksTheProtocol) {
  const struct {
    const char* fault;
    const char* message;
  } cases[] = {
      {"range past body", "not an aligned range of the body"},
      {"bytes not shape", "do not match its shape"},
      {"shape overflows", "overflows"},
      {"type unknown", "not an element type"},
      {"wrong id", "does not answer any pending request"},
      {"wrong kind", "does not answer any pending request"},
      {"status unknown", "status.code"},
      {"control in text", "not valid UTF-8"},
      {"uninvited records", "more node records"},
      {"unknown device", "nodes.device names a device that Ready did not list"},
      {"unknown lost device", "left_devices names a device that Ready did not list"},
      {"the daemon's figure", "timing.total_ns is set, but only the daemon may set it"},
      {"descriptor", "descriptors"},
      {"log control in a line's node", "log.lines.node is not valid UTF-8"},
      {"log long node of a finding", "log.findings.node (1025) exceeds the limit (1024)"},
      {"log control in line", "log.lines.text is not valid UTF-8"},
      {"log line of two", "more than one line"},
      {"log long line", "log.lines.text (4100) exceeds the limit (4099)"},
      {"log many lines", "log.lines (1001) exceeds the limit (1000)"},
      {"log many bytes", "the bytes of the log"},
      {"log many instances", "log.findings.instances (3)"},
      {"log no kind", "log.findings.kind"},
      {"uninvited event", "did not ask for it"},
      {"usage of a run", "does not answer any pending request"},
      {"idle beyond held", "more bytes are idle than held"},
      {"usage of no device", "differ in length"},
      {"usage without end", "comes more often than 50 times a second"},
      {"costs of a run", "does not answer any pending request"},
      {"costs not a number", "kernels.measured_ns is not a finite number"},
      {"costs below zero", "kernels.measured_ns is not a finite number"},
      {"costs without end", "kernels.estimate_ns is not a finite number"},
      {"costs with control", "kernels.kernel is not valid UTF-8"},
      {"costs of no graph", "graphs.handle is 0"},
      {"costs of no device", "kernels.device names a device that Ready did not list"},
      {"costs too many", "kernels (1001) exceeds the limit (1000)"},
      {"short and well", "a shortage of device memory contradicts the status"},
      {"huge frame", "exceed the limits"},
      {"garbage", "not an Envelope"},
      {"ring ahead of itself", "impossible position"},
      {"ring behind itself", "impossible position"},
      {"ring with half a header", "impossible position"},
      {"ring of huge frame", "exceed the limits"},
      {"ring of frame that is not there", "incomplete"},
      {"ring of descriptors", "exceed the limits"},
      {"ring of garbage", "does not begin with the expected magic number"},
      {"ring without frames", "signalled its eventfd without a message more often than 1000 times a second"},
  };
  for (const auto& c : cases) {
    const StatusOr<supervisor::RunReply> reply = RunAgainst(c.fault);
    EXPECT_EQ(reply.status().code(), absl::StatusCode::kInternal) << c.fault << ": " << Message(reply.status());
    EXPECT_THAT(Message(reply.status()), HasSubstr(c.message)) << c.fault;
    link_.reset();
    EXPECT_EQ(ends_.size(), 1u) << c.fault;
    ends_.clear();
  }
}

// A ring position that only a request encounters.
TEST_F(HostileTest, KillsWhatTakesBeforeItWasPut) {
  EXPECT_TRUE(RunAgainst("ring taken before it was put").ok());
  supervisor::RunInput input;
  input.handle = 1;
  const StatusOr<supervisor::RunReply> reply = Run(input);
  EXPECT_THAT(Message(reply.status()), HasSubstr("impossible position"));
  link_.reset();
  ASSERT_EQ(ends_.size(), 1u);
  EXPECT_THAT(Message(ends_[0]), HasSubstr("impossible position"));
}

// A ring that changes while the daemon reads it costs the process, and has no other effect.
TEST_F(HostileTest, SurvivesARingThatIsRewrittenWhileItIsRead) {
  const StatusOr<supervisor::RunReply> reply = RunAgainst("ring rewritten");
  EXPECT_EQ(reply.status().code(), absl::StatusCode::kInternal) << Message(reply.status());
  EXPECT_THAT(Message(reply.status()), HasSubstr("broke the protocol"));
}

// Frames on the socket are read only after a mark; before the rings are used, the socket says why there is no executor.
TEST_F(HostileTest, ReadsTheSocketWhenItHasTo) {
  EXPECT_TRUE(RunAgainst("frame without mark").ok());
  link_.reset();
  options_.hello.set_cache_folder("fatal before the rings");
  StatusOr<std::unique_ptr<supervisor::ExecutorLink>> link = supervisor::ExecutorLink::Start(*hub_, options_);
  ASSERT_TRUE(link.ok());
  EXPECT_THAT(Message((*link)->WaitReady(RealClock().Now() + testing::kPatience).status()),
              HasSubstr("It cannot begin."));
}

// Starting a process may take long: answers of others are delivered meanwhile.
TEST_F(HostileTest, StartingOneHoldsNobodyUp) {
  options_.hello.set_cache_folder("none");
  Start();
  std::promise<void> is_starting, has_answer;
  supervisor::ExecutorOptions slow = options_;
  std::future_status waited = std::future_status::deferred;
  slow.on_spawned = [&](int) {
    is_starting.set_value();
    waited = has_answer.get_future().wait_for(std::chrono::seconds(20));
    return absl::OkStatus();
  };
  StatusOr<std::unique_ptr<supervisor::ExecutorLink>> other = Unavailable("Not started.");
  std::thread starter([&] { other = supervisor::ExecutorLink::Start(*hub_, slow); });
  is_starting.get_future().wait();
  supervisor::RunInput input;
  input.handle = 1;
  EXPECT_TRUE(Run(input).ok());
  has_answer.set_value();
  starter.join();
  EXPECT_EQ(waited, std::future_status::ready);
  EXPECT_TRUE(other.ok()) << other.status();
}

// Half a frame delays no other link, and the end is reported as it happened.
TEST_F(HostileTest, ReportsAnEndInTheMiddleOfAFrame) {
  const StatusOr<supervisor::RunReply> reply = RunAgainst("half frame");
  EXPECT_EQ(reply.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(Message(reply.status()), HasSubstr("exit code 3"));
}

// The first answer counts; the second is a violation.
TEST_F(HostileTest, KillsAfterASecondAnswer) {
  const StatusOr<supervisor::RunReply> reply = RunAgainst("two answers");
  EXPECT_TRUE(reply.ok());
  link_.reset();
  ASSERT_EQ(ends_.size(), 1u);
}

// Last words reach the waiting callers.
TEST_F(HostileTest, PassesOnLastWords) {
  const StatusOr<supervisor::RunReply> reply = RunAgainst("fatal");
  EXPECT_THAT(Message(reply.status()), HasSubstr("It cannot go on."));
}

// A process that never sends Ready is killed in time.
TEST_F(HostileTest, KillsWhatIsNotReady) {
  options_.hello.set_cache_folder("no ready");
  options_.ready_within = std::chrono::milliseconds(100);
  StatusOr<std::unique_ptr<supervisor::ExecutorLink>> link = supervisor::ExecutorLink::Start(*hub_, options_);
  ASSERT_TRUE(link.ok());
  EXPECT_THAT(Message((*link)->WaitReady(RealClock().Now() + testing::kPatience).status()), HasSubstr("within 100 ms"));
}

// A program that is not an executor ends before it is ready; one that does not exist does not start.
TEST_F(HostileTest, ReportsWrongPrograms) {
  options_.program = "/bin/false";
  StatusOr<std::unique_ptr<supervisor::ExecutorLink>> link = supervisor::ExecutorLink::Start(*hub_, options_);
  ASSERT_TRUE(link.ok());
  EXPECT_THAT(Message((*link)->WaitReady(RealClock().Now() + testing::kPatience).status()), HasSubstr("exit code 1"));
  options_.program = "/nonexistent";
  EXPECT_EQ(supervisor::ExecutorLink::Start(*hub_, options_).status().code(), absl::StatusCode::kNotFound);
}

// Requests outside the limits fail here, before they are sent.
TEST_F(HostileTest, RefusesRequestsOutsideTheLimits) {
  options_.hello.set_cache_folder("none");
  Start();
  supervisor::RunInput run;
  EXPECT_EQ(Run(run).status().code(), absl::StatusCode::kInvalidArgument);
  run.handle = 1;
  run.inputs.resize(1025);
  EXPECT_THAT(Message(Run(run).status()), HasSubstr("(1025) exceeds the limit (1024)"));
  run.inputs.assign(1, {"x", ElementType::kI32, {3}, {}, std::nullopt});
  EXPECT_THAT(Message(Run(run).status()), HasSubstr("12"));
  EXPECT_EQ(Prepare({}).status().code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace hpvm::executor
