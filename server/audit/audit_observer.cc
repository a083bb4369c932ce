// SPDX-License-Identifier: Apache-2.0
#include "server/audit/audit_observer.h"

#include <string>

#include "server/jobs/rows/job_state_name.h"

namespace hpvm {

void AuditObserver::Take(const events::JobChanged& event) {
  const v1::Job& job = event.job;
  if (job.state() < v1::JOB_STATE_SUCCEEDED) {
    return;  // Accepted by a call, which has a record of its own; or under way.
  }
  const auto code = static_cast<absl::StatusCode>(job.error().code());
  // The state alone: an error's message may repeat what a kernel said.
  log_.Append({.who = "hpvmd",
               .peer = "",
               .tenant = std::string(event.tenant),
               .method = "job end",
               .object = job.id(),
               .verdict = job.has_error() ? absl::StatusCodeToString(code) : "ok",
               .detail = StateName(job.state()),
               .payer = std::string(event.tenant)});
}

void AuditObserver::Take(const events::ExecutorChanged& event) {
  if (event.what == "started" || event.what == "retired") {
    return;  // They follow from calls.
  }
  log_.Append({.who = "hpvmd",
               .peer = "",
               .tenant = std::string(event.tenant),
               .method = "executor " + std::string(event.what),
               .object = "",
               .verdict = "ok",
               .detail = "",
               .payer = std::string(event.tenant)});
}

void AuditObserver::Take(const events::Reloaded& event) {
  log_.Append({.who = "hpvmd",
               .peer = "",
               .tenant = "",
               .method = "configuration reload",
               .object = "",
               .verdict = event.ok ? "ok" : "INVALID_ARGUMENT",
               .detail = ""});
}

}  // namespace hpvm
