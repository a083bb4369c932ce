// SPDX-License-Identifier: Apache-2.0
#include "server/cluster/testing/cluster_store_promises.h"

namespace hpvm::server::cluster {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

TEST_P(ClusterStorePromises, RepeatedSubmitsMakeOneJob) {
  NewJob job = Job("a");
  job.idempotency_key = "k";
  ASSERT_TRUE(Submit({job}).ok());
  job.id = "b";
  EXPECT_EQ((*Submit({job}))[0].id, "a");
  job.request = "another";
  EXPECT_THAT(Message(Submit({job}).status()), HasSubstr("used for another request"));
}

TEST_P(ClusterStorePromises, BatchesAreWhole) {
  NewJob late = Job("b");
  late.after = {{"nobody", Dependency::Condition::kEnded}};
  EXPECT_TRUE(absl::IsInvalidArgument(Submit({Job("a"), late}).status()));
  EXPECT_TRUE(absl::IsNotFound(Ask<JobView>([&](auto done) { store_->Get("t", "a", done); }).status()));
  store_->SetLimits("t", {.waiting_max = 1}, [](const auto&) {});
  EXPECT_TRUE(absl::IsResourceExhausted(Submit({Job("a"), Job("b")}).status()));
  EXPECT_TRUE(Submit({Job("a")}).ok());
}

TEST_P(ClusterStorePromises, OldFencesChangeNothing) {
  NewJob job = Job("a");
  job.attempts_max = 2;
  ASSERT_TRUE(Submit({job}).ok());
  const Lease one = *Join("one", "p1"), two = *Join("two", "p2");
  EXPECT_THAT(Claimed("one", one.incarnation, 1), ElementsAre("a/1"));
  clock_.Advance(one.length);
  const auto renewal = Ask<Renewal>([&](auto done) { store_->Renew({"one", one.incarnation, {}, 0}, done); });
  EXPECT_THAT(Message(renewal.status()), HasSubstr("has expired"));
  Sweep();
  EXPECT_EQ(Get("a").state, JobState::kWaiting);
  clock_.Advance(std::chrono::seconds(2));
  const Lease again = *Join("two", "p2", 2);
  EXPECT_GT(again.incarnation, two.incarnation);
  EXPECT_THAT(Claimed("two", again.incarnation, 1), ElementsAre("a/2"));
  EXPECT_TRUE(absl::IsFailedPrecondition(Finish("one", "a", 1).status()));
  EXPECT_TRUE(Finish("two", "a", 2).ok());
  EXPECT_TRUE(Finish("two", "a", 2).ok());  // A repeated call.
  EXPECT_EQ(Get("a").state, JobState::kSucceeded);
  EXPECT_EQ(Get("a").result, "r");
}

// The claim is another host's: its fence may have been given twice, by a database that lost its last transactions.
TEST_P(ClusterStorePromises, ResultsOfAnotherHostAreRefused) {
  ASSERT_TRUE(Submit({Job("a")}).ok());
  const uint64_t host = Join("one", "p1")->incarnation;
  ASSERT_TRUE(Join("two", "p2").ok());
  EXPECT_THAT(Claimed("one", host, 1), ElementsAre("a/1"));
  EXPECT_TRUE(absl::IsFailedPrecondition(Finish("two", "a", 1).status()));
  ASSERT_TRUE(Finish("one", "a", 1).ok());
  EXPECT_TRUE(absl::IsFailedPrecondition(Finish("two", "a", 1).status()));
}

TEST_P(ClusterStorePromises, LostAttemptsCountAndPutBackOnesDoNot) {
  NewJob job = Job("a");
  job.attempts_max = 3;
  ASSERT_TRUE(Submit({job}).ok());
  const uint64_t host = Join("one", "p1")->incarnation;
  EXPECT_THAT(Claimed("one", host, 1), ElementsAre("a/1"));
  EXPECT_EQ(Finish("one", "a", 1, JobState::kWaiting)->attempts, 0u);
  EXPECT_THAT(Claimed("one", host, 2), ElementsAre("a/2"));
  EXPECT_EQ(Finish("one", "a", 2, JobState::kWaiting, /*is_lost=*/true)->attempts, 1u);
  EXPECT_THAT(Claimed("one", host, 3), ElementsAre("a/3"));  // At once: its host may have been the cause.
  EXPECT_EQ(Finish("one", "a", 3, JobState::kWaiting, /*is_lost=*/true)->attempts, 2u);
  EXPECT_THAT(Claimed("one", host, 4), IsEmpty());  // It waits before the next attempt.
  clock_.Advance(std::chrono::seconds(1));
  const Claims last = *Ask<Claims>([&](auto done) { store_->Claim({"one", host, 5}, done); });
  ASSERT_EQ(last.jobs.size(), 1u);
  EXPECT_TRUE(last.jobs[0].is_last_attempt);
  EXPECT_EQ(Finish("one", "a", 4, JobState::kWaiting, /*is_lost=*/true)->state, JobState::kDead);
}

// Claims whose answer was lost come back with the next renewal, and late ones are refused.
TEST_P(ClusterStorePromises, UnansweredClaimsComeBack) {
  ASSERT_TRUE(Submit({Job("a")}).ok());
  const uint64_t host = Join("one", "p1")->incarnation;
  EXPECT_THAT(Claimed("one", host, 1), ElementsAre("a/1"));
  EXPECT_THAT(Claimed("one", host, 1), ElementsAre(HasSubstr("comes late")));  // A copy.
  const auto renew = [&](uint64_t settled) {
    return Ask<Renewal>([&](auto done) { store_->Renew({"one", host, {}, settled}, done); });
  };
  ASSERT_TRUE(renew(0).ok());
  EXPECT_EQ(Get("a").state, JobState::kRunning);
  ASSERT_TRUE(renew(2).ok());
  EXPECT_EQ(Get("a").state, JobState::kWaiting);
  EXPECT_EQ(Get("a").attempts, 0u);
  ASSERT_TRUE(renew(1).ok());  // It comes late.
  EXPECT_THAT(Claimed("one", host, 2), ElementsAre(HasSubstr("comes late")));
}

TEST_P(ClusterStorePromises, LeavingHostsGiveTheirJobsBack) {
  ASSERT_TRUE(Submit({Job("a")}).ok());
  const uint64_t host = Join("one", "p1")->incarnation;
  EXPECT_THAT(Claimed("one", host, 1), ElementsAre("a/1"));
  store_->Leave("one", host, [](const auto&) {});
  EXPECT_EQ(Get("a").state, JobState::kWaiting);
  EXPECT_EQ(Get("a").attempts, 0u);
  EXPECT_THAT(Claimed("one", host, 2), ElementsAre(HasSubstr("has no lease")));
}

// The clock of the database's machine is set, and the store's clock goes on.
TEST_P(ClusterStorePromises, LeasesOutliveLeapsOfTheClock) {
  store_ = nullptr;
  store_ = GetParam()({}, clock_);
  Sweep();
  ASSERT_TRUE(Submit({Job("a")}).ok());
  const uint64_t host = Join("one", "p1")->incarnation;
  EXPECT_THAT(Claimed("one", host, 1), ElementsAre("a/1"));
  for (const int hours : {1, -2}) {
    clock_.JumpWall(hours * Duration(std::chrono::hours(1)).count());
    Sweep();
    EXPECT_EQ(Get("a").state, JobState::kRunning);
  }
  for (int i = 0; i < 6; ++i) {
    clock_.Advance(std::chrono::seconds(2));
    Sweep();
  }
  EXPECT_EQ(Get("a").state, JobState::kDead);
}

TEST_P(ClusterStorePromises, DeadlinesEndJobs) {
  std::vector<NewJob> jobs = {Job("a"), Job("b"), Job("c")};
  for (NewJob& job : jobs) {
    job.deadline = std::chrono::seconds(1);
  }
  ASSERT_TRUE(Submit(jobs).ok());
  const uint64_t host = Join("one", "p1")->incarnation;
  EXPECT_THAT(Claimed("one", host, 1, 2), ElementsAre("a/1", "b/1"));
  ASSERT_TRUE(Finish("one", "b", 1, JobState::kWaiting).ok());
  clock_.Advance(std::chrono::seconds(1));
  EXPECT_THAT(Claimed("one", host, 2), IsEmpty());
  Sweep();
  EXPECT_EQ(Get("b").state, JobState::kFailed);  // It has run.
  EXPECT_EQ(Get("c").state, JobState::kExpired);
  const auto renewal = Ask<Renewal>([&](auto done) { store_->Renew({"one", host, {{"t", "a", 1}}, 2}, done); });
  EXPECT_THAT(renewal->expired, ElementsAre(HeldJob{"t", "a", 1}));
}

TEST_P(ClusterStorePromises, DisabledTenantsRest) {
  ASSERT_TRUE(Submit({Job("a")}).ok());
  const uint64_t host = Join("one", "p1")->incarnation;
  store_->SetLimits("t", {.is_disabled = true}, [](const auto&) {});
  EXPECT_TRUE(absl::IsFailedPrecondition(Submit({Job("b")}).status()));
  EXPECT_THAT(Claimed("one", host, 1), IsEmpty());
  store_->SetLimits("t", {}, [](const auto&) {});
  EXPECT_THAT(Claimed("one", host, 2), ElementsAre("a/1"));
}

TEST_P(ClusterStorePromises, TwoDaemonsWithOneName) {
  const Lease first = *Join("one", "p1");
  const Status refused = Join("one", "p2").status();
  EXPECT_TRUE(absl::IsAlreadyExists(refused));
  EXPECT_THAT(Message(refused), HasSubstr("two daemons have one name"));
  EXPECT_TRUE(absl::IsFailedPrecondition(Join("one", "p1", 1).status()));  // A late copy of its own call.
  EXPECT_TRUE(Join("one", "p3", 1, "p1").ok());                            // It follows the first, which has ended.
  clock_.Advance(first.length);
  EXPECT_TRUE(Join("one", "p2").ok());
}

TEST_P(ClusterStorePromises, DependentsLearnEndsOnce) {
  NewJob after = Job("b"), never = Job("c");
  after.after = {{"a", Dependency::Condition::kSucceeded}};
  never.after = {{"a", Dependency::Condition::kFailed}};
  ASSERT_TRUE(Submit({after, never, Job("a")}).ok());  // In any order.
  const uint64_t host = Join("one", "p1")->incarnation;
  EXPECT_THAT(Claimed("one", host, 1), ElementsAre("a/1"));
  ASSERT_TRUE(Finish("one", "a", 1).ok());
  EXPECT_THAT(Claimed("one", host, 2), IsEmpty());
  Sweep();
  EXPECT_EQ(Get("c").state, JobState::kFailed);
  EXPECT_THAT(Claimed("one", host, 3), ElementsAre("b/1"));
}

TEST_P(ClusterStorePromises, SizesAreLimited) {
  std::vector<NewJob> many;
  for (int i = 0; i <= 1000; ++i) {
    many.push_back(Job("j" + std::to_string(i)));
  }
  EXPECT_THAT(Message(Submit(many).status()), HasSubstr("has 1001 jobs; the limit is 1000"));
  NewJob after = Job("a");
  after.after.resize(1001, {"b", Dependency::Condition::kEnded});
  EXPECT_THAT(Message(Submit({after}).status()), HasSubstr("comes after 1001 jobs; the limit is 1000"));
  many.pop_back();
  EXPECT_TRUE(Submit(many).ok());
}

TEST_P(ClusterStorePromises, NamesAreTexts) {
  const auto refused = [&](const std::function<void(NewJob&)>& change) {
    NewJob job = Job("a");
    change(job);
    const Status status = Submit({job}).status();
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << Message(status);
    return Message(status);
  };
  const std::string zero("a\0b", 3), no_text = "\xff\xfe";
  EXPECT_THAT(refused([&](NewJob& job) { job.id = ""; }), HasSubstr("has 0 bytes"));
  EXPECT_THAT(refused([&](NewJob& job) { job.id = std::string(513, 'a'); }), HasSubstr("513 bytes"));
  EXPECT_THAT(refused([&](NewJob& job) { job.id = zero; }), HasSubstr("is not UTF-8, or contains control characters"));
  refused([&](NewJob& job) { job.tenant = no_text; });
  refused([&](NewJob& job) { job.idempotency_key = no_text; });
  refused([&](NewJob& job) { job.needs.any_of = {{"kind:cpu", no_text}}; });
  refused([&](NewJob& job) { job.needs.prefers = {no_text}; });
  refused([&](NewJob& job) { job.needs.host = zero; });
  refused([&](NewJob& job) { job.after = {{zero, Dependency::Condition::kEnded}}; });
  EXPECT_THAT(refused([&](NewJob& job) { job.attempts_max = 0; }), HasSubstr("may have no attempt"));
  EXPECT_TRUE(absl::IsInvalidArgument(Join(no_text, "p1").status()));
  EXPECT_TRUE(absl::IsInvalidArgument(Join("one", zero).status()));
  EXPECT_TRUE(absl::IsInvalidArgument(Finish("one", "a", 1, JobState::kRunning).status()));
  const auto is_refused = [](const auto& answer) { EXPECT_FALSE(answer.ok()); };
  store_->Cancel("t", zero, is_refused);
  store_->Get(no_text, "a", is_refused);
  store_->SetHold("t", no_text, true, "", is_refused);
  store_->GetRequest("t", zero, is_refused);
  store_->FindKey("t", no_text, is_refused);
  store_->FindKey("t", zero, is_refused);
  store_->SetIntake(no_text, HostIntake::kOpen, is_refused);
  // Bytes of requests are the caller's own.
  NewJob job = Job("a");
  job.request = zero + no_text;
  ASSERT_TRUE(Submit({job}).ok());
  const uint64_t host = Join("one", "p1")->incarnation;
  const auto claims = Ask<Claims>([&](auto done) { store_->Claim({"one", host, 1, 1}, done); });
  ASSERT_EQ(claims->jobs.size(), 1u);
  EXPECT_EQ(claims->jobs[0].request, job.request);
}

TEST_P(ClusterStorePromises, BatchesThatContradictThemselvesAreRefused) {
  NewJob self = Job("a"), b = Job("b"), c = Job("c");
  self.after = {{"a", Dependency::Condition::kEnded}};
  EXPECT_THAT(Message(Submit({self}).status()), HasSubstr("The job \"a\" comes after itself"));
  b.after = {{"c", Dependency::Condition::kEnded}};
  c.after = {{"b", Dependency::Condition::kEnded}};
  EXPECT_TRUE(absl::IsInvalidArgument(Submit({Job("a"), b, c}).status()));
  NewJob one = Job("d"), two = Job("e");
  one.idempotency_key = two.idempotency_key = "k";
  two.request = "another";
  EXPECT_TRUE(absl::IsFailedPrecondition(Submit({one, two}).status()));
  ASSERT_TRUE(Submit({Job("a")}).ok());
  NewJob taken = Job("a");
  taken.idempotency_key = "k2";
  const Status refused = Submit({taken}).status();
  EXPECT_TRUE(absl::IsAlreadyExists(refused));
  EXPECT_THAT(Message(refused), HasSubstr("under another key"));
  EXPECT_TRUE(absl::IsFailedPrecondition(Finish("one", "a", 0).status()));  // Nobody has claimed it.
}

// A batch that is sent again has new ids and the same keys; what comes after one of its jobs comes after the first one.
TEST_P(ClusterStorePromises, IdsOfRepeatedJobsMeanTheFirst) {
  NewJob first = Job("a"), again = Job("a2"), after = Job("b");
  first.idempotency_key = again.idempotency_key = "k";
  after.after = {{"a2", Dependency::Condition::kSucceeded}};
  ASSERT_TRUE(Submit({first}).ok());
  ASSERT_TRUE(Submit({again, after}).ok());
  const uint64_t host = Join("one", "p1")->incarnation;
  EXPECT_THAT(Claimed("one", host, 1), ElementsAre("a/1"));
  ASSERT_TRUE(Finish("one", "a", 1).ok());
  Sweep();
  EXPECT_THAT(Claimed("one", host, 2), ElementsAre("b/1"));
}

TEST_P(ClusterStorePromises, JobsWaitForAllThatTheyComeAfter) {
  NewJob last = Job("c");
  last.after = {{"a", Dependency::Condition::kEnded}, {"b", Dependency::Condition::kEnded}};
  ASSERT_TRUE(Submit({Job("a"), Job("b"), last}).ok());
  const uint64_t host = Join("one", "p1")->incarnation;
  EXPECT_THAT(Claimed("one", host, 1), ElementsAre("a/1", "b/1"));
  ASSERT_TRUE(Finish("one", "a", 1).ok());
  Sweep();
  EXPECT_THAT(Claimed("one", host, 2), IsEmpty());
  ASSERT_TRUE(Finish("one", "b", 1).ok());
  Sweep();
  EXPECT_THAT(Claimed("one", host, 3), ElementsAre("c/1"));
}

TEST_P(ClusterStorePromises, CancellationsReachTheHost) {
  ASSERT_TRUE(Submit({Job("a"), Job("b")}).ok());
  const uint64_t host = Join("one", "p1")->incarnation;
  EXPECT_THAT(Claimed("one", host, 1, 1), ElementsAre("a/1"));
  for (const char* id : {"a", "b"}) {
    store_->Cancel("t", id, [](const auto&) {});
  }
  EXPECT_EQ(Get("b").state, JobState::kCancelled);
  EXPECT_EQ(Get("a").state, JobState::kRunning);
  const auto renewal = Ask<Renewal>([&](auto done) {
    store_->Renew({"one", host, {{"t", "a", 1}, {"t", "b", 7}}, 1}, done);
  });
  EXPECT_THAT(renewal->cancelled, ElementsAre(HeldJob{"t", "a", 1}));
  EXPECT_THAT(renewal->lost, ElementsAre(HeldJob{"t", "b", 7}));
  clock_.Advance(std::chrono::seconds(10));
  Sweep();
  EXPECT_EQ(Get("a").state, JobState::kCancelled);  // Its host was lost: it is not tried again.
}

// The tenant with the least use for its weight is first; within a tenant the highest priority, then the oldest.
TEST_P(ClusterStorePromises, ClaimsAreShared) {
  store_->SetLimits("t", {.weight = 2}, [](const auto&) {});
  NewJob urgent = Job("t3");
  urgent.priority = 1;
  std::vector<NewJob> jobs = {Job("t1"), Job("t2"), urgent};
  jobs[0].needs.any_of = {{"kind:cpu"}};
  for (int i = 1; i <= 3; ++i) {
    jobs.push_back({.tenant = "u", .id = "u" + std::to_string(i)});
  }
  ASSERT_TRUE(Submit(jobs).ok());
  const uint64_t host = Join("one", "p1")->incarnation;
  EXPECT_THAT(Claimed("one", host, 1), ElementsAre("t3/1", "u1/1", "t1/1", "t2/1", "u2/1", "u3/1"));
}

// Use is charged once, and a tenant that was idle gets no credit for the past.
TEST_P(ClusterStorePromises, ClaimsGoByUse) {
  const uint64_t host = Join("one", "p1")->incarnation;
  const auto submit = [&](const std::string& tenant, const std::string& id) {
    NewJob job = Job(id);
    job.tenant = tenant;
    ASSERT_TRUE(Submit({job}).ok());
  };
  const auto finish = [&](const HeldJob& job, int ms) {
    FinishRequest request;
    request.worker = "one";
    request.job = job;
    request.device_time = std::chrono::milliseconds(ms);
    store_->Finish(request, [](const auto& view) { EXPECT_TRUE(view.ok()); });
  };
  submit("t", "t1");
  EXPECT_THAT(Claimed("one", host, 1), ElementsAre("t1/1"));
  finish({"t", "t1", 1}, 1'000);
  finish({"t", "t1", 1}, 1'000);
  submit("u", "u1");
  EXPECT_THAT(Claimed("one", host, 2), ElementsAre("u1/1"));
  finish({"u", "u1", 1}, 1'500);
  submit("u", "u2");
  submit("t", "t2");
  EXPECT_THAT(Claimed("one", host, 3, 1), ElementsAre("t2/1"));
  submit("v", "v1");
  submit("v", "v2");
  EXPECT_THAT(Claimed("one", host, 4, 1), ElementsAre("v1/1"));
  submit("t", "t3");
  EXPECT_THAT(Claimed("one", host, 5, 1), ElementsAre("t3/1"));
}

// Tenants whose jobs a host cannot run do not hide the others.
TEST_P(ClusterStorePromises, ClaimsFindTheLastTenant) {
  std::vector<NewJob> jobs;
  for (int i = 10; i < 50; ++i) {
    jobs.push_back(Job("j" + std::to_string(i)));
    jobs.back().tenant = "t" + std::to_string(i);
    jobs.back().needs.any_of = {{"kind:gpu"}};
  }
  jobs.back().needs.any_of.clear();
  ASSERT_TRUE(Submit(jobs).ok());
  EXPECT_THAT(Claimed("one", Join("one", "p1")->incarnation, 1), ElementsAre("j49/1"));
}

TEST_P(ClusterStorePromises, JobsShareTheMemoryOfTheirHost) {
  std::vector<NewJob> jobs = {Job("a"), Job("b"), Job("c")};
  for (NewJob& job : jobs) {
    job.needs.memory_bytes = 5;
  }
  ASSERT_TRUE(Submit(jobs).ok());
  const uint64_t host = Join("one", "p1")->incarnation;
  EXPECT_THAT(Claimed("one", host, 1), ElementsAre("a/1", "b/1"));
  EXPECT_THAT(Claimed("one", host, 2), IsEmpty());
  ASSERT_TRUE(Finish("one", "a", 1).ok());
  EXPECT_THAT(Claimed("one", host, 3), ElementsAre("c/1"));
}

TEST_P(ClusterStorePromises, JobsWaitALittleForTheHostThatTheyPrefer) {
  NewJob one = Job("a"), other = Job("b");
  one.needs.prefers = other.needs.prefers = {"two"};
  ASSERT_TRUE(Submit({one}).ok());
  const uint64_t host = Join("one", "p1")->incarnation;
  ASSERT_TRUE(Join("two", "p2").ok());
  EXPECT_THAT(Claimed("one", host, 1), IsEmpty());
  clock_.Advance(std::chrono::seconds(5));
  EXPECT_THAT(Claimed("one", host, 2), ElementsAre("a/1"));
  store_->Renew({"one", host, {}, 0}, [](const auto&) {});
  clock_.Advance(std::chrono::seconds(5));
  ASSERT_TRUE(Submit({other}).ok());
  EXPECT_THAT(Claimed("one", host, 3), ElementsAre("b/1"));  // The lease of the other host has ended.
}

// The rows of needs have a limit, which counts those of jobs that have not ended.
TEST_P(ClusterStorePromises, NeedsOfEndedJobsAreForgotten) {
  for (int i = 0; i < 300; ++i) {
    NewJob job = Job("j" + std::to_string(i));
    job.needs.host = "host-" + std::to_string(i);
    ASSERT_TRUE(Submit({job}).ok()) << i;
    store_->Cancel("t", job.id, [](const auto&) {});
  }
  for (int i = 0; i < 300; ++i) {  // Jobs that end in the transaction that adds them.
    NewJob job = Job("after-" + std::to_string(i));
    job.needs.host = "another-" + std::to_string(i);
    job.after = {{"j0", Dependency::Condition::kSucceeded}};
    ASSERT_TRUE(Submit({job}).ok()) << i;
  }
}

TEST_P(ClusterStorePromises, HostsHaveWhatJobsNeed) {
  NewJob gpu = Job("gpu"), big = Job("big"), home = Job("home"), liked = Job("liked");
  gpu.needs.any_of = {{"kind:gpu", "kind:fpga"}};
  big.needs.memory_bytes = 11;
  home.needs.host = "two";
  liked.needs.prefers = {"two"};
  ASSERT_TRUE(Submit({gpu, big, home, liked}).ok());
  const uint64_t one = Join("one", "p1")->incarnation, two = Join("two", "p2")->incarnation;
  EXPECT_THAT(Claimed("one", one, 1), IsEmpty());
  store_->SetIntake("two", HostIntake::kCordoned, [](const auto&) {});
  EXPECT_THAT(Claimed("two", two, 1), IsEmpty());
  EXPECT_THAT(Claimed("one", one, 2), ElementsAre("liked/1"));  // No host that it prefers would take it.
  store_->SetIntake("two", HostIntake::kOpen, [](const auto&) {});
  EXPECT_THAT(Claimed("two", two, 2), ElementsAre("home/1"));
}

TEST_P(ClusterStorePromises, NoMoreOfAGroupRunThanMay) {
  NewJob a = Job("a"), b = Job("b"), c = Job("c"), other = Job("other");
  for (NewJob* job : {&a, &b, &c}) {
    job->needs.running_max = 2;
    job->needs.group = "array";
  }
  other.needs.running_max = 1;
  other.needs.group = "another";
  ASSERT_TRUE(Submit({a, b, c, other}).ok());
  const uint64_t one = Join("one", "p1")->incarnation, two = Join("two", "p2")->incarnation;
  EXPECT_THAT(Claimed("one", one, 1), ElementsAre("a/1", "b/1", "other/1"));
  EXPECT_THAT(Claimed("two", two, 1), IsEmpty());
  EXPECT_TRUE(absl::IsInvalidArgument(Submit({[&] {
                                        NewJob job = Job("bad");
                                        job.needs.running_max = 1;
                                        job.needs.group = "two\nlines";
                                        return job;
                                      }()})
                                          .status()));
  // One that goes back, and one that ends, each make room for one more.
  ASSERT_TRUE(Finish("one", "a", 1, JobState::kWaiting).ok());
  EXPECT_THAT(Claimed("two", two, 2), ElementsAre("a/2"));
  ASSERT_TRUE(Finish("one", "b", 1, JobState::kSucceeded).ok());
  EXPECT_THAT(Claimed("two", two, 3), ElementsAre("c/1"));
  ASSERT_TRUE(Finish("two", "a", 2, JobState::kSucceeded).ok());
  EXPECT_THAT(Claimed("two", two, 4), IsEmpty());
}

TEST_P(ClusterStorePromises, NothingIsLeftOfAPurgedTenant) {
  const auto purge = [&](uint32_t most) {
    return *Ask<SweepResult>([&](auto done) { store_->Purge("t", most, done); });
  };
  NewJob after = Job("after"), other = Job("other");
  after.after = {{"first", Dependency::Condition::kSucceeded}};
  after.idempotency_key = "key";
  other.tenant = "u";
  ASSERT_TRUE(Submit({Job("first"), after, Job("second"), Job("third"), other}).ok());
  const uint64_t one = Join("one", "p1")->incarnation;
  ASSERT_THAT(Claimed("one", one, 1, 1), ElementsAre("first/1"));
  SweepResult result = purge(2);
  EXPECT_EQ(result.changes, 2u);
  EXPECT_TRUE(result.has_more);
  for (int i = 0; i < 10 && result.changes > 0; ++i) {
    result = purge(2);
  }
  EXPECT_EQ(result.changes, 0u);
  EXPECT_TRUE(result.has_more);  // One runs.
  const Renewal renewal = *Renew({.worker = "one", .incarnation = one, .held = {{"t", "first", 1}}});
  EXPECT_THAT(renewal.cancelled, testing::SizeIs(1));
  ASSERT_TRUE(Finish("one", "first", 1, JobState::kCancelled).ok());
  Sweep();
  for (int i = 0; i < 3; ++i) {
    result = purge(10);
  }
  EXPECT_EQ(result.changes, 0u);
  EXPECT_FALSE(result.has_more);
  EXPECT_THAT(List(), IsEmpty());
  EXPECT_TRUE(absl::IsNotFound(FindKey("t", "key").status()));
  EXPECT_TRUE(absl::IsFailedPrecondition(Watch(0).status()));  // There are no events to show.
  EXPECT_THAT(Claimed("one", one, 2), ElementsAre("other/1"));
  ASSERT_TRUE(Submit({Job("first")}).ok());  // The tenant is made anew.
  EXPECT_THAT(Claimed("one", one, 3), ElementsAre("first/1"));
}

TEST_P(ClusterStorePromises, WatchersMissNothing) {
  ASSERT_TRUE(Submit({Job("a"), Job("b")}).ok());
  const auto watch = [&](uint64_t cursor, uint32_t most) {
    return Ask<Events>([&](auto done) { store_->Watch("t", cursor, most, done); });
  };
  EXPECT_EQ(watch(0, 1)->cursor, 1u);
  store_->Cancel("t", "a", [](const auto&) {});
  const Events rest = *watch(1, 10);
  ASSERT_EQ(rest.events.size(), 2u);
  EXPECT_EQ(rest.events[1].id, "a");
  EXPECT_EQ(rest.events[1].state, JobState::kCancelled);
  EXPECT_THAT(watch(3, 10)->events, IsEmpty());
  EXPECT_TRUE(absl::IsInvalidArgument(watch(4, 10).status()));
}

TEST_P(ClusterStorePromises, WatchersLearnThatTheyMissEvents) {
  store_ = nullptr;
  store_ = GetParam()({.events_max = 2}, clock_);
  ASSERT_TRUE(Submit({Job("a"), Job("b")}).ok());
  store_->Cancel("t", "a", [](const auto&) {});
  const auto watch = [&](uint64_t cursor) {
    return Ask<Events>([&](auto done) { store_->Watch("t", cursor, 10, done); });
  };
  EXPECT_TRUE(absl::IsFailedPrecondition(watch(0).status()));
  EXPECT_EQ(watch(1)->events.size(), 2u);
}

TEST_P(ClusterStorePromises, HeldJobsWait) {
  NewJob held = Job("a");
  held.is_held = true;
  ASSERT_TRUE(Submit({held, Job("b")}).ok());
  const auto hold = [&](const std::string& id, bool is_held) {
    return Ask<JobView>([&](auto done) { store_->SetHold("t", id, is_held, is_held ? "why" : "", done); });
  };
  EXPECT_TRUE(hold("b", true)->is_held);
  const uint64_t host = Join("one", "p1")->incarnation;
  clock_.Advance(std::chrono::seconds(1));
  EXPECT_THAT(Claimed("one", host, 1), IsEmpty());
  EXPECT_FALSE(hold("a", false)->is_held);
  EXPECT_THAT(Claimed("one", host, 2), ElementsAre("a/1"));
  EXPECT_THAT(Message(hold("a", true).status()), HasSubstr("is RUNNING; only waiting jobs can be held"));
  EXPECT_TRUE(absl::IsNotFound(hold("nobody", true).status()));
  store_->Cancel("t", "b", [](const auto&) {});
  EXPECT_EQ(Get("b").state, JobState::kCancelled);
}

TEST_P(ClusterStorePromises, ListsHaveTheNewestFirst) {
  ASSERT_TRUE(Submit({Job("a"), Job("b"), Job("c"), Job("d")}).ok());
  NewJob other = Job("x");
  other.tenant = "u";
  ASSERT_TRUE(Submit({other}).ok());
  const uint64_t host = Join("one", "p1")->incarnation;
  EXPECT_THAT(Claimed("one", host, 1, 1), ElementsAre("a/1"));
  const auto list = [&](std::set<JobState> states, uint32_t most) {
    std::vector<std::string> pages;
    ListRequest request{.tenant = "t", .states = std::move(states), .before = 0, .most = most};
    do {
      const JobPage page = *Ask<JobPage>([&](auto done) { store_->List(request, done); });
      std::string ids;
      for (const JobView& job : page.jobs) {
        ids += job.id;
      }
      pages.push_back(ids);
      request.before = page.next;
    } while (request.before != 0);
    return pages;
  };
  EXPECT_THAT(list({}, 100), ElementsAre("dcba"));
  EXPECT_THAT(list({}, 3), ElementsAre("dcb", "a"));
  EXPECT_THAT(list({JobState::kRunning}, 100), ElementsAre("a"));
  EXPECT_THAT(list({JobState::kRunning, JobState::kWaiting}, 3), ElementsAre("dcb", "a"));
  EXPECT_THAT(list({JobState::kDead}, 100), ElementsAre(""));
}

// A job is forgotten with its key some time after its end, but not before its dependents know of the end.
TEST_P(ClusterStorePromises, OldJobsAreForgotten) {
  NewJob after = Job("b");
  after.after = {{"a", Dependency::Condition::kSucceeded}};
  ASSERT_TRUE(Submit({Job("a"), after, Job("c")}).ok());
  const uint64_t host = Join("one", "p1")->incarnation;
  EXPECT_THAT(Claimed("one", host, 1, 1), ElementsAre("a/1"));
  ASSERT_TRUE(Finish("one", "a", 1).ok());
  clock_.Advance(std::chrono::hours(24 * 7 - 1));
  Sweep();
  EXPECT_EQ(Get("a").state, JobState::kSucceeded);
  clock_.Advance(std::chrono::hours(1));
  Sweep();
  EXPECT_TRUE(absl::IsNotFound(Ask<JobView>([&](auto done) { store_->Get("t", "a", done); }).status()));
  EXPECT_EQ(Get("b").state, JobState::kWaiting);
  EXPECT_EQ(Get("c").state, JobState::kWaiting);
  EXPECT_EQ((*Submit({Job("a")}))[0].state, JobState::kWaiting);  // A new one.
}

TEST_P(ClusterStorePromises, HostsAreListed) {
  NewJob big = Job("a");
  big.needs.memory_bytes = 3;
  ASSERT_TRUE(Submit({big}).ok());
  const uint64_t one = Join("one", "p1")->incarnation;
  ASSERT_TRUE(Join("two", "p2").ok());
  EXPECT_THAT(Claimed("one", one, 1), ElementsAre("a/1"));
  store_->SetIntake("two", HostIntake::kCordoned, [](const auto&) {});
  const auto hosts = *Ask<std::vector<HostView>>([&](auto done) { store_->ListHosts(done); });
  ASSERT_EQ(hosts.size(), 2u);
  EXPECT_EQ(hosts[0].name, "one");
  EXPECT_TRUE(hosts[0].is_live && hosts[0].intake == HostIntake::kOpen);
  EXPECT_EQ(hosts[0].running, 1u);
  EXPECT_EQ(hosts[0].memory_used_bytes, 3u);
  EXPECT_EQ(hosts[1].intake, HostIntake::kCordoned);
  clock_.Advance(std::chrono::seconds(10));
  EXPECT_FALSE((*Ask<std::vector<HostView>>([&](auto done) { store_->ListHosts(done); }))[0].is_live);
}

}  // namespace
}  // namespace hpvm::server::cluster
