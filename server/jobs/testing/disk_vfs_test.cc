// SPDX-License-Identifier: Apache-2.0
#include "server/jobs/testing/disk_vfs.h"

#include <sqlite3.h>

#include <string>
#include <vector>

#include "gtest/gtest.h"

#include "server/testing/sim_disk.h"

namespace hpvm::server {
namespace {

using Op = SimDisk::Op;

// Connection is a connection whose calls return SQLite's code.
class Connection {
 public:
  Connection(const DiskVfs& vfs, const std::string& path) {
    opened = sqlite3_open_v2(path.c_str(), &db_, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE, vfs.name().c_str());
  }
  ~Connection() { sqlite3_close(db_); }
  int Do(const std::string& sql) { return sqlite3_exec(db_, sql.c_str(), nullptr, nullptr, nullptr); }
  // Returns the first column of the first row; -1 on an error.
  int64_t Get(const std::string& sql) {
    sqlite3_stmt* statement = nullptr;
    int64_t value = -1;
    if (sqlite3_prepare_v2(db_, sql.c_str(), -1, &statement, nullptr) == SQLITE_OK &&
        sqlite3_step(statement) == SQLITE_ROW) {
      value = sqlite3_column_int64(statement, 0);
    }
    sqlite3_finalize(statement);
    return value;
  }
  std::string Text(const std::string& sql) {
    sqlite3_stmt* statement = nullptr;
    std::string value;
    if (sqlite3_prepare_v2(db_, sql.c_str(), -1, &statement, nullptr) == SQLITE_OK &&
        sqlite3_step(statement) == SQLITE_ROW) {
      value = reinterpret_cast<const char*>(sqlite3_column_text(statement, 0));
    }
    sqlite3_finalize(statement);
    return value;
  }
  int opened = SQLITE_ERROR;

 private:
  sqlite3* db_ = nullptr;
};

class DiskVfsTest : public testing::Test {
 protected:
  DiskVfsTest() : disk_(7), rng_(7) {
    disk_.AddFolder("/s");
    vfs_ = *DiskVfs::Register(disk_, clock_, rng_);
  }
  // Sets up a new database in WAL mode whose commits are synced.
  static int Set(Connection& c) {
    const int set = c.Do("PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL;");
    return set != SQLITE_OK ? set : c.Do("CREATE TABLE IF NOT EXISTS t(x INTEGER PRIMARY KEY, pad BLOB)");
  }

  SimDisk disk_;
  ManualClock clock_;
  SeededRng rng_;
  std::unique_ptr<DiskVfs> vfs_;
};

// Writers exclude each other, readers do not wait, and a reader's snapshot stays while others write.
TEST_F(DiskVfsTest, SeveralConnectionsInWalMode) {
  Connection a(*vfs_, "/s/db"), b(*vfs_, "/s/db");
  ASSERT_EQ(Set(a), SQLITE_OK);
  EXPECT_EQ(a.Text("PRAGMA journal_mode"), "wal");
  ASSERT_EQ(a.Do("BEGIN IMMEDIATE; INSERT INTO t(x) VALUES (1)"), SQLITE_OK);
  EXPECT_EQ(b.Do("BEGIN IMMEDIATE"), SQLITE_BUSY);
  EXPECT_EQ(b.Get("SELECT count(*) FROM t"), 0);
  ASSERT_EQ(a.Do("COMMIT"), SQLITE_OK);
  ASSERT_EQ(b.Do("BEGIN"), SQLITE_OK);
  EXPECT_EQ(b.Get("SELECT count(*) FROM t"), 1);
  ASSERT_EQ(a.Do("INSERT INTO t(x) VALUES (2)"), SQLITE_OK);
  EXPECT_EQ(b.Get("SELECT count(*) FROM t"), 1);
  ASSERT_EQ(b.Do("COMMIT"), SQLITE_OK);
  EXPECT_EQ(b.Get("SELECT count(*) FROM t"), 2);
  EXPECT_EQ(a.Text("PRAGMA integrity_check"), "ok");
}

// With a rollback journal the five lock levels matter: a writer that wants to commit waits for readers.
TEST_F(DiskVfsTest, LocksWithARollbackJournal) {
  Connection a(*vfs_, "/s/db"), b(*vfs_, "/s/db");
  ASSERT_EQ(a.Do("CREATE TABLE t(x); INSERT INTO t VALUES (1)"), SQLITE_OK);
  ASSERT_EQ(b.Do("BEGIN"), SQLITE_OK);
  EXPECT_EQ(b.Get("SELECT count(*) FROM t"), 1);
  ASSERT_EQ(a.Do("BEGIN; INSERT INTO t VALUES (2)"), SQLITE_OK);
  EXPECT_EQ(a.Do("COMMIT"), SQLITE_BUSY);
  ASSERT_EQ(b.Do("COMMIT"), SQLITE_OK);
  EXPECT_EQ(a.Do("COMMIT"), SQLITE_OK);
  EXPECT_EQ(b.Get("SELECT count(*) FROM t"), 2);
}

// Errors have the codes that distinguish a full disk from a broken one.
TEST_F(DiskVfsTest, FaultsHaveTheirCodes) {
  Connection a(*vfs_, "/s/db");
  ASSERT_EQ(Set(a), SQLITE_OK);
  disk_.FailNth(Op::kWrite, 1, {absl::StatusCode::kResourceExhausted});
  EXPECT_EQ(a.Do("INSERT INTO t(x) VALUES (1)"), SQLITE_FULL);
  disk_.FailNth(Op::kWrite, 1, {absl::StatusCode::kDataLoss});
  EXPECT_EQ(a.Do("INSERT INTO t(x) VALUES (1)"), SQLITE_IOERR);
  disk_.FailNth(Op::kSync, 1, {});
  EXPECT_EQ(a.Do("INSERT INTO t(x) VALUES (1)"), SQLITE_IOERR);
  EXPECT_EQ(a.Do("INSERT INTO t(x) VALUES (1)"), SQLITE_OK);
}

// Power fails after each change in turn: committed rows are there, and at most the commit in progress besides.
TEST_F(DiskVfsTest, CommittedRowsSurviveEveryCrash) {
  bool reached_end = false;
  for (uint64_t n = 1; !reached_end; ++n) {
    SimDisk disk(n);
    disk.AddFolder("/s");
    SeededRng rng(n);
    auto vfs = *DiskVfs::Register(disk, clock_, rng);
    int64_t committed = 0;
    {
      Connection a(*vfs, "/s/db");
      disk.PowerOffAfter(n);
      Set(a);
      a.Do("PRAGMA wal_autocheckpoint=4");
      for (int i = 1; i <= 12; ++i) {
        if (a.Do("INSERT INTO t(x, pad) VALUES (" + std::to_string(i) + ", randomblob(5000))") == SQLITE_OK) {
          committed = i;
        }
      }
      reached_end = !disk.is_off();
      disk.PowerOffAfter(0);
    }
    disk.Crash(rng);
    Connection b(*vfs, "/s/db");
    ASSERT_EQ(Set(b), SQLITE_OK) << "after change " << n;
    const int64_t found = b.Get("SELECT count(*) FROM t");
    EXPECT_TRUE(found == committed || found == committed + 1) << found << " of " << committed << " after change " << n;
    EXPECT_EQ(b.Text("PRAGMA integrity_check"), "ok") << "after change " << n;
  }
}

// The check above can fail: a disk whose syncs lie loses rows.
TEST_F(DiskVfsTest, LyingSyncsAreSeen) {
  int lost = 0;
  for (uint64_t seed = 1; seed <= 10; ++seed) {
    SimDisk disk(seed);
    disk.AddFolder("/s");
    SeededRng rng(seed);
    auto vfs = *DiskVfs::Register(disk, clock_, rng);
    {
      Connection a(*vfs, "/s/db");
      ASSERT_EQ(Set(a), SQLITE_OK);
      disk.SetSyncLies(true);
      ASSERT_EQ(a.Do("INSERT INTO t(x) VALUES (1)"), SQLITE_OK);
      disk.PowerOffAfter(0);
    }
    disk.Crash(rng, SimDisk::Keep::kNothing);
    Connection b(*vfs, "/s/db");
    lost += b.Get("SELECT count(*) FROM t") == 1 ? 0 : 1;
  }
  EXPECT_EQ(lost, 10);
}

// The same seed gives the same bytes, including the salts of the WAL, and the caller provides the time.
TEST_F(DiskVfsTest, Replays) {
  auto run = [&] {
    SimDisk disk(3);
    disk.AddFolder("/s");
    SeededRng rng(3);
    auto vfs = *DiskVfs::Register(disk, clock_, rng);
    Connection a(*vfs, "/s/db");
    Set(a);
    a.Do("INSERT INTO t(x, pad) VALUES (1, randomblob(100))");
    auto wal = *disk.Open("/s/db-wal", Disk::Mode::kRead);
    std::vector<uint8_t> bytes(*wal->Size());
    EXPECT_EQ(*wal->ReadAt(0, bytes), bytes.size());
    EXPECT_FALSE(bytes.empty());
    EXPECT_EQ(a.Get("SELECT unixepoch('now')"), clock_.WallNs() / 1'000'000'000);
    return bytes;
  };
  EXPECT_EQ(run(), run());
}

}  // namespace
}  // namespace hpvm::server
