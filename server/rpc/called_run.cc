// SPDX-License-Identifier: Apache-2.0
#include "server/rpc/called_run.h"

#include <utility>

#include "base/failpoint.h"
#include "server/rpc/calls.h"

namespace hpvm::server {

void CalledRun::Start(Admission& admission, const TenantRef& tenant, const std::shared_ptr<CalledRun>& self) {
  if (Outcome admitted = admission.Admit(tenant->name, request_.ByteSizeLong(), &ticket_); !admitted.ok()) {
    core_.observer().On(events::Rejected{tenant->name, "run", admitted.status});
    Answer(admitted);
    return;
  }
  const uint64_t id =
      core_.runs().Run(tenant, request_, [self](RunOutcome outcome) { self->OnOutcome(std::move(outcome)); });
  id_.store(id);
  if (cancelled_.load()) {
    core_.runs().CancelRun(id);
  }
}

void CalledRun::Cancel() {
  // Start stores the id and then reads the flag; one of the two sees the other.
  cancelled_.store(true);
  if (const uint64_t id = id_.load(); id != 0) {
    core_.runs().CancelRun(id);
  }
}

void CalledRun::OnOutcome(RunOutcome outcome) {
  // Released here, not in gRPC's OnDone: other calls may delay gRPC's threads, and this tenant's next call is no
  // overload.
  ticket_.EndCall();
  if (const Status sent = HPVMD_FAILPOINT("service.run.answer"); !sent.ok()) {
    outcome.outcome = sent;
  }
  // A failed call carries no message, so the failure is put beside the log.
  const bool has_log = FillRun(outcome, request_.log(), &response_);
  if (has_log && !outcome.outcome.ok()) {
    *response_.mutable_error() = ToMessage(outcome.outcome);
  }
  Answer(has_log ? Outcome() : outcome.outcome);
}

}  // namespace hpvm::server
