// SPDX-License-Identifier: Apache-2.0
// Tests watches of jobs and devices, driven by hand.
#include "server/core/jobs/job_watch.h"

#include "server/testing/job_fixture.h"

namespace hpvm::server {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;
using Found = JobWatch::Found;

constexpr char kOutput[] = "output";

class JobWatchTest : public testing::JobFixture {
 protected:
  // Call is one watching call, which reads all answers when it is told to.
  struct Call {
    std::unique_ptr<JobWatch::WatchState> place;
    int wakes = 0;
    Status ended;
    std::string cursor;
    std::vector<std::string> reasons;  // Reasons of lists.
    uint64_t lists = 0, answers = 0;
  };
  std::unique_ptr<Call> Open(const v1::WatchJobsRequest& request = {}, TenantRef tenant = nullptr) {
    auto call = std::make_unique<Call>();
    StatusOr<std::unique_ptr<JobWatch::WatchState>> place =
        core_->job_watch().Open(tenant != nullptr ? tenant : tenant_, request, [call = call.get()] { ++call->wakes; });
    call->ended = place.status();
    if (place.ok()) {
      call->place = *std::move(place);
    }
    return call;
  }
  void Close(std::unique_ptr<Call>& call) {
    core_->job_watch().Close(*call->place);
    call.reset();
  }
  // Returns all changes as "STATE id" or "gone id".
  std::vector<std::string> Read(Call& call, size_t answers_max = SIZE_MAX) {
    std::vector<std::string> told;
    for (v1::WatchJobsResponse response; answers_max > 0;) {
      const StatusOr<Found> found = core_->job_watch().Next(*call.place, &response);
      call.ended = found.status();
      if (!found.ok() || *found == Found::kNothing) {
        break;
      }
      if (*found == Found::kMore) {
        continue;
      }
      --answers_max;
      ++call.answers;
      call.lists += response.list_begins() ? 1 : 0;
      if (response.list_begins()) {
        call.reasons.push_back(response.list_reason());
      }
      call.cursor = response.cursor().empty() ? call.cursor : response.cursor();
      for (const v1::JobChange& change : response.changes()) {
        told.push_back(change.has_job() ? testing::StateName(change.job().state()) + " " + change.job().id()
                                        : "gone " + change.gone_job_id());
      }
    }
    return told;
  }
  std::string RunOne(const v1::SubmitRequest& request) {
    const std::string id = SubmitJob(request);
    AnswerRun(Result(kOutput));
    return id;
  }
  v1::WatchJobsRequest At(const std::string& cursor) {
    v1::WatchJobsRequest request;
    request.set_cursor(cursor);
    return request;
  }
};

// A watch begins with a list, then reports each change once and in order; a broken watch continues after its cursor.
TEST_F(JobWatchTest, TellsEveryChange) {
  const std::string first = RunOne(Request());
  auto call = Open();
  EXPECT_THAT(Read(*call), ElementsAre("SUCCEEDED " + first));
  EXPECT_EQ(call->lists, 1u);
  EXPECT_THAT(Read(*call), IsEmpty());
  const std::string second = SubmitJob(Request());
  OpenRuns();
  EXPECT_GT(call->wakes, 0);
  EXPECT_THAT(Read(*call), ElementsAre("ACCEPTED " + second, "QUEUED " + second, "RUNNING " + second));
  const std::string cursor = call->cursor;
  Close(call);
  AnswerRun(Result(kOutput));
  call = Open(At(cursor));
  EXPECT_THAT(Read(*call), ElementsAre("SUCCEEDED " + second));
  EXPECT_EQ(call->lists, 0u);
  Close(call);
  call = Open(At(cursor));  // A client that lost the answer gets it again.
  EXPECT_THAT(Read(*call), ElementsAre("SUCCEEDED " + second));
  Close(call);
  EXPECT_EQ(Open(At("nonsense"))->ended.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(Open(At("1-2-3"))->ended.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(Open(At(cursor + "0"))->ended.code(), absl::StatusCode::kInvalidArgument);
}

// The first answer comes at once even when there is no change, which tells the client that the watch works.
TEST_F(JobWatchTest, AnswersAtOnce) {
  auto call = Open();
  EXPECT_THAT(Read(*call), IsEmpty());
  EXPECT_EQ(call->answers, 1u);
  auto again = Open(At(call->cursor));
  EXPECT_THAT(Read(*again), IsEmpty());
  EXPECT_EQ(again->answers, 1u);
  EXPECT_EQ(again->lists, 0u);
  Close(call);
  Close(again);
}

// The number of a change tells whether a list may have it already.
TEST_F(JobWatchTest, NumbersTellListsFromChanges) {
  for (int i = 0; i < 70; ++i) {  // More than one step visits.
    RunOne(Request());
  }
  auto other = Open();
  Read(*other);
  const std::string id = SubmitJob(Request());
  OpenRuns();
  auto call = Open();
  v1::WatchJobsResponse list, later;
  ASSERT_EQ(*core_->job_watch().Next(*call->place, &list), Found::kMore);  // One step.
  AnswerRun(Result(kOutput));                                              // The job ends during the list.
  for (StatusOr<Found> found = Found::kMore; found.ok() && *found == Found::kMore;) {
    found = core_->job_watch().Next(*call->place, &list);
  }
  ASSERT_TRUE(list.list_ends());
  ASSERT_THAT(list.changes(), SizeIs(71));
  ASSERT_EQ(*core_->job_watch().Next(*call->place, &later), Found::kAnswer);
  ASSERT_THAT(later.changes(), SizeIs(1));
  EXPECT_EQ(later.changes(0).job().state(), v1::JOB_STATE_SUCCEEDED);
  const v1::Job& listed = list.changes(0).job();
  EXPECT_EQ(listed.id(), id);
  EXPECT_EQ(listed.state(), v1::JOB_STATE_RUNNING);
  EXPECT_GT(listed.change(), 0u);
  EXPECT_LT(listed.change(), later.changes(0).job().change());
  Close(call);
  Close(other);
}

// After a restart, and past the kept history, a watch gets a reason, and a list that ends where the first one did.
TEST_F(JobWatchTest, BeginsAgainWithAList) {
  const std::string old = RunOne(Request());
  const std::string known = RunOne(Request());
  v1::WatchJobsRequest request;
  request.set_list_max(1);
  auto call = Open(request);
  EXPECT_THAT(Read(*call), ElementsAre("SUCCEEDED " + known));
  const std::string cursor = call->cursor;
  Close(call);
  const std::string third = SubmitJob(Request());
  OpenRuns();
  Restart();
  request.set_cursor(cursor);
  call = Open(request);
  EXPECT_THAT(Read(*call), ElementsAre("RUNNING " + third, "SUCCEEDED " + known));
  EXPECT_THAT(call->reasons, ElementsAre(HasSubstr("started again")));
  const std::string after = call->cursor;
  Close(call);
  // After ten minutes without a watch nothing is kept.
  Advance(std::chrono::minutes(11));
  EXPECT_FALSE(tenant_->history.is_kept());
  EXPECT_EQ(tenant_->history.bytes(), 0u);
  call = Open(At(after));
  EXPECT_THAT(Read(*call), SizeIs(2));
  EXPECT_THAT(call->reasons, ElementsAre(HasSubstr("that far back")));
  Close(call);
}

// The list goes on to the oldest job that has not ended, so that no change of one is missed later.
TEST_F(JobWatchTest, ListsAllThatHaveNotEnded) {
  config_.jobs_running_per_tenant_max = 1;
  StartFresh(config_);
  for (int i = 0; i < 40; ++i) {
    RunOne(Request());
  }
  const std::string running = SubmitJob(Request());
  OpenRuns();
  const std::string first = SubmitJob(Request());
  const std::string second = SubmitJob(Request());
  v1::WatchJobsRequest request;
  request.set_list_max(1);
  auto call = Open(request);
  std::vector<std::string> listed = Read(*call);
  EXPECT_LT(listed.size(), 30u);
  listed.resize(3);
  EXPECT_THAT(listed, ElementsAre("QUEUED " + second, "QUEUED " + first, "RUNNING " + running));
  Close(call);
  request.set_list_max(0);
  call = Open(request);
  EXPECT_THAT(Read(*call), SizeIs(43));
  Close(call);
}

// A slow reader is told that it gets a list instead; no caller waits for it, and the kept history stays bounded.
TEST_F(JobWatchTest, SlowReadersBeginAgain) {
  config_.jobs_watch_bytes_per_tenant_max = 16 * 1024;
  StartFresh(config_);
  auto slow = Open();
  auto quick = Open();
  Read(*slow);
  Read(*quick);
  std::vector<std::string> told;
  for (int i = 0; i < 40; ++i) {
    RunOne(Request());
    const std::vector<std::string> some = Read(*quick);
    told.insert(told.end(), some.begin(), some.end());
    EXPECT_LE(tenant_->history.bytes(), 16u * 1024);
  }
  EXPECT_THAT(told, SizeIs(160));
  EXPECT_EQ(quick->lists, 1u);
  EXPECT_THAT(Read(*slow), SizeIs(40));
  EXPECT_EQ(slow->lists, 2u);
  EXPECT_THAT(slow->reasons[1], HasSubstr("faster than they were read"));
  EXPECT_THAT(Read(*slow), IsEmpty());
  Close(slow);
  Close(quick);
}

// Filters work as in lists; a job that leaves the states asked for, or the store, is reported as gone.
TEST_F(JobWatchTest, Filters) {
  v1::WatchJobsRequest request;
  request.add_states(v1::JOB_STATE_RUNNING);
  (*request.mutable_labels())["kind"] = "blur";
  auto call = Open(request);
  EXPECT_THAT(Read(*call), IsEmpty());
  RunOne(Request());
  EXPECT_THAT(Read(*call), IsEmpty());
  v1::SubmitRequest labelled = Request();
  (*labelled.mutable_options()->mutable_labels())["kind"] = "blur";
  const std::string id = SubmitJob(labelled);
  OpenRuns();
  EXPECT_THAT(Read(*call), ElementsAre("RUNNING " + id));
  AnswerRun(Result(kOutput));
  EXPECT_THAT(Read(*call), ElementsAre("gone " + id));
  Advance(std::chrono::hours(25));
  Advance(std::chrono::hours(25));
  EXPECT_THAT(Read(*call), Contains("gone " + id));
  Close(call);
}

// A watch without changes gets new cursors all the same, which do not become outdated.
TEST_F(JobWatchTest, CursorsGoOnWithoutChanges) {
  v1::WatchJobsRequest request;
  request.set_array_id("array-none");
  auto call = Open(request);
  Read(*call);
  const std::string before = call->cursor;
  for (int i = 0; i < 100; ++i) {
    RunOne(Request());
    EXPECT_THAT(Read(*call), IsEmpty());
  }
  EXPECT_NE(call->cursor, before);
  EXPECT_EQ(call->answers, 2u);
  Close(call);
}

// Places are bounded by tenant; ten watchers of one tenant miss nothing beside a flood of another's changes, which
// takes neither their places nor their changes, and does not wake them.
TEST_F(JobWatchTest, TenantsDoNotMeet) {
  config_.jobs_watch_bytes_per_tenant_max = 16 * 1024;
  config_.jobs_watchers_per_tenant_max = 10;
  config_.jobs_watchers_max = 20;
  StartFresh(config_);
  const TenantRef ann = tenant_;
  const std::string graph = graph_;
  std::vector<std::unique_ptr<Call>> watchers;
  for (int i = 0; i < 10; ++i) {
    watchers.push_back(Open());
    Read(*watchers.back());
  }
  EXPECT_EQ(Open()->ended.code(), absl::StatusCode::kResourceExhausted);
  const std::string id = RunOne(Request());
  std::vector<int> wakes;
  for (const auto& call : watchers) {
    wakes.push_back(call->wakes);
  }
  tenant_ = *core_->tenants().FindTenant("bob");
  graph_ = PutGraph("{\"hpvm\": 1}");
  std::vector<std::unique_ptr<Call>> others;
  for (int i = 0; i < 10; ++i) {
    others.push_back(Open());
  }
  EXPECT_EQ(Open()->ended.code(), absl::StatusCode::kResourceExhausted);
  for (int i = 0; i < 60; ++i) {
    RunOne(Request());
  }
  for (size_t i = 0; i < watchers.size(); ++i) {
    EXPECT_EQ(watchers[i]->wakes, wakes[i]);
    EXPECT_THAT(Read(*watchers[i]), ElementsAre("ACCEPTED " + id, "QUEUED " + id, "RUNNING " + id, "SUCCEEDED " + id));
    EXPECT_EQ(watchers[i]->lists, 1u);
    Close(watchers[i]);
  }
  EXPECT_EQ(ann->watchers, 0u);
  for (auto& call : others) {
    Close(call);
  }
  EXPECT_EQ(core_->Snapshot(false).watchers, 0u);
}

// A change itself wakes no watcher, however many there are: some are woken in each of the tenant's turns, and news
// that comes meanwhile is reported once.
TEST_F(JobWatchTest, TellsSomeInEachTurn) {
  std::vector<std::unique_ptr<Call>> watchers;
  for (int i = 0; i < 100; ++i) {
    watchers.push_back(Open());
  }
  const auto woken = [&] {
    return std::count_if(watchers.begin(), watchers.end(), [](const auto& call) { return call->wakes > 0; });
  };
  store_->hold_posted = true;
  {
    v1::Device device;
    device.set_id("null:1");
    core_->OnPolicyChanged("ann");
    core_->OnPolicyChanged("ann");
  }
  EXPECT_EQ(woken(), 0);
  long before = 0;
  for (int turns = 0; woken() < 100; ++turns) {
    ASSERT_LT(turns, 200);
    ASSERT_TRUE(store_->StepPosted());
    EXPECT_LE(woken() - before, 16);
    before = woken();
  }
  store_->hold_posted = false;
  Pump();
  for (auto& call : watchers) {
    EXPECT_EQ(call->wakes, 1);
    Close(call);
  }
}

// A watch ends with its tenant's rights and with the server, and is woken to end when it is as old as a connection may
// be.
TEST_F(JobWatchTest, Ends) {
  auto call = Open();
  Read(*call);
  call->wakes = 0;
  EXPECT_GT(call->place->watcher.until, clock_.Now());
  Advance(call->place->watcher.until - clock_.Now());
  EXPECT_EQ(call->wakes, 1);
  EXPECT_THAT(Read(*call), IsEmpty());
  EXPECT_TRUE(call->ended.ok());
  core_->Stop();
  EXPECT_GT(call->wakes, 1);
  Read(*call);
  EXPECT_EQ(call->ended.code(), absl::StatusCode::kUnavailable);
  Close(call);
}

// Watchers of devices are woken when ListDevices may answer differently, in every tenant.
TEST_F(JobWatchTest, DevicesWake) {
  const TenantRef bob = *core_->tenants().FindTenant("bob");
  int ann_wakes = 0, bob_wakes = 0, job_wakes = 0;
  const auto ann_place = core_->watchers().Add(tenant_, Watchers::kDevices, [&] { ++ann_wakes; });
  const auto bob_place = core_->watchers().Add(bob, Watchers::kDevices, [&] { ++bob_wakes; });
  const auto job_place = core_->watchers().Add(bob, Watchers::kJobs, [&] { ++job_wakes; });
  internal::Ready found;
  found.add_devices()->mutable_device()->set_id("null:7");
  core_->devices().SetFound("null", found);
  Pump();
  EXPECT_EQ(ann_wakes, 1);
  EXPECT_EQ(bob_wakes, 1);
  EXPECT_EQ(job_wakes, 0);
  core_->devices().SetFound("null", Unavailable("The probe ended."));
  core_->devices().OnProbed("null:7", Unavailable("No answer."));
  Pump();
  EXPECT_EQ(ann_wakes, 2);  // Both are woken at once.
  core_->watchers().Remove(tenant_, ann_place->key);
  core_->watchers().Remove(bob, bob_place->key);
  core_->watchers().Remove(bob, job_place->key);
}

}  // namespace
}  // namespace hpvm::server
