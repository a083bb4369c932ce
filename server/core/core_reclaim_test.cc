// SPDX-License-Identifier: Apache-2.0
// Tests how device memory moves between tenants: which tenants are asked for it, and how the run that lacked it goes
// on.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <deque>
#include <optional>

#include "server/core/core.h"
#include "server/testing/fake_executor.h"
#include "server/testing/hand_job_store.h"

namespace hpvm::server {
namespace {

using absl::StatusCode;
using testing::FakeExecutor;
using testing::FakeSpawner;
using testing::HandJobStore;
using testing::StoredState;

constexpr char kDocument[] = "{\"hpvm\": 1}";
constexpr uint64_t kMemory = 1000;  // Memory of opencl:0, the second device of the profile.

class ReclaimTest : public ::testing::Test {
 protected:
  ReclaimTest() {
    clock_.Advance(std::chrono::hours(1));
    spawner_.settle = [this] { store_->Pump(); };
    store_ = std::make_unique<HandJobStore>(state_, clock_);
    CoreOptions options;
    options.config.devices_backends = "auto";
    options.clock = &clock_;
    options.rng = &rng_;
    options.spawner = &spawner_;
    options.jobs = store_.get();
    options.awaits_devices = true;
    core_ = std::make_unique<Core>(std::move(options));
    EXPECT_TRUE(core_->Restore().ok());
    core_->devices().SetFound("cpu", Found("cpu", 0));
    core_->devices().SetFound("opencl", Found("opencl", kMemory));
    core_->devices().DevicesKnown();
  }
  ~ReclaimTest() override {
    core_->Stop();
    store_.reset();
    core_.reset();
  }

  static internal::Ready Found(const std::string& family, uint64_t memory) {
    return supervisor::testing::Found({supervisor::testing::FoundDevice(family + ":0", family + ":0", memory)});
  }

  struct Client {
    TenantRef tenant;
    std::shared_ptr<FakeExecutor> executor;
    std::string handle;
    std::optional<RunOutcome> outcome;
  };

  // The fixture owns the clients, since an answer may come as late as its end.
  Client* NewClient(const std::string& name) {
    Client* const client = clients_.emplace_back(std::make_unique<Client>()).get();
    client->tenant = *core_->tenants().FindTenant(name);
    auto upload = *BlobUpload::Start("graph document", ToHex(HashOf(kDocument)), sizeof(kDocument) - 1, 1000, 0, "");
    EXPECT_TRUE(upload->Add(kDocument).ok());
    EXPECT_TRUE(core_->graphs().InsertBlob(*client->tenant, Graphs::BlobKind::kGraph, *upload->Finish()).ok());
    v1::PrepareGraphRequest request;
    request.set_graph_sha256(ToHex(HashOf(kDocument)));
    v1::PrepareGraphResponse response;
    core_->graphs().PrepareGraph(client->tenant, request, &response,
                                 [](const Outcome& done) { EXPECT_TRUE(done.ok()); });
    client->executor = spawner_.executors().back();
    client->executor->AnswerPrepare(
        supervisor::testing::AcceptedGraph("", {}, {supervisor::testing::Port("y", ElementType::kF32, {"n"})}));
    client->handle = response.handle();
    return client;
  }

  void Run(Client& client) {
    client.outcome.reset();
    v1::RunRequest& request = requests_.emplace_back();
    request.set_handle(client.handle);
    core_->runs().Run(client.tenant, request, [&client](RunOutcome outcome) { client.outcome = std::move(outcome); });
  }

  static supervisor::RunReply Short(uint64_t bytes, uint32_t entry = 1) {
    supervisor::RunReply reply = supervisor::testing::FailedRun(ResourceExhausted("The driver has no memory."));
    reply.done.set_short_entry_plus_1(entry + 1);
    reply.done.set_short_bytes(bytes);
    return reply;
  }
  static supervisor::RunReply Good() {
    supervisor::RunReply reply;
    supervisor::testing::AddInline(reply, "y", ElementType::kF32, {1}, "yyyy");
    return reply;
  }

  ManualClock clock_;
  SeededRng rng_{7};
  FakeSpawner spawner_;
  StoredState state_;
  std::unique_ptr<HandJobStore> store_;
  std::unique_ptr<Core> core_;
  std::deque<v1::RunRequest> requests_;
  std::vector<std::unique_ptr<Client>> clients_;
};

// The tenants with the most idle memory give up as much as is lacking; then the run is sent again.
TEST_F(ReclaimTest, TheMostIdleGivesWay) {
  const auto ann = NewClient("ann"), bob = NewClient("bob"), eve = NewClient("eve");
  ann->executor->on_usage(supervisor::testing::DeviceUsage({0, 300}, {0, 200}));
  bob->executor->on_usage(supervisor::testing::DeviceUsage({0, 500}, {0, 450}));
  Run(*eve);
  eve->executor->AnswerRun(Short(500));
  EXPECT_FALSE(eve->outcome.has_value());
  ASSERT_EQ(bob->executor->reclaims.size(), 1u);
  EXPECT_EQ(bob->executor->reclaims[0].entry, 1u);
  EXPECT_EQ(bob->executor->reclaims[0].bytes_max, 50u);
  ASSERT_EQ(ann->executor->reclaims.size(), 1u);
  EXPECT_EQ(ann->executor->reclaims[0].bytes_max, 250u);
  bob->executor->reclaims[0].done(supervisor::testing::DeviceUsage({0, 50}, {0, 0}));
  EXPECT_EQ(eve->executor->runs.size(), 1u);
  ann->executor->reclaims[0].done(supervisor::testing::DeviceUsage({0, 250}, {0, 150}));
  ASSERT_EQ(eve->executor->runs.size(), 2u);
  eve->executor->AnswerRun(Good());
  ASSERT_TRUE(eve->outcome.has_value());
  EXPECT_TRUE(eve->outcome->outcome.ok());
}

// A tenant that is asked and does not answer is not waited for.
TEST_F(ReclaimTest, GoesOnWithoutAnAnswer) {
  const auto ann = NewClient("ann"), eve = NewClient("eve");
  ann->executor->on_usage(supervisor::testing::DeviceUsage({0, 300}, {0, 300}));
  Run(*eve);
  eve->executor->AnswerRun(Short(100));
  EXPECT_EQ(eve->executor->runs.size(), 1u);
  clock_.Advance(std::chrono::milliseconds(501));
  core_->OnTime();
  ASSERT_EQ(eve->executor->runs.size(), 2u);
  // The late answer changes nothing, and a second shortage fails the run.
  ann->executor->reclaims[0].done(supervisor::testing::DeviceUsage({0, 200}, {0, 200}));
  eve->executor->AnswerRun(Short(100));
  ASSERT_TRUE(eve->outcome.has_value());
  EXPECT_EQ(eve->outcome->outcome.status.code(), StatusCode::kResourceExhausted);
  EXPECT_EQ(eve->executor->runs.size(), 2u);
}

// The run fails at once when no tenant has idle memory, the entry is not a device, or memory was asked for a moment
// ago.
TEST_F(ReclaimTest, FailsWhereNobodyCanHelp) {
  const auto ann = NewClient("ann"), eve = NewClient("eve");
  ann->executor->on_usage(supervisor::testing::DeviceUsage({0, 300}, {0, 0}));
  for (const uint32_t entry : {1u, 7u}) {
    Run(*eve);
    eve->executor->AnswerRun(Short(100, entry));
    ASSERT_TRUE(eve->outcome.has_value());
    EXPECT_EQ(eve->outcome->outcome.status.code(), StatusCode::kResourceExhausted);
  }
  ann->executor->on_usage(supervisor::testing::DeviceUsage({0, 300}, {0, 300}));
  Run(*eve);
  eve->executor->AnswerRun(Short(100));
  EXPECT_TRUE(eve->outcome.has_value());
  EXPECT_TRUE(ann->executor->reclaims.empty());
  clock_.Advance(std::chrono::seconds(2));
  Run(*eve);
  eve->executor->AnswerRun(Short(100));
  EXPECT_EQ(ann->executor->reclaims.size(), 1u);
}

// A run that is cancelled while it waits for memory ends as cancelled, and is not sent again.
TEST_F(ReclaimTest, CancelledWhileItWaits) {
  const auto ann = NewClient("ann"), eve = NewClient("eve");
  ann->executor->on_usage(supervisor::testing::DeviceUsage({0, 300}, {0, 300}));
  requests_.emplace_back().set_handle(eve->handle);
  const uint64_t id = core_->runs().Run(eve->tenant, requests_.back(),
                                        [eve](RunOutcome outcome) { eve->outcome = std::move(outcome); });
  eve->executor->AnswerRun(Short(100));
  core_->runs().CancelRun(id);
  ann->executor->reclaims[0].done(supervisor::testing::DeviceUsage({0, 200}, {0, 200}));
  ASSERT_TRUE(eve->outcome.has_value());
  EXPECT_EQ(eve->outcome->outcome.status.code(), StatusCode::kCancelled);
  EXPECT_EQ(eve->executor->runs.size(), 1u);
}

// When all tenants together need more than the device has, idle memory is freed before any run fails. Memory that was
// asked for is not asked for twice.
TEST_F(ReclaimTest, TogetherWithinTheDevice) {
  const auto ann = NewClient("ann"), eve = NewClient("eve");
  ann->executor->on_usage(supervisor::testing::DeviceUsage({0, 700}, {0, 700}));
  EXPECT_TRUE(ann->executor->reclaims.empty());
  eve->executor->on_usage(supervisor::testing::DeviceUsage({0, 600}, {0, 0}));
  ASSERT_EQ(ann->executor->reclaims.size(), 1u);
  EXPECT_EQ(ann->executor->reclaims[0].bytes_max, 400u);
  EXPECT_TRUE(eve->executor->reclaims.empty());
}

}  // namespace
}  // namespace hpvm::server
