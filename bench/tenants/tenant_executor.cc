// SPDX-License-Identifier: Apache-2.0
#include "bench/tenants/tenant_executor.h"

#include <unistd.h>

#include <future>

#include "base/hash.h"
#include "bench/processes.h"
#include "bench/service/service_daemon.h"
#include "proto/internal/protocol.h"

namespace hpvm::bench {
namespace {

constexpr uint64_t kHandle = 1;
// Unused on machines without that many users.
constexpr uint32_t kUid = 1'900'000;

}  // namespace

supervisor::ExecutorOptions TenantOptions(Sandbox sandbox) {
  supervisor::ExecutorOptions options;
  options.program = ProgramFolder() + "/hpvm-executor";
  options.hello.set_without_device_nodes(true);
  if (sandbox == Sandbox::kOff) {
    options.hello.set_sandbox_level_max_plus_1(1);
  } else if (geteuid() == 0) {
    options.hello.set_uid(kUid);
    options.hello.set_gid(kUid);
  }
  return options;
}

StatusOr<std::unique_ptr<TenantExecutor>> TenantExecutor::Start(supervisor::ExecutorHub& hub, Sandbox sandbox) {
  auto executor = std::make_unique<TenantExecutor>();
  HPVMD_ASSIGN_OR_RETURN(executor->link_, supervisor::ExecutorLink::Start(hub, TenantOptions(sandbox)));
  HPVMD_ASSIGN_OR_RETURN(executor->ready_, executor->link_->WaitReady(RealClock().Now() + std::chrono::seconds(20)));
  return executor;
}

Status TenantExecutor::Prepare(const std::string& document, const std::string& module) {
  HPVMD_ASSIGN_OR_RETURN(const std::vector<uint8_t> kernels, ReadBenchKernels());
  supervisor::PrepareInput input;
  input.handle = kHandle;
  input.document.bytes = {reinterpret_cast<const uint8_t*>(document.data()), document.size()};
  input.modules.push_back({.name = module, .hash = HashOf(kernels), .bytes = {.bytes = kernels}});
  std::promise<StatusOr<internal::Prepared>> answer;
  link_->Prepare(input, [&](StatusOr<internal::Prepared> reply) { answer.set_value(std::move(reply)); });
  HPVMD_ASSIGN_OR_RETURN(internal::Prepared reply, answer.get_future().get());
  HPVMD_RETURN_IF_ERROR(GetStatus(reply.status()));
  return ToStatus(GetDiagnostics(reply.diagnostics()));
}

StatusOr<supervisor::RunReply> TenantExecutor::Run(const std::vector<supervisor::InputTensor>& inputs, Duration* took) {
  supervisor::RunInput run;
  run.handle = kHandle;
  run.options.set_node_records_max(0);
  run.inputs = inputs;
  std::promise<StatusOr<supervisor::RunReply>> answer;
  const Time start = RealClock().Now();
  link_->Run(run, [&](StatusOr<supervisor::RunReply> reply) { answer.set_value(std::move(reply)); });
  StatusOr<supervisor::RunReply> reply = answer.get_future().get();
  *took = RealClock().Now() - start;
  HPVMD_RETURN_IF_ERROR(reply.status());
  HPVMD_RETURN_IF_ERROR(reply->status());
  return reply;
}

}  // namespace hpvm::bench
