// SPDX-License-Identifier: Apache-2.0
// Tests the core with simulated executors and a clock set by hand: every path that a run or job can take, with the
// death of the executor at each point.
#include "server/core/core.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <deque>
#include <optional>

#include "server/testing/fake_executor.h"
#include "server/testing/hand_job_store.h"
#include "server/testing/steps.h"

namespace hpvm::server {
namespace {

using supervisor::RunReply;

using absl::StatusCode;
using testing::FakeExecutor;
using testing::FakeSpawner;
using testing::HandJobStore;
using ::testing::HasSubstr;
using testing::StoredState;

constexpr char kDocument[] = "{\"hpvm\": 1}";
const Status kSignal9 = Unavailable("The executor process ended (signal 9).");

class CoreTest : public ::testing::Test {
 protected:
  CoreTest() {
    spawner_.settle = [this] {
      if (store_ != nullptr) {
        store_->Pump();
      }
    };
    Restart(Config());
  }
  ~CoreTest() override { End(); }

  void End() {
    if (core_ != nullptr) {
      core_->Stop();
    }
    store_.reset();
    core_.reset();
  }

  // Starts a new core on an empty store.
  void Restart(const Config& config, bool awaits_devices = false) {
    End();
    spawner_.executors().clear();
    state_ = std::make_unique<StoredState>();
    store_ = std::make_unique<HandJobStore>(*state_, clock_);
    CoreOptions options;
    options.config = config;
    options.clock = &clock_;
    options.rng = &rng_;
    options.spawner = &spawner_;
    options.jobs = store_.get();
    options.awaits_devices = awaits_devices;
    core_ = std::make_unique<Core>(std::move(options));
    ASSERT_TRUE(core_->Restore().ok());
    tenant_ = *core_->tenants().FindTenant("ann");
    graph_ = Put(tenant_, kDocument);
  }

  std::string Put(const TenantRef& tenant, std::string_view text) {
    const std::string hash = ToHex(HashOf(text));
    auto upload = *BlobUpload::Start("graph document", hash, text.size(), 1000, 0, "");
    EXPECT_TRUE(upload->Add(text).ok());
    EXPECT_TRUE(core_->graphs().InsertBlob(*tenant, Graphs::BlobKind::kGraph, *upload->Finish()).ok());
    return hash;
  }

  // Returns a graph with one f32 input "x" and one output "y".
  static internal::Prepared Accepted() {
    internal::Prepared reply =
        supervisor::testing::AcceptedGraph("double", {supervisor::testing::Port("x", ElementType::kF32, {"n"})},
                                           {supervisor::testing::Port("y", ElementType::kF32, {"n"})});
    reply.mutable_summary()->set_leaf_nodes(1);
    return reply;
  }

  // Returns the same graph with a kernel from a module that was written for a device.
  static internal::Prepared Native(const std::string& module) {
    internal::Prepared reply = Accepted();
    reply.mutable_summary()->add_devices("opencl:0");
    *reply.add_native_nodes() = supervisor::testing::Native("double", module, {"opencl:0"});
    return reply;
  }

  static RunReply Doubled(const std::string& bytes) {
    RunReply reply;
    supervisor::testing::AddInline(reply, "y", ElementType::kF32, {bytes.size() / 4}, bytes);
    *reply.done.add_nodes() = supervisor::testing::Placement("double", "cpu:0", 0, 10);
    reply.done.set_nodes_run(1);
    return reply;
  }

  // Returns a reply with an output in memory that the run provided.
  static RunReply InMemory(uint64_t bytes, const Status& status = absl::OkStatus()) {
    RunReply reply = supervisor::testing::FailedRun(status);
    supervisor::testing::AddOutput(reply, "y", ElementType::kF32, {bytes / 4}, bytes);
    return reply;
  }

  static RunReply Failed(const Status& status) { return supervisor::testing::FailedRun(status); }

  void AskPrepare() {
    prepare_outcome_.reset();
    v1::PrepareGraphRequest request;
    request.set_graph_sha256(graph_);
    prepare_response_.Clear();
    core_->graphs().PrepareGraph(tenant_, request, &prepare_response_,
                                 [this](const Outcome& outcome) { prepare_outcome_ = outcome; });
  }

  std::string Prepare() {
    AskPrepare();
    spawner_.last().AnswerPrepare(Accepted());
    EXPECT_TRUE(prepare_outcome_.has_value() && prepare_outcome_->ok());
    return prepare_response_.handle();
  }

  v1::RunRequest RunRequestOf(const std::string& handle, const std::string& bytes = "abcdefgh") {
    v1::RunRequest request;
    request.set_handle(handle);
    v1::InputBinding& input = *request.add_inputs();
    input.set_name("x");
    input.mutable_tensor()->set_type(v1::ELEMENT_TYPE_F32);
    input.mutable_tensor()->add_shape(bytes.size() / 4);
    input.mutable_tensor()->set_data(bytes);
    return request;
  }

  uint64_t Run(const v1::RunRequest& request) {
    run_outcome_.reset();
    // Keeps the request, as gRPC does, for as long as its tensors may be borrowed.
    requests_.push_back(request);
    return core_->runs().Run(tenant_, requests_.back(),
                             [this](RunOutcome outcome) { run_outcome_ = std::move(outcome); });
  }

  v1::SubmitRequest SubmitRequestOf(const std::string& key = "") {
    v1::SubmitRequest request;
    request.mutable_document()->set_graph_sha256(graph_);
    *request.mutable_inputs() = RunRequestOf("").inputs();
    request.mutable_options()->set_idempotency_key(key);
    return request;
  }

  struct SubmitResult {
    v1::SubmitResponse response;
    std::optional<Outcome> outcome;
  };
  std::shared_ptr<SubmitResult> Submit(const v1::SubmitRequest& request) {
    auto result = std::make_shared<SubmitResult>();
    submits_.push_back(request);  // Borrowed until the answer.
    core_->job_submitter().Submit(tenant_, submits_.back(), &result->response,
                                  [result](const Outcome& outcome) { result->outcome = outcome; });
    store_->Pump();
    return result;
  }

  // Submits a job and returns its id when it has been sent to its executor.
  std::string RunningJob(const v1::SubmitRequest& request) {
    const auto result = Submit(request);
    if (!spawner_.last().prepares.empty() && spawner_.last().prepares.back().done) {
      spawner_.last().AnswerPrepare(Accepted());
    }
    store_->Pump();
    EXPECT_TRUE(result->outcome.has_value() && result->outcome->ok());
    return result->response.job().id();
  }

  Status Cancel(const TenantRef& tenant, const std::string& id, v1::Job* job) {
    v1::CancelJobResponse response;
    std::optional<Outcome> answer;
    core_->job_wishes().CancelJob(tenant, id, &response, [&](const Outcome& outcome) { answer = outcome; });
    store_->Pump();
    *job = response.job();
    return answer.has_value() ? answer->status : Internal("No answer.");
  }

  v1::Job Job(const std::string& id) {
    store_->Pump();
    v1::Job job;
    EXPECT_TRUE(core_->job_reader().GetJob(*tenant_, id, &job).ok());
    return job;
  }

  v1::Buffer MakeBuffer(const std::string& bytes) {
    v1::CreateBufferRequest request;
    request.set_type(v1::ELEMENT_TYPE_F32);
    request.add_shape(bytes.size() / 4);
    v1::Buffer buffer = *core_->buffers().CreateBuffer(*tenant_, request);
    const Buffers::BufferAccess access = *core_->buffers().OpenBuffer(*tenant_, buffer.id());
    EXPECT_TRUE(
        WriteAt(access.segment->fd.get(), 0, {reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()}).ok());
    return *core_->buffers().FinishWrite(*tenant_, buffer.id(), access.segment);
  }

  v1::Buffer Register(int fd) {
    v1::RegisterBufferRequest request;
    request.set_type(v1::ELEMENT_TYPE_F32);
    request.add_shape(2);
    UniqueFd theirs(dup(fd));
    const StatusOr<v1::Buffer> buffer = core_->buffers().RegisterBuffer(*tenant_, theirs, request);
    EXPECT_TRUE(buffer.ok()) << buffer.status();
    return buffer.ok() ? *buffer : v1::Buffer();
  }

  static void Put(int fd, const std::string& bytes) {
    EXPECT_TRUE(WriteAt(fd, 0, {reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()}).ok());
  }

  static std::string Text(int fd, size_t bytes) {
    std::string text(bytes, '?');
    EXPECT_TRUE(ReadAt(fd, 0, {reinterpret_cast<uint8_t*>(text.data()), bytes}).ok());
    return text;
  }

  std::string Contents(const std::string& id, size_t bytes) {
    const StatusOr<Buffers::BufferAccess> access = core_->buffers().OpenBuffer(*tenant_, id);
    std::string text(bytes, '?');
    if (!access.ok() || !ReadAt(access->segment->fd.get(), 0, {reinterpret_cast<uint8_t*>(text.data()), bytes}).ok()) {
      return "unreadable";
    }
    return text;
  }

  ManualClock clock_;
  SeededRng rng_{7};
  FakeSpawner spawner_;
  std::unique_ptr<StoredState> state_;
  std::unique_ptr<HandJobStore> store_;
  std::unique_ptr<Core> core_;
  TenantRef tenant_;
  std::string graph_;
  v1::PrepareGraphResponse prepare_response_;
  std::optional<Outcome> prepare_outcome_;
  std::deque<v1::RunRequest> requests_;
  std::deque<v1::SubmitRequest> submits_;
  std::optional<RunOutcome> run_outcome_;
};

internal::Ready Found(const std::string& id) {
  return supervisor::testing::Found({supervisor::testing::FoundDevice(id, "")});
}

// The executor that lost a device during a run is replaced; the next one waits until the device has been probed, and
// has it.
TEST_F(CoreTest, LostDevicesAreTriedOut) {
  core_->devices().SetFound("cpu", Found("cpu:0"));
  core_->devices().SetFound("opencl", Found("opencl:0"));
  int wakes = 0;
  core_->devices().SetProbeWake([&] { ++wakes; });
  const std::string handle = Prepare();
  EXPECT_EQ(spawner_.last().backends, (std::vector<std::string>{"cpu", "opencl:0"}));
  Run(RunRequestOf(handle));
  RunReply lost = Failed(Unavailable("The device is lost. While running node \"n\" on device opencl:0."));
  lost.done.add_lost_devices("opencl:0");
  spawner_.last().AnswerRun(lost);
  ASSERT_TRUE(run_outcome_.has_value());
  EXPECT_EQ(run_outcome_->outcome.status.code(), StatusCode::kUnavailable);
  EXPECT_TRUE(run_outcome_->outcome.detail->retryable());
  EXPECT_THAT(spawner_.last().killed, HasSubstr("opencl:0"));
  EXPECT_EQ(wakes, 1);
  Run(RunRequestOf(handle));
  EXPECT_EQ(spawner_.executors().size(), 1u);
  Time next = kNever;
  ASSERT_EQ(core_->devices().DueProbe(&next), "opencl:0");
  EXPECT_EQ(core_->devices().DueProbe(&next), std::nullopt);
  core_->devices().OnProbed("opencl:0", absl::OkStatus());
  ASSERT_EQ(spawner_.executors().size(), 2u);
  EXPECT_EQ(spawner_.last().backends, (std::vector<std::string>{"cpu", "opencl:0"}));
  spawner_.last().AnswerPrepare(Accepted());
  spawner_.last().AnswerRun(Doubled("ABCDEFGH"));
  EXPECT_TRUE(run_outcome_->outcome.ok());
}

// No tenant is shown another executor's message about a device that it lost.
TEST_F(CoreTest, LostDevicesTellNothingOfTheTenant) {
  core_->devices().SetFound("opencl", Found("opencl:0"));
  Run(RunRequestOf(Prepare()));
  RunReply lost = Failed(Unavailable("The device is lost. While running node \"secret\" on device opencl:0."));
  lost.done.add_lost_devices("opencl:0");
  spawner_.last().AnswerRun(lost);
  v1::ListDevicesResponse response;
  core_->devices().ListDevices(*core_->tenants().FindTenant("bob"), &response, [](const Outcome&) {});
  ASSERT_EQ(response.devices_size(), 1);
  EXPECT_EQ(response.devices(0).state(), v1::Device::STATE_PROBING);
  EXPECT_EQ(response.devices(0).detail(), "A run lost the device.");
}

// No device is probed after the server has stopped: calls that wait for a probe are answered all the same.
TEST_F(CoreTest, StopsWhileADeviceIsTriedOut) {
  core_->devices().SetFound("opencl", Found("opencl:0"));
  const std::string handle = Prepare();
  Run(RunRequestOf(handle));
  RunReply lost = Failed(Unavailable("The device is lost."));
  lost.done.add_lost_devices("opencl:0");
  spawner_.last().AnswerRun(lost);
  v1::ListCostsRequest request;
  request.set_handle(handle);
  v1::ListCostsResponse response;
  std::optional<Outcome> outcome;
  core_->graphs().ListCosts(tenant_, request, &response, [&](const Outcome& answer) { outcome = answer; });
  EXPECT_FALSE(outcome.has_value());
  core_->Stop();
  ASSERT_TRUE(outcome.has_value());
  EXPECT_EQ(outcome->status.code(), StatusCode::kUnavailable);
}

// A device that does not answer is left out, and no call waits for it; when it comes back, an idle executor is
// replaced by one that has it, at the next graph.
TEST_F(CoreTest, SilentDevicesAreLeftOut) {
  core_->devices().SetFound("opencl", Found("opencl:0"));
  const std::string handle = Prepare();
  Run(RunRequestOf(handle));
  RunReply lost = Failed(Unavailable("The device is lost."));
  lost.done.add_lost_devices("opencl:0");
  spawner_.last().AnswerRun(lost);
  Run(RunRequestOf(handle));
  Time next = kNever;
  ASSERT_TRUE(core_->devices().DueProbe(&next).has_value());
  core_->devices().OnProbed("opencl:0", Unavailable("It is silent."));
  ASSERT_EQ(spawner_.executors().size(), 2u);
  EXPECT_EQ(spawner_.last().backends, std::vector<std::string>{"cpu"});
  spawner_.last().AnswerPrepare(Accepted());
  clock_.Advance(std::chrono::seconds(1));
  ASSERT_TRUE(core_->devices().DueProbe(&next).has_value());
  core_->devices().OnProbed("opencl:0", absl::OkStatus());
  // The executor stays because a run is in progress.
  graph_ = Put(tenant_, "{\"hpvm\": 1, \"name\": \"other\"}");
  Prepare();
  EXPECT_EQ(spawner_.executors().size(), 2u);
  spawner_.last().AnswerRun(Doubled("ABCDEFGH"));
  graph_ = Put(tenant_, "{\"hpvm\": 1, \"name\": \"third\"}");
  Prepare();
  EXPECT_TRUE(spawner_.executors()[1]->shut_down);
  ASSERT_EQ(spawner_.executors().size(), 3u);
  EXPECT_EQ(spawner_.last().backends, (std::vector<std::string>{"cpu", "opencl:0"}));
}

// The death of an executor with a run on a device makes that device suspect, and the run's failure names it.
TEST_F(CoreTest, DeathsPutDevicesInQuestion) {
  core_->devices().SetFound("opencl", Found("opencl:0"));
  AskPrepare();
  internal::Prepared accepted = Accepted();
  accepted.mutable_summary()->add_devices("cpu:0");
  accepted.mutable_summary()->add_devices("opencl:0");
  spawner_.last().AnswerPrepare(accepted);
  ASSERT_TRUE(prepare_outcome_.has_value() && prepare_outcome_->ok());
  Run(RunRequestOf(prepare_response_.handle()));
  spawner_.last().Die(kSignal9);
  ASSERT_TRUE(run_outcome_.has_value());
  EXPECT_THAT(Message(run_outcome_->outcome.status), HasSubstr("on opencl:0"));
  Time next = kNever;
  EXPECT_EQ(core_->devices().DueProbe(&next), "opencl:0");
}

// Executors wait for the first discovery, where the daemon says that there is one.
TEST_F(CoreTest, ExecutorsWaitForDiscovery) {
  Restart(Config(), /*awaits_devices=*/true);
  AskPrepare();
  core_->devices().SetFound("cpu", Found("cpu:0"));
  EXPECT_TRUE(spawner_.executors().empty());
  core_->devices().SetFound("vulkan", Found("vulkan:0"));
  core_->devices().DevicesKnown();
  ASSERT_EQ(spawner_.executors().size(), 1u);
  EXPECT_EQ(spawner_.last().backends, (std::vector<std::string>{"cpu", "vulkan:0"}));
}

// Runs that need a paused device are refused with its reason, others go on, and the executor is told.
TEST_F(CoreTest, PausedDevicesGetNothingNew) {
  core_->devices().SetFound("cpu", Found("cpu:0"));
  core_->devices().SetFound("vulkan", Found("vulkan:0"));
  AskPrepare();
  internal::Prepared reply = Accepted();
  reply.add_needs("cpu:0,vulkan:0");
  reply.add_needs("vulkan:0");
  spawner_.last().AnswerPrepare(reply);
  const std::string handle = prepare_response_.handle();
  Intake intake;
  intake.paused["vulkan:0"] = {.reason = "new fans", .paused_by = "uid 0", .since_unix_ns = 5};
  core_->SetIntake(intake);
  EXPECT_EQ(core_->intake().paused, intake.paused);
  Run(RunRequestOf(handle));
  ASSERT_TRUE(run_outcome_.has_value());
  EXPECT_EQ(run_outcome_->outcome.status.code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(Message(run_outcome_->outcome.status),
            "vulkan:0 is paused: new fans. A part of the graph runs nowhere else.");
  const auto* page = reinterpret_cast<const GrantPage*>(tenant_->executor.grant_page.data());
  EXPECT_EQ(page->entries[0].closed.load(), 0u);
  EXPECT_EQ(page->entries[1].closed.load(), 1u);
  v1::ListDevicesResponse shown;
  core_->devices().ListDevices(tenant_, &shown, [](const Outcome&) {});
  EXPECT_EQ(shown.devices(1).paused().reason(), "new fans");
  EXPECT_EQ(shown.devices(1).paused().by(), "");  // Only administrators see it.
  EXPECT_EQ(core_->devices().Find("vulkan:0")->paused().by(), "uid 0");
  intake.paused = {{"cpu:0", {}}};  // The other set has vulkan:0.
  core_->SetIntake(intake);
  EXPECT_EQ(page->entries[0].closed.load(), 1u);
  EXPECT_EQ(page->entries[1].closed.load(), 0u);
  run_outcome_.reset();
  Run(RunRequestOf(handle));
  EXPECT_EQ(spawner_.last().runs.size(), 1u);
}

// A fenced device is closed, left out of executors that start unless it is only hot, and back once it is resumed.
TEST_F(CoreTest, FencedDevicesGetNothingNew) {
  internal::Ready found = Found("vulkan:0");
  found.mutable_devices(0)->mutable_device()->mutable_health()->set_bus("0000:19:00.0");
  core_->devices().SetFound("vulkan", found);
  const auto say = [&](const std::string& members) {
    core_->devices().OnHealth(ParseHealthReading(R"({"devices":[{"bus":"00000000:19:00.0",)" + members + "}]}"));
    return core_->devices().Find("vulkan:0")->health().fence();
  };
  EXPECT_EQ(say(R"("temperature_c":40,"power_w":70)"), "");
  EXPECT_EQ(core_->devices().Find("vulkan:0")->health().power_w(), 70);
  v1::ListDevicesResponse shown;
  core_->devices().ListDevices(tenant_, &shown, [](const Outcome&) {});
  EXPECT_EQ(shown.devices(0).health().temperature_c(), 40);
  // The power depends on other tenants' work, so it is not shown.
  EXPECT_FALSE(shown.devices(0).health().has_power_w());
  EXPECT_THAT(say(R"("temperature_c":120)"), HasSubstr("too hot"));
  Prepare();
  EXPECT_EQ(spawner_.last().backends, (std::vector<std::string>{"cpu", "vulkan:0"}));
  const auto* page = reinterpret_cast<const GrantPage*>(tenant_->executor.grant_page.data());
  EXPECT_EQ(page->entries[1].closed.load(), 1u);
  EXPECT_EQ(say(R"("temperature_c":40)"), "");
  EXPECT_EQ(page->entries[1].closed.load(), 0u);
  EXPECT_THAT(say(R"("xids":[79])"), HasSubstr("Xid 79"));
  EXPECT_EQ(core_->devices().Find("vulkan:0")->state(), v1::Device::STATE_BROKEN);
  spawner_.last().on_ready(supervisor::ExecutorReady());
  spawner_.last().Die(kSignal9);
  Prepare();
  EXPECT_EQ(spawner_.last().backends, (std::vector<std::string>{"cpu"}));
  core_->devices().OnHealth(Unavailable("It hangs."));
  EXPECT_THAT(core_->devices().Find("vulkan:0")->health().fence(), HasSubstr("Xid 79"));
  core_->devices().LiftFence("vulkan:0");
  EXPECT_EQ(core_->devices().Find("vulkan:0")->state(), v1::Device::STATE_READY);
}

// A closed server accepts jobs and refuses runs; waiting jobs go on when it is open again.
TEST_F(CoreTest, IntakeIsClosedAndOpened) {
  const std::string handle = Prepare();
  core_->SetIntake({.closed = true, .reason = "new disks", .changed_by = "uid 0", .changed_unix_ns = 5, .paused = {}});
  EXPECT_FALSE(core_->Health().is_ready);
  Run(RunRequestOf(handle));
  ASSERT_TRUE(run_outcome_.has_value());
  EXPECT_EQ(run_outcome_->outcome.status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(Message(run_outcome_->outcome.status), HasSubstr("starts nothing now: new disks. It accepts jobs"));
  v1::GetOverviewResponse shown;
  core_->Overview(nullptr, 10, &shown);
  EXPECT_TRUE(shown.intake().closed());
  EXPECT_EQ(shown.intake().changed_by(), "uid 0");
  core_->Overview(tenant_.get(), 10, &shown);
  EXPECT_EQ(shown.intake().changed_by(), "");
  core_->SetIntake({});
  EXPECT_TRUE(core_->Health().is_ready);
  run_outcome_.reset();
  Run(RunRequestOf(handle));
  EXPECT_EQ(spawner_.last().runs.size(), 1u);
}

// The overview shows running work, its tenant and where it may run; a tenant sees nothing of others.
TEST_F(CoreTest, OverviewShowsWhatRuns) {
  const std::string handle = Prepare();
  Run(RunRequestOf(handle));
  clock_.Advance(std::chrono::seconds(2));
  v1::GetOverviewResponse shown;
  core_->Overview(nullptr, 10, &shown);
  ASSERT_EQ(shown.running_size(), 1);
  EXPECT_EQ(shown.running(0).tenant(), "ann");
  EXPECT_EQ(shown.running(0).graph(), "double");
  EXPECT_EQ(shown.running(0).job_id(), "");
  EXPECT_EQ(shown.time_unix_ns() - shown.running(0).since_unix_ns(), 2'000'000'000);
  const auto ann = std::find_if(shown.tenants().begin(), shown.tenants().end(),
                                [](const v1::TenantLoad& tenant) { return tenant.name() == "ann"; });
  ASSERT_NE(ann, shown.tenants().end());
  EXPECT_EQ(ann->runs(), 1u);
  EXPECT_EQ(ann->graphs(), 1u);
  EXPECT_NEAR(static_cast<double>(ann->device_ns()), 2e9, 1e8);
  v1::GetOverviewResponse none;
  core_->Overview(core_->tenants().FindTenant("bob")->get(), 10, &none);
  EXPECT_EQ(none.running_size(), 0);
  EXPECT_EQ(none.tenants_size(), 1);
  v1::GetOverviewResponse cut;
  core_->Overview(nullptr, 0, &cut);
  EXPECT_EQ(cut.running_size(), 0);
  EXPECT_EQ(cut.running_left_out(), 1u);
}

// A list of devices waits until each family has answered, and never shows a machine without any; a server that stops
// answers the call, and one tenant's many calls are refused.
TEST_F(CoreTest, ListsOfDevicesWaitForDiscovery) {
  Restart(Config(), /*awaits_devices=*/true);
  v1::ListDevicesResponse response;
  std::vector<Status> answers;
  const auto list = [&] {
    core_->devices().ListDevices(tenant_, &response,
                                 [&](const Outcome& outcome) { answers.push_back(outcome.status); });
  };
  list();
  core_->devices().SetFound("cpu", Found("cpu:0"));
  EXPECT_TRUE(answers.empty());
  core_->devices().DevicesKnown();
  ASSERT_EQ(answers.size(), 1u);
  EXPECT_TRUE(answers[0].ok());
  ASSERT_EQ(response.devices_size(), 1);
  EXPECT_EQ(response.devices(0).id(), "cpu:0");
  list();
  EXPECT_EQ(answers.size(), 2u);

  Restart(Config(), /*awaits_devices=*/true);
  answers.clear();
  for (int n = 0; n < 65; ++n) {
    list();
  }
  ASSERT_EQ(answers.size(), 1u);
  EXPECT_THAT(Message(answers[0]), HasSubstr("too many calls"));
  core_->Drain();
  list();
  ASSERT_EQ(answers.size(), 66u);
  for (const Status& answer : answers) {
    EXPECT_EQ(answer.code(), absl::StatusCode::kUnavailable);
  }
}

// In the normal case one executor is spawned, one prepare is sent, and runs reach it at once.
TEST_F(CoreTest, PreparesOnceAndRuns) {
  const std::string handle = Prepare();
  EXPECT_EQ(prepare_response_.summary().name(), "double");
  Run(RunRequestOf(handle));
  ASSERT_EQ(spawner_.last().runs.size(), 1u);
  EXPECT_EQ(spawner_.last().runs[0].inputs, std::vector<std::string>{"abcdefgh"});
  EXPECT_FALSE(run_outcome_.has_value());
  spawner_.last().AnswerRun(Doubled("ABCDEFGH"));
  ASSERT_TRUE(run_outcome_.has_value());
  ASSERT_TRUE(run_outcome_->outcome.ok());
  EXPECT_EQ(std::string(run_outcome_->outputs.at(0).data.begin(), run_outcome_->outputs.at(0).data.end()), "ABCDEFGH");
  // A second handle of the same document needs no second prepare.
  AskPrepare();
  EXPECT_TRUE(prepare_outcome_->ok());
  EXPECT_NE(prepare_response_.handle(), handle);
  EXPECT_EQ(spawner_.executors().size(), 1u);
  EXPECT_EQ(spawner_.last().prepares.size(), 1u);
}

// A document that the executor rejects gives every finding, in the text and in the detail, and no handle.
TEST_F(CoreTest, ReportsEveryDiagnostic) {
  AskPrepare();
  internal::Prepared reply;
  supervisor::testing::AddDiagnostic(reply, "/nodes/a", "First.");
  supervisor::testing::AddDiagnostic(reply, "/nodes/b", "Second.");
  reply.mutable_diagnostics()->mutable_items(1)->set_offset(7);
  reply.mutable_diagnostics()->set_omitted(3);
  spawner_.last().AnswerPrepare(reply);
  ASSERT_TRUE(prepare_outcome_.has_value());
  EXPECT_EQ(prepare_outcome_->status.code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(Message(prepare_outcome_->status), "/nodes/a: First.\n/nodes/b at byte 7: Second.\nAnd 3 more.");
  ASSERT_TRUE(prepare_outcome_->detail.has_value());
  EXPECT_EQ(prepare_outcome_->detail->diagnostics().items_size(), 2);
  EXPECT_EQ(prepare_outcome_->detail->diagnostics().omitted(), 3u);
  EXPECT_EQ(prepare_response_.handle(), "");
}

// Another tenant's id and one that never existed are answered alike, for every kind of id.
TEST_F(CoreTest, ForeignIdsLookAbsent) {
  const std::string handle = Prepare();
  const std::string buffer = MakeBuffer("12345678").id();
  const std::string job = RunningJob(SubmitRequestOf());
  const TenantRef bob = *core_->tenants().FindTenant("bob");
  v1::Job ignored;
  const auto read_as = [&](const TenantRef& of, const std::string& g, const std::string& b, const std::string& j) {
    Tenant& tenant = *of;
    return std::vector<Status>{core_->graphs().ReleaseGraph(tenant, g),
                               core_->graphs().FindHandle(tenant, g).status(),
                               core_->buffers().OpenBuffer(tenant, b).status(),
                               core_->buffers().DeleteBuffer(tenant, b),
                               core_->job_reader().GetJob(tenant, j, &ignored),
                               Cancel(of, j, &ignored),
                               core_->job_reader().WatchJob(tenant, j, [] {}).status(),
                               core_->job_reader().ReadEvents(tenant, j, 0, 1).status(),
                               core_->job_reader().FindOutput(tenant, j, "y").status()};
  };
  const std::vector<Status> foreign = read_as(bob, handle, buffer, job);
  for (const Status& status : foreign) {
    EXPECT_EQ(status.code(), StatusCode::kNotFound) << status;
  }
  const std::string absent(handle.size(), 'a');
  const std::vector<Status> none = read_as(bob, absent, absent, absent);
  for (size_t i = 0; i < none.size(); ++i) {
    EXPECT_EQ(none[i].code(), foreign[i].code());
    EXPECT_EQ(Message(none[i]).substr(0, 14), Message(foreign[i]).substr(0, 14));
  }
  EXPECT_FALSE(core_->graphs().HasBlob(*bob, Graphs::BlobKind::kGraph, *Sha256FromHex(graph_)));
  EXPECT_TRUE(core_->buffers().DeleteBuffer(*tenant_, buffer).ok());  // Its owner still has it.
}

// The death of an executor at each point fails its requests with the reason; the next call gets a new executor,
// prepared from the stored bytes.
TEST_F(CoreTest, RecoversFromDeathAtEachPoint) {
  struct Case {
    const char* name;
    int point;
  };
  constexpr Case kCases[] = {
      {"SpawnFails", 0}, {"BeforeInstalled", 1}, {"DuringPrepare", 2}, {"Idle", 3}, {"DuringRun", 4}};
  for (const Case& c : kCases) {
    SCOPED_TRACE(c.name);
    Restart(Config());
    const std::string buffer = MakeBuffer("12345678").id();
    std::string handle;
    if (c.point >= 3) {
      handle = Prepare();
    }
    switch (c.point) {
      case 0:
        spawner_.failure = Unavailable("No processes left.");
        AskPrepare();
        store_->Pump();
        spawner_.failure = absl::OkStatus();
        break;
      case 1:
        spawner_.end_at_once = kSignal9;
        AskPrepare();
        store_->Pump();
        spawner_.end_at_once = absl::OkStatus();
        break;
      case 2:
        AskPrepare();
        spawner_.last().Die(kSignal9);
        break;
      case 3:
        spawner_.last().Die(kSignal9);
        break;
      case 4:
        Run(RunRequestOf(handle));
        spawner_.last().Die(kSignal9);
        ASSERT_TRUE(run_outcome_.has_value());
        EXPECT_EQ(run_outcome_->outcome.status.code(), StatusCode::kUnavailable);
        EXPECT_THAT(Message(run_outcome_->outcome.status), HasSubstr("signal 9"));
        EXPECT_TRUE(run_outcome_->outcome.detail->retryable());
        break;
    }
    if (c.point <= 2) {
      ASSERT_TRUE(prepare_outcome_.has_value());
      EXPECT_EQ(prepare_outcome_->status.code(), StatusCode::kUnavailable);
      handle = Prepare();
      Run(RunRequestOf(handle));
    } else {
      // The handle stays valid: the run waits for the second prepare.
      Run(RunRequestOf(handle));
      EXPECT_TRUE(spawner_.last().runs.empty());
      spawner_.last().AnswerPrepare(Accepted());
    }
    ASSERT_EQ(spawner_.last().runs.size(), 1u);
    spawner_.last().AnswerRun(Doubled("ABCDEFGH"));
    EXPECT_TRUE(run_outcome_->outcome.ok());
    EXPECT_EQ(Contents(buffer, 8), "12345678");
    EXPECT_EQ(core_->operations(), 0u);
  }
}

// Three crashes within the window stop the spawning until the window has passed.
TEST_F(CoreTest, StopsSpawningAfterRepeatedCrashes) {
  for (int i = 0; i < 3; ++i) {
    AskPrepare();
    spawner_.last().Die(kSignal9);
    clock_.Advance(std::chrono::seconds(1));
  }
  AskPrepare();
  EXPECT_EQ(prepare_outcome_->status.code(), StatusCode::kUnavailable);
  EXPECT_THAT(Message(prepare_outcome_->status), HasSubstr("ended 3 times"));
  EXPECT_EQ(prepare_outcome_->detail->retry_after_ns(), 57'000'000'000u);
  EXPECT_EQ(spawner_.executors().size(), 3u);
  clock_.Advance(std::chrono::seconds(57));
  Prepare();
  EXPECT_EQ(spawner_.executors().size(), 4u);
}

// Crashes with one of the tenant's own modules in flight count against that module: it is refused with a sentence, and
// the rest of the tenant's work goes on at once.
TEST_F(CoreTest, HoldsCrashesAgainstTheModuleInFlight) {
  const std::string wasm = Put(tenant_, "{\"hpvm\": 1, \"name\": \"wasm\"}");
  AskPrepare();
  spawner_.last().AnswerPrepare(Native("bad.cl"));
  const std::string native = prepare_response_.handle();
  for (int i = 0; i < 3; ++i) {
    Run(RunRequestOf(native));
    if (i > 0) {
      spawner_.last().AnswerPrepare(Native("bad.cl"));
    }
    ASSERT_EQ(spawner_.last().runs.size(), 1u) << i;
    spawner_.last().Die(kSignal9);
    clock_.Advance(std::chrono::seconds(1));
  }
  graph_ = wasm;
  const std::string handle = Prepare();
  Run(RunRequestOf(handle));
  ASSERT_EQ(spawner_.last().runs.size(), 1u);
  spawner_.last().AnswerRun(Doubled("ABCDEFGH"));
  EXPECT_TRUE(run_outcome_->outcome.ok()) << Message(run_outcome_->outcome.status);
  EXPECT_EQ(spawner_.executors().size(), 4u);

  Run(RunRequestOf(native));
  spawner_.last().AnswerPrepare(Native("bad.cl"));
  ASSERT_TRUE(run_outcome_.has_value());
  EXPECT_EQ(run_outcome_->outcome.status.code(), StatusCode::kUnavailable);
  EXPECT_THAT(Message(run_outcome_->outcome.status),
              HasSubstr("Module \"bad.cl\" is not run on opencl:0: 3 executors of the tenant ended within 60000 ms"));
  EXPECT_THAT(Message(run_outcome_->outcome.status), HasSubstr("in 57000 ms"));
  EXPECT_EQ(run_outcome_->outcome.detail->retry_after_ns(), 57'000'000'000u);
  EXPECT_EQ(spawner_.last().runs.size(), 1u);

  clock_.Advance(std::chrono::seconds(57));
  Run(RunRequestOf(native));
  EXPECT_EQ(spawner_.last().runs.size(), 2u);
}

// Crashes of a tenant's own modules have a limit, too: after some more, the tenant as a whole waits.
TEST_F(CoreTest, CrashesOfManyModulesAreBounded) {
  for (int i = 0; i < 12; ++i) {
    graph_ = Put(tenant_, "{\"hpvm\": 1, \"name\": \"" + std::to_string(i) + "\"}");
    AskPrepare();
    ASSERT_EQ(spawner_.executors().size(), static_cast<size_t>(i) + 1);
    spawner_.last().AnswerPrepare(Native("kernel-" + std::to_string(i) + ".cl"));
    Run(RunRequestOf(prepare_response_.handle()));
    ASSERT_EQ(spawner_.last().runs.size(), 1u);
    spawner_.last().Die(kSignal9);
  }
  AskPrepare();
  EXPECT_EQ(prepare_outcome_->status.code(), StatusCode::kUnavailable);
  EXPECT_THAT(Message(prepare_outcome_->status), HasSubstr("ended 12 times"));
  EXPECT_EQ(spawner_.executors().size(), 12u);
}

// An executor that the daemon itself ends is no crash of a module.
TEST_F(CoreTest, KillsAreNoCrashesOfModules) {
  AskPrepare();
  spawner_.last().AnswerPrepare(Native("slow.cl"));
  const std::string handle = prepare_response_.handle();
  for (int i = 0; i < 4; ++i) {
    Run(RunRequestOf(handle));
    if (i > 0) {
      spawner_.last().AnswerPrepare(Native("slow.cl"));
    }
    ASSERT_EQ(spawner_.last().runs.size(), 1u) << i;
    RunReply lost = Failed(Unavailable("The device is gone."));
    lost.done.add_lost_devices("opencl:0");
    spawner_.last().AnswerRun(lost);
  }
  EXPECT_EQ(spawner_.executors().size(), 4u);
}

// After the pause one executor may try; when it crashes, the next pause is longer.
TEST_F(CoreTest, WaitsLongerAfterATryThatFailed) {
  for (int i = 0; i < 3; ++i) {
    AskPrepare();
    spawner_.last().Die(kSignal9);
  }
  clock_.Advance(std::chrono::seconds(60));
  AskPrepare();
  EXPECT_EQ(spawner_.executors().size(), 4u);
  spawner_.last().Die(kSignal9);
  AskPrepare();
  EXPECT_EQ(prepare_outcome_->status.code(), StatusCode::kUnavailable);
  EXPECT_GE(prepare_outcome_->detail->retry_after_ns(), 90'000'000'000u);
  EXPECT_LE(prepare_outcome_->detail->retry_after_ns(), 120'000'000'000u);
  EXPECT_EQ(spawner_.executors().size(), 4u);
}

// A sandbox weaker than demanded refuses the tenant's calls with the executor's sentence, without a crash, a fenced
// device, or a process for each call.
TEST_F(CoreTest, RefusesWhatTheSandboxDoesNotReach) {
  const Status weak = FailedPrecondition(
      "The sandbox of this machine reaches level 1 (x), but the configuration demands at least level 3.");
  AskPrepare();
  spawner_.last().Die(weak);
  EXPECT_EQ(prepare_outcome_->status.code(), StatusCode::kFailedPrecondition);
  for (int i = 0; i < 5; ++i) {
    AskPrepare();
    EXPECT_EQ(prepare_outcome_->status.code(), StatusCode::kFailedPrecondition);
    EXPECT_THAT(Message(prepare_outcome_->status), HasSubstr("demands at least level 3"));
  }
  EXPECT_EQ(spawner_.executors().size(), 1u);
  clock_.Advance(std::chrono::seconds(10));
  Prepare();
  EXPECT_EQ(spawner_.executors().size(), 2u);
}

// A spare process that ends as a tenant gets it is replaced by the next one at no cost.
TEST_F(CoreTest, ReplacesSparesThatEndAsTheyAreTaken) {
  spawner_.spares = 2;
  AskPrepare();
  spawner_.last().Die(kSignal9);
  EXPECT_FALSE(prepare_outcome_.has_value());
  spawner_.last().Die(kSignal9);
  EXPECT_FALSE(prepare_outcome_.has_value());
  ASSERT_EQ(spawner_.executors().size(), 3u);
  // The end of an executor that was started for the tenant is reported to the caller, and so is that of a spare that
  // was ready.
  spawner_.last().Die(kSignal9);
  ASSERT_TRUE(prepare_outcome_.has_value());
  EXPECT_EQ(prepare_outcome_->status.code(), StatusCode::kUnavailable);
  spawner_.spares = 1;
  AskPrepare();
  spawner_.last().on_ready(supervisor::ExecutorReady());
  spawner_.last().Die(kSignal9);
  ASSERT_TRUE(prepare_outcome_.has_value());
  EXPECT_EQ(spawner_.executors().size(), 4u);
  // A spare that ends before the daemon has its handle is replaced, too.
  spawner_.spares = 1;
  spawner_.spares_end_at_once = true;
  Prepare();
  EXPECT_EQ(spawner_.executors().size(), 6u);
}

// Device lists and health show what the last executor reported of its sandbox.
TEST_F(CoreTest, ShowsTheSandbox) {
  v1::ListDevicesResponse before, after;
  core_->devices().ListDevices(tenant_, &before, [](const Outcome&) {});
  EXPECT_FALSE(before.sandbox().known());
  EXPECT_EQ(before.sandbox().level_min(), 1u);
  EXPECT_FALSE(core_->Snapshot(false).sandbox.has_value());
  AskPrepare();
  supervisor::ExecutorReady ready;
  ready.said.set_sandbox_level(4);
  ready.said.set_sandbox_detail("empty root");
  spawner_.last().on_ready(ready);
  core_->devices().ListDevices(tenant_, &after, [](const Outcome&) {});
  EXPECT_TRUE(after.sandbox().known());
  EXPECT_EQ(after.sandbox().level(), 4u);
  EXPECT_EQ(after.sandbox().detail(), "empty root");
  EXPECT_EQ(core_->Snapshot(false).sandbox->level, 4u);
  EXPECT_TRUE(spawner_.last().without_device_nodes);  // The processor needs none.
}

// Cancelling in each state ends the run as cancelled; the executor is killed only when a run does not stop within the
// grace period.
TEST_F(CoreTest, CancelsInEachState) {
  Config config;
  config.jobs_running_per_tenant_max = 1;
  Restart(config);
  const std::string handle = Prepare();
  spawner_.last().Die(kSignal9);
  core_->runs().CancelRun(Run(RunRequestOf(handle)));  // Cancelled while its graph is prepared again.
  EXPECT_EQ(run_outcome_->outcome.status.code(), StatusCode::kCancelled);
  EXPECT_EQ(spawner_.last().cancels.size(), 1u);  // No caller waits for the preparation any more.
  spawner_.last().cancels.clear();
  spawner_.last().AnswerPrepare(Accepted());
  EXPECT_TRUE(spawner_.last().runs.empty());

  const uint64_t first = Run(RunRequestOf(handle));
  const uint64_t second = Run(RunRequestOf(handle));
  EXPECT_EQ(spawner_.last().runs.size(), 1u);
  core_->runs().CancelRun(second);  // Cancelled while it waits for its turn.
  EXPECT_EQ(run_outcome_->outcome.status.code(), StatusCode::kCancelled);
  EXPECT_TRUE(spawner_.last().cancels.empty());

  run_outcome_.reset();
  core_->runs().CancelRun(first);  // Cancelled while it runs: the executor is asked.
  core_->runs().CancelRun(first);  // Idempotent.
  EXPECT_EQ(spawner_.last().cancels, std::vector<supervisor::RequestId>{spawner_.last().runs[0].id});
  clock_.Advance(std::chrono::milliseconds(99));
  core_->OnTime();
  EXPECT_EQ(spawner_.last().killed, "");
  spawner_.last().AnswerRun(Failed(Cancelled("Stopped.")), 0);
  EXPECT_EQ(core_->operations(), 0u);
  clock_.Advance(std::chrono::milliseconds(2));
  core_->OnTime();
  EXPECT_EQ(spawner_.last().killed, "");  // The executor answered in time.

  core_->runs().CancelRun(Run(RunRequestOf(handle)));
  clock_.Advance(std::chrono::milliseconds(101));
  core_->OnTime();
  EXPECT_THAT(spawner_.last().killed, HasSubstr("did not stop within 101 ms"));
  core_->OnTime();  // Reaps the executor, which fails what was pending.
  EXPECT_TRUE(spawner_.last().destroyed);
  EXPECT_EQ(run_outcome_->outcome.status.code(), StatusCode::kCancelled);
  EXPECT_EQ(core_->operations(), 0u);
}

// A job past its deadline expires before it started and fails after; a late run is stopped like a cancelled one.
TEST_F(CoreTest, KeepsDeadlines) {
  Config config;
  config.jobs_running_per_tenant_max = 1;
  Restart(config);
  v1::SubmitRequest request = SubmitRequestOf();
  request.mutable_options()->set_deadline_ns(1'000'000'000);
  const std::string running = RunningJob(request);
  const std::string waiting = RunningJob(request);
  EXPECT_EQ(Job(waiting).state(), v1::JOB_STATE_QUEUED);
  EXPECT_EQ(spawner_.last().runs[0].within, std::chrono::seconds(1));
  clock_.Advance(std::chrono::milliseconds(1001));
  core_->OnTime();
  EXPECT_EQ(Job(waiting).state(), v1::JOB_STATE_EXPIRED);
  EXPECT_EQ(spawner_.last().cancels.size(), 1u);
  spawner_.last().AnswerRun(Failed(Cancelled("Stopped.")));
  EXPECT_EQ(Job(running).state(), v1::JOB_STATE_FAILED);
  EXPECT_EQ(Job(running).error().code(), static_cast<int>(StatusCode::kDeadlineExceeded));

  request.mutable_options()->set_deadline_ns(config.jobs_deadline_max_ms * 1'000'000 + 1);
  EXPECT_EQ(Submit(request)->outcome->status.code(), StatusCode::kInvalidArgument);
}

// The same key with the same request is one job, whenever the duplicate comes; a different request is refused; a
// failed one frees the key.
TEST_F(CoreTest, HonoursIdempotencyKeys) {
  const auto first = Submit(SubmitRequestOf("key"));
  const auto duplicate = Submit(SubmitRequestOf("key"));  // Submitted before the first one is answered.
  EXPECT_FALSE(duplicate->outcome.has_value());
  internal::Prepared rejected;
  supervisor::testing::AddDiagnostic(rejected, "/nodes", "There are no nodes (0).");
  spawner_.last().AnswerPrepare(rejected);
  EXPECT_EQ(first->outcome->status.code(), StatusCode::kInvalidArgument);
  spawner_.last().AnswerPrepare(Accepted());  // The duplicate has become the first.
  store_->Pump();
  ASSERT_TRUE(duplicate->outcome.has_value() && duplicate->outcome->ok());
  const std::string id = duplicate->response.job().id();

  v1::SubmitRequest again = SubmitRequestOf("key");
  again.mutable_options()->set_traceparent("00-1-2-3");  // A retry has a trace of its own.
  const auto retry = Submit(again);
  ASSERT_TRUE(retry->outcome->ok());
  EXPECT_EQ(retry->response.job().id(), id);
  EXPECT_TRUE(retry->response.existed());
  EXPECT_EQ(spawner_.last().runs.size(), 1u);

  again.set_repeat(2);
  const auto other = Submit(again);
  EXPECT_EQ(other->outcome->status.code(), StatusCode::kAlreadyExists);
  EXPECT_EQ(other->outcome->detail->job_id(), id);
}

// A large output is asked for with memory, becomes a buffer, and the next run with equal shapes is sent with the
// memory.
TEST_F(CoreTest, GivesLargeOutputsMemory) {
  const std::string handle = Prepare();
  constexpr uint64_t kLarge = 1 << 20;
  const auto needs_memory = [] {
    RunReply reply = InMemory(kLarge, ResourceExhausted("Too large to be inline."));
    reply.done.set_needs_memory(true);
    return reply;
  };
  Run(RunRequestOf(handle));
  spawner_.last().AnswerRun(needs_memory());
  ASSERT_EQ(spawner_.last().runs.size(), 2u);
  ASSERT_EQ(spawner_.last().runs[1].outputs.size(), 1u);
  const supervisor::OutputTarget target = spawner_.last().runs[1].outputs[0];
  EXPECT_EQ(target.kind, supervisor::OutputTarget::Kind::kMemory);
  EXPECT_EQ(target.memory.bytes, kLarge);
  const std::string bytes(kLarge, 'z');
  ASSERT_TRUE(WriteAt(target.memory.fd, 0, {reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()}).ok());
  spawner_.last().AnswerRun(InMemory(kLarge));
  ASSERT_TRUE(run_outcome_->outcome.ok()) << run_outcome_->outcome.status;
  EXPECT_EQ(Contents(run_outcome_->outputs.at(0).buffer_id, kLarge), bytes);
  Run(RunRequestOf(handle));
  EXPECT_EQ(spawner_.last().runs[2].outputs.size(), 1u);
  spawner_.last().AnswerRun(InMemory(kLarge));
  EXPECT_TRUE(run_outcome_->outcome.ok());
  // The daemon stops granting memory to an executor that never stops asking.
  v1::RunRequest request = RunRequestOf(handle, "abcd");
  Run(request);
  for (int i = 0; i < 3; ++i) {
    ASSERT_FALSE(run_outcome_.has_value());
    spawner_.last().AnswerRun(needs_memory());
  }
  EXPECT_EQ(run_outcome_->outcome.status.code(), StatusCode::kResourceExhausted);
}

// Memory that is sent along is a guess, which is too small for other symbols or values; then the run gets more. A
// client's own buffer is no guess.
TEST_F(CoreTest, GivesOutputsThatGrowMoreMemory) {
  const std::string handle = Prepare();
  const auto needs_memory = [](uint64_t bytes) {
    RunReply reply = InMemory(bytes, ResourceExhausted("The memory is too small."));
    reply.done.set_needs_memory(true);
    return reply;
  };
  const auto target = [&]() -> const supervisor::OutputTarget& { return spawner_.last().runs.back().outputs.at(0); };
  v1::RunRequest request = RunRequestOf(handle);
  (*request.mutable_symbols())["n"] = 1;
  Run(request);
  spawner_.last().AnswerRun(needs_memory(1 << 20));
  spawner_.last().AnswerRun(InMemory(1 << 20));
  ASSERT_TRUE(run_outcome_->outcome.ok()) << run_outcome_->outcome.status;
  // The same symbols send the memory along, other symbols do not.
  Run(request);
  EXPECT_EQ(target().memory.bytes, 1u << 20);
  spawner_.last().AnswerRun(needs_memory(3 << 20));
  EXPECT_EQ(target().memory.bytes, 3u << 20);
  spawner_.last().AnswerRun(InMemory(3 << 20));
  ASSERT_TRUE(run_outcome_->outcome.ok()) << run_outcome_->outcome.status;
  (*request.mutable_symbols())["n"] = 2;
  Run(request);
  EXPECT_TRUE(spawner_.last().runs.back().outputs.empty());
  spawner_.last().AnswerRun(needs_memory(2 << 20));
  EXPECT_EQ(target().memory.bytes, 2u << 20);
  spawner_.last().AnswerRun(InMemory(2 << 20));
  ASSERT_TRUE(run_outcome_->outcome.ok()) << run_outcome_->outcome.status;

  v1::OutputBinding& output = *request.add_outputs();
  output.set_name("y");
  output.set_buffer_id(MakeBuffer("old-data").id());
  Run(request);
  spawner_.last().AnswerRun(needs_memory(2 << 20));
  EXPECT_EQ(run_outcome_->outcome.status.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(run_outcome_->outcome.status.message(), HasSubstr("its buffer has 8"));
}

// The buffer is zero after the bytes that a run wrote: a small rest is cleared at once, a large one elsewhere and in
// steps.
TEST_F(CoreTest, ClearsWhatIsBehindAnOutput) {
  const std::string handle = Prepare();
  for (const size_t size : {size_t{100'000}, size_t{140} << 20}) {
    const v1::Buffer buffer = MakeBuffer(std::string(size, 'x'));
    v1::RunRequest request = RunRequestOf(handle);
    v1::OutputBinding& output = *request.add_outputs();
    output.set_name("y");
    output.set_buffer_id(buffer.id());
    Run(request);
    const supervisor::MemorySlice slice = spawner_.last().runs.back().outputs.at(0).memory;
    const std::string dirt(size, 'y');
    ASSERT_TRUE(WriteAt(slice.fd, 0, {reinterpret_cast<const uint8_t*>(dirt.data()), dirt.size()}).ok());
    run_outcome_.reset();
    spawner_.last().AnswerRun(InMemory(8));
    store_->Pump();
    ASSERT_TRUE(run_outcome_.has_value() && run_outcome_->outcome.ok());
    const std::string contents = Contents(buffer.id(), size);
    EXPECT_EQ(contents.substr(0, 8), "yyyyyyyy");
    EXPECT_EQ(contents.find_first_not_of('\0', 8), std::string::npos);
  }
}

// Outputs bound to a buffer are published when the run succeeds and only then; readers in flight keep the contents
// with which they started.
TEST_F(CoreTest, PublishesOnSuccessOnly) {
  const std::string handle = Prepare();
  const v1::Buffer buffer = MakeBuffer("old-data");
  v1::RunRequest request;
  request.set_handle(handle);
  v1::InputBinding& input = *request.add_inputs();
  input.set_name("x");
  input.mutable_buffer()->set_buffer_id(buffer.id());
  v1::OutputBinding& output = *request.add_outputs();
  output.set_name("y");
  output.set_buffer_id(buffer.id());
  const auto write = [&](const std::string& bytes) {
    const supervisor::MemorySlice slice = spawner_.last().runs.back().outputs.at(0).memory;
    ASSERT_TRUE(WriteAt(slice.fd, 0, {reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()}).ok());
  };
  Run(request);
  EXPECT_EQ(spawner_.last().runs.back().inputs, std::vector<std::string>{"old-data"});
  write("half-new");
  EXPECT_EQ(Contents(buffer.id(), 8), "old-data");
  spawner_.last().AnswerRun(Failed(Aborted("Node \"double\" trapped.")));
  EXPECT_EQ(Contents(buffer.id(), 8), "old-data");
  Run(request);
  write("new-data");
  spawner_.last().AnswerRun(InMemory(8));
  ASSERT_TRUE(run_outcome_->outcome.ok());
  EXPECT_EQ(Contents(buffer.id(), 8), "new-data");
  EXPECT_EQ(run_outcome_->outputs.at(0).generation, buffer.generation() + 1);
  // A stale generation is refused.
  request.mutable_inputs(0)->mutable_buffer()->set_generation(buffer.generation());
  Run(request);
  EXPECT_EQ(run_outcome_->outcome.status.code(), StatusCode::kFailedPrecondition);
  // When a buffer is deleted while a run writes it, the run succeeds, nobody has the data, and nothing leaks.
  request.mutable_inputs(0)->mutable_buffer()->clear_generation();
  Run(request);
  EXPECT_TRUE(core_->buffers().DeleteBuffer(*tenant_, buffer.id()).ok());
  spawner_.last().AnswerRun(InMemory(8));
  EXPECT_TRUE(run_outcome_->outcome.ok());
  EXPECT_EQ(tenant_->buffers.bytes(), 0u);
}

// Runs read and write registered memory in place, and do not touch the rest of it.
TEST_F(CoreTest, RunsUseRegisteredMemoryWhereItLies) {
  const std::string handle = Prepare();
  const auto request_for = [](const v1::Buffer& from, const v1::Buffer& to) {
    v1::RunRequest request;
    v1::InputBinding& input = *request.add_inputs();
    input.set_name("x");
    input.mutable_buffer()->set_buffer_id(from.id());
    v1::OutputBinding& output = *request.add_outputs();
    output.set_name("y");
    output.set_buffer_id(to.id());
    return request;
  };
  const UniqueFd in = *CreateSealedMemfd("in", 4096), out = *CreateSealedMemfd("out", 4096);
  const v1::Buffer x = Register(in.get()), y = Register(out.get());
  EXPECT_TRUE(x.registered() && !x.read_only() && x.generation() == 1);
  Put(in.get(), "new-data");
  Put(out.get(), std::string(4096, 'z'));
  for (int round = 0; round < 3; ++round) {
    v1::RunRequest request = request_for(x, y);
    request.set_handle(handle);
    Run(request);
    EXPECT_EQ(spawner_.last().runs.back().inputs, std::vector<std::string>{"new-data"});
    // The executor's output is in the client's memory before the run has ended.
    Put(spawner_.last().runs.back().outputs.at(0).memory.fd, "results!");
    EXPECT_EQ(Text(out.get(), 8), "results!");
    spawner_.last().AnswerRun(InMemory(8));
    ASSERT_TRUE(run_outcome_->outcome.ok());
    EXPECT_EQ(run_outcome_->outputs.at(0).buffer_id, y.id());
    EXPECT_EQ(run_outcome_->outputs.at(0).generation, y.generation() + 1 + static_cast<uint64_t>(round));
    EXPECT_EQ(Text(out.get(), 4096), "results!" + std::string(4088, 'z'));
  }
  // A generation older than the last published one is refused.
  v1::RunRequest request = request_for(x, y);
  request.set_handle(handle);
  request.mutable_inputs(0)->mutable_buffer()->set_generation(x.generation());
  ASSERT_EQ(core_->buffers().PublishBuffer(*tenant_, x.id())->generation(), x.generation() + 1);
  Run(request);
  EXPECT_EQ(run_outcome_->outcome.status.code(), StatusCode::kFailedPrecondition);
  EXPECT_EQ(core_->buffers().PublishBuffer(*tenant_, MakeBuffer("ordinary").id()).status().code(),
            StatusCode::kFailedPrecondition);
}

TEST_F(CoreTest, RefusesRegisteredMemoryThatCannotBeAnOutput) {
  const std::string handle = Prepare();
  const UniqueFd memory = *CreateSealedMemfd("memory", 4096);
  const v1::Buffer buffer = Register(memory.get());
  UniqueFd sealed(memfd_create("sealed", MFD_ALLOW_SEALING | MFD_CLOEXEC));
  ASSERT_EQ(ftruncate(sealed.get(), 4096), 0);
  ASSERT_EQ(fcntl(sealed.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE), 0);
  const v1::Buffer read_only = Register(sealed.get());
  EXPECT_TRUE(read_only.read_only());
  const auto refused = [&](const v1::Buffer& from, const v1::Buffer& to) {
    v1::RunRequest request;
    request.set_handle(handle);
    request.add_inputs()->set_name("x");
    request.mutable_inputs(0)->mutable_buffer()->set_buffer_id(from.id());
    request.add_outputs()->set_name("y");
    request.mutable_outputs(0)->set_buffer_id(to.id());
    Run(request);
    return run_outcome_->outcome.status;
  };
  EXPECT_EQ(refused(buffer, buffer).code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(refused(buffer, buffer).message()), HasSubstr("another port"));
  EXPECT_EQ(refused(buffer, read_only).code(), StatusCode::kFailedPrecondition);
  // Read-only memory is an input like any other, mapped for reading.
  v1::RunRequest request;
  request.set_handle(handle);
  request.add_inputs()->set_name("x");
  request.mutable_inputs(0)->mutable_buffer()->set_buffer_id(read_only.id());
  Run(request);
  spawner_.last().AnswerRun(Doubled("ABCDEFGH"));
  EXPECT_TRUE(run_outcome_->outcome.ok());
}

// The whole memory is charged, whatever part of it is the buffer; and it is the client's again when the buffer goes.
TEST_F(CoreTest, RegisteredMemoryIsPaidForAndLetGo) {
  const UniqueFd memory = *CreateSealedMemfd("memory", 1 << 20);
  v1::RegisterBufferRequest request;
  request.set_size_bytes((1 << 20) + 1);
  UniqueFd theirs(dup(memory.get()));
  EXPECT_EQ(core_->buffers().RegisterBuffer(*tenant_, theirs, request).status().code(), StatusCode::kInvalidArgument);
  EXPECT_TRUE(theirs.valid());  // The caller closes it on a thread that may block.
  request.set_size_bytes(8);
  const uint64_t before = tenant_->pool.live_bytes();
  const StatusOr<v1::Buffer> buffer = core_->buffers().RegisterBuffer(*tenant_, theirs, request);
  EXPECT_FALSE(theirs.valid());
  ASSERT_TRUE(buffer.ok()) << buffer.status();
  EXPECT_EQ(buffer->size_bytes(), 8u);
  EXPECT_EQ(tenant_->pool.live_bytes(), before + (1 << 20));
  EXPECT_TRUE(core_->buffers().DeleteBuffer(*tenant_, buffer->id()).ok());
  EXPECT_EQ(tenant_->pool.live_bytes(), before);
  EXPECT_EQ(tenant_->pool.idle_bytes(), 0u);  // Never reused.
  EXPECT_EQ(tenant_->pool.TakeFreed().size(), 1u);
}

// Sizes that an executor reports are compared with the sizes that it was given.
TEST_F(CoreTest, DistrustsTheExecutor) {
  const std::string handle = Prepare();
  v1::RunRequest request = RunRequestOf(handle);
  v1::OutputBinding& output = *request.add_outputs();
  output.set_name("y");
  output.set_buffer_id(MakeBuffer("12345678").id());
  Run(request);
  spawner_.last().AnswerRun(InMemory(1 << 20));
  EXPECT_EQ(run_outcome_->outcome.status.code(), StatusCode::kInternal);
  Run(RunRequestOf(handle));
  RunReply reply = Doubled("abcd");
  reply.done.mutable_outputs(0)->set_bytes(8);
  spawner_.last().AnswerRun(std::move(reply));
  EXPECT_EQ(run_outcome_->outcome.status.code(), StatusCode::kInternal);
}

// Wrong bindings are refused before anything is sent, each naming the port.
TEST_F(CoreTest, RefusesWrongBindings) {
  const std::string handle = Prepare();
  const v1::Buffer small = MakeBuffer("1234");
  struct Case {
    const char* name;
    std::function<void(v1::RunRequest&)> spoil;
    StatusCode code;
    const char* text;
  };
  const Case cases[] = {
      {"NoSource", [](auto& r) { r.mutable_inputs(0)->clear_source(); }, StatusCode::kInvalidArgument,
       "Input \"x\" is bound to neither"},
      {"TooShort", [](auto& r) { r.mutable_inputs(0)->mutable_tensor()->set_data("abc"); },
       StatusCode::kInvalidArgument, "Input \"x\" has 3 bytes; its shape needs 8."},
      {"NoType", [](auto& r) { r.mutable_inputs(0)->mutable_tensor()->clear_type(); }, StatusCode::kInvalidArgument,
       "no known element type (0)"},
      {"UnknownType",
       [](auto& r) { r.mutable_inputs(0)->mutable_tensor()->set_type(static_cast<v1::ElementType>(-1)); },
       StatusCode::kInvalidArgument, "no known element type"},
      {"Overflow",
       [](auto& r) {
         for (int i = 0; i < 4; ++i) {
           r.mutable_inputs(0)->mutable_tensor()->add_shape(1u << 31);
         }
       },
       StatusCode::kInvalidArgument, "more bytes than 2^63"},
      {"Rank",
       [](auto& r) {
         for (int i = 0; i < 16; ++i) {
           r.mutable_inputs(0)->mutable_tensor()->add_shape(1);
         }
       },
       StatusCode::kInvalidArgument, "rank (17) is larger than the limit (16)"},
      {"TooLargeInline",
       [](auto& r) {
         r.mutable_inputs(0)->mutable_tensor()->set_data(std::string(256 * 1024 + 4, 'x'));
         r.mutable_inputs(0)->mutable_tensor()->set_shape(0, 64 * 1024 + 1);
       },
       StatusCode::kInvalidArgument, "262148 inline bytes; the limit is 262144"},
      {"BufferTooSmall",
       [&](auto& r) {
         v1::BufferView& view = *r.mutable_inputs(0)->mutable_buffer();
         view.set_buffer_id(small.id());
         view.set_type(v1::ELEMENT_TYPE_F64);
         view.add_shape(1);
       },
       StatusCode::kInvalidArgument, "needs 8 bytes; its buffer has 4"},
      {"NoSuchBuffer", [](auto& r) { r.mutable_inputs(0)->mutable_buffer()->set_buffer_id("buf-1"); },
       StatusCode::kNotFound, "no buffer \"buf-1\""},
      {"OutputTwice",
       [](auto& r) {
         r.add_outputs()->set_name("y");
         r.add_outputs()->set_name("y");
       },
       StatusCode::kInvalidArgument, "Output \"y\" is bound twice."},
      // The number of bindings is checked before their contents, each of which would be refused.
      {"ManyInputs",
       [](auto& r) {
         while (r.inputs_size() <= static_cast<int>(kPortsMax)) {
           r.add_inputs();
         }
       },
       StatusCode::kInvalidArgument, "inputs; the limit is"},
      {"ManyOutputs",
       [](auto& r) {
         while (r.outputs_size() <= static_cast<int>(kPortsMax)) {
           r.add_outputs();
         }
       },
       StatusCode::kInvalidArgument, "outputs; the limit is"},
      {"Repeat", [](auto& r) { r.set_repeat(1'000'001); }, StatusCode::kInvalidArgument,
       "larger than the limit (1000000)"},
      {"Priority", [](auto& r) { r.mutable_options()->set_priority(101); }, StatusCode::kInvalidArgument,
       "priority (101)"},
      {"Key", [](auto& r) { r.mutable_options()->set_idempotency_key("k"); }, StatusCode::kUnimplemented,
       "idempotency key"},
      {"Label", [](auto& r) { (*r.mutable_options()->mutable_labels())["a b"] = "c"; }, StatusCode::kInvalidArgument,
       "label key \"a b\""},
      {"NoHandle", [](auto& r) { r.set_handle("graph-0"); }, StatusCode::kNotFound, "no prepared graph \"graph-0\""},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(c.name);
    v1::RunRequest request = RunRequestOf(handle);
    c.spoil(request);
    Run(request);
    ASSERT_TRUE(run_outcome_.has_value());
    EXPECT_EQ(run_outcome_->outcome.status.code(), c.code);
    EXPECT_THAT(Message(run_outcome_->outcome.status), HasSubstr(c.text));
  }
  EXPECT_TRUE(spawner_.last().runs.empty());
  EXPECT_EQ(core_->operations(), 0u);
}

// A job's outputs wait for FetchOutput; its events describe its life in order, and watchers are woken for each.
TEST_F(CoreTest, JobKeepsOutputsAndEvents) {
  const std::string id = RunningJob(SubmitRequestOf());
  int wakes = 0;
  const uint64_t key = *core_->job_reader().WatchJob(*tenant_, id, [&] { ++wakes; });
  EXPECT_EQ(core_->job_reader().FindOutput(*tenant_, id, "y").status().code(), StatusCode::kFailedPrecondition);
  spawner_.last().AnswerRun(Doubled("ABCDEFGH"));
  store_->Pump();
  EXPECT_GT(wakes, 0);
  core_->job_reader().Unwatch(*tenant_, id, key);
  EXPECT_EQ(core_->job_reader().FindOutput(*tenant_, id, "y")->inline_bytes, "ABCDEFGH");
  EXPECT_EQ(core_->job_reader().FindOutput(*tenant_, id, "z").status().code(), StatusCode::kNotFound);
  std::vector<std::string> seen;
  uint64_t after = 0;
  while (true) {
    const JobReader::EventBatch batch = *core_->job_reader().ReadEvents(*tenant_, id, after, 2);
    for (const v1::JobEvent& event : batch.events) {
      EXPECT_GT(event.sequence(), after);
      after = event.sequence();
      seen.push_back(event.has_job()         ? v1::JobState_Name(event.job().state())
                     : event.has_placement() ? "placement " + event.placement().device()
                     : event.has_phase()     ? v1::JobEvent::Phase_Name(event.phase().phase())
                                             : "progress");
    }
    if (batch.last) {
      break;
    }
    ASSERT_FALSE(batch.events.empty());
  }
  EXPECT_THAT(seen, ::testing::ElementsAre("JOB_STATE_ACCEPTED", "JOB_STATE_QUEUED", "JOB_STATE_RUNNING",
                                           "placement cpu:0", "PHASE_BIND", "PHASE_COPY_IN", "PHASE_RUN",
                                           "PHASE_COPY_OUT", "progress", "JOB_STATE_SUCCEEDED"));
}

// The output that kernels printed stays with the job, also when it failed; lists and events do not carry it.
TEST_F(CoreTest, JobKeepsItsLog) {
  const auto with_log = [](RunReply reply) {
    v1::RunLog& log = *reply.done.mutable_log();
    supervisor::testing::AddLine(log, "double", "hello", {3, 2, 1});
    log.set_lines_dropped(7);
    v1::Finding& finding = *log.add_findings();
    finding.set_node("double");
    finding.set_kind("race");
    finding.set_message("A race.");
    finding.set_buffer("y");
    finding.set_place("k.c:1:2");
    finding.add_instances();
    finding.add_instances()->set_x(1);
    finding.set_count(5);
    return reply;
  };
  for (const bool fails : {false, true}) {
    const std::string id = RunningJob(SubmitRequestOf());
    EXPECT_TRUE(spawner_.last().runs.back().log);
    EXPECT_FALSE(Job(id).has_log());
    spawner_.last().AnswerRun(with_log(fails ? Failed(Aborted("It trapped.")) : Doubled("ABCDEFGH")));
    const v1::Job job = Job(id);
    EXPECT_EQ(job.state(), fails ? v1::JOB_STATE_FAILED : v1::JOB_STATE_SUCCEEDED);
    ASSERT_EQ(job.log().lines_size(), 1);
    EXPECT_EQ(job.log().lines(0).node(), "double");
    EXPECT_EQ(job.log().lines(0).instance().x(), 3u);
    EXPECT_EQ(job.log().lines(0).text(), "hello");
    EXPECT_EQ(job.log().lines_dropped(), 7u);
    ASSERT_EQ(job.log().findings_size(), 1);
    EXPECT_EQ(job.log().findings(0).instances(1).x(), 1u);
    EXPECT_EQ(job.log().findings(0).count(), 5u);
    v1::ListJobsResponse list;
    ASSERT_TRUE(testing::Finish(core_->job_reader().ListJobs(tenant_, {}, &list)).ok());
    EXPECT_FALSE(list.jobs(0).has_log());
    const auto events = core_->job_reader().ReadEvents(*tenant_, id, 0, 100);
    ASSERT_TRUE(events.ok());
    for (const v1::JobEvent& event : events->events) {
      EXPECT_FALSE(event.job().has_log());
    }
  }
}

// A tenant without room for a log keeps its counts; its outputs come first.
TEST_F(CoreTest, JobLogNeedsRoom) {
  Config config;
  config.jobs_stored_bytes_max = 4096;
  Restart(config);
  const std::string id = RunningJob(SubmitRequestOf());
  RunReply reply = Doubled("ABCDEFGH");
  for (int i = 0; i < 10; ++i) {
    supervisor::testing::AddLine(*reply.done.mutable_log(), "double", std::string(1000, 'a'));
  }
  spawner_.last().AnswerRun(std::move(reply));
  const v1::Job job = Job(id);
  EXPECT_EQ(job.state(), v1::JOB_STATE_SUCCEEDED);
  EXPECT_EQ(job.log().lines_size(), 0);
  EXPECT_EQ(job.log().lines_dropped(), 10u);
}

// Inline outputs leave room in the message for a log.
TEST_F(CoreTest, LogsAndOutputsShareAMessage) {
  const std::string handle = Prepare();
  for (const bool has_log : {false, true}) {
    v1::RunRequest request = RunRequestOf(handle);
    request.set_log(true);
    Run(request);
    RunReply reply;
    for (uint64_t i = 0; i < 16; ++i) {
      supervisor::testing::AddInline(reply, "y" + std::to_string(i), ElementType::kU8, {limits::kInlineTensorBytesMax},
                                     std::string(limits::kInlineTensorBytesMax, 'y'));
    }
    for (int i = 0; i < (has_log ? 60 : 0); ++i) {
      supervisor::testing::AddLine(*reply.done.mutable_log(), std::string(1024, 'n'), "text");
    }
    spawner_.last().AnswerRun(std::move(reply));
    ASSERT_TRUE(run_outcome_.has_value() && run_outcome_->outcome.ok());
    size_t in_buffers = 0;
    for (const RunOutput& output : run_outcome_->outputs) {
      in_buffers += output.segment != nullptr;
    }
    EXPECT_EQ(in_buffers, has_log ? 1u : 0u);
  }
}

// A graph prepared for checks differs from the same graph without; Run passes on whether it wants the log.
TEST_F(CoreTest, PreparesForChecks) {
  const std::string plain = Prepare();
  EXPECT_FALSE(spawner_.last().prepares.back().check);
  v1::PrepareGraphRequest request;
  request.set_graph_sha256(graph_);
  request.set_check(true);
  prepare_response_.Clear();
  core_->graphs().PrepareGraph(tenant_, request, &prepare_response_, [](const Outcome&) {});
  ASSERT_EQ(spawner_.last().prepares.size(), 2u);
  EXPECT_TRUE(spawner_.last().prepares.back().check);
  spawner_.last().AnswerPrepare(Accepted());
  v1::RunRequest run = RunRequestOf(prepare_response_.handle());
  Run(run);
  EXPECT_NE(spawner_.last().runs.back().handle, spawner_.last().prepares.front().handle);
  EXPECT_FALSE(spawner_.last().runs.back().log);
  spawner_.last().AnswerRun(Doubled("ABCDEFGH"));
  run.set_log(true);
  Run(run);
  EXPECT_TRUE(spawner_.last().runs.back().log);
  spawner_.last().AnswerRun(Doubled("ABCDEFGH"));
}

// Cancelling a job in each state reports the true final state.
TEST_F(CoreTest, CancelsJobs) {
  Config config;
  config.jobs_running_per_tenant_max = 1;
  Restart(config);
  const std::string running = RunningJob(SubmitRequestOf());
  const std::string waiting = RunningJob(SubmitRequestOf());
  v1::Job job;
  ASSERT_TRUE(Cancel(tenant_, waiting, &job).ok());
  EXPECT_EQ(Job(waiting).state(), v1::JOB_STATE_CANCELLED);
  ASSERT_TRUE(Cancel(tenant_, running, &job).ok());
  EXPECT_TRUE(job.cancel_requested());
  EXPECT_EQ(job.state(), v1::JOB_STATE_RUNNING);
  ASSERT_TRUE(Cancel(tenant_, running, &job).ok());
  spawner_.last().AnswerRun(Doubled("ABCDEFGH"));  // The job ended before the stop reached it.
  EXPECT_EQ(Job(running).state(), v1::JOB_STATE_SUCCEEDED);
  ASSERT_TRUE(Cancel(tenant_, running, &job).ok());
  EXPECT_EQ(job.state(), v1::JOB_STATE_SUCCEEDED);
  EXPECT_EQ(core_->operations(), 0u);
}

// Pages are newest first, complete and without repeats; filters apply; finished jobs expire and give their bytes back.
TEST_F(CoreTest, ListsAndExpiresJobs) {
  Config config;
  config.jobs_kept_max = 3;
  Restart(config);
  std::vector<std::string> ids;
  for (int i = 0; i < 5; ++i) {
    v1::SubmitRequest request = SubmitRequestOf();
    (*request.mutable_options()->mutable_labels())["even"] = i % 2 == 0 ? "yes" : "no";
    ids.insert(ids.begin(), RunningJob(request));
    spawner_.last().AnswerRun(Doubled("ABCDEFGH"));
    store_->Pump();
  }
  std::vector<std::string> listed;
  v1::ListJobsRequest request;
  request.set_page_size(2);
  for (int page = 0; page < 3; ++page) {
    v1::ListJobsResponse response;
    ASSERT_TRUE(testing::Finish(core_->job_reader().ListJobs(tenant_, request, &response)).ok());
    for (const v1::Job& job : response.jobs()) {
      listed.push_back(job.id());
    }
    request.set_page_token(response.next_page_token());
    EXPECT_EQ(response.next_page_token().empty(), page == 2);
  }
  EXPECT_EQ(listed, ids);
  v1::ListJobsResponse even;
  v1::ListJobsRequest filter;
  (*filter.mutable_labels())["even"] = "yes";
  filter.add_states(v1::JOB_STATE_SUCCEEDED);
  ASSERT_TRUE(testing::Finish(core_->job_reader().ListJobs(tenant_, filter, &even)).ok());
  EXPECT_EQ(even.jobs_size(), 3);
  filter.set_page_token("zz");
  EXPECT_EQ(testing::Finish(core_->job_reader().ListJobs(tenant_, filter, &even)).code(), StatusCode::kInvalidArgument);
  filter.set_page_size(1001);
  EXPECT_EQ(testing::Finish(core_->job_reader().ListJobs(tenant_, filter, &even)).code(), StatusCode::kInvalidArgument);

  const auto stored = [&] { return state_->database.Use()->at("ann"); };
  EXPECT_EQ(stored().jobs, 5u);
  EXPECT_EQ(tenant_->stored_job_bytes(), stored().stored_bytes);
  clock_.Advance(std::chrono::seconds(20));
  core_->OnTime();
  store_->Pump();
  EXPECT_EQ(stored().jobs, 3u);
  EXPECT_EQ(tenant_->stored_job_bytes(), stored().stored_bytes);
  v1::Job job;
  EXPECT_EQ(core_->job_reader().GetJob(*tenant_, ids.back(), &job).code(), StatusCode::kNotFound);
  EXPECT_TRUE(core_->job_reader().GetJob(*tenant_, ids.front(), &job).ok());
  clock_.Advance(std::chrono::hours(25));
  core_->OnTime();
  store_->Pump();
  EXPECT_EQ(tenant_->stored_job_bytes(), 0u);
}

// Each limit refuses with a sentence that gives it.
TEST_F(CoreTest, RefusesBeyondLimits) {
  Config config;
  config.limits_buffers_max = 2;
  config.limits_buffer_bytes_max = 100;
  config.limits_buffers_bytes_max = 150;
  config.limits_prepared_graphs_max = 1;
  config.jobs_queued_per_tenant_max = 1;
  config.jobs_running_per_tenant_max = 1;
  config.limits_uploads_max = 1;
  config.tenants_max = 1;
  Restart(config);
  const auto create = [&](uint64_t bytes) {
    v1::CreateBufferRequest request;
    request.set_size_bytes(bytes);
    return core_->buffers().CreateBuffer(*tenant_, request).status();
  };
  EXPECT_EQ(create(0).code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(Message(create(101)), HasSubstr("larger than the limit (100)"));
  EXPECT_TRUE(create(100).ok());
  EXPECT_THAT(Message(create(51)), HasSubstr("(50 of 150)"));
  EXPECT_TRUE(create(10).ok());
  EXPECT_THAT(Message(create(10)), HasSubstr("has 2 buffers, which is the limit (limits.buffers_max)"));
  EXPECT_EQ(core_->tenants().FindTenant("bob").status().code(), StatusCode::kResourceExhausted);
  EXPECT_TRUE(core_->graphs().BeginUpload(*tenant_).ok());
  EXPECT_THAT(Message(core_->graphs().BeginUpload(*tenant_)),
              HasSubstr("has 1 uploads in progress, which is the limit"));
  core_->graphs().EndUpload(*tenant_);
  EXPECT_TRUE(core_->graphs().BeginDownload(*tenant_).ok());
  EXPECT_THAT(Message(core_->graphs().BeginDownload(*tenant_)),
              HasSubstr("has 1 downloads in progress, which is the limit"));
  core_->graphs().EndDownload(*tenant_);
  EXPECT_TRUE(core_->graphs().BeginDownload(*tenant_).ok());
  core_->graphs().EndDownload(*tenant_);
  const std::string handle = Prepare();
  AskPrepare();
  EXPECT_THAT(Message(prepare_outcome_->status), HasSubstr("holds 1 prepared graphs, which is the limit"));
  Run(RunRequestOf(handle));  // This run starts.
  Run(RunRequestOf(handle));  // This run waits.
  Run(RunRequestOf(handle));
  EXPECT_THAT(Message(run_outcome_->outcome.status), HasSubstr("The tenant's queue is full (1 runs wait)."));
}

// Draining refuses new work and lets the old end; stopping ends everything.
TEST_F(CoreTest, DrainsAndStops) {
  const std::string handle = Prepare();
  Run(RunRequestOf(handle));
  std::optional<RunOutcome> first;
  first.swap(run_outcome_);
  core_->Drain();
  EXPECT_EQ(core_->operations(), 1u);
  Run(RunRequestOf(handle));
  EXPECT_EQ(run_outcome_->outcome.status.code(), StatusCode::kUnavailable);
  EXPECT_EQ(Submit(SubmitRequestOf())->outcome->status.code(), StatusCode::kUnavailable);
  AskPrepare();
  EXPECT_EQ(prepare_outcome_->status.code(), StatusCode::kUnavailable);
  run_outcome_.reset();
  core_->Stop();
  EXPECT_TRUE(spawner_.last().destroyed);
  EXPECT_EQ(run_outcome_->outcome.status.code(), StatusCode::kUnavailable);
  EXPECT_EQ(core_->operations(), 0u);
}

// A graph whose preparation is answered when its executor has just been killed is prepared by the next one, and the
// calls that waited for it run there.
TEST_F(CoreTest, PreparesAgainAfterAKill) {
  const std::string handle = Prepare();
  core_->runs().CancelRun(Run(RunRequestOf(handle)));  // The run will not stop in time.
  graph_ = Put(tenant_, "{\"hpvm\": 1, \"name\": \"other\"}");
  const auto submitted = Submit(SubmitRequestOf());
  auto late = std::exchange(spawner_.last().prepares.back().done, nullptr);
  clock_.Advance(std::chrono::milliseconds(101));
  core_->OnTime();
  EXPECT_THAT(spawner_.last().killed, HasSubstr("did not stop within"));
  late(Accepted());
  ASSERT_EQ(spawner_.executors().size(), 2u);
  EXPECT_FALSE(submitted->outcome.has_value());
  spawner_.last().AnswerPrepare(Accepted());
  ASSERT_EQ(spawner_.last().runs.size(), 1u);
  EXPECT_TRUE(submitted->outcome.has_value() && submitted->outcome->ok());
  spawner_.last().AnswerRun(Doubled("ABCDEFGH"));
  EXPECT_EQ(Job(submitted->response.job().id()).state(), v1::JOB_STATE_SUCCEEDED);
}

// An unused executor ends after a while; the handle starts a new one.
TEST_F(CoreTest, RetiresIdleExecutors) {
  const std::string handle = Prepare();
  clock_.Advance(std::chrono::minutes(11));
  core_->OnTime();
  EXPECT_TRUE(spawner_.last().shut_down);
  core_->OnTime();
  EXPECT_TRUE(spawner_.last().destroyed);
  Run(RunRequestOf(handle));
  EXPECT_EQ(spawner_.executors().size(), 2u);
  spawner_.last().AnswerPrepare(Accepted());
  spawner_.last().AnswerRun(Doubled("ABCDEFGH"));
  EXPECT_TRUE(run_outcome_->outcome.ok());
}

// A watched job keeps its last 1,000 placements and every state.
TEST(JobEventsTest, KeepsTheLastPlacements) {
  JobEvents events;
  v1::JobEvent state;
  state.mutable_job()->set_state(v1::JOB_STATE_RUNNING);
  events.Add(state, 1);
  for (int i = 0; i < 1500; ++i) {
    v1::JobEvent event;
    event.mutable_placement()->set_node(std::to_string(i));
    events.Add(event, 2);
  }
  const std::vector<v1::JobEvent> all = events.After(0, 10'000);
  ASSERT_EQ(all.size(), 1001u);
  EXPECT_TRUE(all[0].has_job());
  EXPECT_EQ(all[1].placement().node(), "500");
  EXPECT_EQ(events.last_sequence(), 1501u);
}

// The ids of segments that a tenant's executor sees do not depend on other tenants.
TEST(SegmentPoolTest, IdsTellNothingOfOtherTenants) {
  SegmentPool busy(64 * 1024);
  const auto first_two_of = [] {
    SegmentPool pool(64 * 1024);
    const SegmentRef first = *pool.Acquire(1, true), second = *pool.Acquire(1, true);
    return std::pair(first->id, second->id);
  };
  const std::pair alone = first_two_of();
  EXPECT_NE(alone.first, 0u);
  EXPECT_NE(alone.first, alone.second);
  for (int i = 0; i < 10; ++i) {
    ASSERT_TRUE(busy.Acquire(100'000, false).ok());
  }
  EXPECT_EQ(first_two_of(), alone);
}

// Memory is recycled within its limit, zeroed when asked, and freed ids are reported.
TEST(SegmentPoolTest, Recycles) {
  SegmentPool pool(64 * 1024);
  uint64_t first_id = 0;
  {
    const SegmentRef segment = *pool.Acquire(10'000, true);
    first_id = segment->id;
    EXPECT_EQ(segment->capacity_bytes, 12'288u);
    const std::string text = "secret";
    ASSERT_TRUE(WriteAt(segment->fd.get(), 0, {reinterpret_cast<const uint8_t*>(text.data()), text.size()}).ok());
  }
  EXPECT_EQ(pool.idle_bytes(), 12'288u);
  {
    const SegmentRef segment = *pool.Acquire(12'000, true);
    EXPECT_EQ(segment->id, first_id);
    uint8_t byte = 1;
    ASSERT_TRUE(ReadAt(segment->fd.get(), 0, {&byte, 1}).ok());
    EXPECT_EQ(byte, 0);
  }
  pool.Acquire(64 * 1024, false).IgnoreError();  // Evicts the older one.
  EXPECT_EQ(pool.TakeFreed(), std::vector<uint64_t>{first_id});
  EXPECT_EQ(pool.idle_bytes(), 64 * 1024u);
}

}  // namespace
}  // namespace hpvm::server
