// SPDX-License-Identifier: Apache-2.0
#include "server/core/state/request_meter.h"

#include "server/core/state/tenant.h"

namespace hpvm::server {

Outcome QuotaOutcome(const scheduler::QuotaRefusal& refusal) {
  return refusal.retry_after > Duration{0} ? Later(ToStatus(refusal), refusal.retry_after) : ToStatus(refusal);
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
