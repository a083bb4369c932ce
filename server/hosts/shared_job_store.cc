// SPDX-License-Identifier: Apache-2.0
#include "server/hosts/shared_job_store.h"

#include <condition_variable>
#include <utility>
#include <variant>

#include "server/hosts/shared_job_database.h"
#include "server/hosts/stored_view.h"
#include "server/process/log.h"

namespace hpvm::server {
namespace {

std::unique_ptr<JobStore> OpenFiles(const SharedJobStoreOptions& options) {
  LocalJobStoreOptions local;
  local.database = std::make_unique<SharedJobDatabase>(*options.store, *options.claims);
  local.blobs = std::make_unique<BlobFolder>(RealDisk(), options.blob_folder);
  local.blobs->SetShared();
  local.room = options.room;
  return CreateLocalJobStore(std::move(local));
}

// Jobs that one step of a tenant's deletion cancels and forgets.
constexpr uint32_t kPurgeMax = 200;
// The most dependencies of the jobs of one insert.
constexpr size_t kWaitsMax = 100'000;

bool IsUnanswered(const Status& status) { return absl::IsUnavailable(status) || absl::IsDeadlineExceeded(status); }

bool AreEqual(const cluster::TenantLimits& a, const cluster::TenantLimits& b) {
  return a.weight == b.weight && a.waiting_max == b.waiting_max && a.running_max == b.running_max &&
         a.is_disabled == b.is_disabled;
}

// The submitter is told in the words that it knows.
Status ForSubmitter(const Status& status) {
  return IsUnanswered(status) ? Unavailable("The cluster's database does not answer. " + Message(status)) : status;
}

}  // namespace

struct SharedJobStore::Calls {
  std::mutex mutex;
  std::condition_variable changed;
  uint64_t waiting = 0;

  void Begin() {
    std::lock_guard lock(mutex);
    ++waiting;
  }
  void End() {
    std::lock_guard lock(mutex);
    --waiting;
    changed.notify_all();
  }
  void AwaitAll() {
    std::unique_lock lock(mutex);
    changed.wait(lock, [this] { return waiting == 0; });
  }
};

SharedJobStore::SharedJobStore(SharedJobStoreOptions options)
    : options_(std::move(options)), calls_(std::make_shared<Calls>()), files_(OpenFiles(options_)) {}

SharedJobStore::~SharedJobStore() { calls_->AwaitAll(); }

void SharedJobStore::PostOnce(std::string tenant, std::function<void()> work) {
  calls_->Begin();
  files_->PostRead(std::move(tenant), [calls = calls_, work = std::move(work)] {
    work();
    calls->End();
    return FairQueue::Step::kDone;
  });
}

// The store's answers come on its threads, which must not wait for the core: they continue in the tenant's turn.
template <typename T>
std::function<void(StatusOr<T>)> SharedJobStore::Posted(std::string tenant,
                                                        std::function<void(const StatusOr<T>&)> then) {
  calls_->Begin();
  return [this, calls = calls_, tenant = std::move(tenant), then = std::move(then)](StatusOr<T> answer) {
    Note(answer.status());
    PostOnce(tenant, [then, answer = std::move(answer)] { then(answer); });
    calls->End();
  };
}

// Logs when the database ceases to answer, and when it answers again.
void SharedJobStore::Note(const Status& status) {
  std::lock_guard lock(mutex_);
  const bool was_answering = last_error_.ok();
  last_error_ = IsUnanswered(status) ? status : absl::OkStatus();
  if (was_answering && !last_error_.ok()) {
    LogWarning("The cluster's database does not answer", {{"error", Message(status)}});
  } else if (!was_answering && last_error_.ok()) {
    LogInfo("The cluster's database answers again");
  }
}

void SharedJobStore::Write(JobWrite write, WriteDone done) {
  if (auto* insert = std::get_if<InsertJobs>(&write)) {
    Submit(std::move(*insert), std::move(done));
  } else if (auto* change = std::get_if<ChangeJob>(&write)) {
    options_.claims->Change(std::move(*change), std::move(done));
  } else if (auto* forget = std::get_if<ForgetKeys>(&write);
             forget != nullptr && !forget->tenant.empty() && options_.accepts_jobs) {
    Purge(std::move(forget->tenant), std::move(done));
  } else {
    // Retention is the cluster store's, and tenants of a host that accepts no jobs have none.
    PostOnce("", [done = std::move(done)] { done(WriteResult()); });
  }
}

void SharedJobStore::WithLimits(const std::string& tenant, std::function<void(const Status&)> then) {
  const cluster::TenantLimits wanted = options_.limits(tenant);
  bool is_known = false;
  {
    std::lock_guard lock(mutex_);
    const auto known = limits_.find(tenant);
    is_known = known != limits_.end() && AreEqual(known->second, wanted);
  }
  if (is_known) {
    then(absl::OkStatus());
    return;
  }
  options_.store->SetLimits(
      tenant, wanted,
      Posted<cluster::Nothing>(tenant, [this, tenant, wanted, then](const StatusOr<cluster::Nothing>& set) {
        if (set.ok()) {
          std::lock_guard lock(mutex_);
          limits_[tenant] = wanted;
        }
        then(set.status());
      }));
}

// A job that comes after an array comes after each of its elements: the conditions on an array are those on all
// elements.
StatusOr<ArrayElements> SharedJobStore::FindElements(const InsertJobs& insert) {
  ArrayElements elements;
  const StoredJob& row = insert.shared.has_value() ? *insert.shared : insert.jobs.front();
  size_t waits = 0;
  for (const v1::JobDependency& dependency : row.job().after()) {
    const std::string& id = dependency.job_id();
    if (!id.starts_with("array-")) {
      ++waits;
      continue;
    }
    std::vector<std::string>& ids = elements[id];
    JobFilter filter;
    filter.array_id = id;
    while (ids.empty() || filter.before_sequence > 0) {
      HPVMD_ASSIGN_OR_RETURN(const std::vector<StoredJob> rows,
                             database().ListSome(insert.jobs.front().tenant(), &filter));
      for (const StoredJob& element : rows) {
        ids.push_back(element.job().id());
      }
      if (filter.before_sequence == 0) {
        break;
      }
    }
    waits += ids.size();
  }
  if (waits * insert.jobs.size() > kWaitsMax) {
    return ResourceExhausted("The jobs come after " + std::to_string(waits * insert.jobs.size()) +
                             " others in all, counting each element of an array; the limit is " +
                             std::to_string(kWaitsMax) + ".");
  }
  return elements;
}

StatusOr<std::vector<cluster::NewJob>> SharedJobStore::NewJobsOf(const InsertJobs& insert) {
  HPVMD_ASSIGN_OR_RETURN(const ArrayElements elements, FindElements(insert));
  std::vector<cluster::NewJob> jobs;
  for (size_t i = 0; i < insert.jobs.size(); ++i) {
    HPVMD_ASSIGN_OR_RETURN(cluster::NewJob job, NewJobOf(insert, i, options_.host, elements));
    jobs.push_back(std::move(job));
  }
  return jobs;
}

void SharedJobStore::Submit(InsertJobs insert, WriteDone done) {
  const std::string tenant = insert.jobs.front().tenant();
  if (!options_.accepts_jobs) {
    PostOnce(tenant, [done = std::move(done)] {
      done(WriteResult{
          .status = FailedPrecondition(
              "This host only runs jobs (cluster.role = \"agent\"); submit to another host of the cluster."),
          .known = {}});
    });
    return;
  }
  auto shared = std::make_shared<InsertJobs>(std::move(insert));
  // Jobs and limits are read in the tenant's turn: arrays are large, and a policy may be read under a lock.
  PostOnce(tenant, [this, tenant, shared, done = std::move(done)] {
    StatusOr<std::vector<cluster::NewJob>> made = NewJobsOf(*shared);
    if (!made.ok()) {
      done(WriteResult{.status = made.status(), .known = {}});
      return;
    }
    std::vector<cluster::NewJob> jobs = *std::move(made);
    WithLimits(tenant, [this, tenant, shared, done, jobs = std::move(jobs)](const Status& set) mutable {
      if (!set.ok()) {
        PostOnce(tenant, [done, set] { done(WriteResult{.status = ForSubmitter(set)}); });
        return;
      }
      options_.store->Submit(std::move(jobs), Posted<std::vector<cluster::JobView>>(
                                                  tenant, [this, tenant, shared, done](const auto& views) {
                                                    AnswerSubmit(tenant, *shared, done, views);
                                                  }));
    });
  });
}

void SharedJobStore::AnswerSubmit(const std::string& tenant, const InsertJobs& insert, const WriteDone& done,
                                  const StatusOr<std::vector<cluster::JobView>>& views) {
  WriteResult result;
  if (absl::IsFailedPrecondition(views.status()) && !insert.idempotency_key.empty()) {
    // Another request used the key meanwhile.
    StatusOr<KeyRecord> known = database().FindKey(tenant, insert.idempotency_key);
    if (known.ok()) {
      result.status = AlreadyExists("The idempotency key is known.");
      result.known = *std::move(known);
      done(result);
      return;
    }
  }
  result.status = ForSubmitter(views.status());
  if (views.ok() && views->front().id != insert.jobs.front().job().id()) {
    result.status = AlreadyExists("The idempotency key is known.");
    KeyRecord& known = result.known.emplace();
    known.job_id = views->front().id;
    known.request_hash = insert.request_hash;
    known.state = ToPublic(views->front().state);
    if (const StatusOr<StoredJob> row = RowOf(views->front()); row.ok()) {
      known.array_id = row->job().array_id();
    }
  }
  if (result.status.ok()) {
    for (const cluster::JobView& view : *views) {
      result.sequences.push_back(view.number);
    }
  }
  done(result);
}

// Nothing of a deleted tenant stays, and one that is made anew under its name sees none of it.
void SharedJobStore::Purge(std::string tenant, WriteDone done) {
  options_.store->Purge(
      tenant, kPurgeMax, Posted<cluster::SweepResult>(tenant, [this, tenant, done](const auto& purged) {
        if (purged.ok() && purged->has_more && purged->changes > 0) {
          Purge(tenant, done);
          return;
        }
        Status status = purged.ok() && purged->has_more
                            ? Unavailable("Jobs of the tenant still run at hosts of the cluster; they are cancelled.")
                            : ForSubmitter(purged.status());
        done(WriteResult{.status = std::move(status), .known = {}});
      }));
}

void SharedJobStore::Cancel(std::string tenant, std::string id, Done done) {
  options_.store->Cancel(tenant, std::move(id),
                         Posted<cluster::JobView>(tenant, [done](const StatusOr<cluster::JobView>& view) {
                           done(view.ok() ? RowOf(*view) : StatusOr<StoredJob>(ForSubmitter(view.status())));
                         }));
}

void SharedJobStore::SetHold(std::string tenant, std::string id, bool is_held, const v1::JobHold& hold, Done done) {
  const auto set = [this, tenant, id, is_held, hold, done](const StatusOr<cluster::JobView>& found) {
    StatusOr<StoredJob> row = found.ok() ? RowOf(*found) : StatusOr<StoredJob>(ForSubmitter(found.status()));
    const bool is_admins = row.ok() && row->job().hold().by_admin();
    if (row.ok() && !hold.by_admin() && is_admins && !is_held) {
      row = MakeStatus(absl::StatusCode::kPermissionDenied,
                       "An administrator holds " + id + ", and only an administrator can release it.");
    }
    // A job that already is in that state stays as it is; an administrator's hold replaces a user's.
    const bool is_so = row.ok() && (is_held ? row->job().has_hold() && (is_admins || !hold.by_admin())
                                            : !row->job().has_hold() && row->job().state() == v1::JOB_STATE_ACCEPTED);
    if (!row.ok() || is_so) {
      done(std::move(row));
      return;
    }
    options_.store->SetHold(tenant, id, is_held, is_held ? hold.SerializeAsString() : "",
                            Posted<cluster::JobView>(tenant, [done](const StatusOr<cluster::JobView>& view) {
                              done(view.ok() ? RowOf(*view) : StatusOr<StoredJob>(ForSubmitter(view.status())));
                            }));
  };
  options_.store->Get(tenant, id, Posted<cluster::JobView>(tenant, set));
}

void SharedJobStore::OnPolicyChanged(std::string tenant) {
  if (options_.accepts_jobs) {
    PostOnce(tenant, [this, tenant] {
      WithLimits(tenant, [tenant](const Status& set) {
        if (!set.ok()) {
          LogWarning("The limits of a tenant are not in the cluster's store yet; its next job brings them there",
                     {{"tenant", tenant}, {"error", Message(set)}});
        }
      });
    });
  }
}

void SharedJobStore::SetWatched(std::string tenant, bool is_watched) { options_.on_watched(tenant, is_watched); }

}  // namespace hpvm::server
