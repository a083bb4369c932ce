// SPDX-License-Identifier: Apache-2.0
#include "tests/sim/sim_executor.h"

#include <fcntl.h>

#include <algorithm>
#include <map>
#include <utility>

#include "base/io/memfd.h"
#include "supervisor/testing/messages.h"
#include "tests/sim/graph_spec.h"

namespace hpvm::server::sim {
namespace {

using supervisor::OutputTarget;
using supervisor::RequestId;
using supervisor::RunReply;

std::string ReadAll(int fd, uint64_t offset, uint64_t bytes) {
  std::string text(bytes, '\0');
  ReadAt(fd, offset, {reinterpret_cast<uint8_t*>(text.data()), text.size()}).IgnoreError();
  return text;
}

UniqueFd Duplicate(int fd) { return UniqueFd(fcntl(fd, F_DUPFD_CLOEXEC, 0)); }

// Memory that the executor holds during the request.
struct HeldMemory {
  UniqueFd fd;
  uint64_t offset = 0, bytes = 0;
};

struct Request {
  std::function<void(StatusOr<internal::Prepared>)> prepared;
  std::function<void(StatusOr<RunReply>)> ran;
  supervisor::ExecutorProcess::AskDone granted;
  // For runs.
  GraphSpec graph;
  uint64_t run = 0;  // Number in the checker.
  GraphInputs inline_inputs;
  std::map<std::string, HeldMemory> memory_inputs;
  struct Target {
    OutputTarget::Kind kind = OutputTarget::Kind::kInline;
    HeldMemory memory;
  };
  std::map<std::string, Target> targets;
  uint32_t inline_bytes_max = 0;
  bool is_hung = false, ignores_cancel = false;
};

}  // namespace

// One process; shared by the object that the core owns and by future events.
class SimExecutor final : public std::enable_shared_from_this<SimExecutor> {
 public:
  SimExecutor(SimSpawner& spawner, std::string tenant, uint64_t number, std::vector<std::string> profile)
      : spawner_(spawner),
        context_(spawner.context()),
        tenant_(std::move(tenant)),
        profile_(std::move(profile)),
        name_("exec " + tenant_ + "/" + std::to_string(number)) {}

  void Start(std::function<void(const supervisor::ExecutorReady&)> on_ready, std::function<void(const Status&)> on_end);
  RequestId Prepare(const supervisor::PrepareInput& input, std::function<void(StatusOr<internal::Prepared>)> done);
  RequestId Run(const supervisor::RunInput& input, std::function<void(StatusOr<RunReply>)> done);
  void Release(uint64_t handle) { graphs_.erase(handle); }
  void Cancel(RequestId id);
  void GrantChanged(supervisor::ExecutorProcess::AskDone done);
  // Ends soon, or at once while the daemon goes down. `is_fault` says whether it costs attempts.
  void EndSoon(Status why);
  // Every pending request fails, then the end is reported.
  void End(const Status& why, Fate fate);
  void SetStopGrace(Duration grace) { stop_grace_ = grace; }
  bool ended() const { return ended_; }
  bool is_ending() const { return is_ending_ && !ended_; }

 private:
  void After(Duration delay, std::function<void(SimExecutor&)> action);
  void TakeMemory(const supervisor::RunInput& input, Request& request);
  void DrawFate(RequestId id, const supervisor::RunInput& input, Request& request);
  void FinishPrepare(RequestId id, uint64_t handle, const GraphSpec& graph);
  void FinishRun(RequestId id);
  void Answer(RequestId id, RunReply reply, Fate fate);
  void Scribble(Request& request);
  // The link ends a process that does not answer within this time after a deadline or Cancel.
  void WatchFor(RequestId id, Duration from_now);
  bool Draw(uint32_t per_mille) { return context_.faults_on && Chance(spawner_.rng(), per_mille); }
  void Say(const std::string& what) { context_.trace.Add(name_, what); }

  SimSpawner& spawner_;
  Context& context_;
  const std::string tenant_;
  const std::vector<std::string> profile_;
  const std::string name_;
  std::function<void(const Status&)> on_end_;
  Duration stop_grace_ = std::chrono::milliseconds(limits::kStopGraceMs);
  RequestId next_id_ = 1;
  std::map<RequestId, Request> pending_;
  std::map<uint64_t, GraphSpec> graphs_;
  bool ended_ = false, is_ending_ = false;
};

void SimExecutor::After(Duration delay, std::function<void(SimExecutor&)> action) {
  context_.events.After(delay, spawner_.incarnation(),
                        [self = std::weak_ptr<SimExecutor>(shared_from_this()), action = std::move(action)] {
                          if (const auto executor = self.lock(); executor != nullptr) {
                            action(*executor);
                          }
                        });
}

void SimExecutor::Start(std::function<void(const supervisor::ExecutorReady&)> on_ready,
                        std::function<void(const Status&)> on_end) {
  on_end_ = std::move(on_end);
  const Duration takes = Microseconds(Between(spawner_.rng(), 200, 15'000));
  if (Draw(context_.plan.die_early)) {
    After(takes,
          [](SimExecutor& self) { self.End(Unavailable("The executor process ended (exit status 1)."), Fate::kLost); });
    return;
  }
  After(takes, [on_ready = std::move(on_ready)](SimExecutor& self) {
    if (self.ended_) {
      return;
    }
    supervisor::ExecutorReady ready;
    ready.said.set_sandbox_level(2);
    on_ready(ready);
  });
}

RequestId SimExecutor::Prepare(const supervisor::PrepareInput& input,
                               std::function<void(StatusOr<internal::Prepared>)> done) {
  const RequestId id = next_id_++;
  pending_[id].prepared = std::move(done);
  if (ended_) {
    After(Duration{0}, [](SimExecutor& self) { self.End(Unavailable("The executor process ended."), Fate::kLost); });
    return id;
  }
  context_.Check(graphs_.count(input.handle) == 0 && input.handle != 0, "link",
                 [&] { return name_ + " holds handle " + std::to_string(input.handle) + " already."; });
  const std::string document = input.document.fd >= 0
                                   ? ReadAll(input.document.fd, 0, input.document.fd_bytes)
                                   : std::string(input.document.bytes.begin(), input.document.bytes.end());
  const std::optional<GraphSpec> graph = GraphSpec::Parse(document);
  if (!context_.Check(graph.has_value(), "results", [&] { return "A document arrived as \"" + document + "\"."; })) {
    return id;
  }
  Say("prepare " + std::to_string(input.handle) + " of graph " + std::to_string(graph->number));
  if (Draw(context_.plan.crash_in_prepare)) {
    spawner_.attempts().OnStartFault(tenant_);
    if (Chance(spawner_.rng(), 300)) {
      return id;  // Hangs until the core's timer kills it.
    }
    After(Microseconds(Between(spawner_.rng(), 1, 3'000)),
          [](SimExecutor& self) { self.End(Unavailable("The executor process ended (signal 11)."), Fate::kLost); });
    return id;
  }
  After(Microseconds(Between(spawner_.rng(), 50, 4'000)),
        [id, handle = input.handle, graph = *graph](SimExecutor& self) { self.FinishPrepare(id, handle, graph); });
  return id;
}

void SimExecutor::FinishPrepare(RequestId id, uint64_t handle, const GraphSpec& graph) {
  auto request = pending_.extract(id);
  if (request.empty()) {
    return;
  }
  internal::Prepared reply;
  if (graph.is_invalid) {
    supervisor::testing::AddDiagnostic(reply, "/nodes", "The simulation does not like this graph.");
    request.mapped().prepared(std::move(reply));
    return;
  }
  graphs_[handle] = graph;
  v1::GraphSummary& summary = *reply.mutable_summary();
  summary.set_name("graph" + std::to_string(graph.number));
  *summary.add_inputs() = supervisor::testing::Port("x", ElementType::kU8, {"n"});
  if (graph.has_buffer) {
    *summary.add_inputs() = supervisor::testing::Port("b", ElementType::kU8, {"m"});
  }
  if (graph.has_index) {
    *summary.add_inputs() = supervisor::testing::Port("i", ElementType::kU64, {});
  }
  for (uint32_t i = 0; i < graph.outputs; ++i) {
    *summary.add_outputs() =
        supervisor::testing::Port(OutputName(i), ElementType::kU8, {std::to_string(graph.output_bytes)});
  }
  summary.set_leaf_nodes(1);
  for (const std::string& device : profile_) {
    if (graph.uses_gpu || device.starts_with("cpu")) {
      summary.add_devices(device);
    }
  }
  request.mapped().prepared(std::move(reply));
}

void SimExecutor::TakeMemory(const supervisor::RunInput& input, Request& request) {
  for (const supervisor::InputTensor& tensor : input.inputs) {
    if (tensor.memory.has_value()) {
      request.memory_inputs[tensor.name] = {Duplicate(tensor.memory->fd), tensor.memory->offset, tensor.memory->bytes};
    } else {
      request.inline_inputs[tensor.name] = std::string(tensor.bytes.begin(), tensor.bytes.end());
    }
  }
  for (const OutputTarget& target : input.outputs) {
    Request::Target& to = request.targets[target.name];
    to.kind = target.kind;
    if (target.kind == OutputTarget::Kind::kMemory) {
      to.memory = {Duplicate(target.memory.fd), target.memory.offset, target.memory.bytes};
    }
  }
  request.inline_bytes_max = input.options.inline_bytes_max();
}

RequestId SimExecutor::Run(const supervisor::RunInput& input, std::function<void(StatusOr<RunReply>)> done) {
  const RequestId id = next_id_++;
  Request& request = pending_[id];
  request.ran = std::move(done);
  if (ended_) {
    After(Duration{0}, [](SimExecutor& self) { self.End(Unavailable("The executor process ended."), Fate::kLost); });
    return id;
  }
  const auto graph = graphs_.find(input.handle);
  if (!context_.Check(graph != graphs_.end(), "link", [&] {
        return "A run names handle " + std::to_string(input.handle) + ", which " + name_ + " does not hold.";
      })) {
    return id;
  }
  request.graph = graph->second;
  TakeMemory(input, request);
  std::string payload = request.inline_inputs.count("x") != 0 ? request.inline_inputs["x"] : std::string();
  if (const auto memory = request.memory_inputs.find("x"); memory != request.memory_inputs.end()) {
    payload = ReadAll(memory->second.fd.get(), memory->second.offset, memory->second.bytes);
  }
  const uint64_t index = TokenOf(request.inline_inputs["i"]);
  if (!request.graph.has_index) {
    request.inline_inputs.erase("i");
  }
  Say("run " + std::to_string(id) + " of submit " + std::to_string(TokenOf(payload)) + "[" + std::to_string(index) +
      "]");
  request.run = spawner_.attempts().OnStart(tenant_, TokenOf(payload), index);
  DrawFate(id, input, request);
  return id;
}

void SimExecutor::DrawFate(RequestId id, const supervisor::RunInput& input, Request& request) {
  SeededRng& rng = spawner_.rng();
  const Plan& plan = context_.plan;
  Duration takes = request.graph.takes + Microseconds(Between(rng, 20, 2'000));
  request.ignores_cancel = Draw(plan.ignore_cancel);
  if (Draw(plan.crash)) {
    After(Microseconds(rng.Below(static_cast<uint64_t>(takes.count() / 1'000) + 1)), [id](SimExecutor& self) {
      if (const auto found = self.pending_.find(id); found != self.pending_.end()) {
        self.Scribble(found->second);
        self.End(Unavailable("The executor process ended (signal 11)."), Fate::kLost);
      }
    });
    return;
  }
  if (Draw(plan.garbage)) {
    After(takes, [](SimExecutor& self) {
      self.End(Internal("The executor broke the protocol: a frame of no known kind."), Fate::kBroken);
    });
    return;
  }
  request.is_hung = Draw(plan.hang);
  if (Draw(plan.late)) {
    takes *= static_cast<int>(Between(rng, 10, 1'000));
  }
  const bool loses = request.graph.uses_gpu && Draw(plan.lose_device) &&
                     std::find(profile_.begin(), profile_.end(), "opencl:0") != profile_.end();
  if (input.within > Duration{0}) {
    After(input.within, [id](SimExecutor& self) {
      const auto found = self.pending_.find(id);
      if (found != self.pending_.end() && !found->second.is_hung) {
        self.Answer(id, supervisor::testing::FailedRun(DeadlineExceeded("The run did not end within its deadline.")),
                    Fate::kStopped);
      }
    });
    WatchFor(id, input.within + stop_grace_);
  }
  if (request.is_hung) {
    return;
  }
  After(takes, [id, loses](SimExecutor& self) {
    if (!loses) {
      self.FinishRun(id);
      return;
    }
    if (const auto found = self.pending_.find(id); found != self.pending_.end()) {
      self.Scribble(found->second);
      self.spawner_.attempts().OnStartFault(self.tenant_);
      RunReply reply = supervisor::testing::FailedRun(Unavailable("The device opencl:0 was lost."));
      reply.done.add_lost_devices("opencl:0");
      self.Answer(id, std::move(reply), Fate::kLost);
    }
  });
}

void SimExecutor::WatchFor(RequestId id, Duration from_now) {
  After(from_now, [id](SimExecutor& self) {
    if (self.pending_.count(id) != 0) {
      self.End(Unavailable("The executor did not answer in time and was killed."), Fate::kLost);
    }
  });
}

// A run that fails may have written some of its outputs.
void SimExecutor::Scribble(Request& request) {
  for (const auto& [name, target] : request.targets) {
    if (target.kind == OutputTarget::Kind::kMemory) {
      const std::string junk(std::min<uint64_t>(target.memory.bytes, 64), '#');
      WriteAt(target.memory.fd.get(), target.memory.offset,
              {reinterpret_cast<const uint8_t*>(junk.data()), junk.size()})
          .IgnoreError();
    }
  }
}

void SimExecutor::FinishRun(RequestId id) {
  const auto found = pending_.find(id);
  if (found == pending_.end()) {
    return;
  }
  Request& request = found->second;
  GraphInputs inputs = request.inline_inputs;
  for (const auto& [name, memory] : request.memory_inputs) {
    inputs[name] = ReadAll(memory.fd.get(), memory.offset, memory.bytes);
  }
  RunReply reply;
  reply.done.set_nodes_run(1);
  if (request.graph.traps) {
    Scribble(request);
    SetStatus(Aborted("The kernel trapped in node \"n\": unreachable."), reply.done.mutable_status());
    Answer(id, std::move(reply), Fate::kTrapped);
    return;
  }
  Fate fate = Fate::kDone;
  for (uint32_t i = 0; i < request.graph.outputs; ++i) {
    const std::string name = OutputName(i), bytes = OutputOf(request.graph, inputs, i);
    const auto target = request.targets.find(name);
    const auto kind = target == request.targets.end() ? OutputTarget::Kind::kInline : target->second.kind;
    if (kind == OutputTarget::Kind::kInline && bytes.size() <= request.inline_bytes_max) {
      supervisor::testing::AddInline(reply, name, ElementType::kU8, {bytes.size()}, bytes);
      continue;
    }
    supervisor::testing::AddOutput(reply, name, ElementType::kU8, {bytes.size()}, bytes.size());
    if (kind == OutputTarget::Kind::kInline) {
      reply.done.set_needs_memory(true);
    } else if (kind == OutputTarget::Kind::kMemory && target->second.memory.bytes < bytes.size()) {
      SetStatus(InvalidArgument("Output \"" + name + "\" does not fit into its memory."), reply.done.mutable_status());
      fate = Fate::kOther;
    } else if (kind == OutputTarget::Kind::kMemory) {
      WriteAt(target->second.memory.fd.get(), target->second.memory.offset,
              {reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()})
          .IgnoreError();
    }
  }
  if (reply.done.needs_memory()) {
    SetStatus(ResourceExhausted("Some outputs are too large to be inline."), reply.done.mutable_status());
    for (internal::OutputTensor& output : *reply.done.mutable_outputs()) {
      output.clear_body();
    }
    reply.body.clear();
    fate = Fate::kNoMemory;
  }
  Answer(id, std::move(reply), fate);
}

void SimExecutor::Answer(RequestId id, RunReply reply, Fate fate) {
  auto request = pending_.extract(id);
  if (request.empty()) {
    return;
  }
  Say("answers run " + std::to_string(id) + ": " +
      (reply.status().ok() ? "OK" : Message(reply.status()).substr(0, 60)));
  spawner_.attempts().OnEnd(request.mapped().run, fate);
  request.mapped().ran(std::move(reply));
}

void SimExecutor::Cancel(RequestId id) {
  const auto found = pending_.find(id);
  if (found == pending_.end() || found->second.ran == nullptr) {
    return;
  }
  if (!found->second.ignores_cancel) {
    After(Microseconds(Between(spawner_.rng(), 1, 1'500)), [id](SimExecutor& self) {
      self.Answer(id, supervisor::testing::FailedRun(Cancelled("The run was cancelled.")), Fate::kStopped);
    });
  }
  WatchFor(id, stop_grace_);
}

void SimExecutor::GrantChanged(supervisor::ExecutorProcess::AskDone done) {
  const RequestId id = next_id_++;
  pending_[id].granted = std::move(done);
  After(Microseconds(Between(spawner_.rng(), 1, 300)), [id](SimExecutor& self) {
    if (auto request = self.pending_.extract(id); !request.empty() && request.mapped().granted) {
      request.mapped().granted(internal::Envelope());
    }
  });
}

void SimExecutor::EndSoon(Status why) {
  const Fate fate = spawner_.draining() ? Fate::kStopped : Fate::kLost;
  if (spawner_.ends_at_once()) {
    End(why, fate);
    return;
  }
  if (!is_ending_) {
    is_ending_ = true;
    After(Microseconds(Between(spawner_.rng(), 1, 500)), [why, fate](SimExecutor& self) { self.End(why, fate); });
  }
}

void SimExecutor::End(const Status& why, Fate fate) {
  const bool is_new = !std::exchange(ended_, true);
  if (is_new) {
    Say("ends: " + std::string(why.message()).substr(0, 60));
    if (fate == Fate::kLost || fate == Fate::kBroken) {
      spawner_.attempts().OnStartFault(tenant_);
    }
  }
  const auto self = shared_from_this();
  while (!pending_.empty()) {
    auto request = pending_.extract(pending_.begin());
    Request& pending = request.mapped();
    const Status status = why.ok() ? Unavailable("The executor process ended.") : why;
    if (pending.prepared) {
      pending.prepared(status);
    } else if (pending.ran) {
      spawner_.attempts().OnEnd(pending.run, fate);
      pending.ran(status);
    } else if (pending.granted) {
      pending.granted(status);
    }
  }
  if (is_new) {
    std::exchange(on_end_, nullptr)(why);
  }
}

namespace {

class SimProcess final : public supervisor::ExecutorProcess {
 public:
  explicit SimProcess(std::shared_ptr<SimExecutor> executor) : executor_(std::move(executor)) {}
  ~SimProcess() override { executor_->End(Unavailable("The executor process was killed."), Fate::kLost); }
  RequestId Prepare(const supervisor::PrepareInput& input,
                    std::function<void(StatusOr<internal::Prepared>)> done) override {
    return executor_->Prepare(input, std::move(done));
  }
  RequestId Run(const supervisor::RunInput& input, std::function<void(StatusOr<RunReply>)> done) override {
    return executor_->Run(input, std::move(done));
  }
  void Release(uint64_t handle) override { executor_->Release(handle); }
  void Cancel(RequestId id) override { executor_->Cancel(id); }
  void Ask(internal::Envelope request, AskDone done) override {
    if (request.has_grant_changed()) {
      executor_->GrantChanged(std::move(done));
    } else {
      done(internal::Envelope());
    }
  }
  void Forget(uint64_t memory_id) override {}
  std::optional<Duration> CpuTime() const override { return std::nullopt; }
  void Shutdown() override { executor_->EndSoon(absl::OkStatus()); }
  void Kill(std::string_view why) override { executor_->EndSoon(Unavailable(why)); }

 private:
  std::shared_ptr<SimExecutor> executor_;
};

}  // namespace

void SimSpawner::EndAtOnce() {
  ends_at_once_ = true;
  for (const auto& weak : std::vector<std::weak_ptr<SimExecutor>>(executors_)) {
    if (const std::shared_ptr<SimExecutor> executor = weak.lock(); executor != nullptr && executor->is_ending()) {
      executor->EndSoon(Unavailable("The server stopped."));
    }
  }
}

StatusOr<std::unique_ptr<supervisor::ExecutorProcess>> SimSpawner::Spawn(
    const SpawnRequest& request, std::function<void(const supervisor::ExecutorReady&)> on_ready,
    std::function<void(const Status&)> on_end) {
  if (context_.faults_on && Chance(rng_, context_.plan.refuse_start)) {
    attempts_.OnStartFault(request.tenant);
    return Unavailable("Starting the executor: no more processes.");
  }
  auto executor = std::make_shared<SimExecutor>(*this, request.tenant, next_number_++, request.backends);
  if (request.stop_grace > Duration{0}) {
    executor->SetStopGrace(request.stop_grace);
  }
  executor->Start(std::move(on_ready), std::move(on_end));
  executors_.push_back(executor);
  return std::unique_ptr<supervisor::ExecutorProcess>(std::make_unique<SimProcess>(std::move(executor)));
}

StatusOr<internal::Ready> SimSpawner::Probe(const std::string& backend) { return Internal("The core probes nothing."); }

StatusOr<SandboxFacts> SimSpawner::ProbeSandbox(const std::vector<std::string>& backends, bool without_device_nodes) {
  return Internal("The core probes nothing.");
}

size_t SimSpawner::alive() const {
  return static_cast<size_t>(std::count_if(executors_.begin(), executors_.end(), [](const auto& executor) {
    const auto held = executor.lock();
    return held != nullptr && !held->ended();
  }));
}

internal::Ready DevicesOf(const Plan& plan, const std::string& family) {
  internal::Ready found;
  if (family == "cpu" || (family == "opencl" && plan.has_gpu)) {
    v1::Device& device = *found.add_devices()->mutable_device();
    device = supervisor::testing::FoundDevice(family + ":0", family + ":0");
    device.set_compute_units(1);
  }
  return found;
}

}  // namespace hpvm::server::sim
