// SPDX-License-Identifier: Apache-2.0
// Compares the database on disk with the model in memory: random writes and reads must have the same answers.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "server/jobs/sqlite/sqlite_job_database.h"
#include "server/jobs/sqlite/sqlite_reader.h"
#include "server/jobs/testing/disk_vfs.h"
#include "server/jobs/testing/job_writes.h"
#include "server/jobs/testing/memory_job_database.h"
#include "server/jobs/testing/temporary_folder.h"
#include "server/testing/sim_disk.h"

namespace hpvm::server {
namespace {

template <typename Message>
std::string TextOf(const StatusOr<Message>& message) {
  return message.ok() ? message->DebugString() : message.status().ToString();
}

std::string TextOf(const StatusOr<std::vector<StoredJob>>& jobs) {
  std::string text = jobs.status().ToString();
  for (const StoredJob& job : jobs.ok() ? *jobs : std::vector<StoredJob>()) {
    text += "\n" + job.DebugString();
  }
  return text;
}

std::string TextOf(const StatusOr<KeyRecord>& key) {
  return key.ok()
             ? key->job_id + " " + ToHex(key->request_hash) + " " + std::to_string(key->state) + " " + key->array_id
             : key.status().ToString();
}

std::string TextOf(const WriteResult& result) {
  std::string text = result.status.ToString();
  text += result.known.has_value() ? " known " + TextOf(StatusOr<KeyRecord>(*result.known)) : "";
  for (const uint64_t sequence : result.sequences) {
    text += " " + std::to_string(sequence);
  }
  for (const Sha256& hash : result.unused_blobs) {
    text += " unused " + ToHex(hash);
  }
  return text + " " + std::to_string(result.stored_bytes_change);
}

std::string TextOfAll(JobDatabase& database, std::string_view tenant) {
  std::string text;
  const auto finished = database.ListFinished(tenant, 1'000);
  text += finished.status().ToString();
  for (const FinishedJob& job : *finished) {
    text += "\nfinished " + job.tenant + " " + job.id + " " + std::to_string(job.ended_unix_ns) + " " +
            std::to_string(job.stored_bytes) + (job.dropped ? " dropped" : "");
  }
  const auto undropped = database.ListFinished(tenant, 7, false);
  for (const FinishedJob& job : *undropped) {
    text += "\nundropped " + job.tenant + " " + job.id;
  }
  const auto uses = database.Use();
  for (const auto& [name, use] : *uses) {
    text += "\nuse " + name + " " + std::to_string(use.jobs) + " " + std::to_string(use.live) + " " +
            std::to_string(use.stored_bytes) + " " + std::to_string(use.finished_bytes);
  }
  std::vector<DamagedJob> damaged;
  EXPECT_TRUE(
      database
          .LoadLive(
              [&](const LiveRow& row) { text += "\nlive " + row.job.DebugString() + (row.shares ? " shares" : ""); },
              &damaged)
          .ok());
  EXPECT_THAT(damaged, testing::IsEmpty());
  EXPECT_TRUE(
      database.ListBlobs([&](const BlobUse& blob) { text += "\nblob " + blob.tenant + " " + ToHex(blob.hash); }).ok());
  return text;
}

JobFilter AnyFilter(JobWriteGenerator& generator) {
  Rng& rng = generator.rng();
  JobFilter filter;
  filter.before_sequence = rng.Below(2) == 0 ? UINT64_MAX : rng.Below(300);
  filter.count_max = 1 + rng.Below(20);
  if (rng.Below(3) == 0) {
    filter.states = {v1::JOB_STATE_ACCEPTED, v1::JOB_STATE_DEAD};
  }
  if (rng.Below(3) == 0) {
    filter.labels["parity"] = "odd";
  }
  if (rng.Below(3) == 0) {
    filter.array_id = "array-" + std::to_string(rng.Below(100));
  }
  return filter;
}

// Lists the same jobs in steps that visit few rows each.
StatusOr<std::vector<StoredJob>> ListInSteps(Rng& rng, JobDatabase& database, const std::string& tenant,
                                             JobFilter filter) {
  std::vector<StoredJob> jobs;
  const size_t wanted = filter.count_max;
  while (jobs.size() < wanted && filter.before_sequence > 0) {
    filter.count_max = wanted - jobs.size();
    filter.rows_max = 1 + rng.Below(9);
    HPVMD_ASSIGN_OR_RETURN(const std::vector<StoredJob> some, database.ListSome(tenant, &filter));
    jobs.insert(jobs.end(), some.begin(), some.end());
  }
  return jobs;
}

// `staged` rows of an array are written ahead: the blobs that they need count as used already.
void CompareReads(JobWriteGenerator& generator, JobDatabase& model, JobDatabase& database, size_t staged = 0) {
  for (int i = 0; i < 5; ++i) {
    const std::string& tenant = generator.Tenants()[generator.rng().Below(generator.Tenants().size())];
    const std::string id = generator.AnyId(), key = generator.AnyKey();
    const JobFilter filter = AnyFilter(generator);
    const Sha256 hash = BlobHash(generator.rng().Below(14));
    ASSERT_EQ(TextOf(database.Find(tenant, id)), TextOf(model.Find(tenant, id)));
    ASSERT_EQ(TextOf(database.FindKey(tenant, key)), TextOf(model.FindKey(tenant, key)));
    ASSERT_EQ(TextOf(database.ReadRequest(tenant, id)), TextOf(model.ReadRequest(tenant, id)));
    ASSERT_EQ(TextOf(database.ReadResults(tenant, id)), TextOf(model.ReadResults(tenant, id)));
    const std::string listed = TextOf(model.List(tenant, filter));
    ASSERT_EQ(TextOf(database.List(tenant, filter)), listed);
    ASSERT_EQ(TextOf(ListInSteps(generator.rng(), database, tenant, filter)), listed);
    ASSERT_EQ(TextOf(ListInSteps(generator.rng(), model, tenant, filter)), listed);
    if (const bool is_used = *database.UsesBlob(tenant, hash); !is_used || staged == 0) {
      ASSERT_EQ(is_used, *model.UsesBlob(tenant, hash));
    }
  }
}

// Writes some rows of an array ahead, and takes some back, or all by a start. Later numbers do not show it.
void StageSome(Rng& rng, const SqliteJobDatabaseOptions& options, std::unique_ptr<JobDatabase>* database,
               InsertJobs* insert) {
  for (uint64_t steps = rng.Below(6); steps > 0; --steps) {
    const uint64_t kind = rng.Below(12);
    if (kind < 8) {
      ASSERT_EQ((*database)->Stage(insert, 1 + rng.Below(2)), absl::OkStatus());
      ASSERT_LT(insert->staged.rows, insert->jobs.size());
    } else if (kind < 11 && insert->staged.rows > 0) {
      const size_t before = insert->staged.rows;
      ASSERT_EQ((*database)->Unstage(insert, 1 + rng.Below(2)).status(), absl::OkStatus());
      ASSERT_LT(insert->staged.rows, before);
    } else if (kind == 11 && !options.in_memory) {
      database->reset();
      auto opened = OpenSqliteJobDatabase(options);
      ASSERT_TRUE(opened.ok()) << opened.status();
      *database = *std::move(opened);
      insert->staged = {};
    }
    for (const StoredJob& job : insert->jobs) {
      // Another job may have its id; then Commit refuses the array.
      const StatusOr<StoredJob> found = (*database)->Find(job.tenant(), job.job().id());
      EXPECT_TRUE(!found.ok() || found->job().array_id() != job.job().array_id());
    }
    ASSERT_THAT(*(*database)->Check(), testing::IsEmpty());
  }
}

// For batches of one seed, results, every read, use and blobs agree, also after a file was opened anew, and the
// database's own check finds nothing.
void CompareDatabases(uint64_t seed, int batches, const SqliteJobDatabaseOptions& options) {
  SCOPED_TRACE("seed " + std::to_string(seed));
  auto database = OpenSqliteJobDatabase(options);
  ASSERT_TRUE(database.ok()) << database.status();
  MemoryJobDatabase model;
  JobWriteGenerator generator(seed);
  for (int batch = 0; batch < batches; ++batch) {
    std::vector<JobWrite> writes;
    for (uint64_t i = generator.rng().Below(6); i > 0; --i) {
      writes.push_back(generator.Next(model));
    }
    std::vector<WriteResult> results, wanted;
    auto* array = writes.empty() ? nullptr : std::get_if<InsertJobs>(&writes.front());
    if (array != nullptr && array->jobs.size() > 1) {
      ASSERT_NO_FATAL_FAILURE(StageSome(generator.rng(), options, &*database, array));
      ASSERT_NO_FATAL_FAILURE(CompareReads(generator, model, **database, array->staged.rows));
    }
    ASSERT_TRUE((*database)->Commit(writes, &results).ok());
    ASSERT_TRUE(model.Commit(writes, &wanted).ok());
    ASSERT_EQ(results.size(), wanted.size());
    for (size_t i = 0; i < results.size(); ++i) {
      ASSERT_EQ(TextOf(results[i]), TextOf(wanted[i])) << "write " << i << " of batch " << batch;
    }
    ASSERT_NO_FATAL_FAILURE(CompareReads(generator, model, **database));
    if (generator.rng().Below(30) == 0 && !options.in_memory) {
      database->reset();
      database = OpenSqliteJobDatabase(options);
      ASSERT_TRUE(database.ok()) << database.status();
      ASSERT_EQ(*(*database)->NextLease(), *model.NextLease());
    }
  }
  for (const char* tenant : {"", "blue", "green", "red", "stranger"}) {
    EXPECT_EQ(TextOfAll(**database, tenant), TextOfAll(model, tenant));
  }
  EXPECT_THAT(*(*database)->Check(), testing::IsEmpty());
}

// HastyClock advances by `step` with each look.
class HastyClock final : public Clock {
 public:
  explicit HastyClock(Duration step) : step_(step) {}
  Time Now() const override { return step_ * ++looks_; }
  int64_t WallNs() const override { return 0; }

 private:
  const Duration step_;
  mutable std::atomic<int64_t> looks_{0};
};

// Runs many seeds on a disk in memory; reads release their snapshot after each row, after a few, or never.
TEST(JobDatabaseModelTest, SqliteAnswersAsMemoryDoes) {
  for (uint64_t seed = 1; seed <= 25; ++seed) {
    ManualClock clock;
    SeededRng rng(seed);
    SimDisk disk(seed);
    disk.AddFolder("/s");
    const auto vfs = *DiskVfs::Register(disk, clock, rng);
    SqliteJobDatabaseOptions options;
    options.path = "/s/jobs.db";
    options.vfs = vfs->name();
    options.disk = &disk;
    options.log_pages_max = 50;
    const HastyClock hasty(SqliteReader::kSnapshotMax / static_cast<int64_t>(seed % 5 + 1));
    options.clock = seed % 6 == 0 ? nullptr : &hasty;
    CompareDatabases(seed, 150, options);
    if (HasFailure()) {
      return;
    }
  }
}

// Runs on the machine's disk, as the daemon opens it.
TEST(JobDatabaseModelTest, OnTheRealDisk) {
  const TemporaryFolder folder;
  SqliteJobDatabaseOptions options;
  options.path = folder.path() + "/jobs.db";
  options.check_ms_max = 250;
  CompareDatabases(1'000, 60, options);
}

// Runs without a disk, as a daemon with jobs.store = "memory" opens it; the next one begins empty.
TEST(JobDatabaseModelTest, InMemory) {
  SqliteJobDatabaseOptions options;
  options.path = "/nowhere/jobs.db";
  options.in_memory = true;
  for (const uint64_t seed : {2'000, 2'001}) {
    CompareDatabases(seed, 150, options);
  }
}

// Reads of many threads and commits wait for each other, and no commit is refused because of that.
TEST(JobDatabaseModelTest, InMemoryBesideReaders) {
  SqliteJobDatabaseOptions options;
  options.path = "/nowhere/jobs.db";
  options.in_memory = true;
  auto database = OpenSqliteJobDatabase(options);
  ASSERT_TRUE(database.ok()) << database.status();
  MemoryJobDatabase model;
  JobWriteGenerator generator(1);
  std::atomic<bool> stop{false};
  std::atomic<int> reads{0};
  std::vector<std::thread> readers;
  for (int i = 0; i < 3; ++i) {
    readers.emplace_back([&] {
      while (!stop) {
        EXPECT_TRUE((*database)->Use().ok());
        EXPECT_TRUE((*database)->ListFinished("", 10, true).ok());
        ++reads;
      }
    });
  }
  for (int batch = 0; batch < 300 || reads < 300; ++batch) {
    const std::vector<JobWrite> writes = {generator.Next(model)};
    std::vector<WriteResult> results;
    ASSERT_EQ((*database)->Commit(writes, &results), absl::OkStatus());
    ASSERT_EQ(model.Commit(writes, &results), absl::OkStatus());
  }
  stop = true;
  for (std::thread& reader : readers) {
    reader.join();
  }
  EXPECT_THAT(*(*database)->Check(), testing::IsEmpty());
}

}  // namespace
}  // namespace hpvm::server
