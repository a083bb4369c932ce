// SPDX-License-Identifier: Apache-2.0
// Promises about what the store keeps of a job without looking into it: records, holds, hashes of requests, results;
// and about hosts that change their words, or are cordoned or drained.
#include "server/cluster/testing/cluster_store_promises.h"

namespace hpvm::server::cluster {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST_P(ClusterStorePromises, RecordsAreKept) {
  NewJob job = Job("a");
  job.attempts_max = 3;
  job.record = std::string("first\0\xff", 7);  // The caller's own bytes.
  EXPECT_EQ((*Submit({job}))[0].record, job.record);
  const uint64_t host = Join("one", "p1")->incarnation;
  const Claim first = ClaimOne("one", host, 1);
  EXPECT_EQ(first.record, job.record);
  EXPECT_EQ(first.number, Get("a").number);
  EXPECT_EQ(first.attempts, 1u);
  EXPECT_EQ(Finish(End(1, JobState::kWaiting, "put back"))->record, "put back");
  EXPECT_EQ(ClaimOne("one", host, 2).record, "put back");
  // An empty one leaves the old one.
  EXPECT_EQ(Finish(End(2, JobState::kWaiting, "", /*is_lost=*/true))->record, "put back");
  const Claim last = ClaimOne("one", host, 3);
  EXPECT_EQ(last.record, "put back");
  EXPECT_EQ(last.attempts, 2u);
  EXPECT_EQ(Finish(End(3, JobState::kFailed, "last"))->record, "last");
  EXPECT_EQ(Finish(End(3, JobState::kFailed, "repeated"))->record, "last");
  EXPECT_FALSE(Finish(End(2, JobState::kFailed, "late")).ok());
  EXPECT_EQ(Get("a").record, "last");
  EXPECT_EQ(List()[0].record, "last");
  EXPECT_EQ(Watch(0)->jobs[0].record, "last");
}

// Losses and cancellations leave a job's record as it is.
TEST_P(ClusterStorePromises, RecordsOutliveLosses) {
  NewJob lost = Job("a"), cancelled = Job("b");
  lost.attempts_max = 2;
  lost.record = cancelled.record = "record";
  ASSERT_TRUE(Submit({lost, cancelled}).ok());
  const uint64_t host = Join("one", "p1")->incarnation;
  EXPECT_EQ(ClaimOne("one", host, 1).id, "a");
  store_->Cancel("t", "b", [](const auto&) {});
  const uint64_t again = Join("one", "p1", 2)->incarnation;
  EXPECT_EQ(Get("a").record, "record");
  EXPECT_EQ(ClaimOne("one", again, 1).record, "record");
  clock_.Advance(std::chrono::seconds(10));
  Sweep();
  EXPECT_EQ(Get("a").state, JobState::kDead);
  EXPECT_EQ(Get("a").record, "record");
  EXPECT_EQ(Get("b").record, "record");
}

TEST_P(ClusterStorePromises, StartsAreThoseOfTheLastClaim) {
  clock_.Advance(std::chrono::seconds(1));
  ASSERT_TRUE(Submit({Job("a")}).ok());
  EXPECT_EQ(Get("a").started, Time{0});
  const uint64_t host = Join("one", "p1")->incarnation;
  const auto since_submit = [&](Time JobView::*time) { return Get("a").*time - Get("a").submitted; };
  clock_.Advance(std::chrono::seconds(1));
  EXPECT_THAT(Claimed("one", host, 1), ElementsAre("a/1"));
  EXPECT_EQ(since_submit(&JobView::started), std::chrono::seconds(1));
  clock_.Advance(std::chrono::seconds(1));
  ASSERT_TRUE(Finish("one", "a", 1, JobState::kWaiting).ok());
  EXPECT_EQ(since_submit(&JobView::started), std::chrono::seconds(1));
  EXPECT_EQ(Get("a").ended, Time{0});
  EXPECT_THAT(Claimed("one", host, 2), ElementsAre("a/2"));
  clock_.Advance(std::chrono::seconds(1));
  ASSERT_TRUE(Finish("one", "a", 2).ok());
  EXPECT_EQ(since_submit(&JobView::started), std::chrono::seconds(2));
  EXPECT_EQ(since_submit(&JobView::ended), std::chrono::seconds(3));
  EXPECT_EQ(List()[0].started, Get("a").started);
}

TEST_P(ClusterStorePromises, HoldsHaveTexts) {
  NewJob held = Job("a");
  held.is_held = true;
  held.hold = "by ops\nof lab";
  EXPECT_EQ((*Submit({held, Job("b")}))[0].hold, held.hold);
  EXPECT_EQ(Get("a").hold, held.hold);
  EXPECT_EQ(SetHold("a", true, "by another")->hold, "by another");  // It is held already.
  EXPECT_EQ(SetHold("b", true, "why")->hold, "why");
  EXPECT_EQ(Get("a").hold, "by another");
  EXPECT_EQ(List()[0].hold, "why");
  EXPECT_EQ(SetHold("a", false, "dropped")->hold, "");
  EXPECT_EQ(Get("a").hold, "");
  EXPECT_THAT(Claimed("one", Join("one", "p1")->incarnation, 1), ElementsAre("a/1"));
  EXPECT_TRUE(absl::IsFailedPrecondition(SetHold("a", true, "late").status()));
  EXPECT_EQ(Get("a").hold, "");
  EXPECT_EQ(Get("b").hold, "why");
}

TEST_P(ClusterStorePromises, HashesSayWhichRequestsAreEqual) {
  NewJob job = Job("a");
  job.idempotency_key = "k";
  job.request = "one";
  job.request_hash = std::string("h\0\xff", 3);
  ASSERT_TRUE(Submit({job}).ok());
  NewJob same = job, other = job, plain = job;
  same.id = other.id = plain.id = "b";
  same.request = "with another time stamp";
  EXPECT_EQ((*Submit({same}))[0].id, "a");
  other.request_hash = "another";
  EXPECT_TRUE(absl::IsFailedPrecondition(Submit({other}).status()));
  plain.request_hash = "";  // The requests are compared.
  EXPECT_EQ((*Submit({plain}))[0].id, "a");
  plain.request = "two";
  EXPECT_TRUE(absl::IsFailedPrecondition(Submit({plain}).status()));
  EXPECT_EQ(GetRequest("t", "a")->request, "one");
  EXPECT_EQ(GetRequest("t", "a")->request_hash, job.request_hash);
}

TEST_P(ClusterStorePromises, HashesSayWhichRequestsOfABatchAreEqual) {
  NewJob one = Job("a"), two = Job("b");
  one.idempotency_key = two.idempotency_key = "k";
  one.request_hash = "h";
  two.request_hash = "another";
  EXPECT_TRUE(absl::IsFailedPrecondition(Submit({one, two}).status()));
  two.request_hash = "h";
  two.request = "another";
  const std::vector<JobView> views = *Submit({one, two});
  EXPECT_EQ(views[0].id, "a");
  EXPECT_EQ(views[1].id, "a");
  EXPECT_EQ(List().size(), 1u);
}

TEST_P(ClusterStorePromises, JobsAreFoundByTheirKeys) {
  NewJob job = Job("a");
  job.idempotency_key = "k";
  job.request_hash = "h";
  job.record = "record";
  ASSERT_TRUE(Submit({job, Job("b")}).ok());
  const KeyView found = *FindKey("t", "k");
  EXPECT_EQ(found.job.id, "a");
  EXPECT_EQ(found.job.record, "record");
  EXPECT_EQ(found.request_hash, "h");
  EXPECT_EQ(FindKey("t", "b")->job.id, "b");  // Its id serves as key.
  EXPECT_EQ(FindKey("t", "b")->request_hash, "");
  for (const auto& [tenant, name] : std::vector<std::pair<std::string, std::string>>{{"u", "k"}, {"t", "nothing"}}) {
    EXPECT_TRUE(absl::IsNotFound(FindKey(tenant, name).status()));
  }
  EXPECT_TRUE(absl::IsNotFound(FindKey("t", "a").status()));  // The job has another key.
  EXPECT_TRUE(absl::IsNotFound(GetRequest("u", "a").status()));
  EXPECT_TRUE(absl::IsNotFound(GetRequest("t", "k").status()));
  EXPECT_EQ(GetRequest("t", "a")->request, "r");
  store_->Cancel("t", "a", [](const auto&) {});
  clock_.Advance(std::chrono::hours(24 * 7));
  Sweep();
  EXPECT_TRUE(absl::IsNotFound(FindKey("t", "k").status()));
  EXPECT_TRUE(absl::IsNotFound(GetRequest("t", "a").status()));
}

// Lists and watches would read far too much with them.
TEST_P(ClusterStorePromises, ResultsAreReadAlone) {
  ASSERT_TRUE(Submit({Job("a")}).ok());
  const uint64_t host = Join("one", "p1")->incarnation;
  EXPECT_THAT(Claimed("one", host, 1), ElementsAre("a/1"));
  EXPECT_EQ(Finish("one", "a", 1)->result, "r");
  EXPECT_EQ(Finish("one", "a", 1)->result, "r");
  EXPECT_EQ(Get("a").result, "r");
  EXPECT_EQ(Ask<JobView>([&](auto done) { store_->Cancel("t", "a", done); })->result, "r");
  EXPECT_EQ(List()[0].state, JobState::kSucceeded);
  EXPECT_EQ(List()[0].result, "");
  EXPECT_EQ(Watch(0)->jobs[0].result, "");
  EXPECT_EQ(FindKey("t", "a")->job.result, "");
  EXPECT_EQ((*Submit({Job("a")}))[0].result, "");
}

// An end of a job that it comes after changes nothing of a job that has ended.
TEST_P(ClusterStorePromises, ResultsOfDependentsStay) {
  NewJob after = Job("b");
  after.after = {{"a", Dependency::Condition::kSucceeded}};
  ASSERT_TRUE(Submit({Job("a"), after}).ok());
  store_->Cancel("t", "b", [](const auto&) {});
  EXPECT_EQ(Get("b").result, kEndedByCancel);
  EXPECT_THAT(Claimed("one", Join("one", "p1")->incarnation, 1), ElementsAre("a/1"));
  ASSERT_TRUE(Finish("one", "a", 1).ok());
  Sweep();
  EXPECT_EQ(Get("b").result, kEndedByCancel);
}

TEST_P(ClusterStorePromises, EndsOfTheStoreSayWhy) {
  std::vector<NewJob> jobs = {Job("first"), Job("never"), Job("late"), Job("lost")};
  jobs[1].after = {{"first", Dependency::Condition::kFailed}};
  jobs[2].after = {{"first", Dependency::Condition::kSucceeded}};
  jobs[2].deadline = std::chrono::seconds(1);
  ASSERT_TRUE(Submit(jobs).ok());
  EXPECT_THAT(Claimed("one", Join("one", "p1")->incarnation, 1), ElementsAre("first/1", "lost/1"));
  clock_.Advance(std::chrono::seconds(1));
  Sweep();
  ASSERT_TRUE(Finish("one", "first", 1).ok());
  ASSERT_TRUE(Finish("one", "lost", 1, JobState::kWaiting, /*is_lost=*/true).ok());
  Sweep();
  EXPECT_EQ(Get("never").result, kEndedByDependency);
  EXPECT_EQ(Get("late").result, kEndedByDeadline);
  EXPECT_EQ(Get("lost").result, kEndedByLoss);
}

TEST_P(ClusterStorePromises, HostsThatAreClosedClaimNothing) {
  ASSERT_TRUE(Submit({Job("a")}).ok());
  uint64_t host = Join("one", "p1")->incarnation;
  uint64_t number = 0;
  EXPECT_FALSE(Renew("one", host)->is_draining);
  for (const HostIntake intake : {HostIntake::kCordoned, HostIntake::kDraining}) {
    ASSERT_TRUE(SetIntake("one", intake).ok());
    EXPECT_THAT(Claimed("one", host, ++number), IsEmpty());
    const bool is_draining = intake == HostIntake::kDraining;
    EXPECT_EQ(Renew("one", host)->is_draining, is_draining);
    EXPECT_EQ(Hosts()[0].intake, intake);
    EXPECT_EQ(Hosts()[0].has_left, false);
  }
  store_->Leave("one", host, [](const auto&) {});
  EXPECT_TRUE(Hosts()[0].has_left);
  host = Join("one", "p2")->incarnation;  // It stays as it was set.
  EXPECT_TRUE(Renew("one", host)->is_draining);
  EXPECT_THAT(Claimed("one", host, 1), IsEmpty());
  ASSERT_TRUE(SetIntake("one", HostIntake::kOpen).ok());
  EXPECT_FALSE(Renew("one", host)->is_draining);
  EXPECT_THAT(Claimed("one", host, 2), ElementsAre("a/1"));
  EXPECT_TRUE(absl::IsNotFound(SetIntake("nobody", HostIntake::kOpen)));
}

TEST_P(ClusterStorePromises, RenewalsReplaceWords) {
  std::vector<NewJob> jobs = {Job("a"), Job("b"), Job("c")};
  for (NewJob& job : jobs) {
    job.needs.any_of = {{"label:lab"}};
  }
  ASSERT_TRUE(Submit(jobs).ok());
  const uint64_t host = Join("one", "p1")->incarnation;
  EXPECT_THAT(Claimed("one", host, 1, 1), IsEmpty());
  const auto tell = [&](uint64_t number, std::optional<std::set<std::string>> has) {
    return Renew({.worker = "one", .incarnation = host, .held = {}, .has = std::move(has), .has_number = number})
        .status();
  };
  ASSERT_TRUE(tell(1, {{"label:lab", "kind:cpu"}}).ok());
  EXPECT_THAT(Claimed("one", host, 2, 1), ElementsAre("a/1"));
  ASSERT_TRUE(tell(0, std::nullopt).ok());
  EXPECT_THAT(Claimed("one", host, 3, 1), ElementsAre("b/1"));
  EXPECT_TRUE(absl::IsInvalidArgument(tell(2, {{"\xff"}})));
  EXPECT_THAT(Hosts()[0].has, ElementsAre("kind:cpu", "label:lab"));
  ASSERT_TRUE(tell(2, std::set<std::string>()).ok());
  EXPECT_THAT(Hosts()[0].has, IsEmpty());
  ASSERT_TRUE(tell(1, {{"label:lab", "kind:cpu"}}).ok());  // It comes late.
  EXPECT_THAT(Claimed("one", host, 4, 1), IsEmpty());
  const uint64_t again = Join("one", "p1", 2)->incarnation;  // With words of its own, and numbers that begin anew.
  EXPECT_THAT(Hosts()[0].has, ElementsAre("kind:cpu"));
  ASSERT_TRUE(Renew({.worker = "one", .incarnation = again, .held = {}, .has = {{"label:lab"}}, .has_number = 1}).ok());
  EXPECT_THAT(Claimed("one", again, 1, 1), ElementsAre("c/1"));
}

TEST_P(ClusterStorePromises, SizesOfTextsAreLimited) {
  constexpr size_t kRecordMax = 256 * 1024, kHoldMax = 2 * 1024, kHashMax = 64;
  const auto is_refused = [&](std::string NewJob::*field, size_t size) {
    NewJob job = Job("a");
    job.*field = std::string(size, 'x');
    return absl::IsInvalidArgument(Submit({job}).status());
  };
  EXPECT_TRUE(is_refused(&NewJob::record, kRecordMax + 1));
  EXPECT_TRUE(is_refused(&NewJob::hold, kHoldMax + 1));
  EXPECT_TRUE(is_refused(&NewJob::request_hash, kHashMax + 1));
  NewJob largest = Job("a");
  largest.record = std::string(kRecordMax, 'x');
  largest.hold = std::string(kHoldMax, 'x');
  largest.request_hash = std::string(kHashMax, 'x');
  ASSERT_TRUE(Submit({largest}).ok());
  EXPECT_TRUE(absl::IsInvalidArgument(SetHold("a", true, std::string(kHoldMax + 1, 'y')).status()));
  EXPECT_EQ(Get("a").hold, largest.hold);
  EXPECT_THAT(Claimed("one", Join("one", "p1")->incarnation, 1), ElementsAre("a/1"));
  FinishRequest end = End(1, JobState::kSucceeded, std::string(kRecordMax + 1, 'y'));
  EXPECT_TRUE(absl::IsInvalidArgument(Finish(end).status()));
  EXPECT_EQ(Get("a").state, JobState::kRunning);
  end.record.pop_back();
  EXPECT_EQ(Finish(end)->record, end.record);
}

TEST_P(ClusterStorePromises, WatchersBeginWithTheNewestEvent) {
  EXPECT_EQ(Watch(kNewestEvent)->cursor, 0u);
  ASSERT_TRUE(Submit({Job("a"), Job("b")}).ok());
  const Events newest = *Watch(kNewestEvent);
  EXPECT_EQ(newest.cursor, 2u);
  EXPECT_THAT(newest.events, IsEmpty());
  EXPECT_THAT(newest.jobs, IsEmpty());
  store_->Cancel("t", "b", [](const auto&) {});
  EXPECT_EQ(Watch(newest.cursor)->events.size(), 1u);
}

// The number of events that are kept does not matter.
TEST_P(ClusterStorePromises, TheNewestEventIsThereWhenOthersAreGone) {
  store_ = nullptr;
  store_ = GetParam()({.events_max = 2}, clock_);
  ASSERT_TRUE(Submit({Job("a"), Job("b"), Job("c")}).ok());
  EXPECT_EQ(Watch(kNewestEvent)->cursor, 3u);
  store_->Cancel("t", "b", [](const auto&) {});
  const Events next = *Watch(3);
  EXPECT_EQ(next.cursor, 4u);
  ASSERT_EQ(next.events.size(), 1u);
  EXPECT_EQ(next.events[0].id, "b");
}

// A tenant chooses how large its records are, and a page is read on a thread that all share.
TEST_P(ClusterStorePromises, PagesAreBounded) {
  constexpr size_t kJobs = 40, kBytes = 250 * 1024, kAtOnce = kPageBytesMax / kBytes;
  std::vector<NewJob> jobs;
  for (size_t i = 0; i < kJobs; ++i) {
    jobs.push_back(Job("j" + std::to_string(i)));
    jobs.back().record = std::string(kBytes, 'x');
  }
  ASSERT_TRUE(Submit(jobs).ok());
  const auto list = [&](const std::set<JobState>& states, uint64_t before) {
    return *Ask<JobPage>(
        [&](auto done) { store_->List({.tenant = "t", .states = states, .before = before, .most = 100}, done); });
  };
  for (const std::set<JobState>& states : {std::set<JobState>{}, {JobState::kWaiting, JobState::kFailed}}) {
    const JobPage page = list(states, 0);
    ASSERT_EQ(page.jobs.size(), kAtOnce);
    EXPECT_EQ(page.jobs[0].id, "j39");
    EXPECT_EQ(page.next, page.jobs.back().number);
    const JobPage rest = list(states, page.next);
    ASSERT_EQ(rest.jobs.size(), kJobs - kAtOnce);
    EXPECT_EQ(rest.jobs.back().id, "j0");
    EXPECT_EQ(rest.next, 0u);
  }
  const Events events = *Watch(0);
  EXPECT_EQ(events.events.size(), kAtOnce);
  EXPECT_EQ(events.jobs.size(), kAtOnce);
  EXPECT_EQ(events.cursor, kAtOnce);
  EXPECT_TRUE(events.has_more);
  const Events last = *Watch(events.cursor);
  EXPECT_EQ(last.events.size(), kJobs - kAtOnce);
  EXPECT_FALSE(last.has_more);
  EXPECT_TRUE(Watch(0, 3)->has_more);
}

// Each job of the events comes once, as it is now.
TEST_P(ClusterStorePromises, WatchersSeeTheJobs) {
  ASSERT_TRUE(Submit({Job("b"), Job("a")}).ok());
  store_->Cancel("t", "a", [](const auto&) {});
  const auto ids = [&](uint64_t cursor, uint32_t most) {
    std::string text;
    const Events events = *Watch(cursor, most);
    for (const JobView& job : events.jobs) {
      text += job.id + "=" + std::string(Name(job.state)) + " ";
    }
    return text;
  };
  EXPECT_EQ(ids(0, 100), "b=WAITING a=CANCELLED ");
  EXPECT_EQ(ids(0, 1), "b=WAITING ");
  EXPECT_EQ(ids(2, 100), "a=CANCELLED ");
  clock_.Advance(std::chrono::hours(24 * 7));
  Sweep();
  EXPECT_EQ(Watch(0)->events.size(), 3u);
  EXPECT_EQ(ids(0, 100), "b=WAITING ");
}

}  // namespace
}  // namespace hpvm::server::cluster
