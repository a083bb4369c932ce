// SPDX-License-Identifier: Apache-2.0
// Tests of RunMany and SubmitMany against a fake server that loses responses and refuses some items.
#include <stdlib.h>
#include <unistd.h>

#include <atomic>
#include <functional>
#include <map>
#include <set>

#include "client/status/status.h"
#include "gmock/gmock.h"
#include "grpcpp/grpcpp.h"
#include "gtest/gtest.h"

#include "base/status.h"
#include "hpvm/client.h"
#include "hpvm/v1/service.grpc.pb.h"

namespace hpvm {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

class FakeServer final : public v1::Hpvm::Service {
 public:
  grpc::Status ServerInfo(grpc::ServerContext*, const v1::ServerInfoRequest*, v1::ServerInfoResponse* out) override {
    out->set_started_unix_ns(started);
    return grpc::Status::OK;
  }
  grpc::Status PutModule(grpc::ServerContext*, grpc::ServerReader<v1::PutModuleRequest>* in,
                         v1::PutModuleResponse*) override {
    for (v1::PutModuleRequest part; in->Read(&part);) {
    }
    ++modules_put;
    return grpc::Status::OK;
  }
  grpc::Status PutGraph(grpc::ServerContext*, grpc::ServerReader<v1::PutGraphRequest>* in,
                        v1::PutGraphResponse*) override {
    for (v1::PutGraphRequest part; in->Read(&part);) {
    }
    return grpc::Status::OK;
  }
  grpc::Status CreateBuffer(grpc::ServerContext*, const v1::CreateBufferRequest*,
                            v1::CreateBufferResponse* out) override {
    out->mutable_buffer()->set_id("buffer-" + std::to_string(++buffers_made));
    return grpc::Status::OK;
  }
  grpc::Status WriteBuffer(grpc::ServerContext*, grpc::ServerReader<v1::WriteBufferRequest>* in,
                           v1::WriteBufferResponse*) override {
    for (v1::WriteBufferRequest part; in->Read(&part);) {
    }
    return grpc::Status::OK;
  }
  grpc::Status DeleteBuffer(grpc::ServerContext*, const v1::DeleteBufferRequest*, v1::DeleteBufferResponse*) override {
    ++buffers_deleted;
    return grpc::Status::OK;
  }
  grpc::Status SubmitMany(grpc::ServerContext*, const v1::SubmitManyRequest* request,
                          v1::SubmitManyResponse* out) override {
    submits.push_back(*request);
    for (const v1::SubmitRequest& job : request->jobs()) {
      v1::SubmitResponse& result = *out->add_results();
      const std::string& key = job.options().idempotency_key();
      if (const auto refused = refusals.find(job.name()); refused != refusals.end() && refused->second.second > 0) {
        --refused->second.second;
        result.mutable_error()->set_code(refused->second.first);
        result.mutable_error()->set_message("Not now.");
        continue;
      }
      const auto [found, is_new] = jobs.try_emplace(key, "job-" + std::to_string(jobs.size()));
      result.set_existed(!is_new);
      result.mutable_job()->set_id(found->second);
    }
    return submits.size() <= lost_answers ? grpc::Status(grpc::StatusCode::UNAVAILABLE, "Socket closed")
                                          : grpc::Status::OK;
  }
  grpc::Status RunMany(grpc::ServerContext*, const v1::RunManyRequest* request,
                       grpc::ServerWriter<v1::RunManyResponse>* out) override {
    runs.push_back(*request);
    // Answers backwards, two results per message.
    v1::RunManyResponse part;
    for (int i = request->items_size() - 1; i >= 0; --i) {
      if (runs_answered == 0) {
        return {grpc::StatusCode::UNAVAILABLE, "Socket closed"};
      }
      --runs_answered;
      v1::RunManyResponse::Result& result = *part.add_results();
      result.set_index(static_cast<uint32_t>(i));
      if (request->items(i).symbols().contains("wrong")) {
        result.mutable_run()->mutable_error()->set_code(3);
        result.mutable_run()->mutable_error()->set_message("Wrong.");
      } else {
        result.mutable_run()->set_nodes_run(static_cast<uint64_t>(request->items(i).symbols().at("n")));
      }
      if (part.results_size() == 2 || i == 0) {
        if (!out->Write(part)) {
          return {grpc::StatusCode::CANCELLED, "The client went away."};
        }
        part.Clear();
      }
    }
    return grpc::Status::OK;
  }

  std::vector<v1::SubmitManyRequest> submits;
  std::vector<v1::RunManyRequest> runs;
  std::map<std::string, std::string> jobs;              // Keyed by idempotency key.
  std::map<std::string, std::pair<int, int>> refusals;  // Keyed by name: a code, and the number of times.
  size_t lost_answers = 0;                              // SubmitMany makes the jobs, but the response is lost.
  int runs_answered = INT_MAX;                          // After so many the connection breaks.
  std::atomic<int64_t> started = 1;
  std::atomic<int> modules_put = 0, buffers_made = 0, buffers_deleted = 0;
};

class ManyTest : public testing::Test {
 protected:
  void SetUp() override {
    char name[] = "/tmp/hpvm-many-XXXXXX";
    ASSERT_NE(mkdtemp(name), nullptr);
    folder_ = name;
    grpc::ServerBuilder builder;
    builder.AddListeningPort("unix:" + folder_ + "/s.sock", grpc::InsecureServerCredentials());
    builder.RegisterService(&fake_);
    builder.SetMaxReceiveMessageSize(4 << 20);
    server_ = builder.BuildAndStart();
    ASSERT_NE(server_, nullptr);
    ClientOptions options;
    options.endpoint = "unix:" + folder_ + "/s.sock";
    StatusOr<std::unique_ptr<Client>> client = Client::Connect(options);
    ASSERT_TRUE(client.ok()) << Message(client.status());
    client_ = *std::move(client);
  }
  void TearDown() override {
    client_ = nullptr;
    server_->Shutdown(std::chrono::system_clock::now());
    server_->Wait();
    server_ = nullptr;
    unlink((folder_ + "/s.sock").c_str());
    rmdir(folder_.c_str());
  }

  static std::vector<SubmitItem> Jobs(int count) {
    std::vector<SubmitItem> jobs(static_cast<size_t>(count));
    for (int i = 0; i < count; ++i) {
      SubmitItem& job = jobs[static_cast<size_t>(i)];
      job.document = R"({"hpvm": 1})";
      job.modules.bytes["k"] = {1, 2, 3};
      job.options.name = "j" + std::to_string(i);
    }
    return jobs;
  }
  static std::vector<RunItem> Items(int count) {
    std::vector<RunItem> items(static_cast<size_t>(count));
    for (int i = 0; i < count; ++i) {
      items[static_cast<size_t>(i)].symbols["n"] = i;
    }
    return items;
  }
  static Tensor Bytes(uint64_t size) {
    Tensor tensor{ElementType::kU8, {size}, {}};
    tensor.data.resize(size);
    return tensor;
  }

  std::string folder_;
  FakeServer fake_;
  std::unique_ptr<grpc::Server> server_;
  std::unique_ptr<Client> client_;
};

// More jobs than one call takes, with one document.
TEST_F(ManyTest, SubmitsInFewCalls) {
  const auto results = client_->SubmitMany(Jobs(600));
  ASSERT_EQ(results.size(), 600u);
  std::set<std::string> ids;
  for (const auto& result : results) {
    ASSERT_TRUE(result.ok()) << Message(result.status());
    ids.insert(result->job().id());
    EXPECT_FALSE(result->job().idempotency_key().empty());
  }
  EXPECT_EQ(ids.size(), 600u);
  EXPECT_EQ(fake_.submits.size(), 3u);
  EXPECT_EQ(fake_.modules_put, 1);
  EXPECT_EQ(fake_.submits[0].jobs(1).name(), "j1");
  EXPECT_TRUE(fake_.submits[0].options().idempotency_key().empty());
  EXPECT_TRUE(client_->SubmitMany({}).empty());
}

// Large inputs fill a message before the limit on jobs is reached, or travel through buffers.
TEST_F(ManyTest, SubmitsWithinAMessage) {
  std::vector<SubmitItem> jobs = Jobs(40);
  for (SubmitItem& job : jobs) {
    job.inputs["x"] = Bytes(200 << 10);
  }
  jobs[7].inputs["x"] = Bytes(1 << 20);
  for (const auto& result : client_->SubmitMany(jobs)) {
    EXPECT_TRUE(result.ok()) << Message(result.status());
  }
  EXPECT_GE(fake_.submits.size(), 3u);
  EXPECT_EQ(fake_.buffers_made, 1);
  EXPECT_EQ(fake_.buffers_deleted, 1);
}

// After a lost response the same jobs are sent with the same keys, and stay the same jobs.
TEST_F(ManyTest, SubmitsTheSameAgain) {
  fake_.lost_answers = 1;
  const auto results = client_->SubmitMany(Jobs(3));
  ASSERT_EQ(fake_.submits.size(), 2u);
  EXPECT_EQ(fake_.submits[0].SerializeAsString(), fake_.submits[1].SerializeAsString());
  EXPECT_EQ(fake_.jobs.size(), 3u);
  for (const auto& result : results) {
    EXPECT_TRUE(result.ok() && result->existed());
  }
}

// Temporary refusals are retried alone; permanent ones stay; neither affects the other jobs.
TEST_F(ManyTest, SendsAgainWhatIsToCome) {
  fake_.refusals["j1"] = {14, 2};
  fake_.refusals["j2"] = {3, 1};
  const auto results = client_->SubmitMany(Jobs(4));
  EXPECT_TRUE(results[0].ok() && results[1].ok() && results[3].ok());
  EXPECT_EQ(results[2].status().code(), absl::StatusCode::kInvalidArgument);
  ASSERT_EQ(fake_.submits.size(), 3u);
  EXPECT_EQ(fake_.submits[0].jobs_size(), 4);
  ASSERT_EQ(fake_.submits[1].jobs_size(), 1);
  EXPECT_EQ(fake_.submits[2].jobs(0).options().idempotency_key(), fake_.submits[0].jobs(1).options().idempotency_key());
}

// A graph that a restarted server does not know is uploaded once more; a graph that never existed is not.
TEST_F(ManyTest, UploadsAgainAfterARestart) {
  fake_.refusals["j0"] = {5, 1};
  EXPECT_TRUE(client_->SubmitMany(Jobs(2))[0].ok());
  EXPECT_EQ(fake_.modules_put, 2);
  fake_.refusals["j0"] = {5, 100};
  const size_t before = fake_.submits.size();
  EXPECT_EQ(client_->SubmitMany(Jobs(2))[0].status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(fake_.submits.size(), before + 2);
}

TEST_F(ManyTest, RunsInTheOrderOfTheirEnds) {
  std::vector<RunItem> items = Items(5);
  items[3].symbols["wrong"] = 1;
  RunOptions options;
  options.symbols["all"] = 7;
  std::vector<size_t> order;
  const Status status = client_->RunMany(
      "graph-1", items,
      [&](size_t index, StatusOr<RunOutcome> result) {
        order.push_back(index);
        EXPECT_EQ(result.ok(), index != 3) << Message(result.status());
        if (result.ok()) {
          EXPECT_EQ(result->nodes_run, index);
        } else {
          EXPECT_EQ(result.status().code(), absl::StatusCode::kInvalidArgument);
        }
        return true;
      },
      options);
  EXPECT_TRUE(status.ok()) << Message(status);
  EXPECT_THAT(order, ElementsAre(4, 3, 2, 1, 0));
  ASSERT_EQ(fake_.runs.size(), 1u);
  EXPECT_EQ(fake_.runs[0].handle(), "graph-1");
  EXPECT_EQ(fake_.runs[0].items(2).symbols().at("all"), 7);
}

TEST_F(ManyTest, RunsInFewCalls) {
  std::vector<RunItem> items = Items(2'000);
  items[1'500].inputs["x"] = Bytes(1 << 20);
  std::set<size_t> seen;
  const Status status = client_->RunMany("graph-1", items, [&](size_t index, StatusOr<RunOutcome> result) {
    EXPECT_TRUE(result.ok() && result->nodes_run == index);
    EXPECT_TRUE(seen.insert(index).second);
    return true;
  });
  EXPECT_TRUE(status.ok()) << Message(status);
  EXPECT_EQ(seen.size(), 2'000u);
  EXPECT_EQ(fake_.runs.size(), 2u);
  EXPECT_EQ(fake_.buffers_deleted, 1);
}

// When the connection breaks, received results stand, the other items get the failure, and nothing is sent twice.
TEST_F(ManyTest, TellsWhatACallLeft) {
  fake_.runs_answered = 4;
  int good = 0, lost = 0;
  const Status status = client_->RunMany("graph-1", Items(1'030), [&](size_t, StatusOr<RunOutcome> result) {
    good += result.ok() ? 1 : 0;
    lost += absl::IsUnavailable(result.status()) ? 1 : 0;
    return true;
  });
  EXPECT_TRUE(absl::IsUnavailable(status));
  EXPECT_EQ(good, 4);
  EXPECT_EQ(lost, 1'026);
  EXPECT_EQ(fake_.runs.size(), 1u);
}

TEST_F(ManyTest, EndsWhenTheCallerHasEnough) {
  int seen = 0;
  const Status status = client_->RunMany("graph-1", Items(1'030), [&](size_t, StatusOr<RunOutcome>) {
    ++seen;
    return false;
  });
  EXPECT_TRUE(absl::IsCancelled(status));
  EXPECT_EQ(seen, 1);
  v1::RunLog log;
  RunOptions options;
  options.log = &log;
  EXPECT_THAT(Message(client_->RunMany(
                  "graph-1", Items(1), [](size_t, StatusOr<RunOutcome>) { return true; }, options)),
              HasSubstr("no logs"));
}

}  // namespace
}  // namespace hpvm
