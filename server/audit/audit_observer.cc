// SPDX-License-Identifier: Apache-2.0
#include "server/audit/audit_observer.h"

#include <string>

#include "server/jobs/rows/job_state_name.h"

namespace hpvm::server {

void AuditObserver::Take(const events::JobChanged& event) {
  const v1::Job& job = event.job;
  if (job.state() < v1::JOB_STATE_SUCCEEDED) {
    return;  // Accepted jobs are recorded by their call; others are in progress.
  }
  const auto code = static_cast<absl::StatusCode>(job.error().code());
  // Records the state alone: an error's message may repeat what a kernel printed.
  Note(event.tenant, "job end", job.id(), job.has_error() ? absl::StatusCodeToString(code) : "ok",
       StateName(job.state()));
}

void AuditObserver::Take(const events::ExecutorChanged& event) {
  if (event.what != "started" && event.what != "retired") {  // Starting and retiring follow from calls.
    Note(event.tenant, "executor " + std::string(event.what), "", "ok", "");
  }
}

void AuditObserver::Take(const events::Reloaded& event) {
  Note("", "configuration reload", "", event.ok ? "ok" : "INVALID_ARGUMENT", "");
}

void AuditObserver::Note(std::string_view tenant, std::string_view method, std::string_view object,
                         std::string_view verdict, std::string_view detail) {
  Take(events::Recorded{"hpvmd", "", tenant, method, object, verdict, detail, tenant});
}

void AuditObserver::Take(const events::Recorded& event) {
  log_.Append({.who = std::string(event.who),
               .peer = std::string(event.peer),
               .tenant = std::string(event.tenant),
               .method = std::string(event.method),
               .object = std::string(event.object),
               .verdict = std::string(event.verdict),
               .detail = std::string(event.detail),
               .payer = std::string(event.payer)});
}

}  // namespace hpvm::server
