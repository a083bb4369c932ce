// SPDX-License-Identifier: Apache-2.0
// What clients hold by name, prepared graphs and buffers: listing it, and letting it go when nobody uses it.
//
// A client that dies leaves what it held. So that its tenant need not wait for a restart of the daemon, both can be
// listed; what nobody has used for long goes by itself; and at a limit what has not been used for a while gives way.
#include <algorithm>
#include <iterator>
#include <utility>

#include "server/core/core.h"
#include "server/process/object_id.h"

namespace hpvm {
namespace {

constexpr uint32_t kPageMax = 1'000, kPageDefault = 100;
// Labels may be long: a page stays well below what a message may have.
constexpr size_t kPageBytesMax = 2 * limits::kMiB;
constexpr Duration kLookMax = std::chrono::minutes(1), kLookMin = std::chrono::milliseconds(100);

StatusOr<size_t> PageSize(uint32_t wanted) {
  if (wanted > kPageMax) {
    return InvalidArgument("The page size (" + std::to_string(wanted) + ") is larger than the limit (" +
                           std::to_string(kPageMax) + ").");
  }
  return wanted == 0 ? kPageDefault : wanted;
}

// Tokens are ids, and ids are alike but for their random part.
Status CheckToken(std::string_view token, std::string_view example) {
  const size_t digits = example.rfind('-') + 1;
  const bool is_id = token.size() == example.size() && token.substr(0, digits) == example.substr(0, digits);
  return token.empty() || is_id
             ? absl::OkStatus()
             : InvalidArgument("The page token is not one that this server gave; begin with the first page.");
}

size_t PageBytes(const Config& config) { return std::min<size_t>(kPageBytesMax, config.limits_message_bytes_max / 2); }

Duration Milliseconds(uint64_t ms) { return std::chrono::milliseconds(ms); }

// Pages are in the order of ids, which are random, and the last id is the token: it says nothing that its page does
// not say.
template <typename Message, typename Response>
bool AddToPage(Message message, size_t page, size_t bytes_max, size_t* bytes, const std::string& last,
               google::protobuf::RepeatedPtrField<Message>* items, Response* response) {
  *bytes += message.ByteSizeLong();
  if (static_cast<size_t>(items->size()) == page || (*bytes > bytes_max && !items->empty())) {
    response->set_next_page_token(last);
    return false;
  }
  *items->Add() = std::move(message);
  return true;
}

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

v1::Buffer ToMessage(const BufferRecord& record);

StatusOr<PreparationRef> Core::UseHandle(Tenant& tenant, std::string_view handle) {
  const auto found = tenant.handles.find(std::string(handle));
  if (found == tenant.handles.end()) {
    return NotFound("There is no prepared graph \"" + std::string(handle.substr(0, 80)) + "\".");
  }
  const std::shared_ptr<GraphHandle>& held = found->second;
  held->used = options_.clock->Now();
  return PreparationRef(held, held->preparation.get());
}

std::string Core::AddHandle(CoreScope& scope, const TenantRef& tenant, const PreparationRef& preparation) {
  std::string id = NewObjectId("graph", *options_.rng);
  tenant->handles.emplace(
      id, std::make_shared<GraphHandle>(GraphHandle{preparation, options_.clock->WallNs(), options_.clock->Now()}));
  ScheduleExpiry(scope, tenant);
  return id;
}

void Core::YieldHandle(CoreScope& scope, Tenant& tenant) {
  const Time before = options_.clock->Now() - Milliseconds(config_->limits_yields_after_ms);
  auto oldest = tenant.handles.end();
  for (auto at = tenant.handles.begin(); at != tenant.handles.end(); ++at) {
    const GraphHandle& handle = *at->second;
    if (at->second.use_count() == 1 && handle.used <= before &&
        (oldest == tenant.handles.end() || handle.used < oldest->second->used)) {
      oldest = at;
    }
  }
  if (oldest != tenant.handles.end()) {
    tenant.handles.erase(oldest);
    DropIdlePreparations(scope, tenant, 0);
  }
}

void Core::YieldBuffers(Tenant& tenant, uint64_t size_bytes) {
  const Time before = options_.clock->Now() - Milliseconds(config_->limits_yields_after_ms);
  std::vector<SegmentRef> taken = tenant.buffers.TakeIdle(before, size_bytes);
  std::move(taken.begin(), taken.end(), std::back_inserter(tenant.yielded));
}

// A timer is there for as long as the tenant has, or a run may yet make, what can expire.
void Core::ScheduleExpiry(CoreScope& scope, const TenantRef& tenant) {
  if (tenant->expires) {
    return;
  }
  tenant->expires = true;
  const Duration shortest =
      Milliseconds(std::min(config_->limits_graph_idle_ms_max, config_->limits_buffer_idle_ms_max));
  const Duration look = std::clamp<Duration>(shortest / 4, kLookMin, kLookMax);
  AddTimer(scope, options_.clock->Now() + look, [this, tenant](CoreScope& inner) { Expire(inner, tenant); });
}

void Core::Expire(CoreScope& scope, const TenantRef& tenant) {
  tenant->expires = false;
  if (stopped_) {
    return;
  }
  const Time now = options_.clock->Now();
  const Time before = now - Milliseconds(config_->limits_graph_idle_ms_max);
  const size_t count = tenant->handles.size();
  std::erase_if(tenant->handles, [&](const auto& entry) {
    GraphHandle& handle = *entry.second;
    if (entry.second.use_count() > 1) {
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

Status Core::ListGraphs(Tenant& tenant, const v1::ListGraphsRequest& request, v1::ListGraphsResponse* response) {
  HPVMD_ASSIGN_OR_RETURN(const size_t page, PageSize(request.page_size()));
  HPVMD_RETURN_IF_ERROR(CheckToken(request.page_token(), "graph-00000000000000000000000000000000"));
  CoreScope scope(*this);
  const Time now = options_.clock->Now();
  size_t bytes = 0;
  std::string last = request.page_token();
  for (auto at = tenant.handles.upper_bound(last); at != tenant.handles.end(); ++at) {
    if (!AddToPage(DescribeHandle(at->first, *at->second, now), page, PageBytes(*config_), &bytes, last,
                   response->mutable_graphs(), response)) {
      break;
    }
    last = at->first;
  }
  return absl::OkStatus();
}

Status Core::ListBuffers(Tenant& tenant, const v1::ListBuffersRequest& request, v1::ListBuffersResponse* response) {
  HPVMD_ASSIGN_OR_RETURN(const size_t page, PageSize(request.page_size()));
  HPVMD_RETURN_IF_ERROR(CheckToken(request.page_token(), "buf-00000000000000000000000000000000"));
  CoreScope scope(*this);
  const Time now = options_.clock->Now();
  size_t bytes = 0;
  std::string last = request.page_token();
  for (const BufferRecord* record : tenant.buffers.After(last, page + 1)) {
    v1::Buffer buffer = ToMessage(*record);
    buffer.set_idle_ns(static_cast<uint64_t>(std::max(Duration{0}, now - record->used).count()));
    if (!AddToPage(std::move(buffer), page, PageBytes(*config_), &bytes, last, response->mutable_buffers(), response)) {
      break;
    }
    last = record->id;
  }
  return absl::OkStatus();
}

}  // namespace hpvm
