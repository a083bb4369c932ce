// SPDX-License-Identifier: Apache-2.0
// Rates of requests and their bytes, counted before anything of them is parsed.
#ifndef HPVMD_SERVER_CORE_STATE_REQUEST_METER_H_
#define HPVMD_SERVER_CORE_STATE_REQUEST_METER_H_

#include <cstdint>

#include "base/clock.h"
#include "scheduler/share/ledger.h"
#include "server/core/state/outcome.h"

namespace hpvm::server {

struct Tenant;

// kResourceExhausted with the quota's sentence. What is earned may be tried again, and when; what is held may not,
// before something is given back.
Outcome QuotaOutcome(const scheduler::QuotaRefusal& refusal);

// Any thread; takes no mutex but the ledger's.
class RequestMeter {
 public:
  // Both borrowed; live longer.
  RequestMeter(scheduler::Ledger& ledger, const Clock& clock) : ledger_(ledger), clock_(clock) {}

  // A call begins. `bytes`: of its request; 0 for streams, whose messages follow. A request larger than what is left is
  // let in as long as anything is, since it is here already, and the next one waits for its bytes to be earned.
  Outcome Begin(const Tenant& tenant, uint64_t bytes);
  // One more message of a call.
  Outcome More(const Tenant& tenant, uint64_t bytes);

 private:
  scheduler::Ledger& ledger_;
  const Clock& clock_;
};

}  // namespace hpvm::server

#endif  // HPVMD_SERVER_CORE_STATE_REQUEST_METER_H_
