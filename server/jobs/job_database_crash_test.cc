// SPDX-License-Identifier: Apache-2.0
// Tests the database on a disk that loses power, fails and fills up: acknowledged writes are there, and none is
// partial.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sqlite3.h>

#include <fstream>
#include <sstream>

#include "server/jobs/sqlite/sqlite_job_database.h"
#include "server/jobs/testing/disk_vfs.h"
#include "server/jobs/testing/job_writes.h"
#include "server/jobs/testing/memory_job_database.h"
#include "server/testing/sim_disk.h"

namespace hpvm::server {
namespace {

constexpr char kPath[] = "/s/jobs.db";

std::string TextOf(JobDatabase& database) {
  std::string text;
  for (const std::string& tenant : JobWriteGenerator::Tenants()) {
    JobFilter filter;
    filter.count_max = 10'000;
    const auto jobs = database.List(tenant, filter);
    EXPECT_TRUE(jobs.ok()) << jobs.status();
    for (const StoredJob& job : *jobs) {
      text += job.DebugString();
      const auto results = database.ReadResults(tenant, job.job().id());
      const auto request = database.ReadRequest(tenant, job.job().id());
      text += results.ok() ? results->DebugString() : results.status().ToString();
      text += request.ok() ? request->DebugString() : request.status().ToString();
    }
    for (int i = 0; i < 40; ++i) {
      const auto key = database.FindKey(tenant, "key-" + std::to_string(i));
      text += key.ok() ? "\nkey " + key->job_id + " " + std::to_string(key->state) : "";
    }
  }
  return text + database.ListBlobs([&](const BlobUse& blob) { text += ToHex(blob.hash); }).ToString();
}

struct World {
  explicit World(uint64_t seed) : rng(seed), disk(seed) {
    disk.AddFolder("/s");
    vfs = *DiskVfs::Register(disk, clock, rng);
  }
  StatusOr<std::unique_ptr<JobDatabase>> Open() {
    SqliteJobDatabaseOptions options;
    options.path = kPath;
    options.vfs = vfs->name();
    options.disk = &disk;
    options.read_connections = 1;
    options.log_pages_max = log_pages_max;
    return OpenSqliteJobDatabase(options);
  }

  int log_pages_max = 20;  // Small, so that the log is moved often.
  ManualClock clock;
  SeededRng rng;
  SimDisk disk;
  std::unique_ptr<DiskVfs> vfs;
};

// Commits the same random batches to both, until the database fails; `model` then has what was acknowledged, and
// `with_last` also the batch in doubt.
struct Script {
  explicit Script(uint64_t seed) : generator(seed) {}

  std::vector<JobWrite> NextBatch() {
    std::vector<JobWrite> writes;
    for (uint64_t i = 1 + generator.rng().Below(4); i > 0; --i) {
      writes.push_back(generator.Next(model));
    }
    return writes;
  }

  Status Step(JobDatabase& database) {
    const std::vector<JobWrite> writes = NextBatch();
    std::vector<WriteResult> results;
    const Status status = database.Commit(writes, &results);
    EXPECT_TRUE(with_last.Commit(writes, &results).ok());
    if (status.ok()) {
      EXPECT_TRUE(model.Commit(writes, &results).ok());
    }
    return status;
  }

  JobWriteGenerator generator;
  MemoryJobDatabase model, with_last;
};

// Checks what a restarted daemon sees after the script's end.
void ExpectAllOrNothing(World& world, Script& script) {
  auto database = world.Open();
  ASSERT_TRUE(database.ok()) << database.status();
  const std::string text = TextOf(**database);
  if (text != TextOf(script.model)) {
    EXPECT_EQ(text, TextOf(script.with_last));
  }
  EXPECT_THAT(*(*database)->Check(), testing::IsEmpty());
  std::vector<WriteResult> results;
  EXPECT_TRUE((*database)->Commit({}, &results).ok());
}

// Power is lost after every change of the disk in a script with several checkpoints, and again while the file is
// opened afterwards: acknowledged writes are there, and the batch in doubt completely or not at all.
TEST(JobDatabaseCrashTest, PowerIsLostAfterEveryChange) {
  constexpr int kSteps = 25;
  bool reached_end = false;
  uint64_t crashes = 0;
  for (uint64_t after = 0; !reached_end; ++after) {
    SCOPED_TRACE("power lost after " + std::to_string(after) + " changes");
    World world(after + 1);
    Script script(after % 7);
    world.disk.PowerOffAfter(after);
    {
      auto database = world.Open();
      int step = 0;
      while (database.ok() && step < kSteps && script.Step(**database).ok()) {
        ++step;
      }
      reached_end = step == kSteps;
      world.disk.PowerOffAfter(0);
    }
    world.disk.Crash(world.rng);
    ++crashes;
    // Recovery itself loses power once.
    world.disk.PowerOffAfter(world.rng.Below(12));
    world.Open().status().IgnoreError();
    world.disk.PowerOffAfter(0);
    world.disk.Crash(world.rng);
    ASSERT_NO_FATAL_FAILURE(ExpectAllOrNothing(world, script));
    if (HasFailure()) {
      return;
    }
  }
  EXPECT_GT(crashes, 100u);
}

struct FaultCase {
  const char* name;
  SimDisk::Op op;
  SimDisk::Fault fault;
  bool breaks;  // The store is broken from then on; otherwise later commits succeed.
};

const FaultCase kFaults[] = {
    {"SyncFails", SimDisk::Op::kSync, {absl::StatusCode::kDataLoss}, true},
    {"WriteFails", SimDisk::Op::kWrite, {absl::StatusCode::kDataLoss}, true},
    {"WriteIsShort", SimDisk::Op::kWrite, {absl::StatusCode::kDataLoss, true}, true},
    {"NoRoom", SimDisk::Op::kWrite, {absl::StatusCode::kResourceExhausted}, false},
    {"NoRoomForAll", SimDisk::Op::kWrite, {absl::StatusCode::kResourceExhausted, true}, false},
};

// The n-th sync or write of a script fails, for every n: the commit reports it; a broken store answers kDataLoss from
// then on, a full one continues; and after a power loss all acknowledged writes are there.
TEST(JobDatabaseCrashTest, EveryNthFault) {
  for (const FaultCase& c : kFaults) {
    uint64_t broken = 0, full = 0;
    for (uint64_t nth = 1;; ++nth) {
      SCOPED_TRACE(std::string(c.name) + " " + std::to_string(nth));
      World world(nth);
      Script script(nth % 5);
      bool reached = true;
      {
        auto database = world.Open();
        ASSERT_TRUE(database.ok()) << database.status();
        const uint64_t before = world.disk.count(c.op);
        world.disk.FailNth(c.op, nth, c.fault);
        Status status;
        for (int step = 0; step < 12 && status.ok(); ++step) {
          status = script.Step(**database);
        }
        reached = world.disk.count(c.op) >= before + nth;
        if (!status.ok()) {
          std::vector<WriteResult> results;
          const Status again = (*database)->Commit({}, &results);
          EXPECT_EQ(absl::IsDataLoss(status), c.breaks) << status;
          EXPECT_EQ(again.code(), c.breaks ? absl::StatusCode::kDataLoss : absl::StatusCode::kOk) << again;
          EXPECT_TRUE(TextOf(**database) == TextOf(script.model) || absl::IsDataLoss(status));
          ++(c.breaks ? broken : full);
        }
        world.disk.ClearFaults();
        world.disk.PowerOffAfter(0);
      }
      world.disk.Crash(world.rng);
      ASSERT_NO_FATAL_FAILURE(ExpectAllOrNothing(world, script));
      if (HasFailure()) {
        return;
      }
      if (!reached) {
        break;
      }
    }
    EXPECT_GT(broken + full, 10u) << c.name;
  }
}

// While the disk is full, commits are refused, none is lost, none is partial; with room they succeed again.
TEST(JobDatabaseCrashTest, DiskFillsUpAndGetsRoom) {
  World world(3);
  Script script(3);
  auto database = world.Open();
  ASSERT_TRUE(database.ok()) << database.status();
  int refused = 0;
  for (int round = 0; round < 5; ++round) {
    world.disk.SetSpace(world.disk.used_bytes() + 20'000);
    for (int step = 0; step < 30; ++step) {
      const std::vector<JobWrite> writes = script.NextBatch();
      std::vector<WriteResult> results;
      const Status status = (*database)->Commit(writes, &results);
      if (status.ok()) {
        ASSERT_TRUE(script.model.Commit(writes, &results).ok());
      } else {
        ASSERT_TRUE(absl::IsResourceExhausted(status)) << status;
        ++refused;
      }
    }
    world.disk.SetSpace(UINT64_MAX);
    ASSERT_EQ(TextOf(**database), TextOf(script.model));
  }
  EXPECT_GT(refused, 10);
  EXPECT_THAT(*(*database)->Check(), testing::IsEmpty());
}

// Returns the salts that identify the transactions of a log: SQLite accepts none that was written under others.
std::array<uint8_t, 8> SaltsOf(World& world) {
  std::array<uint8_t, 8> salts{};
  const auto log = world.disk.Open(std::string(kPath) + "-wal", Disk::Mode::kRead);
  EXPECT_TRUE(log.ok() && (*log)->ReadAt(16, salts).ok());
  return salts;
}

// A backup or a check by another process holds the log for as long as it takes. Commits wait for it once per piece of
// the log, not each time, and the log starts anew once the reader has gone.
TEST(JobDatabaseCrashTest, ReadersThatStayAreSeldomWaitedFor) {
  constexpr int kPages = 400, kCommitPagesMax = 50;
  World world(11);
  world.log_pages_max = kPages;
  Script script(5);
  const auto database = world.Open();
  ASSERT_TRUE(database.ok()) << database.status();
  ASSERT_TRUE(script.Step(**database).ok());
  sqlite3* reader = nullptr;
  ASSERT_EQ(sqlite3_open_v2(kPath, &reader, SQLITE_OPEN_READONLY, world.vfs->name().c_str()), SQLITE_OK);
  ASSERT_EQ(sqlite3_exec(reader, "BEGIN; SELECT count(*) FROM jobs", nullptr, nullptr, nullptr), SQLITE_OK);
  const auto waits = [&](int commits) {
    int waits = 0;
    for (int i = 0; i < commits; ++i) {
      const uint64_t before = world.vfs->sleeps();
      EXPECT_TRUE(script.Step(**database).ok());
      waits += world.vfs->sleeps() > before ? 1 : 0;
    }
    return waits;
  };
  const auto log_pages = [&] {
    return static_cast<int>(*(*world.disk.Open(std::string(kPath) + "-wal", Disk::Mode::kRead))->Size() / (4'096 + 24));
  };
  while (log_pages() + kCommitPagesMax < 4 * kPages) {
    EXPECT_EQ(waits(1), 0);
  }
  const int start = log_pages(), waited = waits(300), grown = log_pages() - start;
  EXPECT_GT(waited, 0);
  EXPECT_LE(waited, grown / (kPages / 4) + 2) << grown;
  sqlite3_close(reader);
  EXPECT_EQ(waits(100), 0);
  const int before = log_pages();
  EXPECT_EQ(waits(100), 0);
  EXPECT_EQ(log_pages(), before);
}

// The remains of a refused commit in the log are never completed by the next one's bytes, of which a crash may keep
// any: the log begins anew, with salts of its own, whether or not there was a whole transaction before.
TEST(JobDatabaseCrashTest, NothingIsWrittenOverWhatARefusedCommitLeft) {
  World world(5);
  Script script(5);
  const auto database = world.Open();
  ASSERT_TRUE(database.ok()) << database.status();
  std::vector<WriteResult> results;
  // Repeats until a commit writes: a batch that changes nothing is not written.
  const auto commit = [&] {
    const uint64_t writes = world.disk.count(SimDisk::Op::kWrite);
    Status status;
    while (status.ok() && world.disk.count(SimDisk::Op::kWrite) == writes) {
      status = (*database)->Commit(script.NextBatch(), &results);
    }
    return status;
  };
  // The log's head, which the first log lacks, the frame's head, and a part of its page.
  const auto refuse = [&](uint64_t nth) {
    world.disk.FailNth(SimDisk::Op::kWrite, nth, {.code = absl::StatusCode::kResourceExhausted, .is_short = true});
    const Status refused = commit();
    EXPECT_TRUE(absl::IsResourceExhausted(refused)) << refused;
    world.disk.ClearFaults();
  };
  ASSERT_TRUE(commit().ok());
  for (int round = 0; round < 4; ++round) {
    SCOPED_TRACE(round);
    refuse(2);
    refuse(3);
    const std::array<uint8_t, 8> before = SaltsOf(world);
    ASSERT_TRUE(commit().ok());
    EXPECT_NE(SaltsOf(world), before);
  }
}

// Power is lost after every change of the disk while a file of an earlier release is rewritten in this one's form: its
// jobs are there at the next start, which continues.
TEST(JobDatabaseCrashTest, PowerFailsWhileAnOldFileIsWrittenAnew) {
  std::ifstream dump(std::string(HPVMD_SOURCE_DIR) + "/server/jobs/testing/version_1.sql");
  std::stringstream sql;
  sql << dump.rdbuf();
  bool reached_end = false;
  uint64_t crashes = 0;
  for (uint64_t after = 0; !reached_end; ++after) {
    SCOPED_TRACE("power lost after " + std::to_string(after) + " changes");
    World world(after + 1);
    sqlite3* db = nullptr;
    ASSERT_EQ(sqlite3_open_v2(kPath, &db, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE, world.vfs->name().c_str()),
              SQLITE_OK);
    ASSERT_EQ(sqlite3_exec(db, (sql.str() + "PRAGMA synchronous=FULL;").c_str(), nullptr, nullptr, nullptr), SQLITE_OK)
        << sqlite3_errmsg(db);
    sqlite3_close(db);
    ASSERT_TRUE(world.disk.SyncFolder("/s").ok());
    world.disk.PowerOffAfter(after);
    {
      const auto database = world.Open();
      reached_end = database.ok() && !world.disk.is_off();
      world.disk.PowerOffAfter(0);
    }
    world.disk.Crash(world.rng);
    ++crashes;
    const auto database = world.Open();
    ASSERT_TRUE(database.ok()) << database.status();
    EXPECT_TRUE((*database)->Find("blue", "job-live").ok());
    EXPECT_EQ((*database)->ReadResults("blue", "job-ended")->outputs(0).data(), "output");
    EXPECT_TRUE((*database)->Check()->empty());
    EXPECT_TRUE((*database)->Shrink(8).ok());
  }
  EXPECT_GT(crashes, 30u);
}

}  // namespace
}  // namespace hpvm::server
