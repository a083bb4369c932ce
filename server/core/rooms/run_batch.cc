// SPDX-License-Identifier: Apache-2.0
// Carries out RunMany: begins the items of a call a few at a time; each is a run like any other from then on.
#include <utility>

#include "server/core/rooms/runs.h"
#include "server/core/state/bindings.h"
#include "server/core/state/iteration.h"
#include "server/core/state/request_options.h"

namespace hpvm::server {

StatusOr<RunBatch> Runs::BeginBatch(Tenant& tenant, const v1::RunManyRequest& request) {
  HPVMD_RETURN_IF_ERROR(CheckRequestOptions(request.options(), /*key_honoured=*/false));
  Execution run;  // The part that all items share.
  run.sending = std::make_shared<Sending>();
  internal::RunOptions& options = run.sending->input.options;
  HPVMD_RETURN_IF_ERROR(SetIteration(request, &options));
  RunBatch batch;
  CoreScope scope(monitor_);
  HPVMD_RETURN_IF_ERROR(shutdown_.RefuseRun());
  HPVMD_RETURN_IF_ERROR(SetOptions(run, request.options(), request.repeat()));
  HPVMD_ASSIGN_OR_RETURN(batch.preparation, graphs_.UseHandle(tenant, request.handle()));
  options.set_node_records_max(std::min(request.placements_max(), kPlacementsMax));
  options.set_log(request.log());
  batch.request = &request;
  batch.options = options;
  batch.received = run.received;
  batch.deadline = run.deadline;
  return batch;
}

// The caller holds the mutex. `shape` is the error of earlier checks.
Outcome Runs::PrepareItem(CoreScope& scope, const RunBatch& batch, const v1::RunManyRequest::Item& item,
                          const Status& shape, Execution& run) {
  HPVMD_RETURN_IF_ERROR(shape);
  HPVMD_RETURN_IF_ERROR(shutdown_.breaking_off ? shutdown_.RefuseWork() : absl::OkStatus());
  HPVMD_RETURN_IF_ERROR(Tenants::RefuseTenant(*run.tenant));
  if (options_.clock->Now() >= batch.deadline) {
    return DeadlineExceeded("The call's deadline passed before the run began.");
  }
  HPVMD_RETURN_IF_ERROR(ResolveBindings(*run.tenant, *run.sending, item.inputs(), item.outputs()));
  return PayForRun(scope, run);
}

std::vector<uint64_t> Runs::RunItems(const TenantRef& tenant, const RunBatch& batch, std::span<const int> items,
                                     const std::function<void(int, RunOutcome)>& done) {
  std::vector<ExecutionRef> runs;
  std::vector<Status> shapes;
  for (const int index : items) {
    const v1::RunManyRequest::Item& item = batch.request->items(index);
    const ExecutionRef run = NewRun(tenant, [done, index](RunOutcome outcome) { done(index, std::move(outcome)); });
    run->preparation = batch.preparation;
    run->received = batch.received;
    run->deadline = batch.deadline;
    run->priority = batch.request->options().priority();
    run->traceparent = batch.request->options().traceparent();
    run->sending->input.options = batch.options;
    run->sending->input.symbols.insert(item.symbols().begin(), item.symbols().end());
    const Status bindings = CheckBindings(item.inputs(), item.outputs());
    shapes.push_back(bindings.ok() ? CheckCount("symbols", item.symbols_size()) : bindings);
    runs.push_back(run);
  }
  std::vector<uint64_t> ids;
  CoreScope scope(monitor_);
  for (size_t i = 0; i < runs.size(); ++i) {
    const v1::RunManyRequest::Item& item = batch.request->items(items[i]);
    ids.push_back(Start(scope, runs[i], PrepareItem(scope, batch, item, shapes[i], *runs[i])));
  }
  return ids;
}

}  // namespace hpvm::server
