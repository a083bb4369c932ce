// SPDX-License-Identifier: Apache-2.0
// Tests the rules of group commit and of a store that fails, by hand; then the store with its threads.
#include "server/jobs/commit_queue.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <future>
#include <numeric>
#include <thread>

#include "base/failpoint.h"
#include "server/events/events.h"
#include "server/jobs/sqlite/sqlite_job_database.h"
#include "server/jobs/stored_request.h"
#include "server/jobs/testing/job_writes.h"
#include "server/jobs/testing/memory_job_database.h"
#include "server/jobs/testing/temporary_folder.h"
#include "server/testing/sim_disk.h"

namespace hpvm::server {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr int64_t kNow = 1'700'000'000'000'000'000;

class CountingObserver final : public Observer {
 public:
  void On(const Event& event) override { Dispatch(*this, event); }
  void Take(const events::Committed& event) {
    commits.push_back(std::to_string(event.writes) + (event.status.ok() ? "" : " failed"));
  }
  std::vector<std::string> commits;
};

class CommitQueueTest : public testing::Test {
 protected:
  CommitQueueTest()
      : database_({.before_commit = [this](std::span<const JobWrite>) { return next_commit_; }, .after_commit = {}}),
        queue_(std::make_unique<CommitQueue>(
            CommitQueueOptions{.database = &database_,
                               .blobs = nullptr,
                               .clock = &clock_,
                               .observer = &observer_,
                               .group_max = 4,
                               .on_broken = [this](const Status& status) { broken_.push_back(Message(status)); }})) {}

  // Answers are recorded as "a ok" or "b RESOURCE_EXHAUSTED", in the order in which they are given.
  void Insert(const std::string& id) { Add(id, MakeInsert("blue", id, "", kNow)); }
  void Change(const std::string& id, v1::JobState state) { Add(id, MakeChange(*database_.Find("blue", id), state)); }
  void Add(const std::string& name, JobWrite write) {
    queue_->Add(std::move(write), [this, name](const WriteResult& result) {
      answers_.push_back(name + (result.status.ok() ? "" : " " + absl::StatusCodeToString(result.status.code())));
    });
  }
  std::vector<std::string> Commit() {
    answers_.clear();
    for (const CommitAnswer& answer : queue_->CommitSome()) {
      answer.Give();
    }
    return answers_;
  }

  ManualClock clock_;
  CountingObserver observer_;
  Status next_commit_;
  std::vector<std::string> broken_, answers_;
  MemoryJobDatabase database_;
  std::unique_ptr<CommitQueue> queue_;
};

// Answers come in the order of the writes, group_max at a time, and none before its commit.
TEST_F(CommitQueueTest, GroupsInOrder) {
  EXPECT_EQ(queue_->NextTime(), kNever);
  for (const char* id : {"a", "b", "c", "d", "e"}) {
    Insert(id);
  }
  EXPECT_THAT(answers_, IsEmpty());
  EXPECT_LE(queue_->NextTime(), clock_.Now());
  EXPECT_EQ(queue_->Health().pending_writes, 5u);
  EXPECT_THAT(Commit(), ElementsAre("a", "b", "c", "d"));
  EXPECT_THAT(Commit(), ElementsAre("e"));
  EXPECT_THAT(Commit(), IsEmpty());
  EXPECT_THAT(observer_.commits, ElementsAre("4", "1"));
}

// A tenant with one write is in the next commit, however many another has; each tenant's writes keep their order.
TEST_F(CommitQueueTest, TenantsTakeTurns) {
  for (const char* id : {"a", "b", "c", "d", "e", "f"}) {
    Insert(id);
  }
  Add("red 1", MakeInsert("red", "r1", "", kNow));
  Add("red 2", MakeInsert("red", "r2", "", kNow));
  Add("white", MakeInsert("white", "w", "", kNow));
  EXPECT_THAT(Commit(), ElementsAre("a", "red 1", "white", "b"));
  Add("white 2", MakeInsert("white", "w2", "", kNow));
  EXPECT_THAT(Commit(), ElementsAre("red 2", "white 2", "c", "d"));
  EXPECT_THAT(Commit(), ElementsAre("e", "f"));
  EXPECT_EQ(queue_->size(), 0u);
  EXPECT_EQ(queue_->NextTime(), kNever);
}

// An array counts by its rows, and is committed by itself when it has more rows than a group may.
TEST_F(CommitQueueTest, RowsCount) {
  InsertJobs array = MakeInsert("blue", "big", "", kNow);
  for (int i = 0; i < 5; ++i) {
    array.jobs.push_back(array.jobs.front());
    array.jobs.back().mutable_job()->set_id("big" + std::to_string(i));
  }
  Insert("a");
  Add("array", array);
  Insert("b");
  Insert("c");
  EXPECT_THAT(Commit(), ElementsAre("a"));
  Commit();
  ASSERT_EQ(answers_.size(), 1u);
  EXPECT_THAT(answers_[0], HasSubstr("array"));
  EXPECT_THAT(Commit(), ElementsAre("b", "c"));
}

class ArrayQueueTest : public CommitQueueTest {
 protected:
  void SetUp() override {
    SqliteJobDatabaseOptions options;
    options.path = "/nowhere/jobs.db";
    options.in_memory = true;
    auto opened = OpenSqliteJobDatabase(options);
    ASSERT_TRUE(opened.ok()) << opened.status();
    rows_ = *std::move(opened);
    queue_ = std::make_unique<CommitQueue>(CommitQueueOptions{
        .database = rows_.get(), .clock = &clock_, .group_max = 4, .stage_rows = 3, .on_broken = nullptr});
  }
  // Returns an array of ten elements.
  static InsertJobs MakeArray() {
    InsertJobs array = MakeInsert("blue", "0", "key", kNow);
    for (int i = 1; i < 10; ++i) {
      array.jobs.push_back(array.jobs.front());
      array.jobs.back().mutable_job()->set_id(std::to_string(i));
    }
    for (StoredJob& job : array.jobs) {
      job.mutable_job()->set_array_id("array");
    }
    return array;
  }
  // No read shows the array.
  void ExpectNoArray() {
    EXPECT_TRUE(absl::IsNotFound(rows_->Find("blue", "0").status()));
    EXPECT_TRUE(absl::IsNotFound(rows_->ReadRequest("blue", "0").status()));
    EXPECT_TRUE(absl::IsNotFound(rows_->FindKey("blue", "key").status()));
    EXPECT_THAT(*rows_->List("blue", {}), IsEmpty());
    EXPECT_EQ(rows_->Use()->count("blue"), 0u);
    EXPECT_THAT(*rows_->ListKeyless(), IsEmpty());
    EXPECT_THAT(rows_->Scrub(0, 1 << 20)->keyless, IsEmpty());
    EXPECT_THAT(rows_->Scrub(0, 1 << 20)->damage, IsEmpty());
    EXPECT_THAT(*rows_->Check(), IsEmpty());
  }

  std::unique_ptr<JobDatabase> rows_;
};

// A large array is written a few rows at a time, and after each step other writes have their turn; it appears
// completely or not at all.
TEST_F(ArrayQueueTest, NobodyWaitsForAnArray) {
  Add("array", MakeArray());
  Add("behind", MakeInsert("blue", "behind", "", kNow));
  Add("red", MakeInsert("red", "r", "", kNow));
  EXPECT_THAT(Commit(), IsEmpty());
  EXPECT_THAT(Commit(), ElementsAre("red"));
  ExpectNoArray();
  Add("red 2", MakeInsert("red", "r2", "", kNow));
  EXPECT_THAT(Commit(), IsEmpty());
  EXPECT_THAT(Commit(), ElementsAre("red 2"));
  ExpectNoArray();
  EXPECT_THAT(Commit(), IsEmpty());
  ExpectNoArray();
  EXPECT_THAT(Commit(), ElementsAre("array", "behind"));
  EXPECT_EQ(queue_->NextTime(), kNever);
  JobFilter filter;
  filter.array_id = "array";
  const StatusOr<std::vector<StoredJob>> jobs = rows_->List("blue", filter);
  ASSERT_EQ(jobs->size(), 10u);
  EXPECT_EQ(jobs->front().sequence() - jobs->back().sequence(), 9u);
  EXPECT_EQ(rows_->Use()->at("blue").live, 11u);
  EXPECT_TRUE(rows_->ReadRequest("blue", "9").ok());
  EXPECT_THAT(*rows_->Check(), IsEmpty());
}

// When the disk has no room for the rest of an array, the array is refused, and its rows so far are removed.
TEST_F(ArrayQueueTest, HalfAnArrayIsRemoved) {
  ASSERT_TRUE(SetFailpoints("store.stage.before=error(resource_exhausted)@3").ok());
  Add("array", MakeArray());
  Commit();
  Commit();
  Commit();
  Commit();
  EXPECT_TRUE(*rows_->UsesBlob("blue", BlobHash(0)));
  EXPECT_THAT(Commit(), ElementsAre("array RESOURCE_EXHAUSTED"));
  ASSERT_TRUE(SetFailpoints("").ok());
  for (int i = 0; i < 20 && queue_->NextTime() != kNever; ++i) {
    clock_.Advance(std::chrono::seconds(1));
    Commit();
    ExpectNoArray();
  }
  EXPECT_EQ(queue_->NextTime(), kNever);
  EXPECT_FALSE(*rows_->UsesBlob("blue", BlobHash(0)));
  Add("array", MakeArray());
  for (int i = 0; i < 20 && answers_.empty(); ++i) {
    Commit();
  }
  EXPECT_THAT(answers_, ElementsAre("array"));
  EXPECT_EQ(rows_->List("blue", {})->size(), 10u);
}

// On a disk without room, inserts are refused until there is room; the end of a job waits and is tried again every
// second. Once it succeeds, everything does.
TEST_F(CommitQueueTest, FullDiskKeepsEndsAndRefusesInserts) {
  Insert("a");
  Insert("b");
  Commit();
  next_commit_ = ResourceExhausted("No room.");
  Insert("c");
  Change("a", v1::JOB_STATE_CANCELLED);
  Insert("d");
  EXPECT_THAT(Commit(), ElementsAre("c RESOURCE_EXHAUSTED", "d RESOURCE_EXHAUSTED"));
  EXPECT_FALSE(queue_->Health().accepts_writes);
  EXPECT_TRUE(queue_->Health().is_transient);
  EXPECT_THAT(queue_->Health().reason, HasSubstr("No room."));
  // The remaining writes may fit: they are tried at once, then every second.
  EXPECT_LE(queue_->NextTime(), clock_.Now());
  EXPECT_THAT(Commit(), IsEmpty());
  EXPECT_EQ(queue_->NextTime(), clock_.Now() + std::chrono::seconds(1));
  Insert("e");
  Change("b", v1::JOB_STATE_CANCELLED);
  EXPECT_LE(queue_->NextTime(), clock_.Now());
  EXPECT_THAT(Commit(), ElementsAre("e RESOURCE_EXHAUSTED"));
  const size_t tried = observer_.commits.size();
  EXPECT_THAT(Commit(), IsEmpty());
  EXPECT_EQ(observer_.commits.size(), tried);  // Not before its time.
  clock_.Advance(std::chrono::seconds(1));
  EXPECT_THAT(Commit(), IsEmpty());
  EXPECT_EQ(observer_.commits.back(), "2 failed");
  next_commit_ = absl::OkStatus();
  clock_.Advance(std::chrono::seconds(1));
  EXPECT_THAT(Commit(), ElementsAre("a", "b"));
  EXPECT_TRUE(queue_->Health().accepts_writes);
  Insert("f");
  EXPECT_THAT(Commit(), ElementsAre("f"));
  EXPECT_THAT(broken_, IsEmpty());
}

// When no write has to be tried again, an empty commit finds out that there is room.
TEST_F(CommitQueueTest, FullDiskIsProbed) {
  next_commit_ = ResourceExhausted("No room.");
  Insert("a");
  EXPECT_THAT(Commit(), ElementsAre("a RESOURCE_EXHAUSTED"));
  EXPECT_EQ(queue_->NextTime(), clock_.Now() + std::chrono::seconds(1));
  clock_.Advance(std::chrono::seconds(1));
  Commit();
  EXPECT_FALSE(queue_->Health().accepts_writes);
  next_commit_ = absl::OkStatus();
  clock_.Advance(std::chrono::seconds(1));
  Commit();
  EXPECT_TRUE(queue_->Health().accepts_writes);
  EXPECT_EQ(queue_->NextTime(), kNever);
}

// After a commit whose outcome is unknown, nothing is acknowledged any more, whatever the disk does, and it is
// reported once.
TEST_F(CommitQueueTest, BrokenForGood) {
  next_commit_ = DataLoss("A sync failed.");
  Insert("a");
  EXPECT_THAT(Commit(), ElementsAre("a DATA_LOSS"));
  next_commit_ = absl::OkStatus();
  database_.Reopen();
  Insert("b");
  EXPECT_THAT(Commit(), ElementsAre("b DATA_LOSS"));
  EXPECT_TRUE(absl::IsNotFound(database_.Find("blue", "b").status()));
  EXPECT_THAT(broken_, ElementsAre("A sync failed."));
  EXPECT_FALSE(queue_->Health().is_transient);
  queue_->Break(DataLoss("Another."));
  EXPECT_EQ(broken_.size(), 1u);
}

// An error that no disk causes breaks the store, too.
TEST_F(CommitQueueTest, UnknownErrorsBreakToo) {
  next_commit_ = Internal("What?");
  Insert("a");
  EXPECT_THAT(Commit(), ElementsAre("a DATA_LOSS"));
  EXPECT_EQ(broken_.size(), 1u);
}

// A write that mismatches is refused alone.
TEST_F(CommitQueueTest, MismatchIsItsOwn) {
  Insert("a");
  Commit();
  Change("a", v1::JOB_STATE_CANCELLED);
  Change("a", v1::JOB_STATE_SUCCEEDED);
  Insert("b");
  EXPECT_THAT(Commit(), ElementsAre("a", "a FAILED_PRECONDITION", "b"));
}

// --- Blobs ---

struct BlobWorld {
  static CommitQueueOptions Options(JobDatabase* database, BlobFolder* folder) {
    CommitQueueOptions options;
    options.database = database;
    options.blobs = folder;
    return options;
  }
  BlobWorld() : folder((disk.AddFolder("/b"), disk), "/b"), queue(Options(&database, &folder)) {}
  PinnedBlob Put(const std::string& text) {
    BlobSource source;
    source.bytes = std::span(reinterpret_cast<const uint8_t*>(text.data()), text.size());
    return *folder.Put("blue", source);
  }
  void Commit(JobWrite write) {
    queue.Add(std::move(write), [](const WriteResult& result) { EXPECT_TRUE(result.status.ok()) << result.status; });
    for (const CommitAnswer& answer : queue.CommitSome()) {
      answer.Give();
    }
  }
  bool IsThere(const PinnedBlob& blob) { return folder.Open("blue", blob.hash, blob.size_bytes).ok(); }

  SimDisk disk;
  MemoryJobDatabase database;
  BlobFolder folder;
  CommitQueue queue;
};

InsertJobs InsertWithBlob(const std::string& id, const PinnedBlob& blob) {
  InsertJobs insert = MakeInsert("blue", id, "", kNow);
  insert.jobs.front().clear_blobs();
  internal::StoredBlob& named = *insert.jobs.front().add_blobs();
  named.set_sha256(blob.hash.bytes.data(), blob.hash.bytes.size());
  named.set_size_bytes(blob.size_bytes);
  return insert;
}

// The file is removed with the last row that names it, and stays when another row came meanwhile.
TEST(CommitQueueBlobTest, FilesFollowRows) {
  BlobWorld world;
  PinnedBlob blob = world.Put("contents");
  const InsertJobs first = InsertWithBlob("a", blob), second = InsertWithBlob("b", blob);
  world.Commit(first);
  blob.pin.reset();
  EXPECT_TRUE(world.IsThere(blob));
  world.Commit(MakeChange(first.jobs.front(), v1::JOB_STATE_CANCELLED));
  // A submit of the same bytes holds a pin while the row that had them is dropped.
  blob = world.Put("contents");
  world.Commit(DropJob{"blue", "a", false});
  world.Commit(second);
  blob.pin.reset();
  EXPECT_TRUE(world.IsThere(blob));
  world.Commit(MakeChange(second.jobs.front(), v1::JOB_STATE_CANCELLED));
  world.Commit(DropJob{"blue", "b", true});
  EXPECT_FALSE(world.IsThere(blob));
}

// --- With threads ---

std::unique_ptr<JobStore> MakeStore(SimDisk& disk, std::unique_ptr<JobDatabase> database,
                                    std::function<void(const Status&)> on_broken = nullptr) {
  disk.AddFolder("/b");
  LocalJobStoreOptions options;
  options.database = std::move(database);
  options.blobs = std::make_unique<BlobFolder>(disk, "/b");
  options.on_broken = std::move(on_broken);
  return CreateLocalJobStore(std::move(options));
}

// Writes that arrive together are in one commit, and more answers than fit in one step keep their order.
TEST(LocalJobStoreTest, WritesThatComeTogetherShareACommit) {
  constexpr size_t kRounds = 20, kWrites = 100;
  std::atomic<int> commits = 0;
  std::vector<size_t> answered;  // Written by one thread at a time; read when the store has ended.
  SimDisk disk;
  auto store =
      MakeStore(disk, std::make_unique<MemoryJobDatabase>(MemoryJobDatabaseFaults{.before_commit =
                                                                                      [&](std::span<const JobWrite>) {
                                                                                        ++commits;
                                                                                        return absl::OkStatus();
                                                                                      },
                                                                                  .after_commit = {}}));
  for (size_t round = 0; round < kRounds; ++round) {
    std::vector<JobStore::Pending> writes;
    for (size_t i = 0; i < kWrites; ++i) {
      const size_t number = round * kWrites + i;
      writes.push_back(
          {MakeInsert("blue", "j" + std::to_string(number), "", kNow), [&, number](const WriteResult& result) {
             EXPECT_TRUE(result.status.ok()) << result.status;
             answered.push_back(number);
           }});
    }
    store->WriteMany(std::move(writes));
  }
  store.reset();
  // One for each round at most, and one for each full group.
  EXPECT_LE(commits, static_cast<int>(kRounds + kRounds * kWrites / 256));
  std::vector<size_t> wanted(kRounds * kWrites);
  std::iota(wanted.begin(), wanted.end(), size_t{0});
  EXPECT_EQ(answered, wanted);
}

// Writes of many threads are each answered once, those of one thread in order, in far fewer commits than writes while
// commits take their time; the destructor answers the rest.
TEST(LocalJobStoreTest, ManyWritersShareCommits) {
  constexpr int kThreads = 8, kWrites = 200;
  std::atomic<int> commits = 0;
  SimDisk disk;
  auto store = MakeStore(disk, std::make_unique<MemoryJobDatabase>(MemoryJobDatabaseFaults{
                                   .before_commit =
                                       [&](std::span<const JobWrite>) {
                                         ++commits;
                                         std::this_thread::sleep_for(std::chrono::milliseconds(2));
                                         return absl::OkStatus();
                                       },
                                   .after_commit = {}}));
  std::vector<std::vector<int>> answered(kThreads);  // Written by the answering thread alone.
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < kWrites; ++i) {
        store->Write(MakeInsert("blue", std::to_string(t) + "-" + std::to_string(i), "", kNow),
                     [&, t, i](const WriteResult& result) {
                       EXPECT_TRUE(result.status.ok()) << result.status;
                       answered[t].push_back(i);
                     });
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  store.reset();
  std::vector<int> want(kWrites);
  std::iota(want.begin(), want.end(), 0);
  for (const std::vector<int>& numbers : answered) {
    EXPECT_EQ(numbers, want);
  }
  EXPECT_LT(commits, kThreads * kWrites / 4);
}

// A blob whose sync fails breaks the store: no write is acknowledged after it.
TEST(LocalJobStoreTest, FailedBlobSyncBreaks) {
  SimDisk disk;
  std::atomic<int> broken = 0;
  auto store = MakeStore(disk, std::make_unique<MemoryJobDatabase>(), [&](const Status&) { ++broken; });
  disk.FailNth(SimDisk::Op::kSync, 1, {absl::StatusCode::kDataLoss});
  const std::string bytes = "contents";
  BlobInput input;
  input.source.bytes = std::span(reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size());
  Status put, write;
  std::atomic<bool> was_told = false;
  store->PutBlobs("blue", {input}, [&](StatusOr<std::vector<PinnedBlob>> pinned) {
    put = pinned.status();
    store->Write(MakeInsert("blue", "a", "", kNow), [&](const WriteResult& result) { write = result.status; });
    was_told = true;
  });
  while (store->Health().accepts_writes || !was_told) {
    std::this_thread::yield();
  }
  store.reset();
  EXPECT_TRUE(absl::IsDataLoss(put)) << put;
  EXPECT_TRUE(absl::IsDataLoss(write)) << write;
  EXPECT_EQ(broken, 1);
}

// A tenant's small blob waits for a piece of others' large ones, not for all of them, on however few threads.
TEST(LocalJobStoreTest, NobodyWaitsForOthersBlobs) {
  constexpr int kHeavy = 8;
  const TemporaryFolder temporary;
  auto store = OpenLocalJobStore(temporary.path() + "/jobs", nullptr);
  ASSERT_TRUE(store.ok()) << store.status();
  const std::vector<uint8_t> large(48 << 20, 7), small(100, 8);
  std::mutex mutex;
  std::vector<std::string> order;
  const auto put = [&](const std::string& tenant, std::span<const uint8_t> bytes) {
    BlobInput input;
    input.source.bytes = bytes;
    (*store)->PutBlobs(tenant, {input}, [&, tenant](const StatusOr<std::vector<PinnedBlob>>& pinned) {
      EXPECT_TRUE(pinned.ok()) << pinned.status();
      std::lock_guard lock(mutex);
      order.push_back(tenant);
    });
  };
  for (int i = 0; i < kHeavy; ++i) {
    put("heavy-" + std::to_string(i), large);
  }
  put("light", small);
  const auto count = [&] {
    std::lock_guard lock(mutex);
    return order.size();
  };
  while (count() < kHeavy + 1) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  EXPECT_EQ(order.front(), "light");
}

// The store that the daemon opens keeps jobs and blobs across a restart, and removes files that no row names.
TEST(LocalJobStoreTest, OpensAgainAndSweeps) {
  const TemporaryFolder temporary;
  const std::string folder = temporary.path() + "/jobs";
  const std::string bytes = "kept", stray = "stray";
  PinnedBlob kept, lost;
  {
    auto store = OpenLocalJobStore(folder, nullptr);
    ASSERT_TRUE(store.ok()) << store.status();
    BlobSource source;
    source.bytes = std::span(reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size());
    kept = *(*store)->blobs().Put("blue", source);
    source.bytes = std::span(reinterpret_cast<const uint8_t*>(stray.data()), stray.size());
    lost = *(*store)->blobs().Put("blue", source);
    (*store)->Write(InsertWithBlob("a", kept),
                    [](const WriteResult& result) { EXPECT_TRUE(result.status.ok()) << result.status; });
  }
  auto store = OpenLocalJobStore(folder, nullptr);
  ASSERT_TRUE(store.ok()) << store.status();
  EXPECT_TRUE((*store)->database().Find("blue", "a").ok());
  EXPECT_EQ(*(*store)->blobs().Read("blue", kept.hash, kept.size_bytes), bytes);
  EXPECT_TRUE(absl::IsNotFound((*store)->blobs().Open("blue", lost.hash, lost.size_bytes).status()));
  using std::filesystem::perms;
  EXPECT_EQ(std::filesystem::status(folder).permissions(), perms::owner_all);
  for (const char* name : {"/jobs.db", "/jobs.db-wal"}) {
    EXPECT_EQ(std::filesystem::status(folder + name).permissions(), perms::owner_read | perms::owner_write) << name;
  }
}

// After a burst of jobs with requests small and large, and their retention, the store shrinks by itself, while commits
// continue without waiting long.
TEST(LocalJobStoreTest, IsSmallAgainAfterABurst) {
  const TemporaryFolder temporary;
  const std::string folder = temporary.path() + "/jobs";
  StatusOr<std::unique_ptr<JobStore>> opened = OpenLocalJobStore(folder, nullptr);
  ASSERT_TRUE(opened.ok()) << opened.status();
  JobStore& store = **opened;
  const auto write = [&store](JobWrite what) {
    std::promise<Status> answer;
    store.Write(std::move(what), [&](const WriteResult& result) { answer.set_value(result.status); });
    return answer.get_future().get();
  };
  constexpr int kJobs = 1'200, kWithBlob = 100;
  std::atomic<int> ended = 0;
  const auto end = [&](const StoredJob& job) {
    store.Write(MakeChange(job, v1::JOB_STATE_SUCCEEDED), [&ended](const WriteResult& result) {
      EXPECT_TRUE(result.status.ok()) << result.status;
      ++ended;
    });
  };
  for (int i = 0; i < kJobs; ++i) {
    StoredRequest stored;
    stored.mutable_request()->set_name(std::string(i < kWithBlob ? 200'000 + i : 12'000, 'n'));
    InsertJobs insert = MakeInsert("blue", "job-" + std::to_string(i), "", kNow);
    StoredJob& job = insert.jobs.front();
    job.clear_blobs();
    const std::optional<BlobInput> blob = BlobOfRequest(stored.request());
    EXPECT_EQ(blob.has_value(), i < kWithBlob);
    if (!blob.has_value()) {
      insert.request = stored.SerializeAsString();
      store.Write(insert, [&, job](const WriteResult&) { end(job); });
      continue;
    }
    store.PutBlobs("blue", {*blob}, [&, insert, stored](StatusOr<std::vector<PinnedBlob>> put) mutable {
      ASSERT_TRUE(put.ok()) << put.status();
      NameRequestBlob(put->front(), &stored);
      stored.clear_request();
      insert = InsertWithBlob(insert.jobs.front().job().id(), put->front());
      insert.request = stored.SerializeAsString();
      const StoredJob with_blob = insert.jobs.front();
      store.Write(insert, [&, with_blob, pins = *put](const WriteResult&) { end(with_blob); });
    });
  }
  while (ended < kJobs) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  const auto whole = ReadWholeRequest(store.database(), store.blobs(), "blue", "job-7");
  ASSERT_TRUE(whole.ok()) << whole.status();
  EXPECT_EQ(whole->request().name().size(), 200'007u);
  const auto bytes_now = [&] { return std::filesystem::file_size(folder + "/jobs.db"); };
  for (int i = 0; i < kJobs; ++i) {
    store.Write(DropJob{"blue", "job-" + std::to_string(i), true}, [](const WriteResult&) {});
  }
  ASSERT_TRUE(write(ForgetKeys{0}).ok());
  const uint64_t most = bytes_now();
  EXPECT_GT(most, 8'000'000u);
  std::vector<Duration> waits;
  const Time until = RealClock().Now() + std::chrono::seconds(60);
  while (bytes_now() > 3'000'000 && RealClock().Now() < until) {
    const Time start = RealClock().Now();
    ASSERT_TRUE(write(ForgetKeys{0}).ok());
    waits.push_back(RealClock().Now() - start);
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  EXPECT_LT(bytes_now(), 3'000'000u) << "of " << most;
  std::sort(waits.begin(), waits.end());
  ASSERT_FALSE(waits.empty());
  const auto ms = [](Duration time) { return static_cast<double>(time.count()) / 1e6; };
  printf("%.1f MB became %.1f MB; beside that %zu commits took %.1f ms at the median, %.1f ms at the 99th percentile\n",
         static_cast<double>(most) / 1e6, static_cast<double>(bytes_now()) / 1e6, waits.size(),
         ms(waits[waits.size() / 2]), ms(waits[waits.size() * 99 / 100]));
  EXPECT_LT(ms(waits[waits.size() / 2]), 100.0);
  size_t files = 0;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder + "/blobs")) {
    files += entry.is_regular_file() ? 1 : 0;
  }
  EXPECT_EQ(files, 0u);
}

}  // namespace
}  // namespace hpvm::server
