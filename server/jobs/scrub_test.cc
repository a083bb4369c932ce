// SPDX-License-Identifier: Apache-2.0
// Tests which damage on disk the scrub finds, what is no damage, and the rate at which its thread reads.
#include "server/jobs/scrub.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sqlite3.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <mutex>
#include <thread>

#include "server/jobs/job_store.h"
#include "server/jobs/sqlite/sqlite_job_database.h"
#include "server/jobs/testing/job_writes.h"
#include "server/jobs/testing/temporary_folder.h"
#include "server/process/log.h"

namespace hpvm::server {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Pair;
using testing::SizeIs;
using testing::UnorderedElementsAre;

constexpr int64_t kNow = 1'700'000'000'000'000'000;

class ScrubTest : public testing::Test {
 protected:
  static void SetUpTestSuite() { StartLog("fatal"); }

  ScrubTest() {
    SqliteJobDatabaseOptions options;
    options.path = folder_.path() + "/jobs.db";
    database_ = *OpenSqliteJobDatabase(options);
    EXPECT_TRUE(RealDisk().MakeFolder(folder_.path() + "/blobs").ok());
    blobs_ = std::make_unique<BlobFolder>(RealDisk(), folder_.path() + "/blobs");
  }

  void Commit(std::vector<JobWrite> writes) {
    std::vector<WriteResult> results;
    ASSERT_TRUE(database_->Commit(writes, &results).ok());
    for (const WriteResult& result : results) {
      ASSERT_TRUE(result.status.ok()) << result.status;
    }
  }
  PinnedBlob Put(const std::string& bytes) {
    BlobSource source;
    source.bytes = {reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()};
    return *blobs_->Put("blue", source);
  }
  // Inserts jobs of "blue" that have ended, have results, and need these blobs.
  void Insert(const std::string& id, const std::vector<PinnedBlob>& blobs, size_t elements = 1) {
    InsertJobs insert = MakeInsert("blue", id, "", kNow);
    insert.jobs.front().clear_blobs();
    for (const PinnedBlob& blob : blobs) {
      internal::StoredBlob& named = *insert.jobs.front().add_blobs();
      named.set_sha256(blob.hash.bytes.data(), blob.hash.bytes.size());
      named.set_size_bytes(blob.size_bytes);
    }
    for (size_t i = 1; i < elements; ++i) {
      insert.jobs.push_back(insert.jobs.front());
      insert.jobs.back().mutable_job()->set_id(id + std::to_string(i));
    }
    for (StoredJob& job : insert.jobs) {
      job.mutable_job()->set_array_id(elements > 1 ? "array-" + id : "");
    }
    Commit({insert});
    for (const StoredJob& job : insert.jobs) {
      ChangeJob end = MakeChange(job, v1::JOB_STATE_SUCCEEDED);
      end.results.emplace().add_outputs()->set_data("output of " + job.job().id());
      Commit({end});
    }
  }
  void Execute(const std::string& sql) {
    sqlite3* db = nullptr;
    ASSERT_EQ(sqlite3_open((folder_.path() + "/jobs.db").c_str(), &db), SQLITE_OK);
    EXPECT_EQ(sqlite3_exec(db, sql.c_str(), nullptr, nullptr, nullptr), SQLITE_OK) << sqlite3_errmsg(db);
    sqlite3_close(db);
  }
  std::string PathOf(const PinnedBlob& blob) const {
    const std::string hex = ToHex(blob.hash);
    return folder_.path() + "/blobs/blue/" + hex.substr(0, 2) + "/" + hex;
  }
  static void FlipAt(const std::string& path, std::streamoff at) {
    std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
    file.seekg(at);
    const char byte = static_cast<char>(file.get() ^ 4);
    file.seekp(at);
    file.put(byte);
  }

  // Reads everything, in slices. Returns jobs with what is reported of them.
  std::map<std::string, std::string> ReadAll(uint64_t slice, const std::function<void()>& between = nullptr) {
    std::map<std::string, std::string> told;
    Scrub scrub(*database_, *blobs_, [&](const JobDamage& damage) {
      EXPECT_EQ(damage.tenant, "blue");
      EXPECT_TRUE(absl::IsDataLoss(damage.what));
      EXPECT_TRUE(told.emplace(damage.id, Message(damage.what)).second) << "told twice";
    });
    for (int pass = 0; pass < 2; ++pass) {
      while (true) {
        const StatusOr<uint64_t> got = scrub.Step(slice);
        EXPECT_TRUE(got.ok()) << got.status();
        if (!got.ok() || *got == 0) {
          break;
        }
        if (between != nullptr) {
          between();
        }
      }
    }
    EXPECT_EQ(scrub.damaged_jobs(), told.size());
    return told;
  }

  const TemporaryFolder folder_;
  std::unique_ptr<JobDatabase> database_;
  std::unique_ptr<BlobFolder> blobs_;
};

// Each kind of damage is reported once for the jobs concerned, and for no others, with any size of slices.
TEST_F(ScrubTest, FindsDamage) {
  const PinnedBlob shared = Put("shared by two"), large = Put(std::string(300'000, 'L')), gone = Put("gone");
  Insert("sound", {large});
  Insert("record", {});
  Insert("request", {});
  Insert("results", {});
  Insert("array", {}, 3);
  Insert("shares", {shared});
  Insert("also", {shared, large});
  Insert("misses", {gone});
  Insert("last", {large});
  EXPECT_THAT(ReadAll(1'000), IsEmpty());
  Execute(
      "UPDATE jobs SET record = zeroblob(length(record)) WHERE id = 'record';"
      "UPDATE requests SET bytes = bytes || 'x' WHERE sequence = (SELECT sequence FROM jobs WHERE id = 'request');"
      "DELETE FROM requests WHERE sequence = (SELECT sequence FROM jobs WHERE id = 'array');"
      "UPDATE results SET sum = sum + 1 WHERE sequence = (SELECT sequence FROM jobs WHERE id = 'results');");
  FlipAt(PathOf(shared), 3);
  std::filesystem::remove(PathOf(gone));
  for (const uint64_t slice : {1, 700, 1'000'000}) {
    SCOPED_TRACE(slice);
    const std::map<std::string, std::string> told = ReadAll(slice);
    EXPECT_THAT(told,
                UnorderedElementsAre(Pair("record", HasSubstr("record of job \"record\" is damaged")),
                                     Pair("request", HasSubstr("request of job \"request\" is damaged")),
                                     Pair("results", HasSubstr("results of job \"results\" is damaged")),
                                     Pair("array", HasSubstr("request")), Pair("array1", HasSubstr("request")),
                                     Pair("array2", HasSubstr("request")),
                                     Pair("shares", HasSubstr("which the job needs, is damaged")),
                                     Pair("also", HasSubstr("is damaged")), Pair("misses", HasSubstr("is damaged"))));
  }
  FlipAt(PathOf(large), 299'999);
  EXPECT_THAT(ReadAll(100'000), SizeIs(11));  // And those of the large one, at its last byte.
}

// Jobs that are dropped while their rows or files are read are no damage.
TEST_F(ScrubTest, DropsAreNoDamage) {
  constexpr int kJobs = 60;
  std::vector<PinnedBlob> blobs;
  for (int i = 0; i < kJobs; ++i) {
    blobs.push_back(Put("blob " + std::to_string(i) + std::string(2'000, 'b')));
    Insert("job-" + std::to_string(i), {blobs.back()});
  }
  int steps = 0, dropped = 0;
  const auto drop_one = [&] {
    if (++steps % 2 == 0 && dropped < kJobs) {
      Commit({DropJob{"blue", "job-" + std::to_string(dropped), dropped % 2 == 0}});
      std::filesystem::remove(PathOf(blobs[static_cast<size_t>(dropped++)]));
    }
  };
  EXPECT_THAT(ReadAll(500, drop_one), IsEmpty());
  EXPECT_GT(dropped, kJobs / 2);
}

// The store's own scrub finds damage by itself while the store is used, reports it, and reads no faster than allowed.
TEST_F(ScrubTest, RunsAtItsRate) {
  const PinnedBlob bad = Put(std::string(100'000, 'B'));
  Insert("bad", {bad});
  Insert("good", {Put(std::string(300'000, 'G'))});
  FlipAt(PathOf(bad), 50'000);
  blobs_.reset();
  database_.reset();
  std::mutex mutex;
  std::vector<std::string> told;
  ScrubOptions scrub{.bytes_per_second = 2'000'000, .every = std::chrono::milliseconds(1)};
  const Time start = RealClock().Now();
  auto store = OpenLocalJobStore(folder_.path(), nullptr, nullptr, nullptr, scrub);
  ASSERT_TRUE(store.ok()) << store.status();
  (*store)->SetOnDamage([&](const JobDamage& damage) {
    std::lock_guard lock(mutex);
    told.push_back(damage.id);
  });
  while ((*store)->Health().scrub_passes < 3) {
    ASSERT_LT(RealClock().Now() - start, std::chrono::seconds(60));
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  const JobStoreHealth health = (*store)->Health();
  const double seconds = static_cast<double>((RealClock().Now() - start).count()) / 1e9;
  EXPECT_LT(static_cast<double>(health.scrubbed_bytes), 2'000'000 * seconds + 300'000);
  EXPECT_GE(health.scrubbed_bytes, 3u * 400'000);
  EXPECT_EQ(health.damaged_jobs, 1u);
  (*store)->SetOnDamage(nullptr);
  EXPECT_THAT(told, ElementsAre("bad"));
}

}  // namespace
}  // namespace hpvm::server
