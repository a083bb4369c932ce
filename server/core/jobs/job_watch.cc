// SPDX-License-Identifier: Apache-2.0
#include "server/core/jobs/job_watch.h"

#include <algorithm>
#include <charconv>
#include <deque>
#include <optional>
#include <utility>
#include <vector>

#include "server/jobs/rows/job_rules.h"

namespace hpvm::server {
namespace {

// Number of a list's jobs in one answer, before and after the number asked for has been listed; from then on only jobs
// that have not ended matter.
constexpr uint64_t kPageSize = 256, kPageBehind = 16;
// Number of changes visited under one hold of the mutex.
constexpr size_t kLookedAtOnce = 64;
// Bytes of one answer, which is in memory until its reader takes it; the last job may exceed the limit.
constexpr size_t kAnswerBytes = 64 * limits::kKiB;
// Number of changes after which a watch gets a new cursor although none of them concerned it.
constexpr uint64_t kUntoldMax = 256;
// Time for which the history is kept; a client that was away for longer reads a list.
constexpr Duration kHistoryKept = std::chrono::minutes(10);

template <typename Int>
std::optional<Int> TakeHex(std::string_view* text) {
  Int value = 0;
  const auto [end, error] = std::from_chars(text->data(), text->data() + text->size(), value, 16);
  if (error != std::errc() || end == text->data() + text->size() || *end != '-') {
    return std::nullopt;
  }
  text->remove_prefix(static_cast<size_t>(end - text->data()) + 1);
  return value;
}

std::string Hex(uint64_t value) {
  char digits[16];
  const auto [end, error] = std::to_chars(digits, digits + sizeof(digits), value, 16);
  return std::string(digits, end);
}

bool IsWanted(const v1::WatchJobsRequest& request, v1::JobState state) {
  return request.states().empty() ||
         std::find(request.states().begin(), request.states().end(), state) != request.states().end();
}

bool ConcernsJob(const v1::WatchJobsRequest& request, const v1::Job& job) {
  return (request.array_id().empty() || request.array_id() == job.array_id()) &&
         std::all_of(request.labels().begin(), request.labels().end(), [&](const auto& label) {
           const auto found = job.labels().find(label.first);
           return found != job.labels().end() && found->second == label.second;
         });
}

// Returns the change as the watch reports it, or null when it does not concern the watch. A job that leaves the states
// asked for is reported as gone.
std::shared_ptr<const v1::JobChange> ToldOf(const v1::WatchJobsRequest& request, const JobHistory::Entry& entry) {
  if (!entry.change->has_job()) {
    return entry.change;
  }
  const v1::Job& job = entry.change->job();
  if (!ConcernsJob(request, job)) {
    return nullptr;
  }
  if (IsWanted(request, job.state())) {
    return entry.change;
  }
  if (!IsWanted(request, entry.before)) {
    return nullptr;
  }
  auto gone = std::make_shared<v1::JobChange>();
  gone->set_gone_job_id(job.id());
  gone->set_time_unix_ns(entry.change->time_unix_ns());
  return gone;
}

}  // namespace

StatusOr<std::unique_ptr<JobWatch::WatchState>> JobWatch::Open(const TenantRef& tenant,
                                                               const v1::WatchJobsRequest& request,
                                                               Watchers::Wake wake) {
  auto place = std::make_unique<WatchState>();
  place->tenant = tenant;
  place->request = request;
  HPVMD_RETURN_IF_ERROR(ReadCursor(*place));
  HPVMD_ASSIGN_OR_RETURN(place->watcher, watchers_.Add(tenant, Watchers::kJobs, std::move(wake)));
  CoreScope scope(monitor_);
  ++tenant->job_watchers;
  tenant->history.Keep();
  feed_.TellWatched(*tenant);
  return place;
}

void JobWatch::Close(const WatchState& place) {
  watchers_.Remove(place.tenant, place.watcher.key);
  CoreScope scope(monitor_);
  --place.tenant->job_watchers;
  feed_.TellWatched(*place.tenant);
  if (place.tenant->job_watchers > 0 || shutdown_.stopped) {
    return;
  }
  place.tenant->history_until = options_.clock->Now() + kHistoryKept;
  monitor_.AddTimer(scope, place.tenant->history_until, [this, tenant = place.tenant](CoreScope& inner) {
    if (tenant->job_watchers == 0 && options_.clock->Now() >= tenant->history_until) {
      // Destroyed with the work, in the tenant's turn.
      const auto forgotten = std::make_shared<std::deque<JobHistory::Entry>>(tenant->history.Forget());
      monitor_.Read(inner, tenant->name, [forgotten] { return FairQueue::Step::kDone; });
    }
  });
}

// A persistent store has leases; without one the daemon's start time tells incarnations apart.
uint64_t JobWatch::Incarnation() const { return started_ + table_.lease; }

std::string JobWatch::CursorOf(const WatchState& place) const {
  return Hex(Incarnation()) + "-" + Hex(place.number) + "-" + place.end;
}

Status JobWatch::ReadCursor(WatchState& place) const {
  std::string_view rest = place.request.cursor();
  if (rest.empty()) {
    place.is_listing = true;
    return absl::OkStatus();
  }
  const std::optional<uint64_t> incarnation = TakeHex<uint64_t>(&rest);
  const std::optional<uint64_t> number = incarnation.has_value() ? TakeHex<uint64_t>(&rest) : std::nullopt;
  if (!number.has_value() || !reader_.IsPageToken(*place.tenant, rest)) {
    return InvalidArgument("The cursor is not one that this server gave to this tenant; begin without one.");
  }
  place.end = rest;
  place.number = place.told_number = *number;
  if (*incarnation != Incarnation()) {
    place.is_listing = true;
    place.reason = "The server has started again.";
  }
  return absl::OkStatus();
}

StatusOr<JobWatch::Found> JobWatch::Next(WatchState& place, v1::WatchJobsResponse* response) {
  response->Clear();
  HPVMD_RETURN_IF_ERROR(watchers_.Refusal(*place.tenant));
  HPVMD_ASSIGN_OR_RETURN(const Found found, place.is_listing ? NextOfList(place, response)
                                                             : StatusOr<Found>(NextChanges(place, response)));
  place.is_new &= found != Found::kAnswer;
  return found;
}

StatusOr<JobWatch::Found> JobWatch::NextOfList(WatchState& place, v1::WatchJobsResponse* response) {
  const uint64_t wanted = place.request.list_max() == 0 ? UINT64_MAX : place.request.list_max();
  if (place.steps == nullptr) {
    v1::ListJobsRequest& page = place.page_request;
    if (page.page_token().empty()) {
      *page.mutable_states() = place.request.states();
      *page.mutable_labels() = place.request.labels();
      page.set_array_id(place.request.array_id());
      place.listed = 0;
      CoreScope scope(monitor_);
      place.list_number = place.tenant->history.last_number();
    }
    const bool is_behind = place.end.empty() && place.listed >= wanted;
    page.set_page_size(static_cast<uint32_t>(
        is_behind ? kPageBehind : std::min(kPageSize, place.end.empty() ? wanted - place.listed : UINT64_MAX)));
    place.page.Clear();
    place.steps = reader_.ListJobs(place.tenant, page, &place.page, kAnswerBytes, place.end);
  }
  HPVMD_ASSIGN_OR_RETURN(const bool is_done, place.steps());
  if (!is_done) {
    return Found::kMore;
  }
  place.steps = nullptr;
  response->set_list_begins(place.page_request.page_token().empty());
  if (response->list_begins()) {
    response->set_list_reason(place.reason);
  }
  for (v1::Job& job : *place.page.mutable_jobs()) {
    *response->add_changes()->mutable_job() = std::move(job);
  }
  place.listed += static_cast<uint64_t>(response->changes_size());
  place.page_request.set_page_token(place.page.next_page_token());
  HPVMD_ASSIGN_OR_RETURN(const bool ends, EndsList(place));
  if (ends) {
    place.page_request.Clear();
    v1::ListJobsResponse().Swap(&place.page);  // Clear would keep its memory.
    place.is_listing = false;
    place.number = place.told_number = place.list_number;
    response->set_list_ends(true);
    response->set_cursor(CursorOf(place));
  }
  return Found::kAnswer;
}

// Returns true when the list ends with this page; sets where a later list ends.
StatusOr<bool> JobWatch::EndsList(WatchState& place) {
  const std::string& next = place.page_request.page_token();
  if (next.empty()) {
    return true;
  }
  if (!place.end.empty() || place.request.list_max() == 0 || place.listed < place.request.list_max()) {
    return false;
  }
  HPVMD_ASSIGN_OR_RETURN(const bool has_live, reader_.HasLiveFrom(*place.tenant, next));
  if (!has_live) {
    place.end = next;
  }
  return !has_live;
}

void JobWatch::BeginList(WatchState& place, std::string reason) {
  place.is_listing = true;
  place.reason = std::move(reason);
}

JobWatch::Found JobWatch::NextChanges(WatchState& place, v1::WatchJobsResponse* response) {
  std::vector<std::shared_ptr<const v1::JobChange>> told;
  bool is_at_end = false;
  {
    CoreScope scope(monitor_);
    const JobHistory& history = place.tenant->history;
    if (!history.ReachesBackTo(place.number)) {
      BeginList(place, place.is_new ? "The server does not keep changes that far back."
                                    : "Changes came faster than they were read.");
      return Found::kMore;
    }
    size_t bytes = 0;
    for (size_t i = 0; i < kLookedAtOnce && bytes < kAnswerBytes && !is_at_end; ++i) {
      const JobHistory::Entry* entry = history.After(place.number);
      if (entry == nullptr) {
        is_at_end = true;
        break;
      }
      place.number = entry->number;
      if (std::shared_ptr<const v1::JobChange> change = ToldOf(place.request, *entry); change != nullptr) {
        bytes += entry->bytes;
        told.push_back(std::move(change));
      }
    }
  }
  if (told.empty() && !place.is_new && place.number - place.told_number < kUntoldMax) {
    return is_at_end ? Found::kNothing : Found::kMore;
  }
  for (const std::shared_ptr<const v1::JobChange>& change : told) {
    *response->add_changes() = *change;
  }
  response->set_cursor(CursorOf(place));
  place.told_number = place.number;
  return Found::kAnswer;
}

}  // namespace hpvm::server
