// SPDX-License-Identifier: Apache-2.0
// Lists the prepared graphs and buffers that clients refer to by id, and drops them when they are unused.
//
// A client that dies leaves what it held. So that its tenant need not wait for a restart of the daemon, both can be
// listed; objects that have long been unused expire; and at a limit, objects that have been unused for a while make
// room.
#include <algorithm>
#include <iterator>
#include <optional>
#include <string>
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

constexpr char kModuleToken = 'm', kGraphToken = 'g';

v1::StoredModule DescribeBlob(const BlobStore::Listed& listed, bool is_graph, Time now) {
  v1::StoredModule module;
  module.set_sha256(ToHex(listed.blob->hash));
  module.set_size_bytes(listed.blob->size_bytes);
  module.set_kind(static_cast<v1::ModuleKind>(listed.blob->kind));
  module.set_is_graph(is_graph);
  module.set_name(listed.blob->name);
  module.set_created_unix_ns(listed.created_unix_ns);
  module.set_idle_ns(static_cast<uint64_t>(std::max(Duration{0}, now - listed.used).count()));
  module.set_in_use(listed.is_lent);
  return module;
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

// A timer is set for as long as the tenant has objects that can expire, or a run may yet make some.
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
      handle.used = now;  // A long run uses the handle all the while.
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

// A page token is a letter for the kind of blob, followed by the SHA-256 of the last one.
Status Graphs::ListModules(Tenant& tenant, const v1::ListModulesRequest& request, v1::ListModulesResponse* response) {
  HPVMD_ASSIGN_OR_RETURN(const size_t page, PageSize(request.page_size()));
  std::string last = request.page_token();
  std::optional<Sha256> after;
  bool is_graph = false;
  if (!last.empty()) {
    is_graph = last[0] == kGraphToken;
    const StatusOr<Sha256> hash = ParseSha256("page", std::string_view(last).substr(1));
    if (!hash.ok() || (!is_graph && last[0] != kModuleToken)) {
      return InvalidArgument("The page token is not one that this server gave; begin with the first page.");
    }
    after = *hash;
  }
  CoreScope scope(monitor_);
  const Time now = options_.clock->Now();
  size_t bytes = 0;
  for (const bool graphs : {false, true}) {
    if (graphs != is_graph) {
      if (!graphs) {
        continue;
      }
      after.reset();
    }
    for (const BlobStore::Listed& listed : (graphs ? tenant.graphs : tenant.modules).After(after, page + 1)) {
      if (!AddToPage(DescribeBlob(listed, graphs, now), page, PageBytesMax(*config_), &bytes, last,
                     response->mutable_modules(), response)) {
        return absl::OkStatus();
      }
      last = (graphs ? kGraphToken : kModuleToken) + ToHex(listed.blob->hash);
    }
  }
  return absl::OkStatus();
}

StatusOr<uint64_t> Graphs::DeleteModule(Tenant& tenant, std::string_view sha256) {
  HPVMD_ASSIGN_OR_RETURN(const Sha256 hash, ParseSha256("module", sha256));
  CoreScope scope(monitor_);
  const auto remove = [&] {
    StatusOr<BlobRef> module = tenant.modules.Remove(hash);
    StatusOr<BlobRef> graph = absl::IsNotFound(module.status()) ? tenant.graphs.Remove(hash) : module;
    return absl::IsNotFound(graph.status()) ? module : graph;
  };
  StatusOr<BlobRef> removed = remove();
  if (absl::IsFailedPrecondition(removed.status())) {
    // Idle preparations are only kept in case they are wanted again, and do not count as use.
    DropIdlePreparations(scope, tenant, 0);
    removed = remove();
  }
  HPVMD_RETURN_IF_ERROR(removed.status());
  const uint64_t freed = (*removed)->size_bytes;
  scope.Defer([gone = *std::move(removed)] {});
  return freed;
}

bool Graphs::GiveUp(CoreScope& scope, Tenant& tenant) {
  constexpr size_t kAtATime = 64;
  size_t left = kAtATime;
  for (auto at = tenant.handles.begin(); at != tenant.handles.end() && left > 0;) {
    at = at->second.is_lent() ? std::next(at) : (--left, tenant.handles.erase(at));
  }
  while (left > 0 && DropOnePreparation(scope, tenant)) {
    --left;
  }
  scope.Defer([modules = tenant.modules.TakeUnused(left), graphs = tenant.graphs.TakeUnused(left)] {});
  scope.Defer([yielded = std::exchange(tenant.yielded, {})] {});
  scope.Defer([taken = tenant.buffers.TakeIdle(kNever, std::nullopt)] {});
  return tenant.handles.empty() && tenant.preparations.empty() && tenant.modules.size() + tenant.graphs.size() == 0 &&
         tenant.buffers.size() == 0 && tenant.active == 0 && tenant.uploads + tenant.downloads == 0;
}

}  // namespace hpvm::server
