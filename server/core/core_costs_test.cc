// SPDX-License-Identifier: Apache-2.0
// Tests how costs that executors report reach the tenants concerned.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>

#include "server/core/core.h"
#include "server/testing/fake_executor.h"
#include "server/testing/hand_job_store.h"

namespace hpvm::server {
namespace {

using testing::FakeExecutor;
using testing::FakeSpawner;
using testing::HandJobStore;
using ::testing::HasSubstr;
using testing::StoredState;

class CostsTest : public ::testing::Test {
 protected:
  CostsTest() {
    clock_.Advance(std::chrono::hours(1));
    spawner_.settle = [this] { store_->Pump(); };
    store_ = std::make_unique<HandJobStore>(state_, clock_);
    CoreOptions options;
    options.clock = &clock_;
    options.rng = &rng_;
    options.spawner = &spawner_;
    options.jobs = store_.get();
    core_ = std::make_unique<Core>(std::move(options));
    EXPECT_TRUE(core_->Restore().ok());
  }
  ~CostsTest() override {
    core_->Stop();
    store_.reset();
    core_.reset();
  }

  TenantRef Tenant(const std::string& name) { return *core_->tenants().FindTenant(name); }

  // Returns the handle of a document of the tenant's.
  std::string Prepare(const TenantRef& tenant, const std::string& document) {
    auto upload = *BlobUpload::Start("graph document", ToHex(HashOf(document)), document.size(), 1000, 0, "");
    EXPECT_TRUE(upload->Add(document).ok());
    EXPECT_TRUE(core_->graphs().InsertBlob(*tenant, Graphs::BlobKind::kGraph, *upload->Finish()).ok());
    v1::PrepareGraphRequest request;
    request.set_graph_sha256(ToHex(HashOf(document)));
    v1::PrepareGraphResponse response;
    core_->graphs().PrepareGraph(tenant, request, &response, [](const Outcome& done) { EXPECT_TRUE(done.ok()); });
    AnswerPrepare();
    return response.handle();
  }

  void AnswerPrepare() { executor().AnswerPrepare(supervisor::testing::AcceptedGraph("", {}, {})); }

  FakeExecutor& executor() { return *spawner_.executors().back(); }

  void List(const TenantRef& tenant, const std::string& handle = "") {
    response_.Clear();
    outcome_.reset();
    request_.set_handle(handle);
    core_->graphs().ListCosts(tenant, request_, &response_, [this](const Outcome& outcome) { outcome_ = outcome; });
  }

  void Answer(StatusOr<internal::Costs> costs) {
    ASSERT_FALSE(executor().costs.empty());
    std::exchange(executor().costs.back().done, nullptr)(std::move(costs));
  }

  static void AddKernel(internal::Costs& costs, uint64_t handle) {
    internal::GraphCosts& graph = *costs.add_graphs();
    graph.set_handle(handle);
    v1::KernelCost& kernel = *graph.add_kernels();
    kernel.set_kernel("m/add");
    kernel.set_device("cpu:0");
    kernel.set_instances(8);
    kernel.set_measured_ns(5);
    kernel.set_samples(3);
  }
  static internal::Costs Some(uint64_t handle) {
    internal::Costs costs;
    AddKernel(costs, handle);
    v1::TransferCost& transfer = *costs.add_transfers();
    transfer.set_source("host");
    transfer.set_target("opencl:0");
    transfer.set_start_ns(7);
    transfer.set_bytes_per_second(9);
    return costs;
  }

  ManualClock clock_;
  SeededRng rng_{7};
  FakeSpawner spawner_;
  StoredState state_;
  std::unique_ptr<HandJobStore> store_;
  std::unique_ptr<Core> core_;
  v1::ListCostsRequest request_;
  v1::ListCostsResponse response_;
  std::optional<Outcome> outcome_;
};

// No executor is started for a query: without an executor the answer is empty.
TEST_F(CostsTest, AsksNobodyWhereNobodyIs) {
  List(Tenant("ann"));
  ASSERT_TRUE(outcome_.has_value());
  EXPECT_TRUE(outcome_->ok());
  EXPECT_EQ(response_.kernels_size(), 0);
  EXPECT_TRUE(spawner_.executors().empty());
}

// Rows are listed under the handles that the tenant knows; graphs that only jobs use have none.
TEST_F(CostsTest, NamesHandles) {
  const TenantRef ann = Tenant("ann");
  const std::string handle = Prepare(ann, "{\"hpvm\": 1}");
  List(ann);
  EXPECT_FALSE(outcome_.has_value());
  ASSERT_EQ(executor().costs.size(), 1u);
  EXPECT_EQ(executor().costs[0].handle, 0u);
  internal::Costs costs = Some(executor().prepares[0].handle);
  AddKernel(costs, 77);
  costs.set_more(true);
  Answer(std::move(costs));
  ASSERT_TRUE(outcome_.has_value() && outcome_->ok());
  ASSERT_EQ(response_.kernels_size(), 2);
  EXPECT_EQ(response_.kernels(0).kernel(), "m/add");
  EXPECT_EQ(response_.kernels(0).samples(), 3u);
  EXPECT_EQ(response_.kernels(0).handle(), handle);
  EXPECT_EQ(response_.kernels(1).handle(), "");
  EXPECT_EQ(response_.transfers(0).source(), "host");
  EXPECT_EQ(response_.transfers(0).target(), "opencl:0");
  EXPECT_TRUE(response_.more());
}

// A query for one graph returns only its rows, whatever else the executor reports. The graph is prepared again where
// necessary.
TEST_F(CostsTest, ListsOneGraph) {
  const TenantRef ann = Tenant("ann");
  const std::string handle = Prepare(ann, "{\"hpvm\": 1}");
  const uint64_t link_handle = executor().prepares[0].handle;
  executor().Die(Unavailable("It ended."));
  List(ann, handle);
  ASSERT_EQ(spawner_.executors().size(), 2u);
  AnswerPrepare();
  ASSERT_EQ(executor().costs.size(), 1u);
  EXPECT_EQ(executor().costs[0].handle, link_handle);
  internal::Costs costs = Some(link_handle);
  AddKernel(costs, link_handle + 1);
  Answer(std::move(costs));
  ASSERT_TRUE(outcome_.has_value() && outcome_->ok());
  ASSERT_EQ(response_.kernels_size(), 1);
  EXPECT_EQ(response_.kernels(0).handle(), handle);
}

// A handle is valid for its own tenant only.
TEST_F(CostsTest, OthersHandlesAreUnknown) {
  const std::string handle = Prepare(Tenant("ann"), "{\"hpvm\": 1}");
  List(Tenant("bob"), handle);
  ASSERT_TRUE(outcome_.has_value());
  EXPECT_EQ(outcome_->status.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(Message(outcome_->status), HasSubstr("no prepared graph"));
  EXPECT_TRUE(executor().costs.empty());
  List(Tenant("bob"));
  EXPECT_TRUE(outcome_->ok());
  EXPECT_TRUE(executor().costs.empty());
}

// When the executor ends during the query, the caller may try again.
TEST_F(CostsTest, TellsOfALostExecutor) {
  const TenantRef ann = Tenant("ann");
  Prepare(ann, "{\"hpvm\": 1}");
  List(ann);
  executor().Die(Unavailable("It ended."));
  ASSERT_TRUE(outcome_.has_value());
  EXPECT_EQ(outcome_->status.code(), absl::StatusCode::kUnavailable);
  ASSERT_TRUE(outcome_->detail.has_value());
  EXPECT_TRUE(outcome_->detail->retryable());
}

}  // namespace
}  // namespace hpvm::server
