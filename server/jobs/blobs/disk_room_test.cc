// SPDX-License-Identifier: Apache-2.0
// Tests the reserve of a full disk, and its use by a store.
#include "server/jobs/blobs/disk_room.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "server/jobs/commit_queue.h"
#include "server/jobs/testing/job_writes.h"
#include "server/jobs/testing/memory_job_database.h"
#include "server/testing/sim_disk.h"

namespace hpvm::server {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr uint64_t kMiB = limits::kMiB;
constexpr int64_t kNow = 1'700'000'000'000'000'000;

// Uses a disk of 64 MiB, with a reserve of 4 MiB and a margin of 1 MiB.
class DiskRoomTest : public testing::Test {
 protected:
  DiskRoomTest() {
    disk_.AddFolder("/s");
    disk_.SetSpace(64 * kMiB);
  }

  void Fill(uint64_t left) {
    auto file = *disk_.Open("/fill", Disk::Mode::kOpenOrCreate);
    ASSERT_TRUE(file->Truncate(0).ok());
    const uint64_t bytes = 64 * kMiB - disk_.used_bytes() - left;
    ASSERT_TRUE(file->WriteAt(0, std::vector<uint8_t>(bytes)).ok());
  }
  bool HasReserve() { return disk_.Open("/s/reserve", Disk::Mode::kRead).ok(); }

  SimDisk disk_;
  ManualClock clock_;
  DiskRoom room_{{.disk = &disk_, .clock = &clock_, .folder = "/s"}};
};

// With room, the reserve is made in the size that suits the disk.
TEST_F(DiskRoomTest, ReservesASixteenth) {
  ASSERT_TRUE(room_.Start().ok());
  EXPECT_EQ(room_.reserve_bytes(), 4 * kMiB);
  EXPECT_EQ(disk_.used_bytes(), 4 * kMiB);
  EXPECT_FALSE(room_.is_full());
  EXPECT_EQ(room_.Why(), "");
  disk_.SetSpace(1024 * kMiB);
  room_.Look();
  EXPECT_EQ(room_.reserve_bytes(), 16 * kMiB);
  DiskRoom none({.disk = &disk_, .clock = &clock_, .folder = "/s", .reserve_bytes_max = 0});
  ASSERT_TRUE(none.Start().ok());
  EXPECT_EQ(disk_.used_bytes(), 0u);  // The reserve of an earlier configuration is given back.
  EXPECT_FALSE(none.is_full());
}

// A disk that another user fills is full before a write fails; the reserve stays until a write fails, and is made
// again when there is room for it beside the margin.
TEST_F(DiskRoomTest, GivesUpAndMakesAgain) {
  ASSERT_TRUE(room_.Start().ok());
  Fill(kMiB - 1);
  room_.Look();
  EXPECT_TRUE(room_.is_full());
  EXPECT_EQ(room_.Why(), "The disk of \"/s\" is full: 1048575 bytes are free, and 1048576 bytes are needed.");
  EXPECT_TRUE(HasReserve());
  Fill(0);
  EXPECT_TRUE(room_.GiveUp());
  EXPECT_FALSE(HasReserve());
  EXPECT_FALSE(room_.GiveUp());
  room_.Look();
  EXPECT_TRUE(room_.is_full());  // 4 MiB are free, but only for writes that must not be lost.
  EXPECT_THAT(room_.Why(), HasSubstr("4194304 bytes are free, and 5242880 bytes are needed."));
  Fill(5 * kMiB - 1);
  room_.Look();
  EXPECT_TRUE(room_.is_full());
  EXPECT_FALSE(HasReserve());
  Fill(5 * kMiB);
  room_.Look();
  EXPECT_FALSE(room_.is_full());
  EXPECT_EQ(room_.reserve_bytes(), 4 * kMiB);
  EXPECT_EQ(disk_.used_bytes(), 63 * kMiB);
}

// Blobs get the free space beside the reserve and the margin, whether the reserve is held or given up.
TEST_F(DiskRoomTest, AdmitsWhatIsNotReserved) {
  ASSERT_TRUE(room_.Start().ok());
  Fill(3 * kMiB);
  EXPECT_TRUE(room_.Admit(2 * kMiB).ok());
  const Status refused = room_.Admit(2 * kMiB + 1);
  EXPECT_TRUE(absl::IsResourceExhausted(refused));
  EXPECT_EQ(Message(refused),
            "The disk of \"/s\" has no room for 2097153 bytes: 3145728 bytes are free, of which 1048576 bytes are kept "
            "free.");
  ASSERT_TRUE(room_.GiveUp());
  EXPECT_TRUE(room_.Admit(2 * kMiB).ok());
  EXPECT_FALSE(room_.Admit(2 * kMiB + 1).ok());
}

// A waiting result makes the disk full, with its size in the sentence, until no caller reports it any more.
TEST_F(DiskRoomTest, IsFullWhileSomebodyAwaitsRoom) {
  ASSERT_TRUE(room_.Start().ok());
  Fill(3 * kMiB);
  room_.Look();
  EXPECT_FALSE(room_.is_full());
  room_.Await(6 * kMiB);
  EXPECT_THAT(room_.Why(), HasSubstr("3145728 bytes are free, and 7340032 bytes are needed."));
  clock_.Advance(DiskRoom::kAwaited - Duration(1));
  EXPECT_TRUE(room_.is_full());
  clock_.Advance(Duration(1));
  EXPECT_FALSE(room_.is_full());
  // For example a quota of the file system.
  room_.Await(1);
  EXPECT_THAT(room_.Why(), HasSubstr("refused a write for lack of space, though 3145728 bytes are free."));
}

// One tenant's huge result does not stop other tenants' jobs where there is room for theirs; a disk that refuses a
// write for which it seems to have room does, whatever else waits.
TEST_F(DiskRoomTest, AHugeResultWaitsAlone) {
  ASSERT_TRUE(room_.Start().ok());
  Fill(20 * kMiB);
  room_.Look();
  room_.Await(20 * kMiB);
  EXPECT_FALSE(room_.is_full());
  room_.Await(1 * kMiB);
  EXPECT_THAT(room_.Why(), HasSubstr("refused a write for lack of space, though 20971520 bytes are free."));
}

// A start on a full disk uses an earlier daemon's reserve; without one the error says what is needed.
TEST_F(DiskRoomTest, StartsFromTheReserve) {
  ASSERT_TRUE(room_.Start().ok());
  Fill(0);
  DiskRoom next({.disk = &disk_, .clock = &clock_, .folder = "/s"});
  EXPECT_TRUE(next.Start().ok());
  EXPECT_FALSE(HasReserve());
  EXPECT_TRUE(next.is_full());
  Fill(1000);
  DiskRoom third({.disk = &disk_, .clock = &clock_, .folder = "/s"});
  const Status refused = third.Start();
  EXPECT_TRUE(absl::IsResourceExhausted(refused));
  EXPECT_EQ(Message(refused),
            "The disk of the state folder \"/s\" is full: 1000 bytes are free, and 524288 bytes are needed to start. "
            "Make room on it, then start hpvmd again.");
}

// A reserve that was being made when the power failed is completed or removed.
TEST_F(DiskRoomTest, TakesUpHalfAReserve) {
  ASSERT_TRUE((*disk_.Open("/s/reserve", Disk::Mode::kCreate))->Allocate(kMiB).ok());
  ASSERT_TRUE(room_.Start().ok());
  EXPECT_EQ(room_.reserve_bytes(), 4 * kMiB);
  Fill(2 * kMiB);
  ASSERT_TRUE((*disk_.Open("/s/reserve", Disk::Mode::kReadWrite))->Truncate(kMiB).ok());
  Fill(2 * kMiB);
  DiskRoom next({.disk = &disk_, .clock = &clock_, .folder = "/s"});
  ASSERT_TRUE(next.Start().ok());
  EXPECT_EQ(next.reserve_bytes(), 0u);
  EXPECT_FALSE(HasReserve());
  EXPECT_TRUE(next.is_full());
}

// Blobs are refused before their first byte.
TEST_F(DiskRoomTest, BlobsAreNotBegun) {
  ASSERT_TRUE(room_.Start().ok());
  BlobFolder blobs(disk_, "/s");
  blobs.SetRoom(&room_);
  Fill(3 * kMiB);
  const std::vector<uint8_t> bytes(3 * kMiB);
  const uint64_t creates = disk_.count(SimDisk::Op::kCreate);
  EXPECT_TRUE(absl::IsResourceExhausted(blobs.Put("ann", {.bytes = bytes}).status()));
  EXPECT_EQ(disk_.count(SimDisk::Op::kCreate), creates);
  Fill(5 * kMiB);
  EXPECT_TRUE(blobs.Put("ann", {.bytes = bytes}).ok());
}

// FullQueueTest has a queue of writes over a database whose every write needs room of its own on the disk.
class FullQueueTest : public DiskRoomTest {
 protected:
  FullQueueTest()
      : database_(
            {.before_commit = [this](std::span<const JobWrite> writes) { return Write(writes); }, .after_commit = {}}),
        queue_({.database = &database_, .room = &room_, .clock = &clock_, .on_broken = nullptr}) {
    EXPECT_TRUE(room_.Start().ok());
    log_ = *disk_.Open("/s/log", Disk::Mode::kCreate);
  }

  // Grows like a log: completely or not at all.
  Status Write(std::span<const JobWrite> writes) {
    const uint64_t size = *log_->Size();
    Status written = log_->WriteAt(size, std::vector<uint8_t>(writes.size() * bytes_a_write_));
    if (!written.ok()) {
      (void)log_->Truncate(size);
    }
    return written;
  }
  void Add(const std::string& name, JobWrite write) {
    queue_.Add(std::move(write), [this, name](const WriteResult& result) {
      answers_.push_back(name + (result.status.ok() ? "" : " " + absl::StatusCodeToString(result.status.code())));
    });
  }
  void End(const std::string& id) { Add(id, MakeChange(*database_.Find("blue", id), v1::JOB_STATE_CANCELLED)); }
  std::vector<std::string> CommitAllDue() {
    answers_.clear();
    for (int i = 0; i < 100 && queue_.NextTime() <= clock_.Now(); ++i) {
      for (const CommitAnswer& answer : queue_.CommitSome()) {
        answer.Give();
      }
    }
    return answers_;
  }

  uint64_t bytes_a_write_ = 4096;
  std::unique_ptr<DiskFile> log_;
  std::vector<std::string> answers_;
  MemoryJobDatabase database_;
  CommitQueue queue_;
};

// With 0 bytes free, the ends of jobs and drops go to disk from the reserve, at once; new jobs do not.
TEST_F(FullQueueTest, EndsAndDropsUseTheReserve) {
  for (const char* id : {"a", "b", "c"}) {
    Add(id, MakeInsert("blue", id, "", kNow));
  }
  EXPECT_THAT(CommitAllDue(), ElementsAre("a", "b", "c"));
  End("a");
  EXPECT_THAT(CommitAllDue(), ElementsAre("a"));
  Fill(0);
  End("b");
  Add("d", MakeInsert("blue", "d", "", kNow));
  Add("drop", DropJob{"blue", "a", false});
  EXPECT_THAT(CommitAllDue(), ElementsAre("d RESOURCE_EXHAUSTED", "drop", "b"));
  EXPECT_FALSE(HasReserve());
  EXPECT_FALSE(queue_.Health().accepts_writes);
  EXPECT_TRUE(queue_.Health().is_transient);
  EXPECT_THAT(queue_.Health().reason, HasSubstr("The disk of \"/s\" is full"));
  Add("e", MakeInsert("blue", "e", "", kNow));
  EXPECT_THAT(CommitAllDue(), ElementsAre("e RESOURCE_EXHAUSTED"));
  Fill(8 * kMiB);
  room_.Look();
  EXPECT_TRUE(queue_.Health().accepts_writes);
  EXPECT_EQ(queue_.Health().reserve_bytes, 4 * kMiB);
  Add("e", MakeInsert("blue", "e", "", kNow));
  EXPECT_THAT(CommitAllDue(), ElementsAre("e"));
}

// On a disk that is nearly full, inserts are refused before one of them takes the last room.
TEST_F(FullQueueTest, RefusesInsertsBeforeACommitFails) {
  Fill(kMiB / 2);
  room_.Look();
  Add("a", MakeInsert("blue", "a", "", kNow));
  EXPECT_THAT(CommitAllDue(), ElementsAre("a RESOURCE_EXHAUSTED"));
  EXPECT_TRUE(HasReserve());
}

// Writes that do not fit in the reserve either are tried in ever smaller groups, then each second; nothing is lost or
// doubled.
TEST_F(FullQueueTest, SmallerGroupsMayFit) {
  for (char id = 'a'; id <= 'i'; ++id) {
    Add(std::string(1, id), MakeInsert("blue", std::string(1, id), "", kNow));
  }
  CommitAllDue();
  bytes_a_write_ = kMiB;
  Fill(0);
  for (char id = 'a'; id <= 'i'; ++id) {
    End(std::string(1, id));
  }
  EXPECT_THAT(CommitAllDue(), ElementsAre("a", "b", "c", "d"));  // As many as 4 MiB take.
  EXPECT_EQ(queue_.size(), 5u);
  EXPECT_EQ(queue_.NextTime(), clock_.Now() + std::chrono::seconds(1));
  Fill(64 * kMiB - disk_.used_bytes() < 20 * kMiB ? 20 * kMiB : 0);
  clock_.Advance(std::chrono::seconds(1));
  room_.Look();
  EXPECT_THAT(CommitAllDue(), ElementsAre("e", "f", "g", "h", "i"));
  EXPECT_TRUE(queue_.Health().accepts_writes);
}

}  // namespace
}  // namespace hpvm::server
