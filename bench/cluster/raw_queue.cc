// SPDX-License-Identifier: Apache-2.0
// The peer of jobs/postgres: a queue as one would write it by hand, on the store's tables. It has the rows, the row
// locks of tenants and the batches of the store, and nothing else: no keys that are looked up, no needs, no fences
// that are checked, no queue of calls.
#include <atomic>
#include <memory>
#include <thread>

#include "bench/cluster/cluster.h"
#include "server/cluster/sql/sql_session.h"

namespace hpvm::bench {

using server::cluster::NewJob;
using server::cluster::PostgresOptions;
using server::cluster::PostgresSession;
using server::cluster::SqlBlob;
using server::cluster::SqlRow;
using server::cluster::SqlRows;
using server::cluster::SqlStatement;

namespace {

constexpr SqlStatement kAddTenant{
    "INSERT INTO cluster_tenants(tenant, weight, waiting_max, running_max, disabled, clock, waiting, running, events) "
    "VALUES(?1, 1, 9223372036854775807, 9223372036854775807, 0, 0, 0, 0, 0)"};
constexpr SqlStatement kLock{"SELECT waiting, running, events FROM cluster_tenants WHERE tenant = ?1 FOR UPDATE"};
constexpr SqlStatement kSave{
    "UPDATE cluster_tenants SET waiting = ?1, running = ?2, events = ?3, clock = clock + 0.01 WHERE tenant = ?4"};
constexpr SqlStatement kInsert{
    "INSERT INTO cluster_jobs(tenant, id, idempotency_key, state, ready, held, attempts, attempts_max, lost, fence, "
    "host, "
    "incarnation, claim, ended_fence, cancel_requested, pending, dependents, priority, memory, needs, submitted, "
    "started, ended, not_before, deadline, hold, record, request_hash, request, result) VALUES(?1, ?2, ?2, 0, 1, 0, 0, "
    "1, 0, 0, '', 0, 0, 0, 0, 0, 0, 0, 0, "
    "1, 1, 0, 0, 0, "
    "9223372036854775807, '', '', '', ?3, '') RETURNING sequence"};
constexpr SqlStatement kEvent{"INSERT INTO cluster_events(tenant, number, id, state, fence) VALUES(?1, ?2, ?3, ?4, 1)"};
constexpr SqlStatement kHeads{
    "SELECT sequence, id, request FROM cluster_jobs WHERE tenant = ?1 AND needs = 1 AND state = 0 AND ready = 1 "
    "ORDER BY priority DESC, sequence LIMIT ?2"};
constexpr SqlStatement kStart{
    "UPDATE cluster_jobs SET state = 1, ready = 0, attempts = 1, fence = 1, host = ?1, incarnation = 1, claim = 1 "
    "WHERE sequence = ?2"};
constexpr SqlStatement kEnd{"UPDATE cluster_jobs SET state = 2, ended_fence = 1, result = ?1 WHERE sequence = ?2"};

struct Tenant {
  std::string name;
  int64_t waiting = 0, running = 0, events = 0;
};

class RawLoop {
 public:
  RawLoop(std::unique_ptr<PostgresSession> session, std::string host)
      : session_(std::move(session)), host_(std::move(host)) {}

  Status Submit(const std::string& tenant, const std::vector<std::string>& ids) {
    HPVMD_RETURN_IF_ERROR(Begin(tenant));
    for (const std::string& id : ids) {
      HPVMD_RETURN_IF_ERROR(session_->Run(kInsert, {tenant, id, SqlBlob{"r"}}).status());
      HPVMD_RETURN_IF_ERROR(AddEvent(id, 0));
    }
    tenant_.waiting += static_cast<int64_t>(ids.size());
    return Commit();
  }

  // Returns how many it took through their lives.
  StatusOr<uint64_t> Serve(const std::string& tenant) {
    HPVMD_RETURN_IF_ERROR(Begin(tenant));
    HPVMD_ASSIGN_OR_RETURN(const SqlRows rows, session_->Run(kHeads, {tenant, kClusterBatch}));
    for (const SqlRow& row : rows) {
      HPVMD_RETURN_IF_ERROR(session_->Run(kStart, {host_, row.Int(0)}).status());
      HPVMD_RETURN_IF_ERROR(AddEvent(row.Text(1), 1));
    }
    const auto count = static_cast<int64_t>(rows.size());
    tenant_.waiting -= count;
    tenant_.running += count;
    HPVMD_RETURN_IF_ERROR(Commit());
    if (rows.empty()) {
      return 0;
    }
    HPVMD_RETURN_IF_ERROR(Begin(tenant));
    for (const SqlRow& row : rows) {
      HPVMD_RETURN_IF_ERROR(session_->Run(kEnd, {SqlBlob{row.Text(1) + "/1"}, row.Int(0)}).status());
      HPVMD_RETURN_IF_ERROR(AddEvent(row.Text(1), 2));
    }
    tenant_.running -= count;
    HPVMD_RETURN_IF_ERROR(Commit());
    return rows.size();
  }

 private:
  Status Begin(const std::string& tenant) {
    HPVMD_RETURN_IF_ERROR(session_->Begin());
    HPVMD_ASSIGN_OR_RETURN(const SqlRows rows, session_->Run(kLock, {tenant}));
    if (rows.size() != 1) {
      return Internal("The tenant of the raw queue is missing.");
    }
    tenant_ = {.name = tenant, .waiting = rows[0].Int(0), .running = rows[0].Int(1), .events = rows[0].Int(2)};
    return absl::OkStatus();
  }
  Status AddEvent(const std::string& id, int state) {
    return session_->Run(kEvent, {tenant_.name, ++tenant_.events, id, state}).status();
  }
  Status Commit() {
    HPVMD_RETURN_IF_ERROR(
        session_->Run(kSave, {tenant_.waiting, tenant_.running, tenant_.events, tenant_.name}).status());
    return session_->Commit();
  }

  const std::unique_ptr<PostgresSession> session_;
  const std::string host_;
  Tenant tenant_;
};

Status SubmitAll(RawLoop& loop, uint64_t jobs) {
  for (uint64_t first = 0; first < jobs; first += kClusterBatch) {
    std::map<std::string, std::vector<std::string>> ids;
    for (const NewJob& job : TinyJobs(first, std::min<uint64_t>(kClusterBatch, jobs - first))) {
      ids[job.tenant].push_back(job.id);
    }
    for (const auto& [tenant, some] : ids) {
      HPVMD_RETURN_IF_ERROR(loop.Submit(tenant, some));
    }
  }
  return absl::OkStatus();
}

Status ServeAll(RawLoop& loop, std::atomic<uint64_t>& served, uint64_t jobs) {
  for (uint64_t turn = 0; served < jobs; ++turn) {
    HPVMD_ASSIGN_OR_RETURN(const uint64_t count, loop.Serve("t" + std::to_string(turn % kClusterTenants)));
    served += count;
    if (count == 0) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }
  return absl::OkStatus();
}

}  // namespace

StatusOr<double> RunRawQueue(const PostgresOptions& database, uint64_t jobs) {
  std::vector<std::unique_ptr<RawLoop>> loops;
  for (uint32_t i = 0; i <= kClusterHosts; ++i) {
    HPVMD_ASSIGN_OR_RETURN(std::unique_ptr<PostgresSession> session, PostgresSession::Open(database));
    for (uint32_t tenant = 0; i == 0 && tenant < kClusterTenants; ++tenant) {
      HPVMD_RETURN_IF_ERROR(session->Run(kAddTenant, {"t" + std::to_string(tenant)}).status());
    }
    loops.push_back(std::make_unique<RawLoop>(std::move(session), "h" + std::to_string(i)));
  }
  std::vector<Status> ends(loops.size());
  std::atomic<uint64_t> served = 0;
  const auto begin = std::chrono::steady_clock::now();
  std::vector<std::thread> threads;
  for (size_t i = 0; i < loops.size(); ++i) {
    threads.emplace_back([&, i] {
      ends[i] = i == 0 ? SubmitAll(*loops[i], jobs) : ServeAll(*loops[i], served, jobs);
      if (!ends[i].ok()) {
        served = jobs;  // Ends the others.
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  for (const Status& end : ends) {
    HPVMD_RETURN_IF_ERROR(end);
  }
  return static_cast<double>(jobs) / std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

}  // namespace hpvm::bench
