// SPDX-License-Identifier: Apache-2.0
// sandbox/KIND: the same work with the whole sandbox and without: a kernel that computes, 1,000 tiny launches in one
// graph, and Run from 64 clients.
#include <algorithm>

#include "bench/service/service_setup.h"
#include "bench/tenants/tenant_executor.h"
#include "bench/tenants/tenants.h"
#include "bench/workload.h"

namespace hpvm::bench {
namespace {

std::span<const uint8_t> BytesOf(const std::string& text) {
  return {reinterpret_cast<const uint8_t*>(text.data()), text.size()};
}

std::string TextOf(const supervisor::RunReply& reply) {
  if (reply.done.outputs_size() != 1) {
    return "";
  }
  const std::span<const uint8_t> data = reply.DataOf(reply.done.outputs(0));
  return {data.begin(), data.end()};
}

// Times of one graph in both processes. `ours` is the sandboxed one's time; smaller is better.
struct Work {
  std::string document, module;
  std::vector<supervisor::InputTensor> inputs;
  std::string expected;
  int repeats = 1;  // Runs per round, of which the median counts.
};

StatusOr<ServiceResult> MeasureWork(const ServiceOptions& options, const Work& work, double bound) {
  HPVMD_ASSIGN_OR_RETURN(const std::unique_ptr<supervisor::ExecutorHub> hub, supervisor::ExecutorHub::Create());
  std::unique_ptr<TenantExecutor> executors[2];
  for (const Sandbox sandbox : {Sandbox::kHighest, Sandbox::kOff}) {
    std::unique_ptr<TenantExecutor>& executor = executors[sandbox == Sandbox::kHighest ? 0 : 1];
    HPVMD_ASSIGN_OR_RETURN(executor, TenantExecutor::Start(*hub, sandbox));
    HPVMD_RETURN_IF_ERROR(executor->Prepare(work.document, work.module));
  }
  const auto round = [&](TenantExecutor& executor) -> StatusOr<double> {
    std::vector<double> times;
    for (int i = 0; i < (options.quick ? 1 : work.repeats); ++i) {
      Duration took;
      HPVMD_ASSIGN_OR_RETURN(const supervisor::RunReply reply, executor.Run(work.inputs, &took));
      if (TextOf(reply) != work.expected) {
        return Internal("An answer is not what it should be.");
      }
      times.push_back(static_cast<double>(took.count()) / 1e3);
    }
    return Median(std::move(times));
  };
  HPVMD_ASSIGN_OR_RETURN(const Pairs pairs, MeasurePairs(
                                                options.quick ? 2 : 41, [&] { return round(*executors[0]); },
                                                [&] { return round(*executors[1]); }));
  ServiceResult result;
  result.Add("ours_us", Median(pairs.ours));
  result.Add("sandbox_off_us", Median(pairs.peer));
  result.Add("ratio_sandbox_off", pairs.Ratio());
  result.reach.push_back({.figure = "ratio_sandbox_off", .at_least = false, .bound = bound});
  result.note = "Levels " + std::to_string(executors[0]->ready().said.sandbox_level()) + " and " +
                std::to_string(executors[1]->ready().said.sandbox_level()) + "; every answer was compared.";
  result.verified = executors[1]->ready().said.sandbox_level() == 0;
  return result;
}

StatusOr<ServiceResult> MeasureCompute(const ServiceOptions& options) {
  const uint32_t steps = options.quick ? 1'000 : 20'000'000;
  const std::string input = WorkInput(steps, 2);
  return MeasureWork(
      options,
      {.document = GraphDocument("work"),
       .module = "bench",
       .inputs = {{.name = "x", .type = ElementType::kU8, .shape = {8}, .bytes = BytesOf(input), .memory = {}}},
       .expected = WorkOutput(steps, 2)},
      1.02);
}

StatusOr<ServiceResult> MeasureLaunches(const ServiceOptions& options) {
  const Workload workload = MakeChain(1'000);
  const std::vector<Elements> after = Evaluate(workload);
  const auto bytes = [](const Elements& elements) {
    return std::string(reinterpret_cast<const char*>(elements.data()), sizeof(elements));
  };
  const std::string input = bytes(workload.buffers[0]);
  return MeasureWork(options,
                     {.document = ToDocument(workload),
                      .module = "m",
                      .inputs = {{.name = "b0",
                                  .type = ElementType::kU32,
                                  .shape = {kBufferElements},
                                  .bytes = BytesOf(input),
                                  .memory = {}}},
                      .expected = bytes(after[0]),
                      .repeats = 25},
                     1.05);
}

// Calls per second, so the bound is on their loss.
StatusOr<ServiceResult> MeasureRun(const ServiceOptions& options) {
  constexpr uint32_t kClients = 64;
  std::unique_ptr<ServiceDaemon> daemons[2];
  std::unique_ptr<ServiceLoad> loads[2];
  for (int i = 0; i < 2; ++i) {
    DaemonSettings settings = RoomySettings();
    settings.keys["limits.connections_per_peer_max"] = "1000";
    settings.keys["executor.sandbox_max"] = i == 0 ? "4" : "0";
    settings.keys["executor.sandbox_min"] = "0";
    HPVMD_ASSIGN_OR_RETURN(daemons[i], ServiceDaemon::Start(settings));
    HPVMD_ASSIGN_OR_RETURN(const std::string handle, daemons[i]->Prepare("copy"));
    HPVMD_ASSIGN_OR_RETURN(loads[i],
                           ServiceLoad::Make(CopyLoad(LoadKind::kRun, daemons[i]->endpoint(), handle, kClients)));
  }
  const auto round = [&](ServiceLoad& load) -> StatusOr<double> {
    HPVMD_ASSIGN_OR_RETURN(const LoadResult result, load.Closed(kClients, options.quick ? 500 : 20'000));
    return static_cast<double>(result.calls.size()) * 1e9 / static_cast<double>(result.elapsed.count());
  };
  HPVMD_ASSIGN_OR_RETURN(const Pairs pairs, MeasurePairs(
                                                options.quick ? 1 : 21, [&] { return round(*loads[0]); },
                                                [&] { return round(*loads[1]); }));
  ServiceResult result;
  result.Add("ours_per_s", Median(pairs.ours));
  result.Add("sandbox_off_per_s", Median(pairs.peer));
  result.Add("ratio_sandbox_off", pairs.Ratio());
  result.reach.push_back({.figure = "ratio_sandbox_off", .at_least = true, .bound = 0.95});
  result.note = "Every answer was compared.";
  result.verified = true;
  return result;
}

}  // namespace

void AddSandboxCases(std::vector<ServiceCase>& cases) {
  cases.push_back({"sandbox/compute", MeasureCompute});
  cases.push_back({"sandbox/launches", MeasureLaunches});
  cases.push_back({"sandbox/run_64", MeasureRun});
}

}  // namespace hpvm::bench
