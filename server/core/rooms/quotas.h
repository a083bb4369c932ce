// SPDX-License-Identifier: Apache-2.0
// Quotas holds the ledger of what tenants hold and have spent, with their limits, and charges to it.
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

  // --- For other rooms; the caller holds the mutex ---
  scheduler::Ledger& ledger() { return ledger_; }
  const scheduler::Ledger& ledger() const { return ledger_; }
  RequestMeter& meter() { return meter_; }
  void SetTotals();
  void ChargeDeviceTime(Tenant& tenant, Duration held);
  // Charges the compile time that the executor reports, at most `wall` on each processor.
  void ChargeCompileTime(Tenant& tenant, uint64_t said_ns, Duration wall);
  // Sets the device memory that the tenant's executor of that epoch reports, as a sum over its devices.
  void SetDeviceBytes(Tenant& tenant, uint64_t epoch, uint64_t bytes);
  Status ReserveBytes(Tenant& tenant, uint64_t bytes, std::string_view what, scheduler::Lease* lease);
  // Refuses a tenant in debt of compile time, unless nothing has to be compiled.
  Outcome AdmitCompile(const Tenant& tenant, const Preparation& preparation);

 private:
  scheduler::Ledger ledger_;  // Has a mutex of its own.
  RequestMeter meter_{ledger_, *options_.clock};
};

}  // namespace hpvm::server

#endif  // HPVMD_SERVER_CORE_ROOMS_QUOTAS_H_
