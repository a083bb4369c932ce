// SPDX-License-Identifier: Apache-2.0
#include "server/testing/call_executors.h"

#include <algorithm>

#include "base/io/memfd.h"
#include "base/limits.h"

namespace hpvm::server::testing {
namespace {

using supervisor::RunReply;

constexpr uint64_t kOutputBytes = 8;
constexpr uint64_t kLargeOutputBytes = limits::kInlineTensorBytesMax + 4096;

size_t TenantOf(const FakeExecutor& executor) {
  return static_cast<size_t>(std::find(kTenantNames.begin(), kTenantNames.end(), executor.tenant) -
                             kTenantNames.begin());
}

internal::Prepared Accepted(uint8_t number) {
  internal::Prepared reply =
      AcceptedGraph("double", {Port("x", ElementType::kF32, {"n"})}, {Port("y", ElementType::kF32, {"n"})});
  v1::GraphSummary& summary = *reply.mutable_summary();
  if (number % 2 == 1) {
    *summary.add_inputs() = Port("i", ElementType::kU32, {});
  }
  summary.add_symbols("n");
  summary.set_leaf_nodes(1);
  summary.add_devices("cpu");
  if (number / 2 % 2 == 1) {
    summary.add_devices("opencl:0");
    *reply.add_native_nodes() = Native("double", "k", {"opencl:0"});
  }
  reply.set_compile_cpu_ns(uint64_t{number} * 50'000'000);
  return reply;
}

bool IsCancelled(const FakeExecutor& executor, supervisor::RequestId id) {
  return std::find(executor.cancels.begin(), executor.cancels.end(), id) != executor.cancels.end();
}

internal::Prepared PreparedOf(const std::array<uint8_t, 3>& numbers, bool is_cancelled) {
  internal::Prepared reply;
  switch (numbers[0] % 16) {
    case 11:
      AddDiagnostic(reply, "nodes[0]", "The node has no kernel.");
      return reply;
    case 12:
      return FailedPrepare(ResourceExhausted("The graph needs more memory (9 GiB) than there is."));
    case 13:
      return FailedPrepare(DeadlineExceeded("Preparing took longer than it may."));
    default:
      return is_cancelled && numbers[0] % 2 == 0 ? FailedPrepare(Cancelled("Preparing was cancelled."))
                                                 : Accepted(numbers[1]);
  }
}

const supervisor::OutputTarget* TargetOf(const FakeExecutor::RunCall& run) {
  for (const supervisor::OutputTarget& target : run.outputs) {
    if (target.name == "y") {
      return &target;
    }
  }
  return nullptr;
}

// Puts outputs in the memory that came with the run, or inline.
RunReply Success(const FakeExecutor::RunCall& run, uint8_t letter) {
  RunReply reply;
  const supervisor::OutputTarget* target = TargetOf(run);
  const bool in_memory = target != nullptr && target->kind == supervisor::OutputTarget::Kind::kMemory;
  if (in_memory && target->memory.bytes < kOutputBytes) {
    reply = FailedRun(ResourceExhausted("Outputs need memory."));
    reply.done.set_needs_memory(true);
    AddOutput(reply, "y", ElementType::kF32, {kOutputBytes / 4}, kOutputBytes);
    return reply;
  }
  *reply.done.add_nodes() = Placement("double", "cpu:0", 0, 10);
  reply.done.set_nodes_run(1);
  reply.done.mutable_timing()->set_run_ns(10'000);
  const std::string bytes(kOutputBytes, static_cast<char>(letter));
  if (target == nullptr || target->kind == supervisor::OutputTarget::Kind::kInline) {
    AddInline(reply, "y", ElementType::kF32, {kOutputBytes / 4}, bytes);
    return reply;
  }
  AddOutput(reply, "y", ElementType::kF32, {kOutputBytes / 4}, kOutputBytes);
  if (in_memory) {
    WriteAt(target->memory.fd, target->memory.offset, {reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()})
        .IgnoreError();
  }
  return reply;
}

RunReply NeedsMemory() {
  RunReply reply = FailedRun(ResourceExhausted("Outputs need memory."));
  reply.done.set_needs_memory(true);
  AddOutput(reply, "y", ElementType::kF32, {kLargeOutputBytes / 4}, kLargeOutputBytes);
  return reply;
}

// The reply of an executor that logs and reports as much as it may.
RunReply Flood(RunReply reply) {
  for (int i = 0; i < 500; ++i) {
    *reply.done.add_nodes() = Placement("double", "cpu:0", 0, 10);
  }
  for (int i = 0; i < 200; ++i) {
    AddLine(*reply.done.mutable_log(), "double", std::string(100, 'l'));
  }
  reply.done.mutable_log()->set_lines_dropped(1'000);
  return reply;
}

internal::Usage UsageOf(const std::array<uint8_t, 3>& numbers) {
  const uint64_t first = uint64_t{numbers[1]} << (numbers[2] % 42), second = uint64_t{numbers[2]} << (numbers[1] % 42);
  return DeviceUsage({first, second}, {first / 2, second / 2});
}

Status EndOf(uint8_t number) {
  switch (number % 4) {
    case 0:
      return absl::OkStatus();
    case 1:
      return FailedPrecondition("The sandbox is weaker (level 0) than demanded.");
    default:
      return Unavailable("The executor process ended (signal 9).");
  }
}

}  // namespace

std::vector<std::shared_ptr<FakeExecutor>> CallExecutors::Alive() {
  std::vector<std::shared_ptr<FakeExecutor>> alive = spawner_.executors();
  std::erase_if(alive, [](const std::shared_ptr<FakeExecutor>& executor) { return executor->ended; });
  return alive;
}

template <typename Calls>
std::vector<std::pair<std::shared_ptr<FakeExecutor>, size_t>> CallExecutors::Open(Calls FakeExecutor::*calls) {
  std::vector<std::pair<std::shared_ptr<FakeExecutor>, size_t>> open;
  for (const std::shared_ptr<FakeExecutor>& executor : Alive()) {
    for (size_t i = 0; i < ((*executor).*calls).size(); ++i) {
      if (((*executor).*calls)[i].done) {
        open.emplace_back(executor, i);
      }
    }
  }
  return open;
}

bool CallExecutors::Do(const Action& action) {
  const Numbers& numbers = action.numbers;
  const auto count = [&](bool did) {
    promises_.Count(action.kind, did);
    return true;
  };
  switch (action.kind) {
    case ActionKind::kReady:
      return count(Ready(numbers));
    case ActionKind::kAnswerPrepare:
      return count(AnswerPrepare(numbers));
    case ActionKind::kAnswerRun:
      return count(AnswerRun(numbers));
    case ActionKind::kAnswerCosts:
      return count(AnswerCosts(numbers));
    case ActionKind::kAnswerReclaim:
      return count(AnswerReclaim(numbers));
    case ActionKind::kReportUsage:
      return count(ReportUsage(numbers));
    case ActionKind::kExecutorDies:
      return count(Die(numbers));
    case ActionKind::kStartsFail:
      return count(SetStarts(numbers));
    default:
      return false;
  }
}

bool CallExecutors::AnswerPrepare(const Numbers& numbers) {
  const auto open = Open(&FakeExecutor::prepares);
  if (open.empty()) {
    return false;
  }
  const auto& [executor, at] = open[numbers[2] % open.size()];
  const auto done = std::exchange(executor->prepares[at].done, nullptr);
  done(PreparedOf(numbers, IsCancelled(*executor, executor->prepares[at].id)));
  return true;
}

RunReply CallExecutors::ReplyTo(const FakeExecutor& executor, const FakeExecutor::RunCall& run,
                                const Numbers& numbers) {
  const uint8_t letter = LetterOf(TenantOf(executor));
  RunReply reply = Success(run, letter);
  if (IsCancelled(executor, run.id) && numbers[0] % 2 == 0) {
    return FailedRun(Cancelled("The run was cancelled."));
  }
  switch (numbers[0] % 20) {
    case 10:
      return FailedRun(Aborted("Kernel \"double\" trapped in instance (1, 0, 0): it divided by zero."));
    case 12:
      return FailedRun(DeadlineExceeded("The run did not end within its deadline."));
    case 13:
      reply = FailedRun(ResourceExhausted("Device cpu:0 has no memory left."));
      reply.done.set_short_entry_plus_1(numbers[1] % 3 + 1);
      reply.done.set_short_bytes(numbers[1] * 4096u);
      return reply;
    case 14:
      return FailedRun(InvalidArgument("Input \"x\" has 1 element; the graph needs 2."));
    case 15:
      return NeedsMemory();
    case 16:
      reply = FailedRun(Unavailable("Device opencl:0 was lost."));
      reply.done.add_lost_devices("opencl:0");
      return reply;
    case 17:
      reply.done.add_left_devices("opencl:0");
      return reply;
    case 18:
      return Flood(std::move(reply));
    case 19:
      reply.done.add_device_ns(3'600'000'000'000);
      reply.done.add_device_ns(3'600'000'000'000);
      return reply;
    default:
      return reply;
  }
}

bool CallExecutors::AnswerRun(const Numbers& numbers) {
  const auto open = Open(&FakeExecutor::runs);
  if (open.empty()) {
    return false;
  }
  const auto& [executor, at] = open[numbers[2] % open.size()];
  FakeExecutor::RunCall& run = executor->runs[at];
  for (const std::string& input : run.inputs) {
    promises_.ExpectOwnBytes(TenantOf(*executor), input, "An input of a run");
  }
  RunReply reply = ReplyTo(*executor, run, numbers);
  const auto done = std::exchange(run.done, nullptr);
  done(std::move(reply));
  return true;
}

bool CallExecutors::AnswerCosts(const Numbers& numbers) {
  const auto open = Open(&FakeExecutor::costs);
  if (open.empty()) {
    return false;
  }
  const auto& [executor, at] = open[numbers[2] % open.size()];
  const auto done = std::exchange(executor->costs[at].done, nullptr);
  internal::Costs costs;
  for (int i = 0; i < numbers[0] % 4; ++i) {
    internal::GraphCosts& graph = *costs.add_graphs();
    graph.set_handle(numbers[1] % 4);
    graph.add_kernels()->set_kernel("k/double");
    graph.mutable_kernels(0)->set_device("cpu:0");
  }
  costs.add_transfers();
  done(std::move(costs));
  return true;
}

bool CallExecutors::AnswerReclaim(const Numbers& numbers) {
  const auto open = Open(&FakeExecutor::reclaims);
  if (open.empty()) {
    return false;
  }
  const auto& [executor, at] = open[numbers[0] % open.size()];
  const auto done = std::exchange(executor->reclaims[at].done, nullptr);
  done(UsageOf(numbers));
  return true;
}

bool CallExecutors::ReportUsage(const Numbers& numbers) {
  constexpr int kFlood = 20;
  const auto alive = Alive();
  if (alive.empty()) {
    return false;
  }
  const std::shared_ptr<FakeExecutor>& executor = alive[numbers[0] % alive.size()];
  for (int i = 0; i < (numbers[0] >= 200 ? kFlood : 1) && !executor->ended; ++i) {
    executor->on_usage(UsageOf(numbers));
  }
  return true;
}

bool CallExecutors::Die(const Numbers& numbers) {
  const auto alive = Alive();
  if (alive.empty()) {
    return false;
  }
  alive[numbers[0] % alive.size()]->Die(EndOf(numbers[1]));
  return true;
}

bool CallExecutors::Ready(const Numbers& numbers) {
  const auto alive = Alive();
  if (alive.empty()) {
    return false;
  }
  supervisor::ExecutorReady ready;
  ready.said.set_sandbox_level(4);
  ready.pid = 1'000 + numbers[1];
  if (numbers[2] % 4 == 0) {
    *ready.said.add_broken() = BrokenDevice("opencl:0", "The driver is silent.");
  }
  alive[numbers[0] % alive.size()]->on_ready(ready);
  return true;
}

bool CallExecutors::SetStarts(const Numbers& numbers) {
  Heal();
  switch (numbers[0] % 6) {
    case 0:
      spawner_.failure = Unavailable("Starting an executor failed: there are no processes left.");
      break;
    case 1:
      spawner_.end_at_once = Unavailable("The executor process ended (signal 9).");
      break;
    case 2:
      spawner_.end_at_once = FailedPrecondition("The sandbox is weaker (level 0) than demanded.");
      break;
    case 3:
      spawner_.spares = 1;
      spawner_.spares_end_at_once = numbers[1] % 2 == 0;
      break;
    default:
      break;
  }
  return true;
}

void CallExecutors::Heal() {
  spawner_.failure = spawner_.end_at_once = absl::OkStatus();
  spawner_.spares = 0;
  spawner_.spares_end_at_once = false;
}

bool CallExecutors::AnswerAll() {
  bool did = false;
  while (AnswerPrepare({}) || AnswerRun({}) || AnswerCosts({}) || AnswerReclaim({})) {
    did = true;
  }
  for (const std::shared_ptr<FakeExecutor>& executor : Alive()) {
    if (executor->shut_down) {
      executor->Die(absl::OkStatus());
      did = true;
    }
  }
  return did;
}

}  // namespace hpvm::server::testing
