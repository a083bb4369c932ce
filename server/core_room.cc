// SPDX-License-Identifier: Apache-2.0
// A disk without room: no new job is taken and none is started, so that what is left of it goes to those that run.
#include <vector>

#include "server/core.h"
#include "server/log.h"

namespace hpvm {

void Core::OnRoom(bool has_room) {
  CoreScope scope(*this);
  if (closed_ || has_room_ == has_room) {
    return;
  }
  has_room_ = has_room;
  if (!has_room) {
    LeaveQueues(scope);
    return;
  }
  for (const auto& [name, tenant] : tenants_) {
    EachLive(scope, tenant, [this](CoreScope& inner, const LiveJobRef& job) { Settle(inner, job); });
  }
}

// All at once: what one job leaves must not go to the next.
void Core::LeaveQueues(CoreScope& scope) {
  std::vector<scheduler::Event> events;
  for (const auto& [name, tenant] : tenants_) {
    for (const auto& [id, job] : tenant->jobs) {
      if (job->phase == LiveJob::Phase::kQueued) {
        events.push_back(scheduler::JobEnded{tenant->key, job->key});
        RemoveQueued(*job);
        job->phase = LiveJob::Phase::kWaiting;
        AddStateEvent(scope, *job);
      }
    }
  }
  Tick(scope, std::move(events));
}

Status Core::RefuseWithoutRoom() const {
  return has_room_ ? absl::OkStatus()
                   : ResourceExhausted("The server's disk is full: it takes no jobs until there is room.");
}

// That a job which was begun waits for the disk; empty: it does not.
std::string Core::RoomSentenceOf(const LiveJob& job) const {
  if (job.awaits_room) {
    return "Waits for room on the server's disk; its result is kept in memory until then.";
  }
  const bool writes = job.writing && job.row.job().state() == v1::JOB_STATE_RUNNING;
  return writes && !has_room_ ? "Waits for room on the server's disk." : "";
}

}  // namespace hpvm
