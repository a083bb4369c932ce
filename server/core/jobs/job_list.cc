// SPDX-License-Identifier: Apache-2.0
// Lists jobs: the rows on disk, overlaid with the core's state of those that have not ended; a few in each turn, so
// that no caller waits for another's list.
#include <algorithm>
#include <utility>

#include "server/core/jobs/job_reader.h"
#include "server/jobs/rows/job_rules.h"

namespace hpvm::server {
namespace {

constexpr uint32_t kPageMax = 1'000, kPageDefault = 100;
// Number of jobs visited in one turn, and for one page when filters match few.
constexpr size_t kRowsAtOnce = 64;
constexpr size_t kRowsMax = 10'000;

JobFilter FilterOf(const v1::ListJobsRequest& request) {
  JobFilter filter;
  filter.labels.insert(request.labels().begin(), request.labels().end());
  filter.array_id = request.array_id();
  // The row on disk may be a step ahead of the state shown, so jobs that have not ended are all visited.
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

// A list of all tenants' jobs continues within one tenant, whose name is part of the token. Such a token is not valid
// for that tenant's own lists.
std::string SealOf(const PageTokens& tokens, const std::string& tenant, uint64_t sequence, bool of_all) {
  return of_all ? tenant + "/" + tokens.Seal("/" + tenant, sequence) : tokens.Seal(tenant, sequence);
}

// JobPage is one page of jobs, limited in number and in bytes, but with at least one job.
class JobPage {
 public:
  JobPage(size_t count_max, size_t bytes_max, const Config& config, v1::ListJobsResponse* response)
      : count_max_(count_max),
        bytes_max_(std::min<size_t>(bytes_max, config.limits_message_bytes_max / 2)),
        response_(response) {}

  // Returns false when the page is full without the job.
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

// JobList is one call of ListJobs, used by one thread at a time.
struct JobReader::JobList {
  JobList(TenantRef owner, const v1::ListJobsRequest& asked, v1::ListJobsResponse* answer, size_t page_bytes_max,
          const Config& config, bool is_for_admin)
      : tenant(std::move(owner)),
        to_admin(is_for_admin),
        request(asked),
        response(answer),
        jobs(asked.page_size() == 0 ? kPageDefault : asked.page_size(), page_bytes_max, config, answer) {
    const auto is_terminal = [](int state) { return IsTerminal(static_cast<v1::JobState>(state)); };
    wants_live_only =
        asked.states_size() > 0 && std::none_of(asked.states().begin(), asked.states().end(), is_terminal);
  }

  TenantRef tenant;  // The tenant whose jobs are visited.
  const bool to_admin;
  const v1::ListJobsRequest& request;    // Borrowed from the caller until the last step.
  v1::ListJobsResponse* const response;  // Likewise.
  JobFilter filter;                      // Continues after the last row visited.
  JobPage jobs;
  bool wants_live_only = false;
  uint64_t last = 0;  // Sequence of the last job put on the page or passed over.
  uint64_t end = 0;   // Jobs with smaller sequences are not wanted.
  size_t looked_at = 0;
};

bool JobReader::IsPageToken(const Tenant& tenant, std::string_view token) const {
  return token.empty() || page_tokens_.Open(tenant.name, token).ok();
}

StatusOr<bool> JobReader::HasLiveFrom(const Tenant& tenant, const std::string& page_token) {
  HPVMD_ASSIGN_OR_RETURN(const uint64_t before, page_tokens_.Open(tenant.name, page_token));
  if (options_.shared != nullptr) {
    JobFilter filter{.before_sequence = before,
                     .states = {v1::JOB_STATE_ACCEPTED, v1::JOB_STATE_QUEUED, v1::JOB_STATE_RUNNING},
                     .labels = {},
                     .array_id = "",
                     .count_max = 1};
    HPVMD_ASSIGN_OR_RETURN(const std::vector<StoredJob> live, options_.jobs->database().List(tenant.name, filter));
    return !live.empty();
  }
  CoreScope scope(monitor_);
  return !tenant.by_sequence.empty() && tenant.by_sequence.begin()->first < before;
}

JobReader::Steps JobReader::ListJobs(const TenantRef& tenant, const v1::ListJobsRequest& request,
                                     v1::ListJobsResponse* response, size_t page_bytes_max, const std::string& end,
                                     bool to_admin) {
  auto list = std::make_shared<JobList>(tenant, request, response, page_bytes_max, *config_.Get(), to_admin);
  return [this, list, end]() -> StatusOr<bool> {
    if (list->looked_at == 0) {
      if (list->request.page_size() > kPageMax) {
        return InvalidArgument("The page size (" + std::to_string(list->request.page_size()) +
                               ") is larger than the limit (1000).");
      }
      if (!end.empty()) {
        HPVMD_ASSIGN_OR_RETURN(list->end, page_tokens_.Open(list->tenant->name, end));
      }
      list->filter = FilterOf(list->request);
      list->filter.rows_max = list->filter.count_max = kRowsAtOnce;
      HPVMD_RETURN_IF_ERROR(StartPage(*list));
    }
    bool is_done = list->tenant == nullptr;  // No tenants follow the previous page.
    if (!is_done) {
      const bool is_at_hand = list->wants_live_only && options_.shared == nullptr;
      HPVMD_ASSIGN_OR_RETURN(is_done, is_at_hand ? ListLive(*list) : ListStored(*list));
      is_done = is_done && (!list->response->next_page_token().empty() || !TakeNextTenant(*list));
    }
    list->looked_at += kRowsAtOnce;
    if (!is_done && list->last < list->end) {
      is_done = true;  // Rows that do not match were passed over.
    } else if (!is_done && list->looked_at >= kRowsMax) {
      list->response->set_next_page_token(
          SealOf(page_tokens_, list->tenant->name, list->last, list->request.all_tenants()));
      is_done = true;
    }
    return is_done;
  };
}

// Begins where the previous page ended.
Status JobReader::StartPage(JobList& list) {
  std::string_view token = list.request.page_token();
  if (list.request.all_tenants()) {
    const size_t slash = token.find('/');
    const std::string name(token.substr(0, slash == std::string_view::npos ? 0 : slash));
    CoreScope scope(monitor_);
    const auto found = tenants_.all().lower_bound(name);
    list.tenant = found == tenants_.all().end() ? nullptr : found->second;
    if (!token.empty()) {
      HPVMD_ASSIGN_OR_RETURN(list.filter.before_sequence,
                             page_tokens_.Open("/" + name, token.substr(name.size() + (name.empty() ? 0 : 1))));
    }
    if (list.tenant != nullptr && list.tenant->name != name) {
      list.filter.before_sequence = UINT64_MAX;  // The tenant is gone.
    }
  } else if (!token.empty()) {
    HPVMD_ASSIGN_OR_RETURN(list.filter.before_sequence, page_tokens_.Open(list.tenant->name, token));
  }
  list.last = list.filter.before_sequence;
  return absl::OkStatus();
}

// Returns false when there is no further tenant, or the list is of one tenant only.
bool JobReader::TakeNextTenant(JobList& list) {
  if (!list.request.all_tenants()) {
    return false;
  }
  CoreScope scope(monitor_);
  const auto next = tenants_.all().upper_bound(list.tenant->name);
  if (next == tenants_.all().end()) {
    return false;
  }
  list.tenant = next->second;
  list.filter.before_sequence = list.last = UINT64_MAX;
  return true;
}

// Returns false when the page ends without the job.
bool JobReader::PutOnPage(JobList& list, uint64_t sequence, v1::Job job) {
  if (sequence < list.end) {
    return false;
  }
  if (list.request.all_tenants()) {
    job.set_tenant(list.tenant->name);
  }
  if (IsWanted(list.request, job.state()) && !list.jobs.Add(std::move(job))) {
    list.response->set_next_page_token(SealOf(page_tokens_, list.tenant->name, list.last, list.request.all_tenants()));
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
    if (!PutOnPage(list, row.sequence(),
                   live == nullptr ? std::move(*row.mutable_job()) : feed_.Describe(*live, list.to_admin))) {
      return true;
    }
  }
  list.last = list.filter.before_sequence;
  return list.filter.before_sequence == 0;
}

// All jobs that have not ended are in memory, however many have ended.
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
    } else if (!PutOnPage(list, sequence, feed_.Describe(*job, list.to_admin))) {
      return true;
    }
  }
  return false;
}

}  // namespace hpvm::server
