// SPDX-License-Identifier: Apache-2.0
// AuditObserver records actions and refusals in the audit: calls that change something, how jobs ended, executors
// that crashed or were killed, reloads.
#ifndef HPVMD_SERVER_AUDIT_AUDIT_OBSERVER_H_
#define HPVMD_SERVER_AUDIT_AUDIT_OBSERVER_H_

#include <string_view>

#include "server/audit/audit_log.h"
#include "server/events/events.h"

namespace hpvm::server {

// The log must outlive it. Thread-safe.
class AuditObserver final : public Observer {
 public:
  explicit AuditObserver(AuditLog& log) : log_(log) {}
  void On(const Event& event) override { Dispatch(*this, event); }
  void Take(const events::JobChanged& event);
  void Take(const events::ExecutorChanged& event);
  void Take(const events::Reloaded& event);
  void Take(const events::Recorded& event);

 private:
  // Records an action of the daemon itself.
  void Note(std::string_view tenant, std::string_view method, std::string_view object, std::string_view verdict,
            std::string_view detail);
  AuditLog& log_;
};

}  // namespace hpvm::server

#endif  // HPVMD_SERVER_AUDIT_AUDIT_OBSERVER_H_
