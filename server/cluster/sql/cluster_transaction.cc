// SPDX-License-Identifier: Apache-2.0
// Method: rows are read under lock, changed in memory and written at once; counters of tenants are written by Commit.
// Invariants, each kept by one transaction: those of the model (testing/model_cluster_store.cc); `ready` is 1 exactly
// for waiting jobs that a claim may take by their dependencies and delay, except that a delay that is over is noticed
// by the next claim; counts of cluster_needs equal the numbers of its jobs.
#include "server/cluster/sql/cluster_transaction.h"

#include <algorithm>
#include <bit>

#include "nlohmann/json.hpp"

namespace hpvm::server::cluster {
namespace {

using Json = nlohmann::json;

// Different needs of a tenant's live jobs, which each claim reads and compares with its host, and bytes of each.
constexpr int64_t kNeedsRowsMax = 256;
constexpr size_t kNeedsBytesMax = 1024;

constexpr SqlStatement kReadClock{
    "SELECT name, value FROM cluster_meta WHERE name = 'clock_offset' OR name = 'clock_last' ORDER BY name"};
constexpr SqlStatement kSavepoint{"SAVEPOINT step"};
constexpr SqlStatement kRelease{"RELEASE SAVEPOINT step"};
constexpr SqlStatement kUndo{"ROLLBACK TO SAVEPOINT step"};
constexpr SqlStatement kSetMeta{"UPDATE cluster_meta SET value = ?1 WHERE name = ?2"};
constexpr SqlStatement kNextIncarnation{
    "UPDATE cluster_meta SET value = value + 1 WHERE name = 'incarnation' RETURNING value"};

constexpr SqlStatement kLockHost{
    "SELECT process, joins, has, memory, incarnation, lease_end, intake, has_left, last_claim, settled, has_number "
    "FROM cluster_hosts WHERE host = ?1 FOR UPDATE"};
constexpr SqlStatement kSaveHost{
    "INSERT INTO cluster_hosts(host, process, joins, has, memory, incarnation, lease_end, intake, has_left, "
    "last_claim, settled, has_number) VALUES(?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12) "
    "ON CONFLICT(host) DO UPDATE SET "
    "process = excluded.process, joins = excluded.joins, has = excluded.has, memory = excluded.memory, "
    "incarnation = excluded.incarnation, lease_end = excluded.lease_end, intake = excluded.intake, "
    "has_left = excluded.has_left, last_claim = excluded.last_claim, settled = excluded.settled, "
    "has_number = excluded.has_number"};

constexpr SqlStatement kAddTenant{
    "INSERT INTO cluster_tenants(tenant, weight, waiting_max, running_max, disabled, clock, waiting, running, events) "
    "VALUES(?1, 1, 9223372036854775807, 9223372036854775807, 0, 0, 0, 0, 0) ON CONFLICT(tenant) DO NOTHING"};
constexpr SqlStatement kLockTenant{
    "SELECT weight, waiting_max, running_max, disabled, clock, waiting, running, events FROM cluster_tenants "
    "WHERE tenant = ?1 FOR UPDATE"};
// Limits have a statement of their own: an agent's role may not write them (cluster_schema.h).
constexpr SqlStatement kSaveTenant{
    "UPDATE cluster_tenants SET clock = ?1, waiting = ?2, running = ?3, events = ?4 WHERE tenant = ?5"};
constexpr SqlStatement kSaveLimits{
    "UPDATE cluster_tenants SET weight = ?1, waiting_max = ?2, running_max = ?3, disabled = ?4 WHERE tenant = ?5"};
constexpr SqlStatement kDropEvents{"DELETE FROM cluster_events WHERE tenant = ?1 AND number <= ?2"};

constexpr SqlStatement kListNeeds{
    "SELECT id, needs, live - waiting FROM cluster_needs WHERE tenant = ?1 AND waiting > 0"};
constexpr SqlStatement kFindNeeds{"SELECT id FROM cluster_needs WHERE tenant = ?1 AND needs = ?2"};
constexpr SqlStatement kCountNeeds{"SELECT count(*) FROM cluster_needs WHERE tenant = ?1"};
constexpr SqlStatement kAddNeeds{
    "INSERT INTO cluster_needs(tenant, needs, waiting, live) VALUES(?1, ?2, 0, 0) RETURNING id"};
constexpr SqlStatement kSaveNeeds{"UPDATE cluster_needs SET waiting = waiting + ?1, live = live + ?2 WHERE id = ?3"};
constexpr SqlStatement kDropNeeds{"DELETE FROM cluster_needs WHERE id = ?1 AND live <= 0"};

constexpr SqlStatement kFindJob{"SELECT " HPVMD_CLUSTER_JOB_COLUMNS " FROM cluster_jobs WHERE tenant = ?1 AND id = ?2"};
constexpr SqlStatement kFindWithResult{"SELECT " HPVMD_CLUSTER_JOB_COLUMNS
                                       ", result FROM cluster_jobs WHERE tenant = ?1 AND id = ?2"};
constexpr SqlStatement kInsertJob{
    "INSERT INTO cluster_jobs(tenant, id, idempotency_key, state, ready, held, attempts, attempts_max, lost, fence, "
    "host, incarnation, claim, ended_fence, cancel_requested, pending, dependents, priority, memory, needs, submitted, "
    "started, ended, not_before, deadline, request, result, hold, record, request_hash) VALUES(?1, ?2, ?3, 0, ?4, ?5, "
    "0, ?6, 0, 0, '', 0, 0, 0, 0, ?7, 0, ?8, ?9, ?10, ?11, 0, 0, 0, ?12, ?13, ?14, ?15, ?16, ?17) RETURNING sequence"};
#define HPVMD_SAVE_JOB                                                                                        \
  "UPDATE cluster_jobs SET state = ?1, ready = ?2, attempts = ?3, lost = ?4, fence = ?5, host = ?6, "         \
  "incarnation = ?7, claim = ?8, ended_fence = ?9, cancel_requested = ?10, pending = ?11, dependents = ?12, " \
  "not_before = ?13, ended = ?15, started = ?16"
constexpr SqlStatement kSaveJob{HPVMD_SAVE_JOB " WHERE sequence = ?14"};
constexpr SqlStatement kStartJob{HPVMD_SAVE_JOB " WHERE sequence = ?14 RETURNING request, record"};
constexpr SqlStatement kEndJob{HPVMD_SAVE_JOB ", result = ?17 WHERE sequence = ?14"};
constexpr SqlStatement kSaveRecord{"UPDATE cluster_jobs SET record = ?1 WHERE sequence = ?2"};
// Holds have a statement of their own: an agent's role may not write them (cluster_schema.h).
constexpr SqlStatement kSaveHold{"UPDATE cluster_jobs SET held = ?1, hold = ?2, ready = ?3 WHERE sequence = ?4"};
constexpr SqlStatement kAddEnded{
    "INSERT INTO cluster_ended(tenant, job) VALUES(?1, ?2) ON CONFLICT(tenant, job) DO NOTHING"};
constexpr SqlStatement kAddEvent{
    "INSERT INTO cluster_events(tenant, number, id, state, fence) VALUES(?1, ?2, ?3, ?4, ?5)"};

std::string Quoted(const std::string& name) { return "\"" + name + "\""; }

int64_t Ns(Time time) { return time.count(); }

// The column after those of HPVMD_CLUSTER_JOB_COLUMNS.
constexpr size_t kResultColumn = 27;

// Numbers that a later release may have written count as the strictest one.
HostIntake IntakeFrom(int64_t number) {
  return number == 0 ? HostIntake::kOpen : number == 1 ? HostIntake::kCordoned : HostIntake::kDraining;
}

// Rounds down to three significant bits, so that jobs of many sizes share a few rows of needs.
uint64_t MemoryClass(uint64_t bytes) {
  const int bits = static_cast<int>(std::bit_width(bytes));
  return bits <= 3 ? bytes : bytes >> (bits - 3) << (bits - 3);
}

// Never throws: bytes that are no UTF-8, which the checks of calls refuse, are replaced.
std::string ToText(const Json& json) { return json.dump(-1, ' ', false, Json::error_handler_t::replace); }

std::string ToText(const Needs& needs) {
  Json json{{"any_of", needs.any_of},
            {"memory", MemoryClass(needs.memory_bytes)},
            {"host", needs.host},
            {"prefers", needs.prefers}};
  if (needs.running_max > 0) {
    json["running_max"] = needs.running_max;
    json["group"] = needs.group;
  }
  return ToText(json);
}

StatusOr<Needs> NeedsFrom(const std::string& text) {
  const Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  try {
    return Needs{.any_of = json.at("any_of").get<std::vector<std::set<std::string>>>(),
                 .memory_bytes = json.at("memory").get<uint64_t>(),
                 .host = json.at("host").get<std::string>(),
                 .prefers = json.at("prefers").get<std::set<std::string>>(),
                 .running_max = json.value("running_max", uint64_t{0}),
                 .group = json.value("group", std::string())};
  } catch (const Json::exception& error) {
    return DataLoss("A row of cluster_needs is damaged: " + std::string(error.what()) + ".");
  }
}

}  // namespace

StatusOr<std::set<std::string>> WordsFrom(const std::string& text) {
  const Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  try {
    return json.get<std::set<std::string>>();
  } catch (const Json::exception& error) {
    return DataLoss("A row of cluster_hosts is damaged: " + std::string(error.what()) + ".");
  }
}

JobRow ReadJobNumbers(const SqlRow& row) {
  JobRow job;
  job.sequence = row.Int(0);
  job.view = {.tenant = row.Text(1),
              .id = row.Text(2),
              .state = StateFrom(row.Int(3)),
              .attempts = static_cast<uint32_t>(row.Int(5)),
              .fence = row.Unsigned(8),
              .host = row.Text(9),
              .record = "",
              .result = "",
              .cancel_requested = row.Int(13) != 0,
              .is_held = row.Int(23) != 0,
              .hold = "",
              .number = row.Unsigned(0),
              .submitted = Time(row.Int(19)),
              .started = Time(row.Int(22)),
              .ended = Time(row.Int(24))};
  job.is_ready = row.Int(4) != 0;
  job.attempts_max = static_cast<uint32_t>(row.Int(6));
  job.lost = static_cast<uint32_t>(row.Int(7));
  job.incarnation = row.Unsigned(10);
  job.claim = row.Unsigned(11);
  job.ended_fence = row.Unsigned(12);
  job.pending = static_cast<uint32_t>(row.Int(14));
  job.dependents = static_cast<uint32_t>(row.Int(15));
  job.priority = static_cast<int32_t>(row.Int(16));
  job.memory_bytes = row.Unsigned(17);
  job.needs = row.Int(18);
  job.not_before = Time(row.Int(20));
  job.deadline = Time(row.Int(21));
  return job;
}

JobRow ReadJob(const SqlRow& row) {
  JobRow job = ReadJobNumbers(row);
  job.view.hold = row.Blob(25);
  job.view.record = row.Blob(26);
  return job;
}

ClusterTransaction::~ClusterTransaction() {
  if (is_open_) {
    session_.Rollback();
  }
}

Status ClusterTransaction::Begin() {
  HPVMD_RETURN_IF_ERROR(session_.Begin());
  is_open_ = true;
  HPVMD_ASSIGN_OR_RETURN(wall_ns_, session_.WallNs());
  HPVMD_ASSIGN_OR_RETURN(const SqlRows clock, Run(kReadClock));
  if (clock.size() != 2) {
    return DataLoss("The table cluster_meta has no clock; it was changed by hand.");
  }
  const int64_t last = clock[0].Int(1), offset = clock[1].Int(1);
  // The first sweep of all begins with the database's time.
  now_ = last == 0 ? Time(wall_ns_)
                   : std::clamp(Time(wall_ns_ + offset), Time(last), Time(last) + options_.clock_leap_max);
  return absl::OkStatus();
}

StatusOr<SqlRows> ClusterTransaction::Run(const SqlStatement& statement, std::initializer_list<SqlValue> parameters) {
  StatusOr<SqlRows> rows = session_.Run(statement, parameters);
  has_failed_ |= !rows.ok();
  return rows;
}

Status ClusterTransaction::Try(const std::function<Status()>& step) {
  HPVMD_RETURN_IF_ERROR(Run(kSavepoint).status());
  const std::map<std::string, TenantRow> before = tenants_;
  const Status done = step();
  if (done.ok()) {
    return Run(kRelease).status();
  }
  if (const StatusOr<SqlRows> undone = session_.Run(kUndo); undone.ok()) {
    for (const auto& [name, tenant] : before) {
      tenants_[name] = tenant;  // In place: there are pointers to the rows.
    }
    needs_.clear();
    has_failed_ = false;
  }
  return done;
}

Status ClusterTransaction::AdvanceClock() {
  HPVMD_RETURN_IF_ERROR(Run(kSetMeta, {Ns(now_), "clock_last"}).status());
  return Run(kSetMeta, {Ns(now_) - wall_ns_, "clock_offset"}).status();
}

StatusOr<uint64_t> ClusterTransaction::NextIncarnation() {
  HPVMD_ASSIGN_OR_RETURN(const SqlRows rows, Run(kNextIncarnation));
  return rows.empty() ? StatusOr<uint64_t>(DataLoss("The table cluster_meta has no number of incarnations."))
                      : rows[0].Unsigned(0);
}

Status ClusterTransaction::Commit() {
  for (const auto& [name, tenant] : tenants_) {
    if (tenant.is_changed) {
      HPVMD_RETURN_IF_ERROR(SaveTenant(tenant));
    }
    if (tenant.has_events || tenant.has_new_jobs) {
      HPVMD_RETURN_IF_ERROR(session_.Notify(kClusterChannel, (tenant.has_new_jobs ? "+" : "") + name));
    }
  }
  is_open_ = false;
  return session_.Commit();
}

// --- Hosts ---

StatusOr<std::optional<HostRow>> ClusterTransaction::LockHost(const std::string& name) {
  HPVMD_ASSIGN_OR_RETURN(const SqlRows rows, Run(kLockHost, {name}));
  if (rows.empty()) {
    return std::optional<HostRow>();
  }
  const SqlRow& row = rows[0];
  HostRow host;
  host.name = name;
  host.process = row.Text(0);
  host.joins = row.Unsigned(1);
  HPVMD_ASSIGN_OR_RETURN(host.has, WordsFrom(row.Text(2)));
  host.memory_bytes = row.Unsigned(3);
  host.incarnation = row.Unsigned(4);
  host.lease_end = Time(row.Int(5));
  host.intake = IntakeFrom(row.Int(6));
  host.has_left = row.Int(7) != 0;
  host.last_claim = row.Unsigned(8);
  host.settled = row.Unsigned(9);
  host.has_number = row.Unsigned(10);
  return std::optional<HostRow>(std::move(host));
}

StatusOr<HostRow> ClusterTransaction::LockLease(const std::string& name, uint64_t incarnation) {
  HPVMD_ASSIGN_OR_RETURN(std::optional<HostRow> host, LockHost(name));
  if (!host.has_value() || host->incarnation != incarnation || host->has_left) {
    return FailedPrecondition("The host " + Quoted(name) + " has no lease of incarnation " +
                              std::to_string(incarnation) + ": another process has joined, or it has left.");
  }
  if (!host->IsLive(now_)) {
    return FailedPrecondition("The lease of the host " + Quoted(name) + " has expired; it has to join again.");
  }
  return *std::move(host);
}

Status ClusterTransaction::SaveHost(const HostRow& host) {
  return Run(kSaveHost, {host.name, host.process, host.joins, ToText(Json(host.has)), host.memory_bytes,
                         host.incarnation, Ns(host.lease_end), static_cast<int64_t>(host.intake), host.has_left,
                         host.last_claim, host.settled, host.has_number})
      .status();
}

// --- Tenants ---

StatusOr<TenantRow*> ClusterTransaction::LockTenant(const std::string& name) {
  if (const auto found = tenants_.find(name); found != tenants_.end()) {
    return &found->second;
  }
  if (!tenants_.empty() && tenants_.rbegin()->first > name) {
    return Internal("The tenant " + Quoted(name) + " is locked after " + Quoted(tenants_.rbegin()->first) + ".");
  }
  HPVMD_ASSIGN_OR_RETURN(SqlRows rows, Run(kLockTenant, {name}));
  if (rows.empty()) {
    HPVMD_RETURN_IF_ERROR(Run(kAddTenant, {name}).status());
    HPVMD_ASSIGN_OR_RETURN(rows, Run(kLockTenant, {name}));
  }
  if (rows.empty()) {
    return DataLoss("The row of the tenant " + Quoted(name) + " is missing after it was added.");
  }
  const SqlRow& row = rows[0];
  TenantRow& tenant = tenants_[name];
  tenant.name = name;
  tenant.limits = {.weight = static_cast<uint32_t>(std::clamp<int64_t>(row.Int(0), 1, UINT32_MAX)),
                   .waiting_max = row.Unsigned(1),
                   .running_max = row.Unsigned(2),
                   .is_disabled = row.Int(3) != 0};
  tenant.clock = row.Real(4);
  tenant.waiting = row.Unsigned(5);
  tenant.running = row.Unsigned(6);
  tenant.events = row.Unsigned(7);
  return &tenant;
}

Status ClusterTransaction::SaveTenant(const TenantRow& tenant) {
  for (const auto& [id, counts] : tenant.needs) {
    HPVMD_RETURN_IF_ERROR(Run(kSaveNeeds, {counts.waiting, counts.live, id}).status());
    if (counts.live < 0 || (counts.live == 0 && counts.waiting == 0)) {  // Or its jobs were added and ended here.
      HPVMD_RETURN_IF_ERROR(Run(kDropNeeds, {id}).status());
    }
  }
  if (tenant.has_events && tenant.events > options_.events_max) {
    HPVMD_RETURN_IF_ERROR(Run(kDropEvents, {tenant.name, tenant.events - options_.events_max}).status());
  }
  return Run(kSaveTenant, {tenant.clock, tenant.waiting, tenant.running, tenant.events, tenant.name}).status();
}

Status ClusterTransaction::SaveLimits(TenantRow& tenant, const TenantLimits& limits) {
  tenant.limits = limits;
  return Run(kSaveLimits, {limits.weight, limits.waiting_max, limits.running_max, limits.is_disabled, tenant.name})
      .status();
}

StatusOr<std::vector<NeedsRow>> ClusterTransaction::LoadNeeds(const std::string& tenant) {
  HPVMD_ASSIGN_OR_RETURN(const SqlRows rows, Run(kListNeeds, {tenant}));
  std::vector<NeedsRow> all;
  for (const SqlRow& row : rows) {
    HPVMD_ASSIGN_OR_RETURN(Needs needs, NeedsFrom(row.Text(1)));
    all.push_back({.id = row.Int(0), .needs = std::move(needs), .running = row.Unsigned(2)});
  }
  return all;
}

StatusOr<int64_t> ClusterTransaction::FindNeeds(const std::string& tenant, const Needs& needs) {
  const std::string text = ToText(needs);
  if (text.size() > kNeedsBytesMax) {
    return InvalidArgument("The needs of a job take " + std::to_string(text.size()) + " bytes; the limit is " +
                           std::to_string(kNeedsBytesMax) + ".");
  }
  int64_t& id = needs_[{tenant, text}];
  if (id != 0) {
    return id;
  }
  HPVMD_ASSIGN_OR_RETURN(const SqlRows found, Run(kFindNeeds, {tenant, text}));
  if (!found.empty()) {
    return id = found[0].Int(0);
  }
  HPVMD_ASSIGN_OR_RETURN(const SqlRows count, Run(kCountNeeds, {tenant}));
  if (!count.empty() && count[0].Int(0) >= kNeedsRowsMax) {
    return ResourceExhausted("The jobs of the tenant " + Quoted(tenant) + " that have not ended need " +
                             std::to_string(kNeedsRowsMax) +
                             " different sets of properties of a host, which is the limit. Each array with a limit "
                             "of elements that run at a time counts as one.");
  }
  HPVMD_ASSIGN_OR_RETURN(const SqlRows made, Run(kAddNeeds, {tenant, text}));
  return made.empty() ? StatusOr<int64_t>(DataLoss("A row of cluster_needs was not added.")) : id = made[0].Int(0);
}

// --- Jobs ---

StatusOr<std::optional<JobRow>> ClusterTransaction::FindJob(const std::string& tenant, const std::string& id,
                                                            bool with_result) {
  HPVMD_ASSIGN_OR_RETURN(const SqlRows rows, Run(with_result ? kFindWithResult : kFindJob, {tenant, id}));
  if (rows.empty()) {
    return std::optional<JobRow>();
  }
  std::optional<JobRow> job = ReadJob(rows[0]);
  if (with_result) {
    job->view.result = rows[0].Blob(kResultColumn);
  }
  return job;
}

StatusOr<JobRow> ClusterTransaction::InsertJob(TenantRow& tenant, const NewJob& job, uint32_t pending) {
  JobRow row;
  row.view.tenant = job.tenant;
  row.view.id = job.id;
  row.attempts_max = job.attempts_max;
  row.pending = pending;
  row.priority = job.priority;
  row.memory_bytes = job.needs.memory_bytes;
  row.view.submitted = now_;
  row.view.is_held = job.is_held;
  row.view.hold = job.hold;
  row.view.record = job.record;
  row.is_ready = IsReady(row);
  row.deadline = job.deadline > Duration{0} ? now_ + job.deadline : kNever;
  HPVMD_ASSIGN_OR_RETURN(row.needs, FindNeeds(job.tenant, job.needs));
  const std::string& key = job.idempotency_key.empty() ? job.id : job.idempotency_key;
  HPVMD_ASSIGN_OR_RETURN(const SqlRows made,
                         Run(kInsertJob, {job.tenant, job.id, key, row.is_ready, job.is_held, job.attempts_max, pending,
                                          int64_t{job.priority}, row.memory_bytes, row.needs, Ns(row.view.submitted),
                                          Ns(row.deadline), SqlBlob{job.request}, SqlBlob{}, SqlBlob{job.hold},
                                          SqlBlob{job.record}, SqlBlob{job.request_hash}}));
  row.sequence = made.empty() ? 0 : made[0].Int(0);
  row.view.number = static_cast<uint64_t>(row.sequence);
  ++tenant.waiting;
  tenant.has_new_jobs = true;
  TenantRow::Counts& counts = tenant.needs[row.needs];
  ++counts.waiting;
  ++counts.live;
  HPVMD_RETURN_IF_ERROR(AddEvent(tenant, row.view));
  if (on_change_ != nullptr && *on_change_) {
    (*on_change_)(JobView(), row.view);
  }
  return row;
}

Status ClusterTransaction::AddEvent(TenantRow& tenant, const JobView& job) {
  tenant.is_changed = tenant.has_events = true;
  return Run(kAddEvent, {tenant.name, ++tenant.events, job.id, static_cast<int64_t>(job.state), job.fence}).status();
}

Status ClusterTransaction::SaveHold(const JobRow& job) {
  return Run(kSaveHold, {job.view.is_held, SqlBlob{job.view.hold}, job.is_ready, job.sequence}).status();
}

Status ClusterTransaction::SaveJob(const JobRow& job, Claim* start) {
  const JobView& view = job.view;
  const auto save = [&](const SqlStatement& statement, auto... more) {
    return Run(statement,
               {static_cast<int64_t>(view.state), job.is_ready, view.attempts, job.lost, view.fence, view.host,
                job.incarnation, job.claim, job.ended_fence, view.cancel_requested, job.pending, job.dependents,
                Ns(job.not_before), job.sequence, Ns(view.ended), Ns(view.started), more...});
  };
  if (job.has_new_record) {
    HPVMD_RETURN_IF_ERROR(Run(kSaveRecord, {SqlBlob{view.record}, job.sequence}).status());
  }
  if (start != nullptr) {
    HPVMD_ASSIGN_OR_RETURN(const SqlRows rows, save(kStartJob));
    if (rows.empty()) {
      return DataLoss("The job " + Quoted(view.id) + " is missing under its tenant's lock.");
    }
    start->request = rows[0].Blob(0);
    start->record = rows[0].Blob(1);
    return absl::OkStatus();
  }
  return job.has_new_result ? save(kEndJob, SqlBlob{view.result}).status() : save(kSaveJob).status();
}

Status ClusterTransaction::Change(JobRow& job, JobState state, Claim* start) {
  const JobView before = job.view;
  HPVMD_ASSIGN_OR_RETURN(TenantRow* const tenant, LockTenant(job.view.tenant));
  const auto change = [&](JobState counted) { return (state == counted ? 1 : 0) - (before.state == counted ? 1 : 0); };
  tenant->waiting += static_cast<uint64_t>(change(JobState::kWaiting));
  tenant->running += static_cast<uint64_t>(change(JobState::kRunning));
  TenantRow::Counts& counts = tenant->needs[job.needs];
  counts.waiting += change(JobState::kWaiting);
  counts.live -= IsEnd(state) ? 1 : 0;
  tenant->has_new_jobs |= state == JobState::kWaiting;
  job.view.state = state;
  job.view.ended = IsEnd(state) ? now_ : Time{0};
  job.view.started = state == JobState::kRunning ? now_ : job.view.started;
  job.is_ready = IsReady(job);
  HPVMD_RETURN_IF_ERROR(SaveJob(job, start));
  job.view.record = start == nullptr ? job.view.record : start->record;
  HPVMD_RETURN_IF_ERROR(AddEvent(*tenant, job.view));
  if (on_change_ != nullptr && *on_change_) {
    (*on_change_)(before, job.view);
  }
  return absl::OkStatus();
}

Status ClusterTransaction::End(JobRow& job, JobState state, std::string result) {
  job.view.result = std::move(result);
  job.has_new_result = true;
  if (job.dependents > 0) {
    HPVMD_RETURN_IF_ERROR(Run(kAddEnded, {job.view.tenant, job.view.id}).status());
  }
  return Change(job, state);
}

Status ClusterTransaction::TakeBack(JobRow& job, bool counts) {
  if (!counts) {
    --job.view.attempts;
  } else {
    job.not_before = now_ + RetryDelay(options_, ++job.lost);
  }
  if (job.view.cancel_requested) {
    return End(job, JobState::kCancelled, kEndedByCancel);
  }
  if (now_ >= job.deadline) {
    return End(job, JobState::kFailed, kEndedByDeadline);
  }
  if (counts && job.view.attempts >= job.attempts_max) {
    return End(job, JobState::kDead, kEndedByLoss);
  }
  return Change(job, JobState::kWaiting);
}

}  // namespace hpvm::server::cluster
