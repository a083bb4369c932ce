// SPDX-License-Identifier: Apache-2.0
// Promises about what the store keeps of a job without looking into it: records, holds, hashes of requests; and about
// hosts that change their words, or are to drain.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "server/cluster/testing/cluster_store_promises.h"

namespace hpvm::server::cluster {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

NewJob WithRecord(const std::string& id, const std::string& record) {
  NewJob job{.tenant = "t", .id = id};
  job.request = "r";
  job.record = record;
  job.attempts_max = 3;
  return job;
}

TEST_P(ClusterStorePromises, RecordsAreKeptAndReplaced) {
  EXPECT_EQ((*Submit({WithRecord("a", "new")}))[0].record, "new");
  const uint64_t host = Join("one", "p1")->incarnation;
  const auto claim = [&](uint64_t number) {
    return Ask<Claims>([&](auto done) { store_->Claim({"one", host, number}, done); })->jobs.at(0);
  };
  const auto finish = [&](uint64_t fence, JobState state, const std::string& record) {
    FinishRequest request{.worker = "one", .job = {"t", "a", fence}, .state = state};
    request.result = "r";
    request.record = record;
    return Ask<JobView>([&](auto done) { store_->Finish(request, done); });
  };
  const Claim first = claim(1);
  EXPECT_EQ(first.record, "new");
  EXPECT_EQ(first.attempts, 1u);
  EXPECT_EQ(first.number, Get("a").number);
  EXPECT_EQ(finish(1, JobState::kWaiting, "put back")->record, "put back");
  EXPECT_EQ(claim(2).record, "put back");
  EXPECT_EQ(finish(2, JobState::kWaiting, "")->record, "put back");
  EXPECT_EQ(claim(3).record, "put back");
  EXPECT_EQ(finish(3, JobState::kSucceeded, "ended")->record, "ended");
  EXPECT_EQ(finish(3, JobState::kSucceeded, "again")->record, "ended");  // A repeated call.
  EXPECT_EQ(Get("a").record, "ended");
}

// Lists are read often, and results may be large.
TEST_P(ClusterStorePromises, ResultsComeWithTheOneJob) {
  ASSERT_TRUE(Submit({WithRecord("a", "record")}).ok());
  const uint64_t host = Join("one", "p1")->incarnation;
  EXPECT_THAT(Claimed("one", host, 1), ElementsAre("a/1"));
  EXPECT_EQ(Finish("one", "a", 1)->result, "r");
  EXPECT_EQ(Get("a").result, "r");
  const auto page = Ask<JobPage>([&](auto done) { store_->List({.tenant = "t", .states = {}}, done); });
  ASSERT_EQ(page->jobs.size(), 1u);
  EXPECT_EQ(page->jobs[0].result, "");
  EXPECT_EQ(page->jobs[0].record, "record");
  const auto events = Ask<Events>([&](auto done) { store_->Watch("t", 0, 10, done); });
  EXPECT_EQ(events->events.size(), 3u);
  ASSERT_EQ(events->jobs.size(), 1u);  // Once, as it is now.
  EXPECT_EQ(events->jobs[0].state, JobState::kSucceeded);
  EXPECT_EQ(events->jobs[0].result, "");
  EXPECT_EQ(events->jobs[0].record, "record");
}

TEST_P(ClusterStorePromises, StartsAreTheLastClaims) {
  ASSERT_TRUE(Submit({WithRecord("a", "")}).ok());
  EXPECT_EQ(Get("a").started, Time(0));
  const uint64_t host = Join("one", "p1")->incarnation;
  clock_.Advance(std::chrono::seconds(1));
  EXPECT_THAT(Claimed("one", host, 1), ElementsAre("a/1"));
  const Time first = Get("a").started;
  EXPECT_GE(first, Get("a").submitted + std::chrono::seconds(1));
  ASSERT_TRUE(Finish("one", "a", 1, JobState::kWaiting).ok());
  clock_.Advance(std::chrono::seconds(1));
  EXPECT_THAT(Claimed("one", host, 2), ElementsAre("a/2"));
  const Time second = Get("a").started;
  EXPECT_EQ(second, first + std::chrono::seconds(1));
  ASSERT_TRUE(Finish("one", "a", 2).ok());
  EXPECT_EQ(Get("a").started, second);
}

TEST_P(ClusterStorePromises, HoldsHaveATextOfTheirOwn) {
  NewJob held = WithRecord("a", "");
  held.is_held = true;
  held.hold = "at the submit";
  EXPECT_EQ((*Submit({held}))[0].hold, "at the submit");
  const auto hold = [&](bool is_held, const std::string& text) {
    return Ask<JobView>([&](auto done) { store_->SetHold("t", "a", is_held, text, done); });
  };
  EXPECT_EQ(hold(true, "another")->hold, "another");
  EXPECT_EQ(Get("a").hold, "another");
  EXPECT_EQ(hold(false, "gone")->hold, "");
  EXPECT_EQ(Get("a").hold, "");
  EXPECT_THAT(Message(hold(true, std::string(3000, 'x')).status()), HasSubstr("3000 bytes; the limit is 2048"));
}

// The bytes of a request may differ where it is the same: a map has no order.
TEST_P(ClusterStorePromises, HashesDecideWhatTheSameRequestIs) {
  const auto job = [](const std::string& id, const std::string& request, const std::string& hash) {
    NewJob made = WithRecord(id, "");
    made.idempotency_key = "key";
    made.request = request;
    made.request_hash = hash;
    return made;
  };
  ASSERT_TRUE(Submit({job("a", "ab", "h")}).ok());
  EXPECT_EQ((*Submit({job("b", "ba", "h")}))[0].id, "a");
  EXPECT_TRUE(absl::IsFailedPrecondition(Submit({job("c", "ab", "other")}).status()));
  NewJob first = job("d", "ab", "h"), second = job("e", "ba", "h");
  first.idempotency_key = second.idempotency_key = "two";
  EXPECT_TRUE(Submit({first, second}).ok());
  second.request_hash = "other";
  first.idempotency_key = second.idempotency_key = "three";
  EXPECT_TRUE(absl::IsFailedPrecondition(Submit({first, second}).status()));
}

TEST_P(ClusterStorePromises, RequestsAndKeysAreFoundByTheirTenant) {
  NewJob job = WithRecord("a", "record");
  job.idempotency_key = "key";
  job.request_hash = "h";
  ASSERT_TRUE(Submit({job}).ok());
  const auto request = [&](const std::string& tenant, const std::string& id) {
    return Ask<StoredJobRequest>([&](auto done) { store_->GetRequest(tenant, id, done); });
  };
  const auto key = [&](const std::string& tenant, const std::string& name) {
    return Ask<KeyView>([&](auto done) { store_->FindKey(tenant, name, done); });
  };
  EXPECT_EQ(request("t", "a")->request, "r");
  EXPECT_EQ(request("t", "a")->request_hash, "h");
  EXPECT_EQ(key("t", "key")->job.id, "a");
  EXPECT_EQ(key("t", "key")->job.record, "record");
  EXPECT_EQ(key("t", "key")->request_hash, "h");
  EXPECT_TRUE(absl::IsNotFound(request("u", "a").status()));
  EXPECT_TRUE(absl::IsNotFound(request("t", "b").status()));
  EXPECT_TRUE(absl::IsNotFound(key("u", "key").status()));
  EXPECT_TRUE(absl::IsNotFound(key("t", "other").status()));
}

TEST_P(ClusterStorePromises, AWatchMayBeginWithTheNewestEvent) {
  ASSERT_TRUE(Submit({WithRecord("a", ""), WithRecord("b", "")}).ok());
  const auto watch = [&](uint64_t cursor) {
    return *Ask<Events>([&](auto done) { store_->Watch("t", cursor, 10, done); });
  };
  const Events newest = watch(kNewestEvent);
  EXPECT_THAT(newest.events, IsEmpty());
  EXPECT_EQ(newest.cursor, 2u);
  ASSERT_TRUE(Submit({WithRecord("c", "")}).ok());
  const Events after = watch(newest.cursor);
  ASSERT_EQ(after.events.size(), 1u);
  EXPECT_EQ(after.events[0].id, "c");
}

TEST_P(ClusterStorePromises, HostsLearnThatTheyAreToDrain) {
  ASSERT_TRUE(Submit({WithRecord("a", "")}).ok());
  const uint64_t host = Join("one", "p1")->incarnation;
  const auto renew = [&](uint64_t incarnation) {
    return Ask<Renewal>([&](auto done) { store_->Renew({"one", incarnation, {}, 0}, done); })->is_draining;
  };
  const auto set = [&](HostIntake intake) {
    return Ask<Nothing>([&](auto done) { store_->SetIntake("one", intake, done); });
  };
  EXPECT_FALSE(renew(host));
  ASSERT_TRUE(set(HostIntake::kDraining).ok());
  EXPECT_TRUE(renew(host));
  EXPECT_THAT(Claimed("one", host, 1), IsEmpty());
  ASSERT_TRUE(set(HostIntake::kCordoned).ok());
  EXPECT_FALSE(renew(host));
  EXPECT_THAT(Claimed("one", host, 2), IsEmpty());
  const uint64_t again = Join("one", "p1", 2)->incarnation;
  EXPECT_THAT(Claimed("one", again, 1), IsEmpty());
  ASSERT_TRUE(set(HostIntake::kOpen).ok());
  EXPECT_THAT(Claimed("one", again, 2), ElementsAre("a/1"));
  EXPECT_TRUE(absl::IsNotFound(
      Ask<Nothing>([&](auto done) { store_->SetIntake("nobody", HostIntake::kOpen, done); }).status()));
}

TEST_P(ClusterStorePromises, ARenewalReplacesTheWordsOfAHost) {
  NewJob job = WithRecord("a", "");
  job.needs.any_of = {{"kind:gpu"}};
  ASSERT_TRUE(Submit({job}).ok());
  const uint64_t host = Join("one", "p1")->incarnation;
  EXPECT_THAT(Claimed("one", host, 1), IsEmpty());
  const auto renew = [&](std::optional<std::set<std::string>> has) {
    RenewRequest request{.worker = "one", .incarnation = host, .held = {}};
    request.has = std::move(has);
    return Ask<Renewal>([&](auto done) { store_->Renew(request, done); }).status();
  };
  EXPECT_TRUE(absl::IsInvalidArgument(renew(std::set<std::string>{"\n"})));
  ASSERT_TRUE(renew(std::set<std::string>{"kind:gpu"}).ok());
  ASSERT_TRUE(renew(std::nullopt).ok());  // They stay.
  EXPECT_THAT(Claimed("one", host, 2), ElementsAre("a/1"));
}

TEST_P(ClusterStorePromises, RecordsAndHashesHaveLimits) {
  NewJob job = WithRecord("a", std::string(300'000, 'x'));
  EXPECT_THAT(Message(Submit({job}).status()), HasSubstr("300000 bytes; the limit is 262144"));
  job = WithRecord("a", "");
  job.request_hash = std::string(65, 'x');
  EXPECT_THAT(Message(Submit({job}).status()), HasSubstr("65 bytes; the limit is 64"));
  FinishRequest request{.worker = "one", .job = {"t", "a", 1}};
  request.record = std::string(300'000, 'x');
  EXPECT_TRUE(absl::IsInvalidArgument(Ask<JobView>([&](auto done) { store_->Finish(request, done); }).status()));
}

}  // namespace
}  // namespace hpvm::server::cluster
