// SPDX-License-Identifier: Apache-2.0
// memory: memory of an idle tenant's processes: the runner, and the zygote of its compiler.
#include <unistd.h>

#include <fstream>
#include <map>
#include <sstream>

#include "bench/service/service_daemon.h"
#include "bench/tenants/tenant_executor.h"
#include "bench/tenants/tenants.h"

namespace hpvm::bench {
namespace {

// MiB by the names in /proc/PID/smaps_rollup.
StatusOr<std::map<std::string, double>> ReadSmaps(pid_t pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/smaps_rollup");
  std::map<std::string, double> values;
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    std::string name;
    double kib = 0;
    if (words >> name >> kib && name.ends_with(':')) {
      values[name.substr(0, name.size() - 1)] = kib / 1024;
    }
  }
  if (values.count("Private_Dirty") == 0 || values.count("Pss") == 0) {
    return Unavailable("The memory of process " + std::to_string(pid) + " cannot be read; this needs root.");
  }
  return values;
}

// The compiler is the runner's child, or its launcher's.
pid_t FindCompiler(pid_t executor) {
  for (const pid_t child : ChildrenOf(executor)) {
    if (ProgramNameOf(child).starts_with("hpvm-compiler")) {
      return child;
    }
    if (const pid_t deeper = FindCompiler(child); deeper > 0) {
      return deeper;
    }
  }
  return -1;
}

Status AddMemory(const std::string& name, pid_t pid, ServiceResult& result) {
  HPVMD_ASSIGN_OR_RETURN(const auto values, ReadSmaps(pid));
  result.Add(name + "_private_dirty_mib", values.at("Private_Dirty"));
  result.Add(name + "_pss_mib", values.at("Pss"));
  result.Add(name + "_rss_mib", values.at("Rss"));
  return absl::OkStatus();
}

StatusOr<ServiceResult> MeasureMemory(const ServiceOptions& options) {
  HPVMD_ASSIGN_OR_RETURN(const std::unique_ptr<supervisor::ExecutorHub> hub, supervisor::ExecutorHub::Create());
  HPVMD_ASSIGN_OR_RETURN(const std::unique_ptr<TenantExecutor> executor,
                         TenantExecutor::Start(*hub, Sandbox::kHighest));
  const useconds_t rest_us = options.quick ? 100'000 : 1'000'000;
  ServiceResult result;
  usleep(rest_us);
  const pid_t compiler = FindCompiler(executor->pid());
  HPVMD_RETURN_IF_ERROR(AddMemory("runner", executor->pid(), result));
  if (compiler > 0) {
    HPVMD_RETURN_IF_ERROR(AddMemory("compiler", compiler, result));
  }
  // Measures again after it has compiled and run something, and is idle.
  HPVMD_RETURN_IF_ERROR(executor->Prepare(GraphDocument("copy"), "bench"));
  const std::vector<uint8_t> data(4096, 7);
  const std::vector<supervisor::InputTensor> inputs = {
      {.name = "x", .type = ElementType::kU8, .shape = {data.size()}, .bytes = data, .memory = {}}};
  bool is_right = true;
  for (int i = 0; i < 100; ++i) {
    Duration took;
    HPVMD_ASSIGN_OR_RETURN(const supervisor::RunReply reply, executor->Run(inputs, &took));
    const std::span<const uint8_t> got =
        reply.done.outputs_size() == 1 ? reply.DataOf(reply.done.outputs(0)) : std::span<const uint8_t>();
    is_right = is_right && std::equal(data.begin(), data.end(), got.begin(), got.end());
  }
  usleep(rest_us);
  HPVMD_RETURN_IF_ERROR(AddMemory("runner_after_runs", executor->pid(), result));
  if (compiler > 0) {
    HPVMD_RETURN_IF_ERROR(AddMemory("compiler_after_runs", compiler, result));
  }
  result.reach.push_back({.figure = "runner_private_dirty_mib", .at_least = false, .bound = 25});
  result.reach.push_back({.figure = "runner_after_runs_private_dirty_mib", .at_least = false, .bound = 25});
  result.note = std::string("Of one tenant's processes, from /proc/PID/smaps_rollup") +
                (compiler > 0 ? "." : "; its compiler was not found.");
  result.verified = is_right && compiler > 0;
  return result;
}

}  // namespace

void AddMemoryCases(std::vector<ServiceCase>& cases) { cases.push_back({"memory", MeasureMemory}); }

}  // namespace hpvm::bench
