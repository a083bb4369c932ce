// SPDX-License-Identifier: Apache-2.0
#include "bench/tenants/tenant_executor.h"

#include <unistd.h>

#include <future>

#include "base/hash.h"
#include "bench/processes.h"
#include "bench/service/service_daemon.h"

namespace hpvm::bench {
namespace {

constexpr uint64_t kHandle = 1;
// Nobody's, on machines that have no such many users.
constexpr uint32_t kUid = 1'900'000;

}  // namespace

ExecutorOptions TenantOptions(Sandbox sandbox) {
  ExecutorOptions options;
  options.program = ProgramFolder() + "/hpvm-executor";
  options.without_device_nodes = true;
  if (sandbox == Sandbox::kOff) {
    options.sandbox_level_max = 0;
  } else if (geteuid() == 0) {
    options.uid = options.gid = kUid;
  }
  return options;
}

StatusOr<std::unique_ptr<TenantExecutor>> TenantExecutor::Start(ExecutorHub& hub, Sandbox sandbox) {
  auto executor = std::make_unique<TenantExecutor>();
  HPVMD_ASSIGN_OR_RETURN(executor->link_, ExecutorLink::Start(hub, TenantOptions(sandbox)));
  HPVMD_ASSIGN_OR_RETURN(executor->ready_, executor->link_->WaitReady(RealClock().Now() + std::chrono::seconds(20)));
  return executor;
}

Status TenantExecutor::Prepare(const std::string& document, const std::string& module) {
  HPVMD_ASSIGN_OR_RETURN(const std::vector<uint8_t> kernels, ReadBenchKernels());
  PrepareInput input;
  input.handle = kHandle;
  input.document.bytes = {reinterpret_cast<const uint8_t*>(document.data()), document.size()};
  input.modules.push_back({.name = module, .hash = HashOf(kernels), .bytes = {.bytes = kernels}});
  std::promise<StatusOr<PrepareReply>> answer;
  link_->Prepare(input, [&](StatusOr<PrepareReply> reply) { answer.set_value(std::move(reply)); });
  HPVMD_ASSIGN_OR_RETURN(PrepareReply reply, answer.get_future().get());
  HPVMD_RETURN_IF_ERROR(reply.status);
  return ToStatus(reply.diagnostics);
}

StatusOr<RunReply> TenantExecutor::Run(const std::vector<InputTensor>& inputs, Duration* took) {
  RunInput run;
  run.handle = kHandle;
  run.node_records_max = 0;
  run.inputs = inputs;
  std::promise<StatusOr<RunReply>> answer;
  const Time start = RealClock().Now();
  link_->Run(run, [&](StatusOr<RunReply> reply) { answer.set_value(std::move(reply)); });
  StatusOr<RunReply> reply = answer.get_future().get();
  *took = RealClock().Now() - start;
  HPVMD_RETURN_IF_ERROR(reply.status());
  HPVMD_RETURN_IF_ERROR(reply->status);
  return reply;
}

}  // namespace hpvm::bench
