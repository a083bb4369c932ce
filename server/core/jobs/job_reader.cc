// SPDX-License-Identifier: Apache-2.0
#include "server/core/jobs/job_reader.h"

#include <algorithm>
#include <functional>
#include <map>
#include <utility>

#include "server/jobs/rows/job_rules.h"
#include "server/jobs/rows/job_state_name.h"

namespace hpvm::server {
namespace {

v1::JobEvent JobEventOf(v1::Job job) {
  v1::JobEvent event;
  *event.mutable_job() = std::move(job);
  return event;
}

}  // namespace

StatusOr<v1::Job> JobReader::FindJob(Tenant& tenant, std::string_view id, bool to_admin) {
  {
    CoreScope scope(monitor_);
    if (const Execution* live = table_.FindLive(tenant, id)) {
      return feed_.Describe(*live, to_admin);
    }
  }
  StatusOr<StoredJob> row = options_.jobs->database().Find(tenant.name, id);
  if (!row.ok()) {
    return absl::IsNotFound(row.status()) ? NoSuchJob(id) : row.status();
  }
  return std::move(*row->mutable_job());
}

Status JobReader::GetJob(Tenant& tenant, std::string_view id, v1::Job* job, bool to_admin) {
  HPVMD_ASSIGN_OR_RETURN(*job, FindJob(tenant, id, to_admin));
  if (IsTerminal(job->state()) && !job->dropped()) {
    StatusOr<StoredResults> results = options_.jobs->database().ReadResults(tenant.name, id);
    if (results.ok() && results->has_log()) {
      *job->mutable_log() = std::move(*results->mutable_log());
    }
  }
  return absl::OkStatus();
}

bool JobReader::IsAtHand(Tenant& tenant, std::string_view id) {
  CoreScope scope(monitor_);
  const std::string name(id);
  return table_.FindLive(tenant, id) != nullptr || tenant.recent.contains(name) || tenant.followed.contains(name);
}

StatusOr<uint64_t> JobReader::WatchJob(Tenant& tenant, std::string_view id, JobEvents::Wake wake, uint64_t* past) {
  uint64_t unused = 0;
  uint64_t& last = past != nullptr ? *past : unused;
  last = UINT64_MAX;
  const std::string name(id);
  for (bool is_first = true;; is_first = false) {
    {
      CoreScope scope(monitor_);
      Execution* live = table_.FindLive(tenant, id);
      const auto followed = tenant.followed.find(name);
      if (live != nullptr || followed != tenant.followed.end()) {
        HPVMD_RETURN_IF_ERROR(watchers_.TakePlace(tenant));
        JobEvents& events = live != nullptr ? feed_.EventsOf(*live) : *followed->second.events;
        last = events.last_sequence();
        return WatchEvents(tenant, live != nullptr ? live->stored->events : followed->second.events, std::move(wake));
      }
      if (tenant.recent.contains(name)) {
        return 0;
      }
    }
    if (!is_first) {
      return 0;  // It has ended, or ends now.
    }
    HPVMD_ASSIGN_OR_RETURN(const v1::Job job, FindJob(tenant, id));
    if (options_.shared == nullptr || IsTerminal(job.state())) {
      return 0;
    }
    feed_.Follow(tenant, job);
    // Changes between the read and now were not reported.
    const StatusOr<v1::Job> now = FindJob(tenant, id);
    if (now.ok() && (now->state() != job.state() || now->attempt() != job.attempt())) {
      feed_.TellFollowed(tenant, *now);
    }
  }
}

uint64_t JobReader::WatchEvents(Tenant& tenant, const std::shared_ptr<JobEvents>& events, JobEvents::Wake wake) {
  const uint64_t key = next_watcher_++;
  watching_[key] = {events, events->Watch(std::move(wake)), &tenant};
  return key;
}

void JobReader::Unwatch(Tenant& tenant, std::string_view id, uint64_t key) {
  CoreScope scope(monitor_);
  const auto found = watching_.find(key);
  if (found == watching_.end()) {
    return;
  }
  found->second.events->Unwatch(found->second.key);
  watchers_.Unregister(*found->second.tenant);
  watching_.erase(found);
  const auto followed = tenant.followed.find(std::string(id));
  if (followed != tenant.followed.end() && followed->second.events->watchers().empty()) {
    tenant.followed.erase(followed);
    feed_.TellWatched(tenant);
  }
}

StatusOr<JobReader::EventBatch> JobReader::ReadEvents(Tenant& tenant, std::string_view id, uint64_t after,
                                                      size_t count_max) {
  EventBatch batch;
  {
    CoreScope scope(monitor_);
    Execution* live = table_.FindLive(tenant, id);
    const auto recent = tenant.recent.find(std::string(id));
    const auto followed = tenant.followed.find(std::string(id));
    if (live != nullptr || followed != tenant.followed.end() || recent != tenant.recent.end()) {
      const JobEvents& events = live != nullptr                     ? feed_.EventsOf(*live)
                                : followed != tenant.followed.end() ? *followed->second.events
                                                                    : *recent->second;
      batch.events = events.After(after, count_max);
      const uint64_t reached = batch.events.empty() ? after : batch.events.back().sequence();
      const bool has_ended = live == nullptr && (followed == tenant.followed.end() || followed->second.has_ended);
      batch.last = has_ended && reached >= events.last_sequence();
      if (batch.events.empty() && !batch.last && shutdown_.stopped) {
        return Unavailable("The server is stopping; the job goes on when the server has started again.");
      }
      return batch;
    }
  }
  HPVMD_ASSIGN_OR_RETURN(v1::Job job, FindJob(tenant, id));
  if (!IsTerminal(job.state())) {
    return Unavailable(options_.shared != nullptr ? "The job went to another host; watch it again."
                                                  : "The job's state is not known until the server has started again.");
  }
  v1::JobEvent& event = batch.events.emplace_back(JobEventOf(std::move(job)));
  event.set_sequence(after + 1);
  event.set_time_unix_ns(event.job().ended_unix_ns());
  batch.last = true;
  return batch;
}

StatusOr<JobReader::StoredBytes> JobReader::FindOutput(Tenant& tenant, std::string_view id, std::string_view name) {
  HPVMD_ASSIGN_OR_RETURN(const v1::Job job, FindJob(tenant, id));
  if (job.state() != v1::JOB_STATE_SUCCEEDED) {
    return FailedPrecondition("The job is " + StateName(job.state()) + "; only a succeeded job has outputs.");
  }
  const auto output = std::find_if(job.outputs().begin(), job.outputs().end(),
                                   [&](const v1::OutputValue& value) { return value.name() == name; });
  if (output == job.outputs().end()) {
    return NotFound("The job has no output \"" + std::string(name.substr(0, 80)) + "\".");
  }
  if (output->has_buffer()) {
    return FailedPrecondition("Output \"" + output->name() + "\" is in buffer " + output->buffer().buffer_id() +
                              "; read it there.");
  }
  if (job.dropped()) {
    return FailedPrecondition("The job's outputs were dropped to make room.");
  }
  HPVMD_ASSIGN_OR_RETURN(StoredResults results, options_.jobs->database().ReadResults(tenant.name, id));
  for (internal::StoredResult& result : *results.mutable_outputs()) {
    if (result.name() != name) {
      continue;
    }
    StoredBytes stored;
    stored.header = result.header();
    if (result.sha256().empty()) {
      stored.inline_bytes = std::move(*result.mutable_data());
      return stored;
    }
    const Sha256 hash = Sha256FromRaw(result.sha256()).value_or(Sha256());
    HPVMD_ASSIGN_OR_RETURN(stored.file, options_.jobs->blobs().Open(tenant.name, hash, result.header().size_bytes()));
    return stored;
  }
  return DataLoss("The store does not have output \"" + std::string(name.substr(0, 80)) + "\".");
}

void JobReader::WakeAll(CoreScope& scope) {
  for (const auto& [key, watcher] : watching_) {
    for (const auto& [own, wake] : watcher.events->watchers()) {
      scope.Defer(wake);
    }
  }
}

}  // namespace hpvm::server
