// SPDX-License-Identifier: Apache-2.0
// The job store of a host, on the cluster's store in SQLite.
#include "server/hosts/shared_job_store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <future>

#include "server/cluster/sql/sql_cluster_store.h"
#include "server/cluster/sqlite/sqlite_session.h"
#include "server/hosts/await.h"
#include "server/jobs/testing/temporary_folder.h"

namespace hpvm::server {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class SharedJobStoreTest : public ::testing::Test {
 protected:
  SharedJobStoreTest() {
    store_ = *cluster::SqlClusterStore::Open({}, []() -> StatusOr<std::unique_ptr<cluster::SqlSession>> {
      return cluster::SqliteSession::OpenInMemory(RealClock());
    });
    jobs_ = Make(/*accepts_jobs=*/true);
  }
  std::unique_ptr<SharedJobStore> Make(bool accepts_jobs) {
    SharedJobStoreOptions options;
    options.store = store_.get();
    options.claims = &claims_;
    options.host = "one";
    options.blob_folder = folder_.path();
    options.accepts_jobs = accepts_jobs;
    options.limits = [this](const std::string&) { return limits_; };
    options.on_watched = [](const std::string&, bool) {};
    return std::make_unique<SharedJobStore>(std::move(options));
  }

  static InsertJobs InsertOf(const std::vector<std::string>& ids, const std::string& key = "", uint8_t hash = 1) {
    InsertJobs insert;
    for (const std::string& id : ids) {
      StoredJob& row = insert.jobs.emplace_back();
      row.set_tenant("t");
      row.mutable_job()->set_id(id);
      row.mutable_job()->set_array_id(ids.size() > 1 ? "array-1" : "");
      (*row.mutable_job()->mutable_labels())["id"] = id;
    }
    insert.request = "request";
    insert.idempotency_key = key;
    insert.request_hash.bytes[0] = hash;
    return insert;
  }
  static WriteResult WriteAndWait(JobStore& jobs, JobWrite write) {
    std::promise<WriteResult> answer;
    jobs.Write(std::move(write), [&](const WriteResult& result) { answer.set_value(result); });
    return answer.get_future().get();
  }
  StatusOr<StoredJob> SetHold(const std::string& id, bool is_held, const std::string& by, bool by_admin) {
    v1::JobHold hold;
    hold.set_by(by);
    hold.set_by_admin(by_admin);
    return Await<StoredJob>([&](auto done) { jobs_->SetHold("t", id, is_held, hold, std::move(done)); });
  }

  TemporaryFolder folder_;
  cluster::TenantLimits limits_;
  std::unique_ptr<cluster::SqlClusterStore> store_;
  ClaimTable claims_{[this](std::string tenant, std::function<void()> work) { jobs_->PostOnce(tenant, work); }, "one"};
  std::unique_ptr<SharedJobStore> jobs_;
};

TEST_F(SharedJobStoreTest, StoresAndFindsJobs) {
  const WriteResult result = WriteAndWait(*jobs_, InsertOf({"job-1"}));
  ASSERT_TRUE(result.status.ok()) << result.status;
  ASSERT_EQ(result.sequences.size(), 1u);
  const StatusOr<StoredJob> row = jobs_->database().Find("t", "job-1");
  ASSERT_TRUE(row.ok()) << row.status();
  EXPECT_EQ(row->sequence(), result.sequences[0]);
  EXPECT_EQ(row->job().state(), v1::JOB_STATE_ACCEPTED);
  EXPECT_TRUE(absl::IsNotFound(jobs_->database().Find("other", "job-1").status()));
  EXPECT_TRUE(absl::IsNotFound(jobs_->database().Find("t", "job\n1").status()));
}

TEST_F(SharedJobStoreTest, AKnownKeyReturnsItsJob) {
  ASSERT_TRUE(WriteAndWait(*jobs_, InsertOf({"job-1"}, "key")).status.ok());
  const WriteResult again = WriteAndWait(*jobs_, InsertOf({"job-2"}, "key"));
  ASSERT_TRUE(again.known.has_value()) << again.status;
  EXPECT_EQ(again.known->job_id, "job-1");
  // The core compares the hashes, and refuses the request.
  const WriteResult other = WriteAndWait(*jobs_, InsertOf({"job-3"}, "key", 2));
  ASSERT_TRUE(other.known.has_value()) << other.status;
  EXPECT_EQ(other.known->request_hash.bytes[0], 1);
  EXPECT_EQ(jobs_->database().FindKey("t", "key")->job_id, "job-1");
  EXPECT_TRUE(absl::IsNotFound(jobs_->database().FindKey("t", "other").status()));
}

TEST_F(SharedJobStoreTest, ListsByLabelArrayAndState) {
  ASSERT_TRUE(WriteAndWait(*jobs_, InsertOf({"job-1"})).status.ok());
  ASSERT_TRUE(WriteAndWait(*jobs_, InsertOf({"job-2", "job-3", "job-4"})).status.ok());
  const auto list = [&](JobFilter filter) {
    std::vector<std::string> ids;
    while (filter.before_sequence > 0) {
      const StatusOr<std::vector<StoredJob>> rows = jobs_->database().ListSome("t", &filter);
      EXPECT_TRUE(rows.ok()) << rows.status();
      for (const StoredJob& row : rows.value_or(std::vector<StoredJob>())) {
        ids.push_back(row.job().id());
      }
    }
    return ids;
  };
  JobFilter two;
  two.count_max = 2;
  EXPECT_THAT(list(two), ElementsAre("job-4", "job-3", "job-2", "job-1"));
  JobFilter array = two;
  array.array_id = "array-1";
  array.rows_max = 1;
  EXPECT_THAT(list(array), ElementsAre("job-4", "job-3", "job-2"));
  JobFilter label = two;
  label.labels["id"] = "job-1";
  EXPECT_THAT(list(label), ElementsAre("job-1"));
  JobFilter ended = two;
  ended.states = {v1::JOB_STATE_SUCCEEDED};
  EXPECT_THAT(list(ended), ElementsAre());
}

TEST_F(SharedJobStoreTest, CancelsAndHolds) {
  ASSERT_TRUE(WriteAndWait(*jobs_, InsertOf({"job-1"})).status.ok());
  EXPECT_EQ(SetHold("job-1", true, "ann", false)->job().hold().by(), "ann");
  EXPECT_EQ(SetHold("job-1", true, "root", true)->job().hold().by(), "root");
  EXPECT_EQ(SetHold("job-1", true, "ann", false)->job().hold().by(), "root");
  EXPECT_TRUE(absl::IsPermissionDenied(SetHold("job-1", false, "ann", false).status()));
  EXPECT_FALSE(SetHold("job-1", false, "root", true)->job().has_hold());
  const auto cancelled = Await<StoredJob>([&](auto done) { jobs_->Cancel("t", "job-1", std::move(done)); });
  EXPECT_EQ(cancelled->job().state(), v1::JOB_STATE_CANCELLED);
  EXPECT_TRUE(
      absl::IsNotFound(Await<StoredJob>([&](auto done) { jobs_->Cancel("t", "job-2", std::move(done)); }).status()));
}

// A claim that is over cannot change its job.
TEST_F(SharedJobStoreTest, ChangesAreForClaimedJobs) {
  ASSERT_TRUE(WriteAndWait(*jobs_, InsertOf({"job-1"})).status.ok());
  ChangeJob change;
  change.tenant = "t";
  change.id = "job-1";
  change.job.mutable_job()->set_state(v1::JOB_STATE_SUCCEEDED);
  EXPECT_TRUE(absl::IsFailedPrecondition(WriteAndWait(*jobs_, change).status));
  EXPECT_EQ(jobs_->database().Find("t", "job-1")->job().state(), v1::JOB_STATE_ACCEPTED);
}

TEST_F(SharedJobStoreTest, LimitsOfTheTenantHold) {
  limits_.waiting_max = 1;
  ASSERT_TRUE(WriteAndWait(*jobs_, InsertOf({"job-1"})).status.ok());
  EXPECT_TRUE(absl::IsResourceExhausted(WriteAndWait(*jobs_, InsertOf({"job-2"})).status));
  limits_.waiting_max = 2;  // The policy has changed.
  EXPECT_TRUE(WriteAndWait(*jobs_, InsertOf({"job-2"})).status.ok());
}

TEST_F(SharedJobStoreTest, NothingIsLeftOfADeletedTenant) {
  std::vector<std::string> ids;
  for (int i = 0; i < 450; ++i) {
    ids.push_back("job-" + std::to_string(i));
  }
  ASSERT_TRUE(WriteAndWait(*jobs_, InsertOf(ids, "key")).status.ok());
  const std::unique_ptr<SharedJobStore> agent = Make(/*accepts_jobs=*/false);  // Its tenants are others.
  ASSERT_TRUE(WriteAndWait(*agent, ForgetKeys{INT64_MAX, "t"}).status.ok());
  ASSERT_TRUE(WriteAndWait(*jobs_, ForgetKeys{INT64_MAX, ""}).status.ok());
  ASSERT_TRUE(jobs_->database().Find("t", "job-1").ok());
  const WriteResult result = WriteAndWait(*jobs_, ForgetKeys{INT64_MAX, "t"});
  ASSERT_TRUE(result.status.ok()) << result.status;
  EXPECT_TRUE(absl::IsNotFound(jobs_->database().Find("t", "job-1").status()));
  EXPECT_TRUE(absl::IsNotFound(jobs_->database().FindKey("t", "key").status()));
}

TEST_F(SharedJobStoreTest, ADeletionWaitsForJobsThatRun) {
  ASSERT_TRUE(WriteAndWait(*jobs_, InsertOf({"job-1"})).status.ok());
  const auto lease = Await<cluster::Lease>(
      [&](auto done) { store_->Join({.name = "two", .has = {}, .process = "p"}, std::move(done)); });
  ASSERT_TRUE(lease.ok());
  const auto claims = Await<cluster::Claims>([&](auto done) {
    store_->Claim({"two", lease->incarnation, 1, 1}, std::move(done));
  });
  ASSERT_EQ(claims->jobs.size(), 1u);
  EXPECT_TRUE(absl::IsUnavailable(WriteAndWait(*jobs_, ForgetKeys{INT64_MAX, "t"}).status));
  const auto ended = Await<cluster::JobView>([&](auto done) {
    store_->Finish({.worker = "two", .job = {"t", "job-1", 1}, .state = cluster::JobState::kCancelled},
                   std::move(done));
  });
  ASSERT_TRUE(ended.ok()) << ended.status();
  EXPECT_TRUE(WriteAndWait(*jobs_, ForgetKeys{INT64_MAX, "t"}).status.ok());
}

TEST_F(SharedJobStoreTest, AHostThatOnlyRunsJobsAcceptsNone) {
  const std::unique_ptr<SharedJobStore> agent = Make(/*accepts_jobs=*/false);
  const WriteResult result = WriteAndWait(*agent, InsertOf({"job-1"}));
  EXPECT_TRUE(absl::IsFailedPrecondition(result.status));
  EXPECT_THAT(Message(result.status), HasSubstr("only runs jobs"));
}

}  // namespace
}  // namespace hpvm::server
