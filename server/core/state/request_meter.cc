// SPDX-License-Identifier: Apache-2.0
#include "server/core/state/request_meter.h"

#include "server/core/state/tenant.h"

namespace hpvm::server {

Outcome QuotaOutcome(const scheduler::QuotaRefusal& refusal) {
  Outcome outcome(ToStatus(refusal));
  if (refusal.retry_after > Duration{0}) {
    outcome.detail.emplace().set_retryable(true);
    outcome.detail->set_retry_after_ns(static_cast<uint64_t>(refusal.retry_after.count()));
  }
  return outcome;
}

Outcome RequestMeter::Begin(const Tenant& tenant, uint64_t bytes) {
  const Time now = clock_.Now();
  if (const auto refusal = ledger_.Spend(tenant.key, scheduler::Resource::kRequests, 1, now)) {
    return QuotaOutcome(*refusal);
  }
  return More(tenant, bytes);
}

Outcome RequestMeter::More(const Tenant& tenant, uint64_t bytes) {
  if (const auto refusal = ledger_.SpendAll(tenant.key, scheduler::Resource::kRequestBytes, bytes, clock_.Now())) {
    return QuotaOutcome(*refusal);
  }
  return {};
}

}  // namespace hpvm::server
