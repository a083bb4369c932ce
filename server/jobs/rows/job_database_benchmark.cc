// SPDX-License-Identifier: Apache-2.0
// Measures the job database: commits of 1 to 1,024 inserts compared with a plain SQLite loop of the same rows, the
// largest arrays, reads among 100,000 jobs, and a start with 10,000 queued.
//
//   job_database_benchmark [FOLDER] [SECONDS]
#include <sqlite3.h>
#include <stdlib.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "server/jobs/rows/job_rules.h"
#include "server/jobs/sqlite/sqlite_job_database.h"
#include "server/jobs/testing/job_writes.h"

namespace hpvm::server {
namespace {

double Now() { return static_cast<double>(RealClock().Now().count()) / 1e9; }

std::string Hex(uint64_t value, int digits) {
  char text[17];
  std::snprintf(text, sizeof(text), "%016llx", static_cast<unsigned long long>(value));
  return text + 16 - digits;
}

// Returns an id as the core makes them: ordered by time, then random.
std::string NewId(Rng& rng) {
  return "job-" + Hex(static_cast<uint64_t>(RealClock().WallNs() / 1'000'000), 12) + Hex(rng.Next(), 12) +
         Hex(rng.Next(), 8);
}

std::vector<JobWrite> NewBatch(Rng& rng, int count) {
  std::vector<JobWrite> writes;
  for (int i = 0; i < count; ++i) {
    writes.push_back(MakeInsert("tenant-" + std::to_string(rng.Below(8)), NewId(rng),
                                Hex(rng.Next(), 16) + Hex(rng.Next(), 16), RealClock().WallNs()));
  }
  return writes;
}

// PlainSqlite writes the rows of an insert without any of our rules: one table for the job, one for the request, one
// for the key.
class PlainSqlite {
 public:
  explicit PlainSqlite(const std::string& path) {
    sqlite3_open(path.c_str(), &db_);
    Execute(
        "PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL; CREATE TABLE jobs(sequence INTEGER PRIMARY KEY, "
        "id TEXT UNIQUE, record BLOB); CREATE TABLE requests(sequence INTEGER PRIMARY KEY, bytes BLOB); "
        "CREATE TABLE keys(key TEXT PRIMARY KEY, id TEXT) WITHOUT ROWID;");
    job_ = Prepare("INSERT INTO jobs VALUES(?1, ?2, ?3)");
    request_ = Prepare("INSERT INTO requests VALUES(?1, ?3)");
    key_ = Prepare("INSERT INTO keys VALUES(?3, ?2)");
  }
  ~PlainSqlite() {
    sqlite3_finalize(job_);
    sqlite3_finalize(request_);
    sqlite3_finalize(key_);
    sqlite3_close(db_);
  }
  void Commit(const std::vector<JobWrite>& writes) {
    Execute("BEGIN IMMEDIATE");
    for (const JobWrite& write : writes) {
      const auto& insert = std::get<InsertJobs>(write);
      const std::string record = insert.jobs.front().SerializeAsString();
      const std::string& id = insert.jobs.front().job().id();
      ++sequence_;
      Run(job_, id, record);
      Run(request_, id, insert.request);
      Run(key_, id, insert.idempotency_key);
    }
    Execute("COMMIT");
  }

 private:
  void Execute(const char* sql) {
    if (sqlite3_exec(db_, sql, nullptr, nullptr, nullptr) != SQLITE_OK) {
      std::fprintf(stderr, "%s: %s\n", sql, sqlite3_errmsg(db_));
      std::exit(1);
    }
  }
  sqlite3_stmt* Prepare(const char* sql) {
    sqlite3_stmt* statement = nullptr;
    sqlite3_prepare_v2(db_, sql, -1, &statement, nullptr);
    return statement;
  }
  void Run(sqlite3_stmt* statement, const std::string& id, const std::string& bytes) {
    sqlite3_bind_int64(statement, 1, sequence_);
    if (sqlite3_bind_parameter_count(statement) >= 2) {
      sqlite3_bind_text(statement, 2, id.data(), static_cast<int>(id.size()), SQLITE_STATIC);
    }
    sqlite3_bind_blob(statement, 3, bytes.data(), static_cast<int>(bytes.size()), SQLITE_STATIC);
    if (sqlite3_step(statement) != SQLITE_DONE) {
      std::fprintf(stderr, "%s\n", sqlite3_errmsg(db_));
      std::exit(1);
    }
    sqlite3_reset(statement);
  }

  sqlite3* db_ = nullptr;
  sqlite3_stmt *job_ = nullptr, *request_ = nullptr, *key_ = nullptr;
  sqlite3_int64 sequence_ = 0;
};

// Returns rows per second; the time to make the batches is not counted.
double Rate(double seconds, int count, Rng& rng, const std::function<void(const std::vector<JobWrite>&)>& commit) {
  double spent = 0;
  uint64_t rows = 0;
  while (spent < seconds) {
    const std::vector<JobWrite> writes = NewBatch(rng, count);
    const double start = Now();
    commit(writes);
    spent += Now() - start;
    rows += static_cast<uint64_t>(count);
  }
  return static_cast<double>(rows) / spent;
}

std::unique_ptr<JobDatabase> OpenOrExit(const std::string& path) {
  SqliteJobDatabaseOptions options;
  options.path = path;
  auto database = OpenSqliteJobDatabase(options);
  if (!database.ok()) {
    std::fprintf(stderr, "%s\n", database.status().ToString().c_str());
    std::exit(1);
  }
  return *std::move(database);
}

void CommitOrExit(JobDatabase& database, const std::vector<JobWrite>& writes) {
  std::vector<WriteResult> results;
  if (const Status status = database.Commit(writes, &results); !status.ok() || !results.front().status.ok()) {
    std::fprintf(stderr, "%s\n", status.ToString().c_str());
    std::exit(1);
  }
}

void MeasureCommits(const std::string& folder, double seconds, Rng& rng) {
  std::printf("%8s %14s %14s %8s\n", "batch", "ours rows/s", "plain rows/s", "ratio");
  for (const int count : {1, 16, 64, 256, 1'024}) {
    const auto database = OpenOrExit(folder + "/ours-" + std::to_string(count) + ".db");
    PlainSqlite plain(folder + "/plain-" + std::to_string(count) + ".db");
    double ours = 0, theirs = 0;
    for (int round = 0; round < 3; ++round) {  // Alternating, because the machine's speed varies.
      ours += Rate(seconds / 3, count, rng, [&](const auto& writes) { CommitOrExit(*database, writes); });
      theirs += Rate(seconds / 3, count, rng, [&](const auto& writes) { plain.Commit(writes); });
    }
    std::printf("%8d %14.0f %14.0f %8.2f\n", count, ours / 3, theirs / 3, ours / theirs);
    std::fflush(stdout);
  }
}

// Measures arrays of 1,000 elements with the maximum of labels, or of dependencies, of a request.
void MeasureArrays(const std::string& folder, Rng& rng) {
  constexpr int kElements = 1'000, kRounds = 9;
  const auto database = OpenOrExit(folder + "/arrays.db");
  const auto measure = [&](const char* name, const std::function<void(v1::Job*)>& fill) {
    std::vector<double> times;
    for (int round = 0; round < kRounds; ++round) {
      InsertJobs insert = MakeInsert("tenant", NewId(rng), "", RealClock().WallNs());
      StoredJob element = insert.jobs.front();
      fill(element.mutable_job());
      element.mutable_job()->set_array_id("array-" + std::to_string(round) + name);
      insert.shared = SharedOf(element);
      RemoveShared(&element);
      insert.jobs.clear();
      for (int i = 0; i < kElements; ++i) {
        insert.jobs.push_back(element);
        insert.jobs.back().mutable_job()->set_id(NewId(rng));
      }
      const std::vector<JobWrite> writes = {std::move(insert)};
      const double start = Now();
      CommitOrExit(*database, writes);
      times.push_back((Now() - start) * 1e3);
    }
    std::sort(times.begin(), times.end());
    std::printf("array of %d, %-28s p50 %6.1f ms, max %6.1f ms\n", kElements, name, times[kRounds / 2], times.back());
  };
  measure("plain", [](v1::Job*) {});
  measure("32 labels of 250 bytes", [](v1::Job* job) {
    for (int i = 0; i < 32; ++i) {
      (*job->mutable_labels())["label-" + std::to_string(i)] = std::string(250, 'x');
    }
  });
  measure("after 64 jobs", [&](v1::Job* job) {
    for (int i = 0; i < 64; ++i) {
      job->add_after()->set_job_id(NewId(rng));
    }
  });
}

void MeasureReads(const std::string& folder, Rng& rng) {
  constexpr int kJobs = 100'000, kBatch = 1'000, kReads = 5'000;
  auto database = OpenOrExit(folder + "/reads.db");
  std::vector<InsertJobs> jobs;
  double spent = 0;
  for (int i = 0; i < kJobs; i += kBatch) {
    const std::vector<JobWrite> writes = NewBatch(rng, kBatch);
    const double start = Now();
    CommitOrExit(*database, writes);
    spent += Now() - start;
    for (const JobWrite& write : writes) {
      jobs.push_back(std::get<InsertJobs>(write));
    }
  }
  std::printf("%d jobs in batches of %d: %.0f rows/s\n", kJobs, kBatch, kJobs / spent);
  const auto measure = [&](const char* name, int count, const auto& read) {
    std::vector<double> times;
    for (int i = 0; i < count; ++i) {
      const InsertJobs& job = jobs[rng.Below(jobs.size())];
      const double start = Now();
      if (!read(job.jobs.front(), job)) {
        std::fprintf(stderr, "%s failed\n", name);
        std::exit(1);
      }
      times.push_back((Now() - start) * 1e6);
    }
    std::sort(times.begin(), times.end());
    std::printf("%-28s p50 %8.1f us, p99 %8.1f us\n", name, times[times.size() / 2], times[times.size() * 99 / 100]);
  };
  measure("Find", kReads,
          [&](const StoredJob& job, const InsertJobs&) { return database->Find(job.tenant(), job.job().id()).ok(); });
  measure("FindKey", kReads, [&](const StoredJob& job, const InsertJobs& insert) {
    return database->FindKey(job.tenant(), insert.idempotency_key).ok();
  });
  measure("ReadRequest", kReads, [&](const StoredJob& job, const InsertJobs&) {
    return database->ReadRequest(job.tenant(), job.job().id()).ok();
  });
  measure("List of 100, newest", 500,
          [&](const StoredJob& job, const InsertJobs&) { return database->List(job.tenant(), JobFilter()).ok(); });
  measure("List of 100, anywhere", 500, [&](const StoredJob& job, const InsertJobs&) {
    JobFilter filter;
    filter.before_sequence = 1'000 + rng.Below(kJobs - 1'000);
    return database->List(job.tenant(), filter).ok();
  });
  const double start = Now();
  database.reset();
  const double closed = Now();
  database = OpenOrExit(folder + "/reads.db");
  std::printf("with %d jobs: close %.1f ms, open %.1f ms\n", kJobs, (closed - start) * 1e3, (Now() - closed) * 1e3);
  const double check = Now();
  const auto faults = database->Check();
  std::printf("Check of %d jobs: %.0f ms, %zu faults\n", kJobs, (Now() - check) * 1e3, faults->size());
}

void MeasureStart(const std::string& folder, Rng& rng) {
  constexpr int kJobs = 10'000;
  {
    const auto database = OpenOrExit(folder + "/start.db");
    for (int i = 0; i < kJobs; i += 1'000) {
      CommitOrExit(*database, NewBatch(rng, 1'000));
    }
  }
  SqliteJobDatabaseOptions options;
  options.path = folder + "/start.db";
  options.check_ms_max = 250;
  const double start = Now();
  const auto database = OpenSqliteJobDatabase(options);
  const double opened = Now();
  (*database)->NextLease().status().IgnoreError();
  const double leased = Now();
  std::vector<DamagedJob> damaged;
  size_t live = 0;
  (*database)->LoadLive([&](LiveRow) { ++live; }, &damaged).IgnoreError();
  std::printf("%zu queued: open with quick check %.1f ms, lease %.1f ms, LoadLive %.1f ms\n", live,
              (opened - start) * 1e3, (leased - opened) * 1e3, (Now() - leased) * 1e3);
}

int Main(int argc, char** argv) {
  std::string folder = argc > 1 ? std::string(argv[1]) + "/jobs-XXXXXX" : "/tmp/jobs-XXXXXX";
  const double seconds = argc > 2 ? std::atof(argv[2]) : 3;
  if (mkdtemp(folder.data()) == nullptr) {
    std::perror(folder.c_str());
    return 1;
  }
  SeededRng rng(static_cast<uint64_t>(RealClock().WallNs()));
  MeasureCommits(folder, seconds, rng);
  MeasureArrays(folder, rng);
  MeasureReads(folder, rng);
  MeasureStart(folder, rng);
  std::filesystem::remove_all(folder);
  return 0;
}

}  // namespace
}  // namespace hpvm::server

int main(int argc, char** argv) { return hpvm::server::Main(argc, argv); }
