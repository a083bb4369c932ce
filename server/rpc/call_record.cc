// SPDX-License-Identifier: Apache-2.0
#include "server/rpc/call_record.h"

namespace hpvm::server {
namespace {

constexpr size_t kObjectBytesMax = 128;

}  // namespace

CallRecord::~CallRecord() {
  if (!has_ended_) {
    End(Cancelled("The caller gave up."));
  }
}

void CallRecord::OnRequest(void* request) {
  if (has_request_ || messages_ == nullptr) {
    return;
  }
  has_request_ = true;
  if (HasSpan()) {
    witnesses_.observer.On(events::CallBegan{this, messages_->options, request});
  }
  if (messages_->request != nullptr) {
    messages_->request(request, &notes_);
  }
}

void CallRecord::OnResponse(const void* response) {
  if (messages_ == nullptr || messages_->response == nullptr) {
    return;
  }
  messages_->response(response, &notes_);
  if (notes_.prepared != nullptr) {
    witnesses_.observer.On(events::CallPrepared{this, *notes_.prepared});
  }
  notes_.prepared = nullptr;
}

bool CallRecord::End(const Status& sent) {
  const Status status = sent.ok() ? notes_.error : sent;
  has_ended_ = true;
  witnesses_.observer.On(events::CallEnded{method_, status, witnesses_.clock.Now() - start_, HasSpan() ? this : nullptr,
                                           HasSpan() ? messages_->span : nullptr, notes_.attributes});
  return caller_.has_value() && notes_.changes && WriteDown(status);
}

bool CallRecord::WriteDown(const Status& status) {
  const bool changes_rights = status.ok() && method_.starts_with("/hpvm.v1.Admin/");
  const std::string why = Message(status), verdict = status.ok() ? "ok" : absl::StatusCodeToString(status.code());
  // The tenant that a refused call would have concerned is unknown.
  witnesses_.observer.On(
      events::Recorded{.who = caller_->principal.who,
                       .peer = caller_->principal.peer,
                       .tenant = status.ok() && !notes_.tenant.empty() ? notes_.tenant : caller_->tenant,
                       .method = method_,
                       .object = std::string_view(notes_.object).substr(0, kObjectBytesMax),
                       .verdict = verdict,
                       .detail = status.ok() ? notes_.detail : why,
                       .payer = changes_rights ? kAuditPayerDaemon : caller_->tenant});
  return changes_rights;
}

}  // namespace hpvm::server
