// SPDX-License-Identifier: Apache-2.0
#include "server/core/rooms/quotas.h"

#include <algorithm>
#include <utility>

#include "server/process/log.h"

namespace hpvm::server {
namespace {

using scheduler::Resource;

}  // namespace

void Quotas::SetTotals() {
  const auto set = [this](scheduler::Resource resource, uint64_t configured, uint64_t otherwise) {
    ledger_.SetTotal(resource, configured != 0 ? configured : otherwise);
  };
  set(scheduler::Resource::kHostBytes, config_->limits_host_bytes_max, options_.host_bytes_max);
  set(scheduler::Resource::kDiskBytes, config_->jobs_disk_bytes_max, options_.disk_bytes_max);
}

Outcome Quotas::AdmitCompile(const Tenant& tenant, const Preparation& preparation) {
  if (preparation.validated && preparation.ready_epoch == tenant.executor.epoch) {
    return {};
  }
  const auto refusal = ledger_.Spend(tenant.key, Resource::kCompileTime, 0, options_.clock->Now());
  return refusal.has_value() ? QuotaOutcome(*refusal) : Outcome();
}

void Quotas::ChargeDeviceTime(Tenant& tenant, Duration held) {
  ledger_.Charge(tenant.key, Resource::kDeviceTime, static_cast<uint64_t>(std::max<int64_t>(0, held.count())),
                 options_.clock->Now());
}

void Quotas::ChargeCompileTime(Tenant& tenant, uint64_t said_ns, Duration wall) {
  const uint64_t threads = std::max<uint64_t>(1, options_.cpu_threads);
  const auto most = static_cast<uint64_t>(std::max<int64_t>(0, wall.count()));
  const uint64_t bound = most > UINT64_MAX / threads ? UINT64_MAX : most * threads;
  ledger_.Charge(tenant.key, Resource::kCompileTime, std::min(said_ns, bound), options_.clock->Now());
}

void Quotas::SetDeviceBytes(Tenant& tenant, uint64_t epoch, uint64_t bytes) {
  ExecutorSlot& slot = tenant.executor;
  if (slot.epoch != epoch || slot.state != ExecutorSlot::State::kUp) {
    return;
  }
  if (slot.device_bytes.amount() == 0) {
    slot.device_bytes = tenant.account.TakeAnyway(Resource::kDeviceBytes, bytes);
  } else {
    slot.device_bytes.SetAnyway(bytes);
  }
}

// Adds to `lease`.
Status Quotas::ReserveBytes(Tenant& tenant, uint64_t bytes, std::string_view what, scheduler::Lease* lease) {
  const uint64_t max = config_->jobs_stored_bytes_max, used = tenant.stored_job_bytes();
  const uint64_t left = max > used ? max - used : 0;
  if (bytes > left) {
    return ResourceExhausted(std::string(what) + " (" + std::to_string(bytes) +
                             " bytes) does not fit in the space left for the tenant's jobs on disk (" +
                             std::to_string(left) + " of " + std::to_string(max) + ").");
  }
  scheduler::Lease more;
  if (const auto refusal = tenant.account.Take(scheduler::Resource::kDiskBytes, bytes, &more)) {
    return ToStatus(*refusal);
  }
  lease->Merge(std::move(more));
  return absl::OkStatus();
}

}  // namespace hpvm::server
