// SPDX-License-Identifier: Apache-2.0
// What tenants may hold and spend, and what they have: the ledger, and what is charged to it.
#ifndef HPVMD_SERVER_CORE_ROOMS_QUOTAS_H_
#define HPVMD_SERVER_CORE_ROOMS_QUOTAS_H_

#include <string_view>

#include "scheduler/share/ledger.h"
#include "server/core/state/core_context.h"
#include "server/core/state/outcome.h"
#include "server/core/state/request_meter.h"

namespace hpvm::server {

class Quotas : private CoreRoom {
 public:
  explicit Quotas(CoreContext& context) : CoreRoom(context) {}

  // --- For other rooms, with the mutex ---
  scheduler::Ledger& ledger() { return ledger_; }
  const scheduler::Ledger& ledger() const { return ledger_; }
  RequestMeter& meter() { return meter_; }
  void SetTotals();
  void ChargeDeviceTime(Tenant& tenant, Duration held);
  // What the executor says of it, within what it can have spent since `sent`.
  void ChargeCompileTime(Tenant& tenant, uint64_t said_ns, Duration wall);
  // What the tenant's executor of that epoch says it holds on devices, all together.
  void SetDeviceBytes(Tenant& tenant, uint64_t epoch, uint64_t bytes);
  Status ReserveBytes(Tenant& tenant, uint64_t bytes, std::string_view what, scheduler::Lease* lease);
  // Refused while there is a debt of compile time, unless nothing is to be compiled.
  Outcome AdmitCompile(const Tenant& tenant, const Preparation& preparation);

 private:
  scheduler::Ledger ledger_;  // Locks itself.
  RequestMeter meter_{ledger_, *options_.clock};
};

}  // namespace hpvm::server

#endif  // HPVMD_SERVER_CORE_ROOMS_QUOTAS_H_
