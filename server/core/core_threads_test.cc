// SPDX-License-Identifier: Apache-2.0
// Tests the core under real threads: clients, executors that answer and die on threads of their own, the store's
// threads, a timer, drains and restarts. The test checks that every acknowledged job ends, once; under ThreadSanitizer
// it also checks for data races.
#include <gtest/gtest.h>

#include <condition_variable>
#include <deque>
#include <filesystem>
#include <future>
#include <map>
#include <mutex>
#include <thread>

#include "server/core/core.h"
#include "server/process/log.h"
#include "server/testing/steps.h"
#include "supervisor/testing/messages.h"

namespace hpvm::server {
namespace {

// AnsweringProcess answers each request on its own thread, in order; one in `death_in` runs ends the process instead.
class AnsweringProcess final : public supervisor::ExecutorProcess {
 public:
  AnsweringProcess(uint64_t seed, uint64_t death_in, std::function<void(const Status&)> on_end)
      : rng_(seed), death_in_(death_in), on_end_(std::move(on_end)), thread_([this] { Loop(); }) {}
  ~AnsweringProcess() override {
    End();
    thread_.join();
  }

  supervisor::RequestId Prepare(const supervisor::PrepareInput&,
                                std::function<void(StatusOr<internal::Prepared>)> done) override {
    return Add([done = std::move(done)](const Status& status) {
      internal::Prepared reply =
          supervisor::testing::AcceptedGraph("double", {supervisor::testing::Port("x", ElementType::kF32, {"n"})}, {});
      done(status.ok() ? StatusOr<internal::Prepared>(std::move(reply)) : status);
    });
  }
  supervisor::RequestId Run(const supervisor::RunInput&,
                            std::function<void(StatusOr<supervisor::RunReply>)> done) override {
    return Add([this, done = std::move(done)](const Status& status) {
      if (status.ok() && rng_.Below(death_in_) == 0) {
        End();
        done(Unavailable("The executor process ended (signal 9)."));
        return;
      }
      supervisor::RunReply reply;
      const std::string bytes(rng_.Below(8) == 0 ? 40'000 : 8, 'r');
      supervisor::testing::AddInline(reply, "y", ElementType::kF32, {bytes.size() / 4}, bytes);
      done(status.ok() ? StatusOr<supervisor::RunReply>(std::move(reply)) : status);
    });
  }
  void Release(uint64_t) override {}
  void Cancel(supervisor::RequestId) override {}
  void Ask(internal::Envelope request, AskDone done) override {
    if (!request.has_grant_changed()) {
      done(internal::Envelope());
    } else if (done) {
      Add([done = std::move(done)](const Status& status) {
        done(status.ok() ? StatusOr<internal::Envelope>(internal::Envelope()) : status);
      });
    }
  }
  void Forget(uint64_t) override {}
  std::optional<Duration> CpuTime() const override { return std::nullopt; }
  void Shutdown() override { End(); }
  void Kill(std::string_view) override { End(); }

 private:
  supervisor::RequestId Add(std::function<void(const Status&)> answer) {
    std::unique_lock lock(mutex_);
    const supervisor::RequestId id = ++last_id_;
    if (is_over_) {  // As in the real link: no other thread would ever answer.
      lock.unlock();
      answer(Unavailable("The executor process ended (signal 9)."));
      return id;
    }
    answers_.push_back(std::move(answer));
    changed_.notify_one();
    return id;
  }
  void End() {
    std::lock_guard lock(mutex_);
    ended_ = true;
    changed_.notify_one();
  }
  void Loop() {
    std::unique_lock lock(mutex_);
    while (true) {
      changed_.wait(lock, [this] { return ended_ || !answers_.empty(); });
      if (answers_.empty()) {
        is_over_ = true;
        break;
      }
      const auto answer = std::move(answers_.front());
      answers_.pop_front();
      const Status status = ended_ ? Unavailable("The executor process ended (signal 9).") : absl::OkStatus();
      lock.unlock();
      answer(status);
      lock.lock();
    }
    lock.unlock();
    on_end_(Unavailable("The executor process ended (signal 9)."));
  }

  SeededRng rng_;  // Used by the thread only.
  const uint64_t death_in_;
  const std::function<void(const Status&)> on_end_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void(const Status&)>> answers_;
  supervisor::RequestId last_id_ = 0;
  bool ended_ = false;
  bool is_over_ = false;  // The thread answers no more.
  std::thread thread_;
};

class AnsweringSpawner final : public ExecutorSpawner {
 public:
  StatusOr<std::unique_ptr<supervisor::ExecutorProcess>> Spawn(const SpawnRequest&,
                                                               std::function<void(const supervisor::ExecutorReady&)>,
                                                               std::function<void(const Status&)> on_end) override {
    return std::unique_ptr<supervisor::ExecutorProcess>(
        std::make_unique<AnsweringProcess>(seed_.fetch_add(1), death_in, std::move(on_end)));
  }
  StatusOr<internal::Ready> Probe(const std::string&) override { return internal::Ready(); }
  StatusOr<SandboxFacts> ProbeSandbox(const std::vector<std::string>&, bool) override { return SandboxFacts{4, ""}; }
  uint64_t death_in = 40;

 private:
  std::atomic<uint64_t> seed_{1};
};

class ThreadsTest : public ::testing::Test {
 protected:
  ThreadsTest() {
    StartLog("error");
    char folder[] = "/tmp/hpvmd-threads-XXXXXX";
    folder_ = mkdtemp(folder);
    config_.executor_crashes_max = 1'000'000;
    config_.jobs_queued_per_tenant_max = 200;
    config_.jobs_running_per_tenant_max = 4;
  }
  ~ThreadsTest() override {
    End();
    std::filesystem::remove_all(folder_);
  }

  void Start() {
    store_ = *OpenLocalJobStore(folder_, [](const Status& why) { ADD_FAILURE() << why; });
    CoreOptions options;
    options.config = config_;
    options.clock = &RealClock();
    options.rng = &SystemRng();
    options.spawner = &spawner_;
    options.jobs = store_.get();
    core_ = std::make_unique<Core>(std::move(options));
    ASSERT_TRUE(core_->Restore().ok());
    tenant_ = *core_->tenants().FindTenant("ann");
    auto upload = *BlobUpload::Start("graph document", ToHex(HashOf(std::string_view("{}"))), 2, 10, 0, "");
    ASSERT_TRUE(upload->Add("{}").ok());
    ASSERT_TRUE(core_->graphs().InsertBlob(*tenant_, Graphs::BlobKind::kGraph, *upload->Finish()).ok());
    stop_timer_ = false;
    timer_ = std::thread([this] {
      while (!stop_timer_.load()) {
        core_->OnTime();
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      }
    });
  }
  void End() {
    if (core_ == nullptr) {
      return;
    }
    core_->Stop();
    stop_timer_ = true;
    timer_.join();
    store_.reset();
    tenant_.reset();
    core_.reset();
  }

  // Runs one client, which submits, cancels and reads; returns the ids that were acknowledged.
  std::vector<std::string> Client(uint64_t seed, int calls) {
    SeededRng rng(seed);
    std::vector<std::string> ids;
    for (int i = 0; i < calls; ++i) {
      v1::SubmitRequest request;
      request.mutable_document()->set_graph_sha256(ToHex(HashOf(std::string_view("{}"))));
      v1::InputBinding& input = *request.add_inputs();
      input.set_name("x");
      input.mutable_tensor()->set_type(v1::ELEMENT_TYPE_F32);
      input.mutable_tensor()->add_shape(1);
      input.mutable_tensor()->set_data("abcd");
      // Half of the keys are shared with other clients.
      request.mutable_options()->set_idempotency_key("k" + std::to_string(rng.Below(2) == 0 ? i : seed * 1'000 + i));
      if (!ids.empty() && rng.Below(4) == 0) {
        request.add_after()->set_job_id(ids[rng.Below(ids.size())]);
        request.mutable_after(0)->set_condition(v1::JobDependency::CONDITION_ENDED);
        request.mutable_options()->clear_idempotency_key();
      }
      v1::SubmitResponse response;
      std::promise<Status> answered;
      core_->job_submitter().Submit(tenant_, request, &response,
                                    [&](const Outcome& outcome) { answered.set_value(outcome.status); });
      if (answered.get_future().get().ok()) {
        ids.push_back(response.job().id());
      }
      if (!ids.empty() && rng.Below(6) == 0) {
        v1::CancelJobResponse cancelled;
        std::promise<void> done;
        core_->job_wishes().CancelJob(tenant_, ids[rng.Below(ids.size())], &cancelled,
                                      [&](const Outcome&) { done.set_value(); });
        done.get_future().wait();
      }
      if (!ids.empty() && rng.Below(4) == 0) {
        const std::string& id = ids[rng.Below(ids.size())];
        v1::Job job;
        EXPECT_TRUE(core_->job_reader().GetJob(*tenant_, id, &job).ok());
        const StatusOr<uint64_t> key = core_->job_reader().WatchJob(*tenant_, id, [] {});
        core_->job_reader().ReadEvents(*tenant_, id, 0, 10).status().IgnoreError();
        if (key.ok()) {
          core_->job_reader().Unwatch(*tenant_, id, *key);
        }
        v1::ListJobsResponse list;
        EXPECT_TRUE(testing::Finish(core_->job_reader().ListJobs(tenant_, v1::ListJobsRequest(), &list)).ok());
        core_->Snapshot(true);
        core_->SetConfig(config_);
      }
    }
    return ids;
  }

  std::string folder_;
  Config config_;
  AnsweringSpawner spawner_;
  std::unique_ptr<JobStore> store_;
  std::unique_ptr<Core> core_;
  TenantRef tenant_;
  std::thread timer_;
  std::atomic<bool> stop_timer_{false};
};

// Three daemons run one after another on one store, each stopped in the middle of its work.
TEST_F(ThreadsTest, EveryAcknowledgedJobEnds) {
  std::vector<std::string> ids;
  for (int round = 0; round < 3; ++round) {
    Start();
    std::vector<std::future<std::vector<std::string>>> clients;
    for (uint64_t client = 1; client <= 4; ++client) {
      clients.push_back(std::async(
          std::launch::async, [this, seed = client + 10 * static_cast<uint64_t>(round)] { return Client(seed, 60); }));
    }
    for (auto& client : clients) {
      const std::vector<std::string> acknowledged = client.get();
      ids.insert(ids.end(), acknowledged.begin(), acknowledged.end());
    }
    if (round == 1) {
      core_->Drain();
      core_->StopRunning();
    }
    End();
  }
  spawner_.death_in = UINT64_MAX;
  Start();
  for (int i = 0; i < 3'000 && core_->Snapshot(false).jobs_accepted + core_->operations() > 0; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  std::map<std::string, int> states;
  for (const std::string& id : ids) {
    v1::Job job;
    ASSERT_TRUE(core_->job_reader().GetJob(*tenant_, id, &job).ok()) << id;
    EXPECT_TRUE(IsTerminal(job.state())) << id << " is " << v1::JobState_Name(job.state()) << ": " << job.waits_for();
    ++states[v1::JobState_Name(job.state())];
  }
  EXPECT_GT(states["JOB_STATE_SUCCEEDED"], 100);
  EXPECT_EQ(tenant_->stored_job_bytes(), store_->database().Use()->at("ann").stored_bytes);
  EXPECT_EQ(tenant_->waiting_jobs(), 0u);
}

}  // namespace
}  // namespace hpvm::server
