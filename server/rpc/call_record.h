// SPDX-License-Identifier: Apache-2.0
// What is told of one call from its first byte to its status, however it came: how long it took, its span, who made it,
// and what is written down of it.
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
  std::string tenant;  // That the call acts for.
};

// Whom calls are told. Borrowed; live longer than every call.
struct CallWitnesses {
  Observer& observer;
  const Clock& clock;
  AuditLog& audit;  // To wait for; what it holds comes through the observer.
};

// One thread at a time. A call that ends without a status was given up.
class CallRecord {
 public:
  // `method` is there for ever; `messages` is MessagesOf(method).
  CallRecord(const CallWitnesses& witnesses, std::string_view method, const CallMessages* messages)
      : witnesses_(witnesses), method_(method), messages_(messages), start_(witnesses.clock.Now()) {}
  ~CallRecord();
  CallRecord(const CallRecord&) = delete;
  CallRecord& operator=(const CallRecord&) = delete;

  // While the call is handled, before its status.
  void SetCaller(const Caller& caller) { caller_ = caller; }
  // The first request; others are not looked at. May change its options.
  void OnRequest(void* request);
  void OnResponse(const void* response);
  // Whether rights have changed, so that the answer must wait for the audit.
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
