// SPDX-License-Identifier: Apache-2.0
// The executor from the daemon's point of view: a real process with its real compiler and real kernels.
#include <poll.h>
#include <signal.h>
#include <sys/eventfd.h>

#include <numeric>
#include <thread>

#include "base/io/child_process.h"
#include "base/io/ring_channel.h"
#include "executor/testing/fixture.h"
#include "proto/internal/protocol.h"
#include "sandbox/sandbox.h"
#include "scheduler/task.h"

namespace hpvm::executor {
namespace {

using supervisor::RunInput;
using supervisor::RunReply;

using ::testing::AllOf;
using testing::AsBytes;
using testing::AsInts;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::kPatience;
using testing::OneNode;

class ExecutorTest : public testing::ExecutorFixture {
 protected:
  // Starts an endless run and returns once it executes.
  supervisor::RequestId StartEndless(std::future<StatusOr<RunReply>>* reply, Duration within = Duration(0)) {
    auto answered = std::make_shared<std::promise<StatusOr<RunReply>>>();
    auto started = std::make_shared<std::promise<void>>();
    *reply = answered->get_future();
    RunInput input = InlineRun(1, kOne);
    input.within = within;
    input.on_started = [started] { started->set_value(); };
    const supervisor::RequestId id =
        link_->Run(input, [answered](StatusOr<RunReply> r) { answered->set_value(std::move(r)); });
    EXPECT_EQ(started->get_future().wait_for(kPatience), std::future_status::ready);
    return id;
  }

  static constexpr int32_t kOne[] = {1};
};

// The daemon's placement and health report rely on the contents of Ready.
TEST_F(ExecutorTest, ReportsDevicesAndSandbox) {
  Start();
  ASSERT_EQ(ready_.said.devices_size(), 1);
  EXPECT_EQ(ready_.said.devices(0).device().id(), "cpu:0");
  EXPECT_EQ(ready_.said.devices(0).device().kind(), v1::Device::KIND_CPU);
  EXPECT_GE(ready_.said.devices(0).device().compute_units(), 1u);
  EXPECT_GE(ready_.said.sandbox_level(), 1u) << ready_.said.sandbox_detail();
}

// The complete path, with inline tensors, at sizes around the alignment of ranges.
// The daemon ends an executor whose records have longer texts.
TEST(RunRecordTest, ReasonsFitIntoRecords) {
  for (int why = 0; why <= static_cast<int>(scheduler::Whole::kNoGain); ++why) {
    EXPECT_LE(scheduler::Name(static_cast<scheduler::Whole>(why)).size(), kVariantBytesMax);
  }
}

TEST_F(ExecutorTest, RunsAKernelInline) {
  Start();
  PrepareOneNode(1, "twice");
  for (const size_t count : {1u, 3u, 1024u, 65536u}) {
    std::vector<int32_t> values(count);
    std::iota(values.begin(), values.end(), 5);
    const StatusOr<RunReply> reply = Run(InlineRun(1, values));
    ASSERT_TRUE(reply.ok() && reply->status().ok()) << Message(reply.ok() ? reply->status() : reply.status());
    ASSERT_EQ(reply->done.outputs_size(), 1);
    EXPECT_THAT(reply->done.outputs(0).shape(), ElementsAre(count));
    for (int32_t& value : values) {
      value *= 2;
    }
    EXPECT_EQ(AsInts(FirstOutput(*reply)), values);
    ASSERT_EQ(reply->done.nodes_size(), 1);
    EXPECT_EQ(reply->done.nodes(0).device(), "cpu:0");
    EXPECT_THAT(reply->done.nodes(0).node(), HasSubstr("node"));
  }
}

// Input and output in shared memory, used in place, in one memfd and again after it was forgotten.
TEST_F(ExecutorTest, RunsInSharedMemory) {
  Start();
  PrepareOneNode(1, "twice");
  constexpr uint64_t kBytes = 1 << 20;
  StatusOr<UniqueFd> memory = CreateSealedMemfd("test", 2 * kBytes);
  ASSERT_TRUE(memory.ok());
  std::vector<int32_t> values(kBytes / 4);
  std::iota(values.begin(), values.end(), 0);
  ASSERT_TRUE(WriteAt(memory->get(), 0, AsBytes(values)).ok());
  for (uint64_t id : {11u, 11u, 12u}) {
    RunInput input;
    input.handle = 1;
    supervisor::MemorySlice slice{
        .memory_id = id, .fd = memory->get(), .memory_bytes = 2 * kBytes, .offset = 0, .bytes = kBytes};
    input.inputs = {{"x", ElementType::kI32, {values.size()}, {}, slice}};
    slice.offset = kBytes;
    input.outputs = {{"y", supervisor::OutputTarget::Kind::kMemory, slice}};
    const StatusOr<RunReply> reply = Run(input);
    ASSERT_TRUE(reply.ok() && reply->status().ok()) << Message(reply.ok() ? reply->status() : reply.status());
    EXPECT_TRUE(FirstOutput(*reply).empty());
    std::vector<uint8_t> result(kBytes);
    ASSERT_TRUE(ReadAt(memory->get(), kBytes, result).ok());
    EXPECT_EQ(AsInts(result)[1000], 2000);
    ASSERT_TRUE(WriteAt(memory->get(), kBytes, std::vector<uint8_t>(kBytes)).ok());
    link_->Forget(11);
  }
}

// An output too large to be inline is not computed: the answer tells how much memory is needed.
TEST_F(ExecutorTest, AsksForMemory) {
  Start();
  PrepareOneNode(1, "twice");
  const std::vector<int32_t> values(100, 1);
  RunInput input = InlineRun(1, values);
  input.options.set_inline_bytes_max(399);
  StatusOr<RunReply> reply = Run(input);
  ASSERT_TRUE(reply.ok());
  EXPECT_TRUE(reply->done.needs_memory());
  EXPECT_EQ(reply->status().code(), absl::StatusCode::kResourceExhausted);
  ASSERT_EQ(reply->done.outputs_size(), 1);
  EXPECT_EQ(reply->done.outputs(0).bytes(), 400u);
  // The same for memory that is too small.
  StatusOr<UniqueFd> memory = CreateSealedMemfd("test", 4096);
  ASSERT_TRUE(memory.ok());
  input.outputs = {
      {"y", supervisor::OutputTarget::Kind::kMemory,
       supervisor::MemorySlice{.memory_id = 5, .fd = memory->get(), .memory_bytes = 4096, .offset = 0, .bytes = 396}}};
  reply = Run(input);
  ASSERT_TRUE(reply.ok());
  EXPECT_TRUE(reply->done.needs_memory());
  ASSERT_EQ(reply->done.outputs_size(), 1);
  EXPECT_EQ(reply->done.outputs(0).bytes(), 400u);
  input.outputs.clear();
  input.options.set_inline_bytes_max(400);
  reply = Run(input);
  ASSERT_TRUE(reply.ok());
  EXPECT_TRUE(reply->status().ok()) << Message(reply->status());
}

// Faults of the document are reported as diagnostics, with a place, and leave the handle free.
TEST_F(ExecutorTest, ReportsFaultsOfTheDocument) {
  Start();
  StatusOr<internal::Prepared> reply = Prepare(OneNodeInput(1, "{\"hpvm\": 1, \"nodes\": 7}"));
  ASSERT_TRUE(reply.ok()) << Message(reply.status());
  EXPECT_FALSE(reply->has_summary());
  EXPECT_THAT(Text(*reply), HasSubstr("/nodes"));
  const std::string unknown = OneNode("nothing");
  reply = Prepare(OneNodeInput(1, unknown));
  ASSERT_TRUE(reply.ok()) << Message(reply.status());
  EXPECT_THAT(Text(*reply), HasSubstr("nothing"));
  PrepareOneNode(1, "twice");
}

// A trap fails the run with node and reason, and only that run.
TEST_F(ExecutorTest, ReportsTraps) {
  Start();
  PrepareOneNode(1, "divide");
  constexpr int32_t kValues[] = {4, 0};
  const StatusOr<RunReply> reply = Run(InlineRun(1, kValues));
  ASSERT_TRUE(reply.ok()) << Message(reply.status());
  EXPECT_EQ(reply->status().code(), absl::StatusCode::kAborted);
  EXPECT_THAT(Message(reply->status()), HasSubstr("node"));
  EXPECT_TRUE(reply->done.outputs().empty());
  constexpr int32_t kGood[] = {4, 5};
  const StatusOr<RunReply> again = Run(InlineRun(1, kGood));
  ASSERT_TRUE(again.ok() && again->status().ok());
  EXPECT_THAT(AsInts(FirstOutput(*again)), ElementsAre(25, 20));
}

// Wrong requests get an error; the process is not ended.
TEST_F(ExecutorTest, RefusesWhatItDoesNotHold) {
  Start();
  PrepareOneNode(1, "twice");
  const struct {
    const char* name;
    RunInput input;
    absl::StatusCode code;
  } cases[] = {
      {"unknown handle", InlineRun(9, kOne), absl::StatusCode::kNotFound},
      {"missing input",
       [] {
         RunInput input;
         input.handle = 1;
         return input;
       }(),
       absl::StatusCode::kInvalidArgument},
      {"unknown input",
       [] {
         RunInput input = InlineRun(1, kOne);
         input.inputs[0].name = "z";
         return input;
       }(),
       absl::StatusCode::kInvalidArgument},
      {"wrong type",
       [] {
         RunInput input = InlineRun(1, kOne);
         input.inputs[0].type = ElementType::kF32;
         return input;
       }(),
       absl::StatusCode::kInvalidArgument},
  };
  for (const auto& c : cases) {
    const StatusOr<RunReply> reply = Run(c.input);
    ASSERT_TRUE(reply.ok()) << c.name << ": " << Message(reply.status());
    EXPECT_EQ(reply->status().code(), c.code) << c.name << ": " << Message(reply->status());
  }
  EXPECT_TRUE(link_->alive());
}

// Cancel reaches a kernel that never returns, even if the graph was short before and therefore runs on the socket's
// thread.
TEST_F(ExecutorTest, CancelsAnEndlessKernel) {
  Start();
  PrepareOneNode(1, "endless");
  std::future<StatusOr<RunReply>> reply;
  const supervisor::RequestId id = StartEndless(&reply);
  link_->Cancel(id);
  ASSERT_EQ(reply.wait_for(kPatience), std::future_status::ready);
  const StatusOr<RunReply> answer = reply.get();
  ASSERT_TRUE(answer.ok()) << Message(answer.status());
  EXPECT_EQ(answer->status().code(), absl::StatusCode::kCancelled);
  EXPECT_TRUE(link_->alive());
}

// The executor enforces its deadlines itself.
TEST_F(ExecutorTest, StopsAtTheDeadline) {
  Start();
  PrepareOneNode(1, "endless");
  std::future<StatusOr<RunReply>> reply;
  const Time start = RealClock().Now();
  StartEndless(&reply, std::chrono::milliseconds(50));
  ASSERT_EQ(reply.wait_for(kPatience), std::future_status::ready);
  const StatusOr<RunReply> answer = reply.get();
  ASSERT_TRUE(answer.ok()) << Message(answer.status());
  EXPECT_EQ(answer->status().code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_GE(RealClock().Now() - start, std::chrono::milliseconds(50));
}

// A second run of the same graph waits its turn without a thread, and can be cancelled meanwhile; other graphs are not
// delayed.
TEST_F(ExecutorTest, QueuesRunsOfOneGraph) {
  Start();
  PrepareOneNode(1, "endless");
  PrepareOneNode(2, "twice");
  std::future<StatusOr<RunReply>> first;
  const supervisor::RequestId running = StartEndless(&first);
  std::promise<StatusOr<RunReply>> promise;
  const supervisor::RequestId waiting =
      link_->Run(InlineRun(1, kOne), [&](StatusOr<RunReply> r) { promise.set_value(std::move(r)); });
  const StatusOr<RunReply> other = Run(InlineRun(2, kOne));
  ASSERT_TRUE(other.ok() && other->status().ok());
  link_->Cancel(waiting);
  const StatusOr<RunReply> dropped = promise.get_future().get();
  ASSERT_TRUE(dropped.ok());
  EXPECT_EQ(dropped->status().code(), absl::StatusCode::kCancelled);
  EXPECT_EQ(first.wait_for(std::chrono::seconds(0)), std::future_status::timeout);
  link_->Cancel(running);
  EXPECT_EQ(first.wait_for(kPatience), std::future_status::ready);
}

// A job expected to be short that turns out endless loses the socket, so its Cancel is read.
TEST_F(ExecutorTest, TakesTheSocketFromALongJob) {
  Start();
  // 100 / 0 traps at once, so the graph counts as short. The second graph is the endless one with the same history.
  PrepareOneNode(1, "endless");
  for (int round = 0; round < 3; ++round) {
    // Each round's deadline is so close that the kernel stops almost at once, and its time is remembered as the
    // expectation.
    RunInput input = InlineRun(1, kOne);
    input.within = std::chrono::microseconds(1);
    const StatusOr<RunReply> reply = Run(input);
    ASSERT_TRUE(reply.ok());
    EXPECT_EQ(reply->status().code(), absl::StatusCode::kDeadlineExceeded);
  }
  std::future<StatusOr<RunReply>> reply;
  const supervisor::RequestId id = StartEndless(&reply);
  link_->Cancel(id);
  ASSERT_EQ(reply.wait_for(kPatience), std::future_status::ready);
  EXPECT_EQ(reply.get()->status().code(), absl::StatusCode::kCancelled);
}

// More endless runs than threads: the rest wait, deadlines reach all of them, nothing hangs.
TEST_F(ExecutorTest, SurvivesMoreRunsThanThreads) {
  options_.hello.set_jobs_max(2);
  Start();
  for (uint64_t handle = 1; handle <= 6; ++handle) {
    PrepareOneNode(handle, "endless");
  }
  std::vector<std::future<StatusOr<RunReply>>> replies;
  for (uint64_t handle = 1; handle <= 6; ++handle) {
    auto promise = std::make_shared<std::promise<StatusOr<RunReply>>>();
    replies.push_back(promise->get_future());
    RunInput input = InlineRun(handle, kOne);
    input.within = std::chrono::milliseconds(100);
    link_->Run(input, [promise](StatusOr<RunReply> r) { promise->set_value(std::move(r)); });
  }
  for (std::future<StatusOr<RunReply>>& future : replies) {
    ASSERT_EQ(future.wait_for(kPatience), std::future_status::ready);
    const StatusOr<RunReply> reply = future.get();
    ASSERT_TRUE(reply.ok()) << Message(reply.status());
    EXPECT_EQ(reply->status().code(), absl::StatusCode::kDeadlineExceeded);
  }
  PrepareOneNode(7, "twice");
  EXPECT_TRUE(Run(InlineRun(7, kOne))->status().ok());
}

// A runner that dies during a run fails it with the reason; the next process works, whatever the cache contains.
TEST_F(ExecutorTest, ReportsADeadRunner) {
  Start();
  PrepareOneNode(1, "endless");
  std::future<StatusOr<RunReply>> reply;
  StartEndless(&reply);
  kill(link_->pid(), SIGKILL);
  ASSERT_EQ(reply.wait_for(kPatience), std::future_status::ready);
  const StatusOr<RunReply> answer = reply.get();
  EXPECT_EQ(answer.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(Message(answer.status()), HasSubstr("signal 9"));
  EXPECT_EQ(Run(InlineRun(1, kOne)).status().code(), absl::StatusCode::kUnavailable);
  link_.reset();
  ASSERT_EQ(ends_.size(), 1u);
  EXPECT_THAT(Message(ends_[0]), HasSubstr("signal 9"));
  Start();
  PrepareOneNode(1, "twice");
  EXPECT_TRUE(Run(InlineRun(1, kOne))->status().ok());
}

// A run that ignores its stop word costs the process: here the process itself is stopped.
TEST_F(ExecutorTest, KillsWhatDoesNotStop) {
  options_.stop_grace = std::chrono::milliseconds(100);
  Start();
  PrepareOneNode(1, "endless");
  std::future<StatusOr<RunReply>> reply;
  const supervisor::RequestId id = StartEndless(&reply);
  kill(link_->pid(), SIGSTOP);
  link_->Cancel(id);
  ASSERT_EQ(reply.wait_for(kPatience), std::future_status::ready);
  EXPECT_THAT(Message(reply.get().status()), AllOf(HasSubstr("killed"), HasSubstr("100 ms")));
}

// Requests that arrive while it is ending get the reason too.
TEST_F(ExecutorTest, SaysWhyItWasKilled) {
  Start();
  link_->Kill("The test has had enough.");
  const std::string document = OneNode("endless");
  const StatusOr<internal::Prepared> reply = Prepare(OneNodeInput(1, document));
  EXPECT_THAT(Message(reply.status()), HasSubstr("The test has had enough."));
}

// An orderly end: no error, and no pending request left.
TEST_F(ExecutorTest, ShutsDown) {
  Start();
  link_->Shutdown();
  link_->WaitReady().IgnoreError();
  while (link_->alive()) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  link_.reset();
  ASSERT_EQ(ends_.size(), 1u);
  EXPECT_TRUE(ends_[0].ok()) << Message(ends_[0]);
}

// Every backend answers; driver backends list the devices present, possibly none; a wrong program is an error, not a
// hang.
TEST(ProbeTest, AnswersForEachBackend) {
  const std::string program = std::string(HPVMD_BINARY_DIR) + "/hpvm-executor";
  const std::pair<const char*, v1::Device::Kind> kinds[] = {
      {"cpu", v1::Device::KIND_CPU}, {"interp", v1::Device::KIND_INTERPRETER}, {"null", v1::Device::KIND_NULL}};
  for (const auto& [backend, kind] : kinds) {
    const auto found = supervisor::ProbeDevices(program, backend, kPatience);
    ASSERT_TRUE(found.ok()) << Message(found.status());
    EXPECT_EQ(found->devices(0).device().kind(), kind);
  }
  for (const char* backend : {"opencl", "vulkan"}) {
    if (!sandbox::HasLandlock()) {
      continue;  // No driver is loaded.
    }
    const auto found = supervisor::ProbeDevices(program, backend, kPatience);
    ASSERT_TRUE(found.ok()) << Message(found.status());
    for (const internal::DeviceReport& report : found->devices()) {
      const v1::Device& device = report.device();
      EXPECT_EQ(device.id().substr(0, 7), std::string(backend) + ":");
      EXPECT_GT(device.memory_bytes(), 0u);
      EXPECT_GT(device.allocation_bytes_max(), 0u);
      const auto alone = supervisor::ProbeDevices(program, device.id(), kPatience);
      ASSERT_TRUE(alone.ok()) << Message(alone.status());
      EXPECT_EQ(alone->devices(0).device().name(), device.name());
    }
    const auto absent = supervisor::ProbeDevices(program, std::string(backend) + ":99", kPatience);
    ASSERT_TRUE(absent.ok()) << Message(absent.status());
    ASSERT_EQ(absent->broken_size(), 1);
    EXPECT_EQ(absent->broken(0).id(), std::string(backend) + ":99");
  }
  EXPECT_EQ(supervisor::ProbeDevices(program, "abacus", kPatience).status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(supervisor::ProbeDevices("/bin/true", "cpu", kPatience).status().code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(supervisor::ProbeDevices("/nonexistent", "cpu", kPatience).status().code(), absl::StatusCode::kNotFound);
}

// When the other end of the socket (such as a command) goes away, no wake-up reaches the thread that waits for frames.
TEST(LoneExecutorTest, EndsWhenItsSocketDoes) {
  StatusOr<std::pair<UniqueFd, UniqueFd>> ends = CreateSocketPair();
  ASSERT_TRUE(ends.ok());
  SpawnOptions spawn;
  spawn.arguments = {std::string(HPVMD_BINARY_DIR) + "/hpvm-executor", "--standalone"};
  spawn.socket = ends->second.get();
  spawn.stderr_fd = STDERR_FILENO;
  const StatusOr<SpawnedProcess> process = Spawn(spawn);
  ASSERT_TRUE(process.ok()) << process.status();
  ends->second.reset();
  const StatusOr<UniqueFd> memory = CreateSealedMemfd("rings", kRingPairBytes);
  const UniqueFd bell(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  const StatusOr<Mapping> mapping = Mapping::Map(memory->get(), kRingPairBytes, Mapping::Access::kReadWrite);
  internal::Envelope hello;
  hello.set_request_id(1);
  *hello.mutable_hello() = supervisor::DefaultHello();
  hello.mutable_hello()->set_version(kExecutorProtocolVersion);
  const int fds[] = {memory->get(), bell.get()};
  ASSERT_TRUE(SendFrame(ends->first.get(), hello.SerializeAsString(), {}, fds).ok());
  RingChannelReader answers(ends->first.get(), reinterpret_cast<RingPairMemory*>(mapping->data())->to_server, kNoBell,
                            kFromExecutorLimits);
  Frame ready;
  const Time late = RealClock().Now() + kPatience;
  for (bool is_there = false; !is_there && RealClock().Now() < late;) {
    is_there = *answers.Next(&ready);
    ASSERT_TRUE(is_there || answers.Fill().ok());
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  ASSERT_FALSE(ready.head.empty());
  ends->first.reset();
  pollfd ended{process->pidfd.get(), POLLIN, 0};
  EXPECT_EQ(poll(&ended, 1, static_cast<int>(kPatience / std::chrono::milliseconds(1))), 1);
  if (ended.revents == 0) {
    SendKill(*process);
  }
  EXPECT_EQ(Reap(*process), "exit code 0");
}

}  // namespace
}  // namespace hpvm::executor
