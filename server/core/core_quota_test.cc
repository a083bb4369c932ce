// SPDX-License-Identifier: Apache-2.0
// Tests quotas and policies in the core: one below, at and one above the limit; what waits, what is refused, and that
// nothing is left over.
#include <algorithm>
#include <chrono>

#include "server/testing/job_fixture.h"

namespace hpvm::server::testing {
namespace {

using scheduler::Resource;
using ::testing::HasSubstr;

class QuotaTest : public JobFixture {
 protected:
  void Limit(Resource resource, uint64_t limit) {
    policies_.changes["ann"] = [=](TenantPolicy& policy) { policy.limits[static_cast<size_t>(resource)] = limit; };
    core_->OnPolicyChanged("ann");
  }
  void SetDisabled(bool disabled) {
    policies_.changes["ann"] = [=](TenantPolicy& policy) {
      policy.disabled = disabled;
      policy.disabled_reason = "the bill is open";
    };
    core_->OnPolicyChanged("ann");
    Pump();
  }
  void AdvanceRounds(int count) {
    for (int i = 0; i < count; ++i) {
      Advance(std::chrono::milliseconds(100));
    }
  }
  // Returns true when nothing of the tenant is left.
  bool Remove(const std::string& name) {
    bool done = false;
    core_->tenant_removal().Remove(name, [&] {
      done = true;
      return absl::OkStatus();
    });
    AdvanceRounds(50);
    return done;
  }
  scheduler::Ledger::Balance Balance(Resource resource) {
    return core_->quotas().ledger().BalanceOf(tenant_->key, resource, clock_.Now());
  }
  StatusOr<v1::Buffer> MakeBuffer(uint64_t bytes) {
    v1::CreateBufferRequest request;
    request.set_size_bytes(bytes);
    return core_->buffers().CreateBuffer(*tenant_, request);
  }
  // Returns the answer of a run; empty until it comes.
  std::shared_ptr<std::optional<RunOutcome>> Run(const std::string& handle) {
    auto answer = std::make_shared<std::optional<RunOutcome>>();
    v1::RunRequest& request = runs_.emplace_back();
    request.set_handle(handle);
    *request.mutable_inputs() = Request().inputs();
    core_->runs().Run(tenant_, request, [answer](RunOutcome outcome) { *answer = std::move(outcome); });
    Pump();
    return answer;
  }
  std::string PrepareHandle() {
    v1::PrepareGraphRequest request;
    request.set_graph_sha256(graph_);
    auto response = std::make_shared<v1::PrepareGraphResponse>();
    core_->graphs().PrepareGraph(tenant_, request, response.get(),
                                 [response](const Outcome& outcome) { EXPECT_EQ(outcome.status, absl::OkStatus()); });
    Prepare();
    return response->handle();
  }
  void TearDown() override {
    Pump();
    EXPECT_EQ(core_->CheckAccounts(/*at_rest=*/true), absl::OkStatus());
  }
  std::deque<v1::RunRequest> runs_;
};

// Host bytes count whole segments, and uploaded documents.
TEST_F(QuotaTest, HostBytes) {
  const uint64_t before = Balance(Resource::kHostBytes).used;
  Limit(Resource::kHostBytes, before + 8192);
  const auto first = MakeBuffer(4096);
  const auto second = MakeBuffer(1);  // Takes a whole page.
  ASSERT_TRUE(first.ok() && second.ok());
  EXPECT_EQ(Balance(Resource::kHostBytes).used, before + 8192);
  const auto third = MakeBuffer(1);
  ASSERT_EQ(third.status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(Message(third.status()), HasSubstr("The tenant's quota of host-bytes"));
  EXPECT_EQ(Balance(Resource::kHostBytes).refused, 1u);
  ASSERT_TRUE(core_->buffers().DeleteBuffer(*tenant_, first->id()).ok());
  EXPECT_TRUE(MakeBuffer(4096).ok());
}

// Unused uploads make room, the least recently used first.
TEST_F(QuotaTest, UploadsGiveWay) {
  const std::string text(5000, 'x');
  PutGraph("{}" + text.substr(0, 900));
  Limit(Resource::kHostBytes, 4096);
  EXPECT_TRUE(MakeBuffer(4096).ok());
  EXPECT_EQ(tenant_->graphs.size(), 0u);
  EXPECT_EQ(Balance(Resource::kHostBytes).refused, 0u);
}

// The document of an unused graph makes room, too: its tenant has no other way to release it.
TEST_F(QuotaTest, PreparedGraphsGiveWay) {
  const std::string handle = PrepareHandle();
  Limit(Resource::kHostBytes, 4096);
  EXPECT_EQ(MakeBuffer(4096).status().code(), absl::StatusCode::kResourceExhausted);
  ASSERT_TRUE(core_->graphs().ReleaseGraph(*tenant_, handle).ok());
  EXPECT_EQ(tenant_->preparations.size(), 1u);  // Kept for the next caller who prepares the graph.
  EXPECT_TRUE(MakeBuffer(4096).ok());
  EXPECT_EQ(tenant_->preparations.size(), 0u);
  EXPECT_EQ(spawner_.last().released.size(), 1u);
}

TEST_F(QuotaTest, PreparedGraphsGiveWayToDocuments) {
  const std::string handle = PrepareHandle();
  config_.limits_stored_bytes_max = 20;
  core_->SetConfig(config_);
  const auto put = [&] {
    const std::string text = "{\"hpvm\": 1, \"n\": 2}";
    auto upload = *BlobUpload::Start("graph document", ToHex(HashOf(text)), text.size(), 1000, 0, "");
    upload->PayWith(*core_->graphs().HoldHostBytes(*tenant_, text.size()));
    EXPECT_TRUE(upload->Add(text).ok());
    return core_->graphs().InsertBlob(*tenant_, Graphs::BlobKind::kGraph, *upload->Finish()).status();
  };
  EXPECT_EQ(put().code(), absl::StatusCode::kResourceExhausted);
  ASSERT_TRUE(core_->graphs().ReleaseGraph(*tenant_, handle).ok());
  EXPECT_EQ(put(), absl::OkStatus());
}

// Modules in use stay, and the next module is refused.
TEST_F(QuotaTest, Modules) {
  Limit(Resource::kModules, 1);
  const auto put = [&](std::string_view text) -> StatusOr<BlobRef> {
    auto upload = *BlobUpload::Start("module", ToHex(HashOf(text)), text.size(), 1000, 1, "");
    upload->PayWith(*core_->graphs().HoldHostBytes(*tenant_, text.size()));
    EXPECT_TRUE(upload->Add(text).ok());
    HPVMD_ASSIGN_OR_RETURN(BlobRef blob, upload->Finish());
    return core_->graphs().InsertBlob(*tenant_, Graphs::BlobKind::kModule, std::move(blob));
  };
  StatusOr<BlobRef> used = put("one");
  ASSERT_TRUE(used.ok());
  const Status refused = put("two").status();
  EXPECT_EQ(Message(refused), "The tenant's quota of modules (1) does not allow 1 more: 1 is in use.");
  *used = nullptr;
  EXPECT_TRUE(put("three").ok());
  EXPECT_EQ(Balance(Resource::kModules).used, 1u);
}

// The quota counts jobs that wait for any reason, not those that run.
TEST_F(QuotaTest, QueuedJobs) {
  Limit(Resource::kQueuedJobs, 2);
  const std::string first = SubmitJob(Request());
  ASSERT_EQ(OpenRuns().size(), 1u);
  EXPECT_EQ(Balance(Resource::kQueuedJobs).used, 0u);
  SubmitAfter(first);
  SubmitAfter(first);
  const AnsweredRef refused = Submit(Request());
  EXPECT_EQ(refused->code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(Message(refused->outcome->status), HasSubstr("The tenant's quota of queued-jobs (2)"));
  v1::SubmitRequest array = Request();
  array.mutable_array()->set_last(1);
  EXPECT_EQ(Submit(array)->code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(Balance(Resource::kQueuedJobs).refused, 2u);
  AnswerRun(Result("abcdefgh"));
  ExpectExactQuotas();
  while (!OpenRuns().empty()) {
    AnswerRun(Result("abcdefgh"));
  }
  EXPECT_EQ(Balance(Resource::kQueuedJobs).used, 0u);
  EXPECT_EQ(Balance(Resource::kRunningJobs).used, 0u);
}

// A tenant's own quota of queued jobs holds in place of the configuration's, whether it is smaller or larger;
// ServerInfo reports the quota that holds.
TEST_F(QuotaTest, QueuedJobsOfOneTenant) {
  Config config = config_;
  config.jobs_queued_per_tenant_max = 1;
  config.jobs_queued_max = 4;
  core_->SetConfig(config);
  const auto told = [&] {
    v1::ServerInfoResponse response;
    core_->ServerInfo(*tenant_, &response);
    return response.limits().queued_jobs_max();
  };
  EXPECT_EQ(told(), 1u);
  Limit(Resource::kQueuedJobs, 3);
  EXPECT_EQ(told(), 3u);
  const std::string first = SubmitJob(Request());  // This job runs.
  for (int i = 0; i < 3; ++i) {
    SubmitAfter(first);
  }
  EXPECT_THAT(Message(Submit(Request())->outcome->status), HasSubstr("The tenant's quota of queued-jobs (3)"));
  Limit(Resource::kQueuedJobs, 0);  // No quota of its own.
  EXPECT_EQ(told(), 4u);
  SubmitAfter(first);
  EXPECT_THAT(Message(Submit(Request())->outcome->status), HasSubstr("The server's queue is full (4 jobs wait"));
}

// Disk bytes include the rows of jobs that have ended; a job above the limit is refused before anything is written.
TEST_F(QuotaTest, DiskBytes) {
  const std::string id = SubmitJob(Request());
  AnswerRun(Result("abcdefgh"));
  const uint64_t one = Balance(Resource::kDiskBytes).used;
  EXPECT_EQ(one, Row(id).stored_bytes());
  Limit(Resource::kDiskBytes, one);
  const AnsweredRef refused = Submit(Request());
  EXPECT_EQ(refused->code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(Message(refused->outcome->status), HasSubstr("The tenant's quota of disk-bytes"));
  EXPECT_EQ(Balance(Resource::kDiskBytes).used, one);
  ExpectExactQuotas();
}

// The disk has a limit for all tenants together, which includes what was there at the start.
TEST_F(QuotaTest, DiskBytesOfAll) {
  const std::string id = SubmitJob(Request());
  AnswerRun(Result("abcdefgh"));
  const uint64_t one = Balance(Resource::kDiskBytes).used;
  config_.jobs_disk_bytes_max = one + 1;
  Restart();
  EXPECT_EQ(core_->quotas().ledger().TotalOf(Resource::kDiskBytes), one);
  const AnsweredRef refused = Submit(Request());
  Prepare();
  EXPECT_EQ(refused->code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(Message(refused->outcome->status), HasSubstr("The limit of all tenants together for disk-bytes"));
  config_.jobs_disk_bytes_max = 0;
  core_->SetConfig(config_);
  SubmitJob(Request());
  ExpectExactQuotas();
}

// With a debt of device time, runs are refused and say when to retry; jobs wait, say why, and go on when it is paid.
TEST_F(QuotaTest, DeviceTime) {
  const std::string handle = PrepareHandle();
  Limit(Resource::kDeviceTime, 3'600'000'000'000 / 10);  // A tenth of the time.
  const auto first = Run(handle);
  ASSERT_FALSE(first->has_value());
  clock_.Advance(std::chrono::seconds(370));
  AnswerRun(Result("abcdefgh"));
  ASSERT_TRUE(first->has_value());
  ASSERT_GT(Balance(Resource::kDeviceTime).used, 0u);
  const auto second = Run(handle);
  ASSERT_TRUE(second->has_value());
  EXPECT_EQ((*second)->outcome.status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_TRUE((*second)->outcome.detail->retryable());
  EXPECT_GT((*second)->outcome.detail->retry_after_ns(), 0u);
  const std::string job = SubmitJob(Request());
  EXPECT_EQ(State(job), "ACCEPTED");
  EXPECT_THAT(Job(job).waits_for(), HasSubstr("Waits for device time"));
  EXPECT_THAT(Job(job).waits_for(), ::testing::Not(HasSubstr("deadline")));
  v1::SubmitRequest hasty = Request();
  hasty.mutable_options()->set_deadline_ns(1'000'000'000);
  EXPECT_THAT(Job(SubmitJob(hasty)).waits_for(), ::testing::EndsWith(", after the job's deadline."));
  EXPECT_TRUE(OpenRuns().empty());
  Advance(Duration((*second)->outcome.detail->retry_after_ns()));
  for (int i = 0; i < 2 && OpenRuns().empty(); ++i) {
    Advance(std::chrono::minutes(1));
  }
  EXPECT_EQ(OpenRuns().size(), 1u);
  AnswerRun(Result("abcdefgh"));
  EXPECT_EQ(State(job), "SUCCEEDED");
}

// A restart neither refills a spent quota nor forgets what was spent, and the time in between is earned.
TEST_F(QuotaTest, SpentTimeOutlivesTheDaemon) {
  Limit(Resource::kDeviceTime, 3'600'000'000'000 / 10);
  const auto first = Run(PrepareHandle());
  clock_.Advance(std::chrono::seconds(400));
  AnswerRun(Result("abcdefgh"));
  ASSERT_TRUE(first->has_value());
  const scheduler::Ledger::Balance before = Balance(Resource::kDeviceTime);
  ASSERT_EQ(before.available, 0u);
  Restart();
  EXPECT_EQ(Balance(Resource::kDeviceTime).used, before.used);
  EXPECT_EQ(Balance(Resource::kDeviceTime).available, 0u);
  const std::string job = SubmitJob(Request());
  EXPECT_THAT(Job(job).waits_for(), HasSubstr("Waits for device time"));
  clock_.Advance(std::chrono::hours(1));
  Restart();
  EXPECT_EQ(Balance(Resource::kDeviceTime).used, before.used);
  EXPECT_GT(Balance(Resource::kDeviceTime).available, 100'000'000'000u);
}

// Compile time is charged as the executor reports it, but never more than the wall time on every processor.
TEST_F(QuotaTest, CompileTime) {
  Limit(Resource::kCompileTime, 1'000'000'000);
  v1::PrepareGraphRequest request;
  request.set_graph_sha256(graph_);
  v1::PrepareGraphResponse response;
  std::vector<Outcome> outcomes;
  const auto done = [&](const Outcome& outcome) { outcomes.push_back(outcome); };
  core_->graphs().PrepareGraph(tenant_, request, &response, done);
  Pump();
  clock_.Advance(std::chrono::seconds(3));
  internal::Prepared reply = Accepted();
  reply.set_compile_cpu_ns(UINT64_MAX);
  spawner_.last().AnswerPrepare(std::move(reply));
  ASSERT_EQ(outcomes.size(), 1u);
  EXPECT_TRUE(outcomes[0].ok());
  EXPECT_EQ(Balance(Resource::kCompileTime).used, 3'000'000'000u);
  // A prepared graph costs nothing.
  core_->graphs().PrepareGraph(tenant_, request, &response, done);
  EXPECT_TRUE(outcomes.at(1).ok());
  request.set_graph_sha256(PutGraph("{\"hpvm\": 1, \"other\": 2}"));
  core_->graphs().PrepareGraph(tenant_, request, &response, done);
  ASSERT_EQ(outcomes.size(), 3u);
  EXPECT_THAT(Message(outcomes[2].status), HasSubstr("The tenant's quota of compile-seconds (1 an hour) is spent"));
  EXPECT_TRUE(outcomes[2].detail->retryable());
}

// Requests and their bytes are counted without the core's mutex.
TEST_F(QuotaTest, Requests) {
  Limit(Resource::kRequests, 1);
  EXPECT_TRUE(core_->quotas().meter().Begin(*tenant_, 100).ok());
  EXPECT_TRUE(core_->quotas().meter().Begin(*tenant_, 100).ok());
  const Outcome refused = core_->quotas().meter().Begin(*tenant_, 100);
  EXPECT_EQ(Message(refused.status), "The tenant's quota of requests (1 a second) is spent: more is available in 1 s.");
  EXPECT_EQ(refused.detail->retry_after_ns(), 1'000'000'000u);
  EXPECT_EQ(Balance(Resource::kRequestBytes).used, 200u);
  Limit(Resource::kRequestBytes, 1000);
  EXPECT_TRUE(core_->quotas().meter().More(*tenant_, 5000).ok()) << "It is here already.";
  EXPECT_EQ(core_->quotas().meter().More(*tenant_, 1).status.code(), absl::StatusCode::kResourceExhausted);
  clock_.Advance(std::chrono::seconds(3));
  EXPECT_TRUE(core_->quotas().meter().More(*tenant_, 1).ok());
}

// A disabled tenant's calls are refused, its runs fail, its attempts do not count and its jobs wait; all of it resumes
// afterwards.
TEST_F(QuotaTest, Disabled) {
  const std::string handle = PrepareHandle();
  const auto run = Run(handle);
  const std::string job = SubmitJob(Request()), after = SubmitAfter(job);
  ASSERT_EQ(OpenRuns().size(), 2u);
  SetDisabled(true);
  EXPECT_NE(spawner_.last().killed, "");
  spawner_.last().Die(Unavailable("The executor process ended (signal 9)."));
  Pump();
  ASSERT_TRUE(run->has_value());
  EXPECT_EQ((*run)->outcome.status.code(), absl::StatusCode::kPermissionDenied);
  EXPECT_EQ(Message((*run)->outcome.status), "The tenant \"ann\" is disabled: the bill is open.");
  EXPECT_EQ(core_->tenants().FindTenant("ann").status().code(), absl::StatusCode::kPermissionDenied);
  EXPECT_TRUE(core_->tenants().FindTenant("ann", /*also_disabled=*/true).ok());
  EXPECT_EQ(State(job), "ACCEPTED");
  EXPECT_EQ(Row(job).attempts_spent(), 0u);
  EXPECT_EQ(Job(job).waits_for(), "Waits until the tenant is enabled again: the bill is open.");
  EXPECT_EQ(Balance(Resource::kRunningJobs).used, 0u);
  Advance(std::chrono::minutes(1));
  EXPECT_TRUE(OpenRuns().empty());
  ExpectExactQuotas();
  SetDisabled(false);
  EXPECT_TRUE(core_->tenants().FindTenant("ann").ok());
  for (int i = 0; i < 2; ++i) {
    AnswerRun(Result("abcdefgh"));
  }
  EXPECT_EQ(State(job), "SUCCEEDED");
  EXPECT_EQ(State(after), "SUCCEEDED");
}

// Jobs of a tenant that no longer exists wait, across a restart; its name is answered like one that never existed.
TEST_F(QuotaTest, UnknownTenants) {
  config_.jobs_running_per_tenant_max = 1;
  core_->SetConfig(config_);
  SubmitJob(Request());
  const std::string job = SubmitJob(Request());
  policies_.gone = {"ann", "bob"};
  core_->OnPolicyChanged("ann");
  EXPECT_EQ(core_->tenants().FindTenant("ann").status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(Message(core_->tenants().FindTenant("bob").status()), "There is no tenant \"bob\".");
  v1::GetUsageResponse usage;
  EXPECT_EQ(core_->Usage("bob", &usage).code(), absl::StatusCode::kNotFound);
  spawner_.last().Die(Unavailable("The executor process ended (signal 9)."));
  Pump();
  EXPECT_EQ(State(job), "ACCEPTED");
  policies_.gone.clear();
  Restart();
  EXPECT_EQ(OpenRuns().size(), 1u);
}

// GetUsage reports the ledger's values, also for tenants that never called.
TEST_F(QuotaTest, Usage) {
  Limit(Resource::kRequests, 10);
  ASSERT_TRUE(MakeBuffer(5000).ok());
  v1::GetUsageResponse usage;
  ASSERT_TRUE(core_->Usage("ann", &usage).ok());
  ASSERT_EQ(usage.resources_size(), static_cast<int>(scheduler::kResourceCount));
  EXPECT_EQ(usage.weight(), 100u);
  const v1::ResourceUsage& host = usage.resources(static_cast<int>(Resource::kHostBytes));
  EXPECT_EQ(host.resource(), "host-bytes");
  EXPECT_EQ(host.used(), Balance(Resource::kHostBytes).used);
  EXPECT_EQ(host.unit(), v1::ResourceUsage::UNIT_BYTES);
  const v1::ResourceUsage& requests = usage.resources(static_cast<int>(Resource::kRequests));
  EXPECT_EQ(requests.available(), 20u);
  EXPECT_EQ(requests.period_ns(), 1'000'000'000u);
  usage.Clear();
  ASSERT_TRUE(core_->Usage("carol", &usage).ok());
  EXPECT_EQ(usage.resources_size(), static_cast<int>(scheduler::kResourceCount));
}

// When a tenant is deleted, waiting jobs are cancelled, all jobs are removed from the store, keys are forgotten and
// memory is freed; then `done` is called, once.
TEST_F(QuotaTest, RemovesATenant) {
  const std::string ended = SubmitJob(Request("key"));
  AnswerRun(Result(std::string(40'000, 'x')));
  EXPECT_EQ(State(ended), "SUCCEEDED");
  const std::string runs = SubmitJob(Request());
  v1::SubmitRequest after = Request();
  after.add_after()->set_job_id(runs);
  const std::string waits = SubmitJob(after);
  ASSERT_TRUE(MakeBuffer(4'000).ok());
  SetDisabled(true);
  spawner_.last().Die(Unavailable("The executor process ended (signal 9)."));
  Pump();
  int done = 0;
  Status result = Unavailable("The database is busy.");
  core_->tenant_removal().Remove("ann", [&] {
    ++done;
    return result;
  });
  core_->tenant_removal().Remove("ann", [] { return Internal("Twice."); });
  for (int i = 0; i < 200 && done == 0; ++i) {
    Advance(std::chrono::milliseconds(100));
  }
  EXPECT_EQ(done, 1);
  EXPECT_TRUE(tenant_->jobs.empty());
  EXPECT_EQ(tenant_->buffers.size() + tenant_->modules.size() + tenant_->graphs.size(), 0u);
  EXPECT_TRUE(tenant_->handles.empty());
  EXPECT_EQ(tenant_->stored_rows.amount(), 0u);
  for (const std::string& id : {ended, runs, waits}) {
    EXPECT_TRUE(absl::IsNotFound(store_->database().Find("ann", id).status())) << id;
  }
  EXPECT_TRUE(absl::IsNotFound(store_->database().FindKey("ann", "key").status()));
  // A callback that failed is called again until it succeeds, and then no more.
  result = absl::OkStatus();
  for (int i = 0; i < 100; ++i) {
    Advance(std::chrono::milliseconds(100));
  }
  EXPECT_EQ(done, 2);
  ExpectExactQuotas();
}

// Another host deletes the tenant: what this host has of it in memory goes, and the store is left to the other one.
TEST_F(QuotaTest, GivesUpWhatIsHereOfATenant) {
  const std::string ended = SubmitJob(Request());
  AnswerRun(Result("abcdefgh"));
  ASSERT_TRUE(MakeBuffer(4'000).ok());
  SetDisabled(true);
  core_->tenant_removal().Follow("ann", [] { return true; });
  core_->tenant_removal().Follow("nobody", [] { return true; });
  AdvanceRounds(50);
  EXPECT_TRUE(tenant_->handles.empty());
  EXPECT_EQ(tenant_->buffers.size(), 0u);
  EXPECT_TRUE(store_->database().Find("ann", ended).ok());
  EXPECT_TRUE(Remove("ann"));  // It may be deleted here later, under the same name.
}

// A tenant that is made anew under the name and is at work keeps its buffers.
TEST_F(QuotaTest, TenantsThatAreMadeAnewAreLeftAlone) {
  bool is_gone = true;
  ++tenant_->uploads;  // It is never without work.
  SetDisabled(true);
  core_->tenant_removal().Follow("ann", [&] { return is_gone; });
  AdvanceRounds(1);
  SetDisabled(false);
  ASSERT_TRUE(MakeBuffer(4'000).ok());
  AdvanceRounds(1);
  EXPECT_EQ(tenant_->buffers.size(), 0u);
  is_gone = false;
  AdvanceRounds(30);
  ASSERT_TRUE(MakeBuffer(4'000).ok());
  AdvanceRounds(50);
  EXPECT_EQ(tenant_->buffers.size(), 1u);
  --tenant_->uploads;
}

// A store that commits nothing gets each write once, however often the removal looks, and the removal ends with it.
TEST_F(QuotaTest, RemovalWaitsForTheStore) {
  for (int i = 0; i < 3; ++i) {
    SubmitJob(Request());
    AnswerRun(Result("abcdefgh"));
  }
  SetDisabled(true);
  spawner_.last().Die(Unavailable("The executor process ended (signal 9)."));
  Pump();
  store_->hold_commits = true;
  bool done = false;
  core_->tenant_removal().Remove("ann", [&] {
    done = true;
    return absl::OkStatus();
  });
  for (int i = 0; i < 50; ++i) {
    Advance(std::chrono::milliseconds(100));
  }
  EXPECT_EQ(std::ranges::count(store_->writes, "drop"), 3);
  EXPECT_FALSE(done);
  store_->hold_commits = false;
  for (int i = 0; i < 50; ++i) {
    Advance(std::chrono::milliseconds(100));
  }
  EXPECT_TRUE(done);
}

// A removal does not affect other tenants' jobs and keys.
TEST_F(QuotaTest, RemovalLeavesOthersAlone) {
  const std::string mine = SubmitJob(Request("key"));
  AnswerRun(Result("abcdefgh"));
  EXPECT_TRUE(Remove("nobody"));
  EXPECT_EQ(State(mine), "SUCCEEDED");
  EXPECT_EQ(Submit(Request("key"))->id(), mine);
}

}  // namespace
}  // namespace hpvm::server::testing
