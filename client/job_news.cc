// SPDX-License-Identifier: Apache-2.0
#include "client/job_news.h"

#include <iterator>
#include <utility>

#include "client/connection.h"

namespace hpvm {

JobNews::Told JobNews::Of(const v1::Job& job) {
  return {.change = job.change(),
          .state = job.state(),
          .attempt = job.attempt(),
          .cancel_requested = job.cancel_requested(),
          .awaits_room = job.state() == v1::JOB_STATE_RUNNING && !job.waits_for().empty()};
}

// Change numbers are not comparable across a restart of the server.
bool JobNews::LookAlike(const Told& one, const Told& other) {
  return one.state == other.state && one.attempt == other.attempt && one.cancel_requested == other.cancel_requested &&
         one.awaits_room == other.awaits_room;
}

bool JobNews::Take(v1::WatchJobsResponse& response, const Tell& tell) {
  if (response.list_begins()) {
    is_listing_ = true;
    list_.clear();
  }
  if (is_listing_) {
    list_.insert(list_.end(), std::make_move_iterator(response.mutable_changes()->begin()),
                 std::make_move_iterator(response.mutable_changes()->end()));
    if (response.list_ends() && !TakeList(tell)) {
      return false;
    }
  } else {
    for (const v1::JobChange& change : response.changes()) {
      if (!TakeChange(change, tell)) {
        return false;
      }
    }
  }
  if (!response.cursor().empty()) {
    cursor_ = response.cursor();
  }
  return true;
}

bool JobNews::TakeChange(const v1::JobChange& change, const Tell& tell) {
  if (!change.has_job()) {
    return told_.erase(change.gone_job_id()) == 0 || tell(change);
  }
  const auto [known, is_new] = told_.try_emplace(change.job().id());
  const Told now = Of(change.job());
  // The list had this change already, or a later one.
  if (!is_new && (HasEnded(known->second.state) || now.change <= known->second.change)) {
    return true;
  }
  known->second = now;
  return tell(change);
}

bool JobNews::TakeList(const Tell& tell) {
  is_listing_ = false;
  is_listed_ = true;
  const std::vector<v1::JobChange> list = std::exchange(list_, {});
  std::unordered_map<std::string, Told> before = std::exchange(told_, {});
  for (auto change = list.rbegin(); change != list.rend(); ++change) {
    const v1::Job& job = change->job();
    const Told now = Of(job);
    told_[job.id()] = now;
    const auto known = before.find(job.id());
    const bool is_new = known == before.end() || !LookAlike(known->second, now);
    if (known != before.end()) {
      before.erase(known);
    }
    if (is_new && !tell(*change)) {
      return false;
    }
  }
  for (const auto& [id, known] : before) {
    v1::JobChange gone;
    gone.set_gone_job_id(id);
    if (!tell(gone)) {
      return false;
    }
  }
  return true;
}

}  // namespace hpvm
