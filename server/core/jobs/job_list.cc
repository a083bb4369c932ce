// SPDX-License-Identifier: Apache-2.0
// Lists of jobs: what is on disk, and over it what the core knows of those that have not ended; a few in each turn, so
// that nobody waits for the list of another.
#include <algorithm>
#include <utility>

#include "server/core/jobs/job_reader.h"
#include "server/jobs/rows/job_rules.h"

namespace hpvm::server {
namespace {

constexpr uint32_t kPageMax = 1'000, kPageDefault = 100;
// Jobs that are looked at in one turn, and for one page when filters leave little.
constexpr size_t kRowsAtOnce = 64;
constexpr size_t kRowsMax = 10'000;

StatusOr<JobFilter> FilterOf(const v1::ListJobsRequest& request, const Tenant& tenant, const PageTokens& tokens) {
  JobFilter filter;
  if (!request.page_token().empty()) {
    HPVMD_ASSIGN_OR_RETURN(filter.before_sequence, tokens.Open(tenant.name, request.page_token()));
  }
  filter.labels.insert(request.labels().begin(), request.labels().end());
  filter.array_id = request.array_id();
  // What is on disk may be a step ahead of what is shown: of those that have not ended all are looked at.
  bool wants_live = false;
  for (const int wanted : request.states()) {
    const auto state = static_cast<v1::JobState>(wanted);
    wants_live |= !IsTerminal(state);
    if (IsTerminal(state)) {
      filter.states.push_back(state);
    }
  }
  if (wants_live) {
    filter.states.insert(filter.states.end(), {v1::JOB_STATE_ACCEPTED, v1::JOB_STATE_QUEUED, v1::JOB_STATE_RUNNING});
  }
  return filter;
}

// Jobs of one page, as many as it may have by number and by bytes, but one at least.
class JobPage {
 public:
  JobPage(size_t count_max, size_t bytes_max, const Config& config, v1::ListJobsResponse* response)
      : count_max_(count_max),
        bytes_max_(std::min<size_t>(bytes_max, config.limits_message_bytes_max / 2)),
        response_(response) {}

  // False: the page is full without it.
  bool Add(v1::Job job) {
    job.clear_outputs();
    const size_t bytes = job.ByteSizeLong();
    const auto count = static_cast<size_t>(response_->jobs_size());
    if (count == count_max_ || (count > 0 && bytes_ + bytes > bytes_max_)) {
      return false;
    }
    bytes_ += bytes;
    *response_->add_jobs() = std::move(job);
    return true;
  }

 private:
  const size_t count_max_, bytes_max_;
  v1::ListJobsResponse* const response_;
  size_t bytes_ = 0;
};

bool IsWanted(const v1::ListJobsRequest& request, v1::JobState state) {
  return request.states().empty() ||
         std::find(request.states().begin(), request.states().end(), state) != request.states().end();
}

}  // namespace

// One call of ListJobs. One thread at a time.
struct JobReader::JobList {
  JobList(TenantRef owner, const v1::ListJobsRequest& asked, v1::ListJobsResponse* answer, size_t page_bytes_max,
          const Config& config)
      : tenant(std::move(owner)),
        request(asked),
        response(answer),
        jobs(asked.page_size() == 0 ? kPageDefault : asked.page_size(), page_bytes_max, config, answer) {
    const auto is_terminal = [](int state) { return IsTerminal(static_cast<v1::JobState>(state)); };
    wants_live_only =
        asked.states_size() > 0 && std::none_of(asked.states().begin(), asked.states().end(), is_terminal);
  }

  const TenantRef tenant;
  const v1::ListJobsRequest& request;    // The caller's, until the last step.
  v1::ListJobsResponse* const response;  // Likewise.
  JobFilter filter;                      // Goes on behind the last that was looked at.
  JobPage jobs;
  bool wants_live_only = false;
  uint64_t last = 0;  // The sequence of the last on the page, or that was passed over.
  uint64_t end = 0;   // Jobs with smaller sequences are not wanted.
  size_t looked_at = 0;
};

bool JobReader::IsPageToken(const Tenant& tenant, std::string_view token) const {
  return token.empty() || page_tokens_.Open(tenant.name, token).ok();
}

StatusOr<bool> JobReader::HasLiveFrom(const Tenant& tenant, const std::string& page_token) {
  HPVMD_ASSIGN_OR_RETURN(const uint64_t before, page_tokens_.Open(tenant.name, page_token));
  CoreScope scope(monitor_);
  return !tenant.by_sequence.empty() && tenant.by_sequence.begin()->first < before;
}

JobReader::Steps JobReader::ListJobs(const TenantRef& tenant, const v1::ListJobsRequest& request,
                                     v1::ListJobsResponse* response, size_t page_bytes_max, const std::string& end) {
  auto list = std::make_shared<JobList>(tenant, request, response, page_bytes_max, *config_.Get());
  return [this, list, end]() -> StatusOr<bool> {
    if (list->looked_at == 0) {
      if (list->request.page_size() > kPageMax) {
        return InvalidArgument("The page size (" + std::to_string(list->request.page_size()) +
                               ") is larger than the limit (1000).");
      }
      if (!end.empty()) {
        HPVMD_ASSIGN_OR_RETURN(list->end, page_tokens_.Open(list->tenant->name, end));
      }
      HPVMD_ASSIGN_OR_RETURN(list->filter, FilterOf(list->request, *list->tenant, page_tokens_));
      list->filter.rows_max = list->filter.count_max = kRowsAtOnce;
      list->last = list->filter.before_sequence;
    }
    HPVMD_ASSIGN_OR_RETURN(bool is_done, list->wants_live_only ? ListLive(*list) : ListStored(*list));
    list->looked_at += kRowsAtOnce;
    if (!is_done && list->last < list->end) {
      is_done = true;  // Rows that do not match were passed over.
    } else if (!is_done && list->looked_at >= kRowsMax) {
      list->response->set_next_page_token(page_tokens_.Seal(list->tenant->name, list->last));
      is_done = true;
    }
    return is_done;
  };
}

// False: the page ends without it.
bool JobReader::PutOnPage(JobList& list, uint64_t sequence, v1::Job job) {
  if (sequence < list.end) {
    return false;
  }
  if (IsWanted(list.request, job.state()) && !list.jobs.Add(std::move(job))) {
    list.response->set_next_page_token(page_tokens_.Seal(list.tenant->name, list.last));
    return false;
  }
  list.last = sequence;
  return true;
}

StatusOr<bool> JobReader::ListStored(JobList& list) {
  HPVMD_ASSIGN_OR_RETURN(std::vector<StoredJob> rows,
                         options_.jobs->database().ListSome(list.tenant->name, &list.filter));
  CoreScope scope(monitor_);
  for (StoredJob& row : rows) {
    const Execution* live = table_.FindLive(*list.tenant, row.job().id());
    if (!PutOnPage(list, row.sequence(), live == nullptr ? std::move(*row.mutable_job()) : feed_.Describe(*live))) {
      return true;
    }
  }
  list.last = list.filter.before_sequence;
  return list.filter.before_sequence == 0;
}

// Jobs that have not ended are all in memory, however many have.
StatusOr<bool> JobReader::ListLive(JobList& list) {
  const std::map<uint64_t, ExecutionRef>& all = list.tenant->by_sequence;
  CoreScope scope(monitor_);
  for (size_t i = 0; i < kRowsAtOnce; ++i) {
    const auto behind = all.lower_bound(list.filter.before_sequence);
    if (behind == all.begin()) {
      return true;
    }
    const auto& [sequence, job] = *std::prev(behind);
    list.filter.before_sequence = sequence;
    const bool is_wanted = (list.filter.array_id.empty() || job->shown().array_id() == list.filter.array_id) &&
                           MatchesLabels(job->stored->shared ? *job->stored->shared : job->stored->row, list.filter);
    if (!is_wanted) {
      list.last = sequence;
    } else if (!PutOnPage(list, sequence, feed_.Describe(*job))) {
      return true;
    }
  }
  return false;
}

}  // namespace hpvm::server
