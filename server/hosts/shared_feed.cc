// SPDX-License-Identifier: Apache-2.0
#include "server/hosts/shared_feed.h"

#include <utility>
#include <vector>

#include "server/hosts/await.h"
#include "server/hosts/stored_view.h"
#include "server/process/log.h"

namespace hpvm::server {
namespace {

// Without a word from the database.
constexpr Duration kPollEvery = std::chrono::seconds(1);
constexpr uint32_t kEventsAtOnce = 256;

}  // namespace

SharedFeed::SharedFeed(cluster::ClusterStore& store, JobClaims& claims)
    : store_(store), claims_(claims), thread_([this] { return Round(); }, kPollEvery) {}

void SharedFeed::SetWatched(const std::string& tenant, bool is_watched) {
  {
    std::lock_guard lock(mutex_);
    if (!is_watched) {
      tenants_.erase(tenant);
      return;
    }
    if (!tenants_.try_emplace(tenant).second) {
      return;  // The job that is followed from now on was read after that.
    }
  }
  thread_.Wake();
}

void SharedFeed::Wake(const std::string& tenant) {
  {
    std::lock_guard lock(mutex_);
    bool is_any = false;
    for (auto& [name, watched] : tenants_) {
      watched.is_due |= tenant.empty() || name == tenant;
      is_any |= watched.is_due;
    }
    if (!is_any) {
      return;
    }
  }
  thread_.Wake();
}

void SharedFeed::SetCursor(const std::string& tenant, std::optional<uint64_t> cursor) {
  std::lock_guard lock(mutex_);
  if (const auto found = tenants_.find(tenant); found != tenants_.end()) {
    found->second.cursor = cursor;
  }
}

// Takes the tenants in turn, a page of each, so that one with many changes does not delay the others.
Duration SharedFeed::Round() {
  std::vector<std::string> due;
  {
    std::lock_guard lock(mutex_);
    for (auto& [name, watched] : tenants_) {
      watched.is_due = false;
      due.push_back(name);
    }
  }
  bool has_more = false;
  Status failed;
  for (const std::string& tenant : due) {
    const StatusOr<bool> at_end = Read(tenant);
    if (absl::IsFailedPrecondition(at_end.status())) {
      SetCursor(tenant, std::nullopt);  // Events were forgotten.
      has_more = true;
    } else if (!at_end.ok()) {
      failed.Update(at_end.status());
    } else {
      has_more |= !*at_end;
    }
  }
  if (!std::exchange(is_failing_, !failed.ok()) && is_failing_) {
    LogWarning("Changes of the cluster's jobs cannot be read", {{"error", Message(failed)}});
  }
  return has_more ? Duration{0} : kPollEvery;
}

StatusOr<bool> SharedFeed::Read(const std::string& tenant) {
  std::optional<uint64_t> cursor;
  {
    std::lock_guard lock(mutex_);
    const auto found = tenants_.find(tenant);
    if (found == tenants_.end()) {
      return true;
    }
    cursor = found->second.cursor;
  }
  if (!cursor.has_value()) {
    HPVMD_RETURN_IF_ERROR(Begin(tenant));
    return false;
  }
  HPVMD_ASSIGN_OR_RETURN(const cluster::Events events, Await<cluster::Events>([&](auto done) {
                           store_.Watch(tenant, *cursor, kEventsAtOnce, std::move(done));
                         }));
  for (const cluster::JobView& view : events.jobs) {
    HPVMD_ASSIGN_OR_RETURN(StoredJob row, RowOf(view));
    claims_.Tell(tenant, std::move(*row.mutable_job()));
  }
  SetCursor(tenant, events.cursor);
  return !events.has_more;
}

// Takes the place of the newest event as the beginning, then reads what clients follow already.
Status SharedFeed::Begin(const std::string& tenant) {
  HPVMD_ASSIGN_OR_RETURN(const cluster::Events newest, Await<cluster::Events>([&](auto done) {
                           store_.Watch(tenant, cluster::kNewestEvent, 1, std::move(done));
                         }));
  SetCursor(tenant, newest.cursor);
  claims_.TellGap(tenant);
  for (const std::string& id : claims_.Followed(tenant)) {
    const StatusOr<cluster::JobView> view =
        Await<cluster::JobView>([&](auto done) { store_.Get(tenant, id, std::move(done)); });
    if (view.ok()) {
      HPVMD_ASSIGN_OR_RETURN(StoredJob row, RowOf(*view));
      claims_.Tell(tenant, std::move(*row.mutable_job()));
    }
  }
  return absl::OkStatus();
}

}  // namespace hpvm::server
