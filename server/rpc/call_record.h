// SPDX-License-Identifier: Apache-2.0
// CallRecord reports one call from its first byte to its status, however it came: its duration, its span, its caller,
// and its audit record.
#ifndef HPVMD_SERVER_RPC_CALL_RECORD_H_
#define HPVMD_SERVER_RPC_CALL_RECORD_H_

#include <optional>
#include <string>
#include <string_view>

#include "base/clock.h"
#include "server/audit/audit_log.h"
#include "server/events/events.h"
#include "server/identity/principal.h"
#include "server/rpc/call_messages.h"

namespace hpvm::server {

struct Caller {
  Principal principal;
  std::string tenant;  // The tenant that the call acts for.
};

// Receivers of the reports about calls. Borrowed; must outlive every call.
struct CallWitnesses {
  Observer& observer;
  const Clock& clock;
  AuditLog& audit;  // Only for waiting; its records come through the observer.
};

// Not thread-safe. A call that ends without a status was abandoned.
class CallRecord {
 public:
  // `method` must never be freed; `messages` is MessagesOf(method).
  CallRecord(const CallWitnesses& witnesses, std::string_view method, const CallMessages* messages)
      : witnesses_(witnesses), method_(method), messages_(messages), start_(witnesses.clock.Now()) {}
  ~CallRecord();
  CallRecord(const CallRecord&) = delete;
  CallRecord& operator=(const CallRecord&) = delete;

  // Called while the call is handled, before its status.
  void SetCaller(const Caller& caller) { caller_ = caller; }
  // Takes the first request; later ones are not examined. May change its options.
  void OnRequest(void* request);
  void OnResponse(const void* response);
  // Returns true when rights have changed, so that the response must wait for the audit.
  bool End(const Status& status);
  bool has_ended() const { return has_ended_; }

 private:
  bool HasSpan() const { return messages_ != nullptr && messages_->options != nullptr; }
  bool WriteDown(const Status& status);

  const CallWitnesses& witnesses_;
  const std::string_view method_;
  const CallMessages* const messages_;
  const Time start_;
  std::optional<Caller> caller_;
  CallNotes notes_;
  bool has_request_ = false, has_ended_ = false;
};

}  // namespace hpvm::server

#endif  // HPVMD_SERVER_RPC_CALL_RECORD_H_
