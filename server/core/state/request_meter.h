// SPDX-License-Identifier: Apache-2.0
// RequestMeter limits the rates of requests and of their bytes, before any of them is parsed.
#ifndef HPVMD_SERVER_CORE_STATE_REQUEST_METER_H_
#define HPVMD_SERVER_CORE_STATE_REQUEST_METER_H_

#include <cstdint>

#include "base/clock.h"
#include "scheduler/share/ledger.h"
#include "server/core/state/outcome.h"

namespace hpvm::server {

struct Tenant;

// Returns kResourceExhausted with the refusal's sentence. A refusal by a quota that refills says when to try again;
// one by a quota of held resources is not retryable before something is given back.
Outcome QuotaOutcome(const scheduler::QuotaRefusal& refusal);

// Thread-safe; acquires no mutex except the ledger's.
class RequestMeter {
 public:
  // Both are borrowed and must outlive the meter.
  RequestMeter(scheduler::Ledger& ledger, const Clock& clock) : ledger_(ledger), clock_(clock) {}

  // Charges a new call. `bytes` is the size of its request; 0 for streams, whose messages follow. A request larger
  // than the remaining balance is admitted as long as the balance is positive, since it has already been received, and
  // the next one waits until its bytes are earned.
  Outcome Begin(const Tenant& tenant, uint64_t bytes);
  // Charges one more message of a call.
  Outcome More(const Tenant& tenant, uint64_t bytes);

 private:
  scheduler::Ledger& ledger_;
  const Clock& clock_;
};

}  // namespace hpvm::server

#endif  // HPVMD_SERVER_CORE_STATE_REQUEST_METER_H_
