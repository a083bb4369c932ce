// SPDX-License-Identifier: Apache-2.0
// Tests the objects that clients refer to by id: lists of them, and their removal when they are unused.
#include <array>
#include <set>

#include "server/testing/job_fixture.h"

namespace hpvm::server {
namespace {

using absl::StatusCode;
using std::chrono::hours;
using std::chrono::minutes;
using ::testing::HasSubstr;

class HandlesTest : public testing::JobFixture {
 protected:
  ~HandlesTest() override { End(); }  // Ends before the members that runs answer into.

  // Returns an empty string when the call is refused; the reason is in `refusal_`.
  std::string Handle() {
    v1::PrepareGraphRequest request;
    request.set_graph_sha256(graph_);
    v1::PrepareGraphResponse response;
    core_->graphs().PrepareGraph(tenant_, request, &response,
                                 [&](const Outcome& outcome) { refusal_ = outcome.status; });
    Prepare();
    return response.handle();
  }
  Status Run(const std::string& handle) {
    v1::RunRequest request;
    request.set_handle(handle);
    v1::InputBinding& input = *request.add_inputs();
    input.set_name("x");
    input.mutable_tensor()->set_type(v1::ELEMENT_TYPE_F32);
    input.mutable_tensor()->add_shape(2);
    input.mutable_tensor()->set_data("abcdefgh");
    run_ = Unavailable("It runs.");
    core_->runs().Run(tenant_, request, [this](RunOutcome outcome) { run_ = outcome.outcome.status; });
    return run_;
  }
  std::vector<std::string> Graphs(uint32_t page_size = 0) {
    std::vector<std::string> handles;
    v1::ListGraphsRequest request;
    request.set_page_size(page_size);
    do {
      v1::ListGraphsResponse response;
      EXPECT_TRUE(core_->graphs().ListGraphs(*tenant_, request, &response).ok());
      for (const v1::PreparedGraph& graph : response.graphs()) {
        handles.push_back(graph.handle());
      }
      request.set_page_token(response.next_page_token());
    } while (!request.page_token().empty());
    return handles;
  }
  StatusOr<v1::Buffer> Buffer(uint64_t bytes = 64) {
    v1::CreateBufferRequest request;
    request.set_size_bytes(bytes);
    return core_->buffers().CreateBuffer(*tenant_, request);
  }
  std::vector<std::string> Buffers(uint32_t page_size = 0) {
    std::vector<std::string> ids;
    v1::ListBuffersRequest request;
    request.set_page_size(page_size);
    do {
      v1::ListBuffersResponse response;
      EXPECT_TRUE(core_->buffers().ListBuffers(*tenant_, request, &response).ok());
      for (const v1::Buffer& buffer : response.buffers()) {
        ids.push_back(buffer.id());
      }
      request.set_page_token(response.next_page_token());
    } while (!request.page_token().empty());
    return ids;
  }
  Status refusal_, run_;
};

TEST_F(HandlesTest, ListsWhatWasLost) {
  std::set<std::string> handles, ids;
  for (int i = 0; i < 7; ++i) {
    handles.insert(Handle());
    ids.insert(Buffer()->id());
  }
  for (const uint32_t page_size : {0u, 1u, 3u, 7u}) {
    const std::vector<std::string> graphs = Graphs(page_size), buffers = Buffers(page_size);
    EXPECT_EQ(std::set<std::string>(graphs.begin(), graphs.end()), handles);
    EXPECT_EQ(std::set<std::string>(buffers.begin(), buffers.end()), ids);
    EXPECT_EQ(graphs.size() + buffers.size(), 14u);
  }
  v1::ListGraphsResponse response;
  Advance(minutes(3));
  ASSERT_TRUE(core_->graphs().ListGraphs(*tenant_, {}, &response).ok());
  EXPECT_EQ(response.graphs(0).name(), "double");
  EXPECT_EQ(response.graphs(0).graph_sha256(), graph_);
  EXPECT_EQ(response.graphs(0).idle_ns(), 180'000'000'000u);
  v1::ListGraphsResponse none;
  ASSERT_TRUE(core_->graphs().ListGraphs(**core_->tenants().FindTenant("bob"), {}, &none).ok());
  EXPECT_EQ(none.graphs_size(), 0);
  v1::ListGraphsRequest large;
  large.set_page_size(1'001);
  EXPECT_EQ(core_->graphs().ListGraphs(*tenant_, large, &none).code(), StatusCode::kInvalidArgument);
  for (const char* token : {"1", "graph-1", "buf-00000000000000000000000000000000"}) {
    v1::ListGraphsRequest odd;
    odd.set_page_token(token);
    EXPECT_EQ(core_->graphs().ListGraphs(*tenant_, odd, &none).code(), StatusCode::kInvalidArgument) << token;
  }
}

// Handles go a day after their last use; a run uses its handle for as long as it takes.
TEST_F(HandlesTest, UnusedOnesGo) {
  const std::string used = Handle(), unused = Handle(), running = Handle();
  const std::string buffer = Buffer()->id(), read = Buffer()->id();
  ASSERT_EQ(Run(running).code(), StatusCode::kUnavailable);
  for (int hour = 0; hour < 25; ++hour) {
    Advance(hours(1));
    if (hour == 12) {
      ASSERT_TRUE(core_->buffers().OpenBuffer(*tenant_, read).ok());
      ASSERT_TRUE(core_->graphs().FindHandle(*tenant_, used).ok());
    }
  }
  EXPECT_EQ(Graphs(), (used < running ? std::vector{used, running} : std::vector{running, used}));
  EXPECT_EQ(Buffers(), std::vector{read});
  EXPECT_EQ(core_->graphs().FindHandle(*tenant_, unused).status().code(), StatusCode::kNotFound);
  EXPECT_EQ(core_->buffers().OpenBuffer(*tenant_, buffer).status().code(), StatusCode::kNotFound);
  Advance(hours(25));
  EXPECT_TRUE(Buffers().empty());
  EXPECT_EQ(core_->CheckAccounts(/*at_rest=*/false), absl::OkStatus());
}

// A tenant whose client lost its handles is refused for ten minutes, not until the daemon restarts.
TEST_F(HandlesTest, AtTheLimitTheLongestUnusedGivesWay) {
  Config config;
  config.limits_prepared_graphs_max = 3;
  StartFresh(config);
  std::array<std::string, 3> handles;
  for (std::string& handle : handles) {
    handle = Handle();
    Advance(minutes(1));
  }
  const auto& [first, second, third] = handles;
  ASSERT_FALSE(third.empty());
  EXPECT_EQ(Handle(), "");
  EXPECT_EQ(refusal_.code(), StatusCode::kResourceExhausted);
  EXPECT_THAT(Message(refusal_), HasSubstr("ListGraphs"));
  Advance(minutes(11));
  ASSERT_EQ(Run(first).code(), StatusCode::kUnavailable);  // The run uses the handle.
  const std::string fourth = Handle();
  EXPECT_FALSE(fourth.empty()) << refusal_;
  EXPECT_EQ(core_->graphs().FindHandle(*tenant_, second).status().code(), StatusCode::kNotFound);
  EXPECT_TRUE(core_->graphs().FindHandle(*tenant_, first).ok());
  EXPECT_EQ(Graphs().size(), 3u);
}

TEST_F(HandlesTest, BuffersGiveWayToo) {
  Config config;
  config.limits_buffers_max = 3;
  config.limits_buffer_bytes_max = 1'000;
  config.limits_buffers_bytes_max = 1'000;
  StartFresh(config);
  const std::string first = Buffer(400)->id();
  Advance(minutes(1));
  const std::string second = Buffer(400)->id();
  EXPECT_EQ(Buffer(400).status().code(), StatusCode::kResourceExhausted);
  Advance(minutes(11));
  EXPECT_EQ(Buffer(1'001).status().code(), StatusCode::kResourceExhausted);
  EXPECT_EQ(Buffers().size(), 2u) << "What can never be takes nothing away.";
  const StatusOr<Buffers::BufferAccess> held = core_->buffers().OpenBuffer(*tenant_, first);
  Advance(minutes(11));
  ASSERT_TRUE(held.ok());  // A reader holds the buffer.
  const StatusOr<v1::Buffer> third = Buffer(400);
  ASSERT_TRUE(third.ok()) << third.status();
  EXPECT_TRUE(core_->buffers().OpenBuffer(*tenant_, first).ok());
  EXPECT_EQ(core_->buffers().OpenBuffer(*tenant_, second).status().code(), StatusCode::kNotFound);
  EXPECT_EQ(core_->CheckAccounts(/*at_rest=*/false), absl::OkStatus());
}

// One tenant's watchers leave room for others'.
TEST_F(HandlesTest, WatchersAreBoundedByTenant) {
  Config config;
  config.jobs_watchers_max = 4;
  config.jobs_watchers_per_tenant_max = 2;
  StartFresh(config);
  const std::string id = SubmitJob(Request());
  const auto watch = [&] { return core_->job_reader().WatchJob(*tenant_, id, [] {}); };
  const StatusOr<uint64_t> first = watch();
  ASSERT_TRUE(first.ok() && watch().ok());
  EXPECT_EQ(watch().status().code(), StatusCode::kResourceExhausted);
  EXPECT_THAT(Message(watch().status()), HasSubstr("The tenant has 2 watching calls, which is the limit"));
  core_->job_reader().Unwatch(*tenant_, id, *first);
  EXPECT_TRUE(watch().ok());
}

}  // namespace
}  // namespace hpvm::server
