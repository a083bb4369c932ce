// SPDX-License-Identifier: Apache-2.0
// Executors simulated by a test: requests are recorded, and answered when the test says so, on the test's thread.
#ifndef HPVMD_SERVER_TESTING_FAKE_EXECUTOR_H_
#define HPVMD_SERVER_TESTING_FAKE_EXECUTOR_H_

#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/io/memfd.h"
#include "server/executors/executor_spawner.h"
#include "supervisor/testing/messages.h"

namespace hpvm::server::testing {

// Replies of executors come from supervisor/testing.
using supervisor::testing::AcceptedGraph;
using supervisor::testing::AddDiagnostic;
using supervisor::testing::AddInline;
using supervisor::testing::AddLine;
using supervisor::testing::AddOutput;
using supervisor::testing::Answering;
using supervisor::testing::BrokenDevice;
using supervisor::testing::DeviceUsage;
using supervisor::testing::FailedPrepare;
using supervisor::testing::FailedRun;
using supervisor::testing::Found;
using supervisor::testing::FoundDevice;
using supervisor::testing::Native;
using supervisor::testing::Placement;
using supervisor::testing::Port;

// The test's view of one executor; outlives the process object that the core owns.
struct FakeExecutor {
  struct PrepareCall {
    uint64_t handle = 0;
    std::vector<std::string> modules;
    std::function<void(StatusOr<internal::Prepared>)> done;  // Empty once answered.
    bool check = false;
    supervisor::RequestId id = 0;
  };
  struct RunCall {
    supervisor::RequestId id = 0;
    uint64_t handle = 0;
    std::vector<std::string> inputs;                // Bytes of each, read when sent.
    std::vector<supervisor::OutputTarget> outputs;  // Descriptors are borrowed: valid during the run.
    Duration within{0};
    std::function<void(StatusOr<supervisor::RunReply>)> done;
    bool log = false;
    bool is_last_chance = false;
    std::function<void(v1::RunLog)> on_log = nullptr;
    uint64_t device_ns_max = 0;
  };

  void AnswerPrepare(internal::Prepared reply) {
    auto done = std::exchange(prepares.back().done, nullptr);
    done(std::move(reply));
  }
  void AnswerRun(supervisor::RunReply reply, size_t index = SIZE_MAX) {
    auto done = std::exchange(runs.at(index == SIZE_MAX ? runs.size() - 1 : index).done, nullptr);
    done(std::move(reply));
  }
  // Replies may add calls, which fail as well. Returns true when there were any.
  template <typename Calls>
  static bool FailAll(Calls& calls, const Status& why) {
    bool did = false;
    for (size_t i = 0; i < calls.size(); ++i) {
      if (auto done = std::exchange(calls[i].done, nullptr)) {
        done(why);
        did = true;
      }
    }
    return did;
  }
  bool FailAll(const Status& why) {
    bool did = FailAll(prepares, why);
    did |= FailAll(runs, why);
    did |= FailAll(costs, why);
    did |= FailAll(reclaims, why);
    return did;
  }
  // Calls after its end fail, too: later, as every reply comes.
  bool FailLate() { return ended && FailAll(Unavailable("The executor process ended.")); }
  // Like the link: every pending request fails, then the end is reported; OK when it was told to end.
  void Die(const Status& why) {
    if (ended) {
      return;
    }
    ended = true;
    FailAll(why.ok() ? Unavailable("The executor process ended.") : why);
    on_end(why);
  }

  std::string tenant;
  std::vector<std::string> backends;
  uint32_t sandbox_level_min = 0;
  bool without_device_nodes = false;
  std::function<void(const supervisor::ExecutorReady&)> on_ready;
  std::deque<PrepareCall> prepares;  // A deque, because replies may add calls.
  std::deque<RunCall> runs;
  std::vector<supervisor::RequestId> cancels;
  std::vector<uint64_t> released, forgotten;
  struct ReclaimCall {
    uint32_t entry = 0;
    uint64_t bytes_max = 0;
    std::function<void(StatusOr<internal::Usage>)> done;
  };
  std::deque<ReclaimCall> reclaims;
  struct CostsCall {
    uint64_t handle;
    std::function<void(StatusOr<internal::Costs>)> done;
  };
  std::deque<CostsCall> costs;
  std::function<void(const internal::Usage&)> on_usage;
  std::optional<Duration> cpu_time;
  std::string killed;
  bool ended = false, shut_down = false, destroyed = false, was_spare = false;
  supervisor::RequestId next_id = 1;
  std::function<void(const Status&)> on_end;
};

class FakeProcess final : public supervisor::ExecutorProcess {
 public:
  explicit FakeProcess(std::shared_ptr<FakeExecutor> state) : state_(std::move(state)) {}
  ~FakeProcess() override {
    state_->destroyed = true;
    state_->Die(Unavailable("The executor process was killed."));
  }
  supervisor::RequestId Prepare(const supervisor::PrepareInput& input,
                                std::function<void(StatusOr<internal::Prepared>)> done) override {
    FakeExecutor::PrepareCall call{input.handle, {}, std::move(done), input.check, state_->next_id++};
    for (const supervisor::ModuleInput& module : input.modules) {
      call.modules.push_back(module.name);
    }
    state_->prepares.push_back(std::move(call));
    return state_->prepares.back().id;
  }
  supervisor::RequestId Run(const supervisor::RunInput& input,
                            std::function<void(StatusOr<supervisor::RunReply>)> done) override {
    FakeExecutor::RunCall call{state_->next_id++,
                               input.handle,
                               {},
                               input.outputs,
                               input.within,
                               std::move(done),
                               input.options.log(),
                               input.options.is_last_chance(),
                               input.on_log,
                               input.options.device_ns_max()};
    for (const supervisor::InputTensor& tensor : input.inputs) {
      std::string bytes(tensor.bytes.begin(), tensor.bytes.end());
      if (tensor.memory.has_value()) {
        bytes.resize(tensor.memory->bytes);
        ReadAt(tensor.memory->fd, tensor.memory->offset, {reinterpret_cast<uint8_t*>(bytes.data()), bytes.size()})
            .IgnoreError();
      }
      call.inputs.push_back(std::move(bytes));
    }
    state_->runs.push_back(std::move(call));
    return state_->runs.back().id;
  }
  void Release(uint64_t handle) override { state_->released.push_back(handle); }
  void Cancel(supervisor::RequestId id) override { state_->cancels.push_back(id); }
  void Ask(internal::Envelope request, AskDone done) override {
    if (request.has_reclaim()) {
      state_->reclaims.push_back({request.reclaim().entry(), request.reclaim().bytes_max(),
                                  Answering(std::move(done), &internal::Envelope::mutable_usage)});
    } else if (request.has_list_costs()) {
      state_->costs.push_back(
          {request.list_costs().handle(), Answering(std::move(done), &internal::Envelope::mutable_costs)});
    } else if (done) {
      done(internal::Envelope());
    }
  }
  void Forget(uint64_t memory_id) override { state_->forgotten.push_back(memory_id); }
  std::optional<Duration> CpuTime() const override { return state_->cpu_time; }
  bool was_spare() const override { return state_->was_spare; }
  void Shutdown() override { state_->shut_down = true; }
  void Kill(std::string_view why) override {
    state_->killed = why;
    state_->Die(Unavailable(why));
  }

 private:
  std::shared_ptr<FakeExecutor> state_;
};

class FakeSpawner final : public ExecutorSpawner {
 public:
  StatusOr<std::unique_ptr<supervisor::ExecutorProcess>> Spawn(
      const SpawnRequest& request, std::function<void(const supervisor::ExecutorReady&)> on_ready,
      std::function<void(const Status&)> on_end) override {
    if (!failure.ok()) {
      return failure;
    }
    auto state = std::make_shared<FakeExecutor>();
    state->tenant = request.tenant;
    state->backends = request.backends;
    state->sandbox_level_min = request.sandbox_level_min;
    state->without_device_nodes = request.without_device_nodes;
    state->on_ready = std::move(on_ready);
    state->on_end = std::move(on_end);
    state->on_usage = request.on_usage;
    state->was_spare = spares > 0 && spares-- > 0;
    executors_.push_back(state);
    if (!end_at_once.ok()) {
      state->Die(end_at_once);
    } else if (state->was_spare && spares_end_at_once) {
      state->Die(Unavailable("The executor process ended (signal 9)."));
    }
    return std::unique_ptr<supervisor::ExecutorProcess>(std::make_unique<FakeProcess>(state));
  }
  StatusOr<internal::Ready> Probe(const std::string&) override { return internal::Ready(); }
  StatusOr<SandboxFacts> ProbeSandbox(const std::vector<std::string>&, bool) override { return SandboxFacts{4, ""}; }

  std::vector<std::shared_ptr<FakeExecutor>>& executors() {
    if (settle) {
      settle();
    }
    return executors_;
  }
  FakeExecutor& last() { return *executors().back(); }
  // Applies to all executors. Returns true when there was something.
  bool FailLate() {
    bool did = false;
    for (size_t i = 0; i < executors_.size(); ++i) {
      did |= std::shared_ptr<FakeExecutor>(executors_[i])->FailLate();
    }
    return did;
  }

  std::function<void()> settle;  // Called before a test looks, so that pending events elsewhere happen first.
  Status failure;                // Result of the next spawns.
  Status end_at_once;            // The next executors end before Spawn returns.
  int spares = 0;                // Number of the next executors that waited for their tenant as spares.
  bool spares_end_at_once = false;

 private:
  std::vector<std::shared_ptr<FakeExecutor>> executors_;
};

}  // namespace hpvm::server::testing

#endif  // HPVMD_SERVER_TESTING_FAKE_EXECUTOR_H_
