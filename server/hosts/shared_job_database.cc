// SPDX-License-Identifier: Apache-2.0
#include "server/hosts/shared_job_database.h"

#include <algorithm>
#include <utility>

#include "server/hosts/await.h"
#include "server/hosts/stored_view.h"
#include "server/jobs/rows/job_rules.h"

namespace hpvm::server {
namespace {

// The most jobs of one read.
constexpr size_t kPageMax = 1'000;

std::set<cluster::JobState> StatesOf(const JobFilter& filter) {
  std::set<cluster::JobState> states;
  for (const v1::JobState state : filter.states) {
    for (int i = 0; i <= static_cast<int>(cluster::kLastJobState); ++i) {
      const auto own = static_cast<cluster::JobState>(i);
      if (ToPublic(own) == state || (state == v1::JOB_STATE_QUEUED && own == cluster::JobState::kWaiting)) {
        states.insert(own);
      }
    }
  }
  return states;
}

StatusOr<cluster::JobView> Get(cluster::ClusterStore& store, std::string_view tenant, std::string_view id) {
  StatusOr<cluster::JobView> view =
      Await<cluster::JobView>([&](auto done) { store.Get(std::string(tenant), std::string(id), std::move(done)); });
  // Ids that the store refuses (control characters, for example) are nobody's.
  return absl::IsInvalidArgument(view.status()) ? NoSuchJob(id) : view;
}

}  // namespace

Status SharedJobDatabase::Commit(std::span<const JobWrite> writes, std::vector<WriteResult>* results) {
  results->clear();
  return writes.empty() ? absl::OkStatus() : Internal("Jobs of a cluster are not written by commits.");
}

Status SharedJobDatabase::BackUp(const std::string& path) {
  return FailedPrecondition("The jobs of a cluster are in its database, which its own tools back up, not in \"" + path +
                            "\".");
}

StatusOr<StoredJob> SharedJobDatabase::Find(std::string_view tenant, std::string_view id) {
  HPVMD_ASSIGN_OR_RETURN(const cluster::JobView view, Get(store_, tenant, id));
  return RowOf(view);
}

StatusOr<KeyRecord> SharedJobDatabase::FindKey(std::string_view tenant, std::string_view key) {
  const StatusOr<cluster::KeyView> found = Await<cluster::KeyView>(
      [&](auto done) { store_.FindKey(std::string(tenant), std::string(key), std::move(done)); });
  if (!found.ok()) {
    return absl::IsNotFound(found.status()) ? NoSuchKey() : found.status();
  }
  HPVMD_ASSIGN_OR_RETURN(const StoredJob row, RowOf(found->job));
  KeyRecord record;
  record.job_id = found->job.id;
  record.array_id = row.job().array_id();
  record.request_hash = Sha256FromRaw(found->request_hash).value_or(Sha256());
  return record;
}

StatusOr<StoredRequest> SharedJobDatabase::ReadRequest(std::string_view tenant, std::string_view id) {
  StatusOr<std::string> bytes = claims_.FindRequest(tenant, id);
  if (!bytes.ok()) {
    HPVMD_ASSIGN_OR_RETURN(cluster::StoredJobRequest stored, Await<cluster::StoredJobRequest>([&](auto done) {
                             store_.GetRequest(std::string(tenant), std::string(id), std::move(done));
                           }));
    bytes = std::move(stored.request);
  }
  StoredRequest request;
  if (!request.ParseFromString(*bytes)) {
    return DataLoss("The request of job " + std::string(id) + " in the cluster's store is damaged.");
  }
  return request;
}

StatusOr<StoredResults> SharedJobDatabase::ReadResults(std::string_view tenant, std::string_view id) {
  HPVMD_ASSIGN_OR_RETURN(const cluster::JobView view, Get(store_, tenant, id));
  return ResultsOf(view);
}

StatusOr<std::vector<StoredJob>> SharedJobDatabase::ListSome(std::string_view tenant, JobFilter* filter) {
  cluster::ListRequest request{.tenant = std::string(tenant), .states = StatesOf(*filter), .before = 0};
  if (!filter->states.empty() && request.states.empty()) {
    filter->before_sequence = 0;
    return std::vector<StoredJob>();
  }
  request.before = filter->before_sequence == UINT64_MAX ? 0 : filter->before_sequence;
  std::vector<StoredJob> rows;
  for (size_t visited = 0; visited < filter->rows_max && rows.size() < filter->count_max;) {
    const bool filters = !filter->labels.empty() || !filter->array_id.empty();
    request.most = static_cast<uint32_t>(std::clamp<size_t>(
        std::min(filters ? kPageMax : filter->count_max - rows.size(), filter->rows_max - visited), 1, kPageMax));
    HPVMD_ASSIGN_OR_RETURN(const cluster::JobPage page,
                           Await<cluster::JobPage>([&](auto done) { store_.List(request, std::move(done)); }));
    for (const cluster::JobView& view : page.jobs) {
      HPVMD_ASSIGN_OR_RETURN(StoredJob row, RowOf(view));
      ++visited;
      filter->before_sequence = view.number;
      const bool is_wanted =
          (filter->array_id.empty() || row.job().array_id() == filter->array_id) && MatchesLabels(row, *filter);
      if (is_wanted) {
        rows.push_back(std::move(row));
      }
      if (rows.size() == filter->count_max) {
        break;
      }
    }
    if (page.next == 0 && (page.jobs.empty() || filter->before_sequence == page.jobs.back().number)) {
      filter->before_sequence = 0;
      break;
    }
    request.before = filter->before_sequence;
  }
  return rows;
}

}  // namespace hpvm::server
