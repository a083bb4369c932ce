// SPDX-License-Identifier: Apache-2.0
// What clients hold by name, prepared graphs and buffers: listing it, and letting it go when nobody uses it.
//
// A client that dies leaves what it held. So that its tenant need not wait for a restart of the daemon, both can be
// listed; what nobody has used for long goes by itself; and at a limit what has not been used for a while gives way.
#include <algorithm>
#include <iterator>
#include <utility>

#include "server/core/rooms/graphs.h"
#include "server/core/state/handle_page.h"
#include "server/process/object_id.h"

namespace hpvm::server {
namespace {

constexpr Duration kLookMax = std::chrono::minutes(1), kLookMin = std::chrono::milliseconds(100);

Duration Milliseconds(uint64_t ms) { return std::chrono::milliseconds(ms); }

v1::PreparedGraph DescribeHandle(const std::string& id, const GraphHandle& handle, Time now) {
  v1::PreparedGraph graph;
  graph.set_handle(id);
  graph.set_name(handle.preparation->summary.name());
  graph.set_graph_sha256(ToHex(handle.preparation->document->hash));
  graph.set_check(handle.preparation->check);
  graph.set_created_unix_ns(handle.created_unix_ns);
  graph.set_idle_ns(static_cast<uint64_t>(std::max(Duration{0}, now - handle.used).count()));
  return graph;
}

}  // namespace

StatusOr<PreparationRef> Graphs::UseHandle(Tenant& tenant, std::string_view handle) {
  const auto found = tenant.handles.find(std::string(handle));
  if (found == tenant.handles.end()) {
    return NotFound("There is no prepared graph \"" + std::string(handle.substr(0, 80)) + "\".");
  }
  const std::shared_ptr<GraphHandle> held = found->second.Lend();
  held->used = options_.clock->Now();
  return PreparationRef(held, held->preparation.get());
}

std::string Graphs::AddHandle(CoreScope& scope, const TenantRef& tenant, const PreparationRef& preparation) {
  std::string id = NewObjectId("graph", *options_.rng);
  tenant->handles.emplace(
      id, std::make_shared<GraphHandle>(GraphHandle{preparation, options_.clock->WallNs(), options_.clock->Now()}));
  ScheduleExpiry(scope, tenant);
  return id;
}

void Graphs::YieldHandle(CoreScope& scope, Tenant& tenant) {
  const Time before = options_.clock->Now() - Milliseconds(config_->limits_yields_after_ms);
  auto oldest = tenant.handles.end();
  for (auto at = tenant.handles.begin(); at != tenant.handles.end(); ++at) {
    const GraphHandle& handle = *at->second;
    if (!at->second.is_lent() && handle.used <= before &&
        (oldest == tenant.handles.end() || handle.used < oldest->second->used)) {
      oldest = at;
    }
  }
  if (oldest != tenant.handles.end()) {
    tenant.handles.erase(oldest);
    DropIdlePreparations(scope, tenant, 0);
  }
}

// A timer is there for as long as the tenant has, or a run may yet make, what can expire.
void Graphs::ScheduleExpiry(CoreScope& scope, const TenantRef& tenant) {
  if (tenant->expires) {
    return;
  }
  tenant->expires = true;
  const Duration shortest =
      Milliseconds(std::min(config_->limits_graph_idle_ms_max, config_->limits_buffer_idle_ms_max));
  const Duration look = std::clamp<Duration>(shortest / 4, kLookMin, kLookMax);
  monitor_.AddTimer(scope, options_.clock->Now() + look, [this, tenant](CoreScope& inner) { Expire(inner, tenant); });
}

void Graphs::Expire(CoreScope& scope, const TenantRef& tenant) {
  tenant->expires = false;
  if (shutdown_.stopped) {
    return;
  }
  const Time now = options_.clock->Now();
  const Time before = now - Milliseconds(config_->limits_graph_idle_ms_max);
  const size_t count = tenant->handles.size();
  std::erase_if(tenant->handles, [&](const auto& entry) {
    GraphHandle& handle = *entry.second;
    if (entry.second.is_lent()) {
      handle.used = now;  // A run that takes long uses it all the while.
    }
    return handle.used <= before;
  });
  if (tenant->handles.size() < count) {
    DropIdlePreparations(scope, *tenant, 0);
  }
  scope.Defer([yielded = std::exchange(tenant->yielded, {})] {});
  scope.Defer(
      [taken = tenant->buffers.TakeIdle(now - Milliseconds(config_->limits_buffer_idle_ms_max), std::nullopt)] {});
  if (!tenant->handles.empty() || tenant->buffers.size() > 0 || tenant->active > 0) {
    ScheduleExpiry(scope, tenant);
  }
}

Status Graphs::ListGraphs(Tenant& tenant, const v1::ListGraphsRequest& request, v1::ListGraphsResponse* response) {
  HPVMD_ASSIGN_OR_RETURN(const size_t page, PageSize(request.page_size()));
  HPVMD_RETURN_IF_ERROR(CheckToken(request.page_token(), "graph-00000000000000000000000000000000"));
  CoreScope scope(monitor_);
  const Time now = options_.clock->Now();
  size_t bytes = 0;
  std::string last = request.page_token();
  for (auto at = tenant.handles.upper_bound(last); at != tenant.handles.end(); ++at) {
    if (!AddToPage(DescribeHandle(at->first, *at->second, now), page, PageBytesMax(*config_), &bytes, last,
                   response->mutable_graphs(), response)) {
      break;
    }
    last = at->first;
  }
  return absl::OkStatus();
}

}  // namespace hpvm::server
