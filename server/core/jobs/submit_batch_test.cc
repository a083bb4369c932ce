// SPDX-License-Identifier: Apache-2.0
// Tests SubmitMany: one commit, an answer for each job, and both when something fails.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "server/core/state/batch_limits.h"
#include "server/testing/job_fixture.h"

namespace hpvm::server::testing {
namespace {

using absl::StatusCode;
using ::testing::HasSubstr;

class SubmitBatchTest : public JobFixture {
 protected:
  struct Many {
    v1::SubmitManyRequest request;
    v1::SubmitManyResponse response;
    std::optional<Outcome> outcome;
    int done = 0;

    const v1::SubmitResponse& at(int i) const { return response.results(i); }
    std::string id(int i) const { return at(i).job().id(); }
    StatusCode code(int i) const { return static_cast<StatusCode>(at(i).error().code()); }
    int accepted() const {
      int count = 0;
      for (const v1::SubmitResponse& result : response.results()) {
        count += result.has_error() ? 0 : 1;
      }
      return count;
    }
  };
  using ManyRef = std::shared_ptr<Many>;

  ManyRef SubmitMany(const std::vector<v1::SubmitRequest>& jobs) {
    auto many = std::make_shared<Many>();
    for (const v1::SubmitRequest& job : jobs) {
      *many->request.add_jobs() = job;
    }
    alive_.push_back(many);  // Borrowed until the answer.
    core_->job_submitter().SubmitMany(tenant_, many->request, &many->response,
                                      [many = many.get()](const Outcome& outcome) {
                                        many->outcome = outcome;
                                        ++many->done;
                                      });
    Pump();
    return many;
  }
  std::vector<v1::SubmitRequest> Requests(int count, const std::string& key = "") {
    std::vector<v1::SubmitRequest> requests;
    for (int i = 0; i < count; ++i) {
      requests.push_back(Request(key.empty() ? "" : key + std::to_string(i)));
    }
    return requests;
  }
  // From then on the graph is known to be valid; its job waits for a run that is not answered.
  void Validate() { SubmitJob(Request()); }

  std::vector<ManyRef> alive_;
};

// All rows are in one commit, and no job is answered before it.
TEST_F(SubmitBatchTest, WritesAllInOneCommit) {
  Validate();
  const size_t before = store_->writes.size();
  store_->hold_commits = true;
  const ManyRef many = SubmitMany(Requests(40, "k"));
  EXPECT_EQ(many->done, 0);
  EXPECT_EQ(std::count(store_->writes.begin() + static_cast<ptrdiff_t>(before), store_->writes.end(), "insert 1"), 40);
  ASSERT_TRUE(store_->StepCommit());
  EXPECT_EQ(many->done, 1);
  ASSERT_TRUE(many->outcome.has_value() && many->outcome->ok());
  std::set<std::string> ids;
  for (int i = 0; i < 40; ++i) {
    EXPECT_FALSE(many->at(i).has_error()) << many->at(i).error().message();
    EXPECT_EQ(many->at(i).job().idempotency_key(), "k" + std::to_string(i));
    ids.insert(many->id(i));
  }
  EXPECT_EQ(ids.size(), 40u);
  store_->hold_commits = false;
  Pump();
  ExpectExactQuotas();
  for (const std::string& id : ids) {
    EXPECT_EQ(Row(id).job().id(), id);
  }
}

// Jobs of a graph that has not been validated wait for that, and are in one commit all the same.
TEST_F(SubmitBatchTest, WaitsForTheGraph) {
  const ManyRef many = SubmitMany(Requests(20));
  EXPECT_EQ(many->done, 0);
  store_->hold_commits = true;
  spawner_.last().AnswerPrepare(Accepted());
  Pump();
  EXPECT_EQ(many->done, 0);
  ASSERT_TRUE(store_->StepCommit());
  EXPECT_EQ(many->done, 1);
  EXPECT_EQ(many->accepted(), 20);
  store_->hold_commits = false;
  Pump();
  ExpectExactQuotas();
}

TEST_F(SubmitBatchTest, CountsBeforeAnythingElse) {
  Validate();
  const size_t before = store_->writes.size();
  for (const int count : {0, kSubmitsPerCallMax + 1}) {
    const ManyRef many = SubmitMany(Requests(count));
    ASSERT_TRUE(many->outcome.has_value());
    EXPECT_EQ(many->outcome->status.code(), StatusCode::kInvalidArgument);
    EXPECT_THAT(Message(many->outcome->status), HasSubstr("needs 1 to 256"));
    EXPECT_EQ(many->response.results_size(), 0);
  }
  EXPECT_EQ(store_->writes.size(), before);
  EXPECT_EQ(SubmitMany(Requests(kSubmitsPerCallMax))->accepted(), kSubmitsPerCallMax);
}

// When some jobs are invalid, the others are accepted; each error says what is wrong with its job.
TEST_F(SubmitBatchTest, RefusesByIndex) {
  Validate();
  std::vector<v1::SubmitRequest> requests = Requests(8, "k");
  requests[1].mutable_inputs(0)->set_name("nobody");
  requests[2].mutable_document()->set_graph_sha256(std::string(64, 'a'));
  requests[3].mutable_array()->set_last(3);
  requests[4].mutable_options()->set_priority(1'000);
  requests[5].add_after()->set_job_id("job-of-nobody");
  requests[6].set_name(std::string(256, 'x'));
  const ManyRef many = SubmitMany(requests);
  ASSERT_EQ(many->done, 1);
  EXPECT_TRUE(many->outcome->ok());
  EXPECT_FALSE(many->at(0).has_error());
  EXPECT_EQ(many->code(1), StatusCode::kInvalidArgument);
  EXPECT_EQ(many->code(2), StatusCode::kNotFound);
  EXPECT_EQ(many->code(3), StatusCode::kInvalidArgument);
  EXPECT_THAT(many->at(3).error().message(), HasSubstr("array"));
  EXPECT_EQ(many->code(4), StatusCode::kInvalidArgument);
  EXPECT_EQ(many->code(5), StatusCode::kNotFound);
  EXPECT_EQ(many->code(6), StatusCode::kInvalidArgument);
  EXPECT_FALSE(many->at(7).has_error());
  for (int i = 1; i < 7; ++i) {
    EXPECT_FALSE(many->at(i).has_job()) << i;
  }
  ExpectExactQuotas();
  // A request that failed has not used its key up.
  EXPECT_FALSE(SubmitMany({Request("k1")})->at(0).existed());
}

TEST_F(SubmitBatchTest, RefusesAllAlike) {
  std::vector<v1::SubmitRequest> requests = Requests(17);
  for (v1::SubmitRequest& request : requests) {
    request.mutable_options()->set_priority(1'000);
  }
  const ManyRef many = SubmitMany(requests);
  ASSERT_EQ(many->done, 1);
  EXPECT_TRUE(many->outcome->ok());
  EXPECT_EQ(many->accepted(), 0);
}

// The same batch once more gives the same jobs, whether the first answer came or not.
TEST_F(SubmitBatchTest, IsIdempotent) {
  Validate();
  store_->hold_commits = true;
  const ManyRef first = SubmitMany(Requests(20, "k")), beside = SubmitMany(Requests(20, "k"));
  store_->hold_commits = false;
  Pump();
  const ManyRef later = SubmitMany(Requests(20, "k"));
  ASSERT_EQ(first->accepted(), 20);
  for (int i = 0; i < 20; ++i) {
    EXPECT_FALSE(first->at(i).existed());
    EXPECT_TRUE(beside->at(i).existed() && later->at(i).existed());
    EXPECT_EQ(beside->id(i), first->id(i));
    EXPECT_EQ(later->id(i), first->id(i));
  }
  ExpectExactQuotas();
  std::vector<v1::SubmitRequest> others = Requests(2, "k");
  others[1].set_repeat(2);
  const ManyRef other = SubmitMany(others);
  EXPECT_TRUE(other->at(0).existed());
  EXPECT_EQ(other->code(1), StatusCode::kAlreadyExists);
}

// A key used twice in one call gives one job for equal requests; a different request is refused. Also across pieces.
TEST_F(SubmitBatchTest, TakesAKeyOnce) {
  Validate();
  std::vector<v1::SubmitRequest> requests = Requests(40, "k");
  requests[1] = requests[30] = requests[0];
  requests[2] = requests[31] = Request("k0");
  requests[2].set_repeat(2);
  const ManyRef many = SubmitMany(requests);
  ASSERT_EQ(many->done, 1);
  EXPECT_EQ(many->id(1), many->id(0));
  EXPECT_EQ(many->id(30), many->id(0));
  EXPECT_EQ(many->id(31), many->id(0));
  EXPECT_NE(many->at(1).existed(), many->at(0).existed());
  EXPECT_EQ(many->code(2), StatusCode::kAlreadyExists);
  EXPECT_EQ(many->accepted(), 39);
  ExpectExactQuotas();
}

// Two calls that have each other's keys in the other order do not wait for each other.
TEST_F(SubmitBatchTest, CallsWithEachOthersKeysEnd) {
  Validate();
  std::vector<v1::SubmitRequest> forth = Requests(32, "k"), back(forth.rbegin(), forth.rend());
  store_->hold_posted = true;
  const ManyRef first = SubmitMany(forth), second = SubmitMany(back);
  // Takes a piece of one, then a piece of the other.
  store_->hold_posted = false;
  Pump();
  ASSERT_EQ(first->done, 1);
  ASSERT_EQ(second->done, 1);
  for (int i = 0; i < 32; ++i) {
    EXPECT_EQ(first->id(i), second->id(31 - i));
    EXPECT_NE(first->at(i).existed(), second->at(31 - i).existed());
  }
  ExpectExactQuotas();
}

// When the queue becomes full in the middle, the jobs before are accepted, and the others are told to come later.
TEST_F(SubmitBatchTest, FillsTheQueue) {
  Config config = config_;
  config.jobs_queued_max = 21;
  StartFresh(config);
  Validate();
  const ManyRef many = SubmitMany(Requests(40, "k"));
  ASSERT_EQ(many->done, 1);
  const int accepted = many->accepted();
  EXPECT_GE(accepted, 20);
  EXPECT_LE(accepted, 21);
  for (int i = 0; i < 40; ++i) {
    EXPECT_EQ(many->at(i).has_error(), i >= accepted) << i;
  }
  v1::ErrorDetail detail;
  ASSERT_TRUE(many->at(39).error().details(0).UnpackTo(&detail));
  EXPECT_EQ(many->code(39), StatusCode::kResourceExhausted);
  EXPECT_TRUE(detail.retryable());
  EXPECT_GT(detail.retry_after_ns(), 0u);
  ExpectExactQuotas();
}

// A daemon that is killed before the commit leaves none of the jobs, after it all; the same call then finds or makes
// them, and never two.
TEST_F(SubmitBatchTest, SurvivesAKill) {
  Validate();
  store_->hold_commits = true;
  const ManyRef lost = SubmitMany(Requests(20, "k"));
  Crash();
  EXPECT_EQ(lost->done, 0);
  Start();
  const ManyRef made = SubmitMany(Requests(20, "k"));
  Prepare();
  Pump();
  ASSERT_EQ(made->done, 1);
  ASSERT_EQ(made->accepted(), 20);
  Crash();
  Start();
  const ManyRef found = SubmitMany(Requests(20, "k"));
  ASSERT_EQ(found->done, 1);
  for (int i = 0; i < 20; ++i) {
    EXPECT_FALSE(made->at(i).existed());
    EXPECT_TRUE(found->at(i).existed());
    EXPECT_EQ(found->id(i), made->id(i));
  }
  ExpectExactQuotas();
}

// A daemon that stops answers each job of a call that waits for its graph.
TEST_F(SubmitBatchTest, StopsWhileItWaits) {
  const ManyRef many = SubmitMany(Requests(20));
  EXPECT_EQ(many->done, 0);
  End();
  EXPECT_EQ(many->done, 1);
  EXPECT_EQ(many->accepted(), 0);
  Start();
}

// A full disk refuses each job, and none of them exists.
TEST_F(SubmitBatchTest, IsRefusedByTheStore) {
  Validate();
  store_->put_failure = ResourceExhausted("No space.");
  std::vector<v1::SubmitRequest> requests = Requests(3, "k");
  requests[1].mutable_inputs(0)->mutable_tensor()->set_data(std::string(8, 'x'));
  const std::string other = PutGraph("{\"hpvm\": 1, \"name\": \"other\"}");
  requests[1].mutable_document()->set_graph_sha256(other);
  const ManyRef many = SubmitMany(requests);
  Prepare();
  Pump();
  ASSERT_EQ(many->done, 1);
  EXPECT_FALSE(many->at(0).has_error());
  EXPECT_EQ(many->code(1), StatusCode::kResourceExhausted);
  EXPECT_FALSE(many->at(2).has_error());
  ExpectExactQuotas();
}

// Jobs have their own trace context, or the call's; the answer has only the fields by which each job is found.
TEST_F(SubmitBatchTest, AnswersBriefly) {
  Validate();
  std::vector<v1::SubmitRequest> requests = Requests(2);
  (*requests[0].mutable_options()->mutable_labels())["a"] = "b";
  requests[0].mutable_options()->set_traceparent("00-1-2-3");
  auto many = std::make_shared<Many>();
  many->request.mutable_options()->set_traceparent("00-4-5-6");
  for (const v1::SubmitRequest& request : requests) {
    *many->request.add_jobs() = request;
  }
  core_->job_submitter().SubmitMany(tenant_, many->request, &many->response,
                                    [many](const Outcome& outcome) { many->outcome = outcome; });
  Pump();
  ASSERT_TRUE(many->outcome.has_value());
  EXPECT_TRUE(many->at(0).job().labels().empty());
  EXPECT_GT(many->at(0).job().created_unix_ns(), 0);
  EXPECT_EQ(Row(many->id(0)).job().traceparent(), "00-1-2-3");
  EXPECT_EQ(Row(many->id(1)).job().traceparent(), "00-4-5-6");
  EXPECT_EQ(Job(many->id(0)).labels().at("a"), "b");
}

}  // namespace
}  // namespace hpvm::server::testing
