// SPDX-License-Identifier: Apache-2.0
// What a tenant's executor knows of how long things take. Nothing of it is kept here: histories lie with the tenant's
// compiled kernels.
#include <algorithm>
#include <utility>

#include "server/core/rooms/graphs.h"

namespace hpvm {
namespace {

void Fill(const ExecutorTransferCost& from, v1::TransferCost* to) {
  to->set_source(from.source.empty() ? "host" : from.source);
  to->set_target(from.target.empty() ? "host" : from.target);
  to->set_start_ns(from.start_ns);
  to->set_bytes_per_second(from.bytes_per_second);
  to->set_is_estimate(from.is_estimate);
}

void Fill(const ExecutorKernelCost& from, v1::KernelCost* to) {
  to->set_kernel(from.kernel);
  to->set_device(from.device);
  to->set_instances(from.instances);
  to->set_estimate_ns(from.estimate_ns);
  to->set_measured_ns(from.measured_ns);
  to->set_samples(from.samples);
  to->set_error(from.error);
}

}  // namespace

void Graphs::ListCosts(const TenantRef& tenant, const v1::ListCostsRequest& request, v1::ListCostsResponse* response,
                       Done done) {
  CoreScope scope(monitor_);
  if (request.handle().empty()) {
    if (tenant->executor.state != ExecutorSlot::State::kUp) {
      scope.Defer([done = std::move(done)] { done(Outcome()); });  // Nobody knows anything.
      return;
    }
    AskCosts(scope, tenant, 0, {.response = response, .handle = {}, .done = std::move(done)});
    return;
  }
  const StatusOr<PreparationRef> found = UseHandle(*tenant, request.handle());
  const Outcome refused = found.ok() ? quotas_.AdmitCompile(*tenant, **found) : Outcome(found.status());
  if (!refused.ok()) {
    scope.Defer([done = std::move(done), refused] { done(refused); });
    return;
  }
  WithPrepared(scope, tenant, *found,
               [this, tenant, link_handle = (*found)->link_handle,
                call = CostsCall{.response = response, .handle = request.handle(), .done = std::move(done)}](
                   CoreScope& inner, const Outcome& outcome) {
                 if (outcome.ok()) {
                   AskCosts(inner, tenant, link_handle, call);
                 } else {
                   inner.Defer([done = call.done, outcome] { done(outcome); });
                 }
               });
}

void Graphs::AskCosts(CoreScope& scope, const TenantRef& tenant, uint64_t link_handle, CostsCall call) {
  scope.Defer([this, tenant, link_handle, call = std::move(call), port = tenant->executor.port] {
    port->ListCosts(link_handle, [this, tenant, link_handle, call](const StatusOr<ExecutorCosts>& costs) {
      OnCosts(*tenant, link_handle, call, costs);
    });
  });
}

void Graphs::OnCosts(Tenant& tenant, uint64_t link_handle, const CostsCall& call,
                     const StatusOr<ExecutorCosts>& costs) {
  Outcome outcome = costs.status();
  if (!costs.ok()) {
    outcome = While(costs.status(), "asking the executor for costs");
    if (absl::IsUnavailable(costs.status())) {
      outcome.detail.emplace().set_retryable(true);
    }
    call.done(outcome);
    return;
  }
  {
    CoreScope scope(monitor_);
    // A graph may have several handles; those that only jobs use have none.
    std::map<uint64_t, std::string> handles;
    for (const auto& [id, handle] : tenant.handles) {
      std::string& first = handles[handle->preparation->link_handle];
      first = first.empty() ? id : std::min(first, id);
    }
    for (const ExecutorKernelCost& kernel : costs->kernels) {
      if (link_handle != 0 && kernel.handle != link_handle) {
        continue;
      }
      v1::KernelCost* to = call.response->add_kernels();
      Fill(kernel, to);
      const auto known = handles.find(kernel.handle);
      to->set_handle(link_handle != 0 ? call.handle : known != handles.end() ? known->second : std::string());
    }
  }
  for (const ExecutorTransferCost& transfer : costs->transfers) {
    Fill(transfer, call.response->add_transfers());
  }
  call.response->set_more(costs->more);
  call.done(outcome);
}

}  // namespace hpvm
