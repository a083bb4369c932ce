// SPDX-License-Identifier: Apache-2.0
// Tests which run wrote the data that its job reads: RetryJob's jobs share the payload of the Submit.
#include "tests/sim/attempts.h"

#include <gtest/gtest.h>

#include <map>
#include <string>
#include <utility>
#include <vector>

namespace hpvm::server::sim {
namespace {

constexpr uint64_t kToken = 7, kLease = 1;

class AttemptsTest : public ::testing::Test {
 protected:
  AttemptsTest() { model_.OnLease(kLease); }

  void Insert(const std::string& id, const std::string& retry_of) {
    StoredJob& row = rows_[id];
    row.set_tenant("ann");
    row.set_in_place(true);
    row.mutable_job()->set_id(id);
    row.mutable_job()->set_name("t" + std::to_string(kToken));
    row.mutable_job()->set_retry_of(retry_of);
    row.mutable_job()->set_state(v1::JOB_STATE_ACCEPTED);
    row.mutable_job()->set_attempts_max(4);
    WriteResult result;
    result.sequences = {++sequence_};
    Commit(InsertJobs{.jobs = {row}, .request = "", .idempotency_key = "", .request_hash = {}}, result);
  }

  void Begin(const std::string& id) {
    StoredJob next = rows_[id];
    next.mutable_job()->set_state(v1::JOB_STATE_RUNNING);
    next.mutable_job()->set_attempt(next.job().attempt() + 1);
    next.set_attempts_spent(next.attempts_spent() + 1);
    next.set_lease(kLease);
    Change(id, next);
  }

  // The daemon stops in order and interrupts the attempt.
  void PutBack(const std::string& id) {
    attempts_.OnDrain();
    StoredJob next = rows_[id];
    next.mutable_job()->set_state(v1::JOB_STATE_ACCEPTED);
    next.set_attempts_spent(next.attempts_spent() - 1);
    next.set_lease(0);
    Change(id, next);
  }

  void Fail(const std::string& id) {
    StoredJob next = rows_[id];
    next.mutable_job()->set_state(v1::JOB_STATE_FAILED);
    next.mutable_job()->set_ended_unix_ns(1);
    next.mutable_job()->mutable_error()->set_code(static_cast<int32_t>(absl::StatusCode::kUnavailable));
    Change(id, next);
  }

  void Run(Fate fate) { attempts_.OnEnd(attempts_.OnStart("ann", kToken, 0), fate); }

  // A job whose run was lost and which may not run again automatically, and a client's retry of it.
  void LoseAndRetry() {
    Insert("job-a", "");
    Begin("job-a");
    Run(Fate::kLost);
    Fail("job-a");
    Insert("job-b", "job-a");
    Begin("job-b");
  }

  std::string failure() const {
    return context_.failure.has_value() ? context_.failure->checker + ": " + context_.failure->sentence : "";
  }

 private:
  void Change(const std::string& id, const StoredJob& next) {
    const StoredJob& now = rows_[id];
    Commit(ChangeJob{.tenant = "ann",
                     .id = id,
                     .state = now.job().state(),
                     .attempt = now.job().attempt(),
                     .lease = now.lease(),
                     .job = next,
                     .results = {}},
           WriteResult());
    rows_[id] = next;
  }

  void Commit(JobWrite write, WriteResult result) {
    model_.OnCommit(std::vector<JobWrite>{std::move(write)}, absl::OkStatus(), {std::move(result)});
  }

  Context context_{1, /*prints=*/false};
  StoreModel model_{context_, /*judges=*/true};
  Attempts attempts_{context_, model_};
  std::map<std::string, StoredJob> rows_;
  uint64_t sequence_ = 0;
};

// The daemon stopped during a slow commit, before it had sent the second job's run.
TEST_F(AttemptsTest, WhatTheEarlierJobWroteIsNotTheRetrysFault) {
  LoseAndRetry();
  PutBack("job-b");
  EXPECT_EQ(failure(), "");
}

TEST_F(AttemptsTest, ARetryThatHasWrittenIsNotPutBack) {
  LoseAndRetry();
  Run(Fate::kLost);
  ASSERT_EQ(failure(), "");
  PutBack("job-b");
  EXPECT_TRUE(failure().starts_with("in place: ")) << failure();
}

TEST_F(AttemptsTest, AJobThatHasWrittenIsNotPutBack) {
  Insert("job-a", "");
  Begin("job-a");
  Run(Fate::kStopped);
  ASSERT_EQ(failure(), "");
  PutBack("job-a");
  EXPECT_TRUE(failure().starts_with("in place: ")) << failure();
}

// Without memory nothing ran; with memory it did.
TEST_F(AttemptsTest, ARunWithoutMemoryHasWrittenNothing) {
  LoseAndRetry();
  Run(Fate::kNoMemory);
  PutBack("job-b");
  ASSERT_EQ(failure(), "");
  Begin("job-b");
  Run(Fate::kNoMemory);
  Run(Fate::kLost);
  ASSERT_EQ(failure(), "");
  PutBack("job-b");
  EXPECT_TRUE(failure().starts_with("in place: ")) << failure();
}

// Two retries of one job run at the same time: once one has written, the next run is the other's.
TEST_F(AttemptsTest, OfTwoRetriesTheOneThatHasWrittenIsNotPutBack) {
  LoseAndRetry();
  Run(Fate::kLost);
  Insert("job-c", "job-a");
  Begin("job-c");
  ASSERT_EQ(failure(), "");
  PutBack("job-c");
  ASSERT_EQ(failure(), "");
  Begin("job-c");
  Run(Fate::kLost);
  ASSERT_EQ(failure(), "");
  PutBack("job-c");
  EXPECT_TRUE(failure().starts_with("in place: ")) << failure();
}

}  // namespace
}  // namespace hpvm::server::sim
