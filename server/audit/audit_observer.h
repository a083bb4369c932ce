// SPDX-License-Identifier: Apache-2.0
// Puts into the audit what no call did: how jobs ended, executors that crashed or were killed, reloads. Calls are the
// gate's to record.
#ifndef HPVMD_SERVER_AUDIT_AUDIT_OBSERVER_H_
#define HPVMD_SERVER_AUDIT_AUDIT_OBSERVER_H_

#include <string_view>

#include "server/audit/audit_log.h"
#include "server/events/events.h"

namespace hpvm {

// The log outlives it. Any thread.
class AuditObserver final : public Observer {
 public:
  explicit AuditObserver(AuditLog& log) : log_(log) {}
  void On(const Event& event) override { Dispatch(*this, event); }
  void Take(const events::JobChanged& event);
  void Take(const events::ExecutorChanged& event);
  void Take(const events::Reloaded& event);

 private:
  AuditLog& log_;
};

}  // namespace hpvm

#endif  // HPVMD_SERVER_AUDIT_AUDIT_OBSERVER_H_
