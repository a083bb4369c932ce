// SPDX-License-Identifier: Apache-2.0
// A disk without room: no new job is taken and none is started, so that what is left of it goes to those that run.
#include <vector>

#include "server/core/core.h"
#include "server/process/log.h"

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

// A job whose turn comes before it has left gives the turn back.
void Core::LeaveQueues(CoreScope& scope) {
  for (const auto& [name, tenant] : tenants_) {
    EachLive(scope, tenant, [this](CoreScope& inner, const LiveJobRef& job) { LeaveQueue(inner, job); });
  }
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
