// SPDX-License-Identifier: Apache-2.0
// Queries a tenant's executor for the costs that it knows. The daemon stores none of them: histories are kept with the
// tenant's compiled kernels.
#include <algorithm>
#include <utility>

#include "server/core/rooms/graphs.h"

namespace hpvm::server {
void Graphs::ListCosts(const TenantRef& tenant, const v1::ListCostsRequest& request, v1::ListCostsResponse* response,
                       Done done) {
  CoreScope scope(monitor_);
  if (request.handle().empty()) {
    if (tenant->executor.state != ExecutorSlot::State::kUp) {
      scope.Defer([done = std::move(done)] { done(Outcome()); });  // No executor runs, so no costs are known.
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
    internal::Envelope question;
    question.mutable_list_costs()->set_handle(link_handle);
    port->Ask(std::move(question), [this, tenant, link_handle, call](StatusOr<internal::Envelope> answer) {
      OnCosts(*tenant, link_handle, call, std::move(answer));
    });
  });
}

void Graphs::OnCosts(Tenant& tenant, uint64_t link_handle, const CostsCall& call, StatusOr<internal::Envelope> answer) {
  if (!answer.ok()) {
    call.done(LaterIfUnavailable(While(answer.status(), "asking the executor for costs")));
    return;
  }
  internal::Costs& costs = *answer->mutable_costs();
  {
    CoreScope scope(monitor_);
    // A graph may have several handles; graphs that only jobs use have none.
    std::map<uint64_t, std::string> handles;
    for (const auto& [id, handle] : tenant.handles) {
      std::string& first = handles[handle->preparation->link_handle];
      first = first.empty() ? id : std::min(first, id);
    }
    for (internal::GraphCosts& graph : *costs.mutable_graphs()) {
      if (link_handle != 0 && graph.handle() != link_handle) {
        continue;
      }
      const auto known = handles.find(graph.handle());
      const std::string& handle = link_handle != 0         ? call.handle
                                  : known != handles.end() ? known->second
                                                           : std::string();
      for (v1::KernelCost& kernel : *graph.mutable_kernels()) {
        kernel.set_handle(handle);
        *call.response->add_kernels() = std::move(kernel);
      }
    }
  }
  *call.response->mutable_transfers() = std::move(*costs.mutable_transfers());
  call.response->set_more(costs.more());
  call.done(Outcome());
}

}  // namespace hpvm::server
