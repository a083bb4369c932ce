// SPDX-License-Identifier: Apache-2.0
#include "server/jobs/job_admin.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <future>
#include <thread>

#include "server/jobs/job_store.h"
#include "server/jobs/testing/job_writes.h"
#include "server/jobs/testing/temporary_folder.h"

namespace hpvm::server {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;

constexpr int64_t kNow = 1'700'000'000'000'000'000;

class JobAdminTest : public testing::Test {
 protected:
  void Open() {
    store_.reset();
    auto store = OpenLocalJobStore(folder_, nullptr);
    ASSERT_TRUE(store.ok()) << store.status();
    store_ = *std::move(store);
  }

  // Makes a job that needs blobs with these contents.
  StoredJob Submit(const std::string& id, const std::vector<std::string>& contents) {
    InsertJobs insert = MakeInsert("blue", id, "key-" + id, kNow);
    StoredJob& job = insert.jobs.front();
    job.clear_blobs();
    std::vector<PinnedBlob> pins;
    for (const std::string& text : contents) {
      BlobSource source;
      source.bytes = std::span(reinterpret_cast<const uint8_t*>(text.data()), text.size());
      pins.push_back(*store_->blobs().Put("blue", source));
      internal::StoredBlob& blob = *job.add_blobs();
      blob.set_sha256(pins.back().hash.bytes.data(), pins.back().hash.bytes.size());
      blob.set_size_bytes(text.size());
    }
    Write(insert);
    return job;
  }
  void Write(JobWrite write) {
    std::promise<Status> written;
    store_->Write(std::move(write), [&](const WriteResult& result) { written.set_value(result.status); });
    const Status status = written.get_future().get();
    ASSERT_TRUE(status.ok()) << status;
  }
  std::string PathOf(const std::string& folder, const std::string& text) {
    const std::string hex = ToHex(HashOf(text));
    return folder + "/blobs/blue/" + hex.substr(0, 2) + "/" + hex;
  }

  const TemporaryFolder temporary_;
  const std::string folder_ = temporary_.path() + "/jobs", to_ = temporary_.path() + "/backup";
  std::unique_ptr<JobStore> store_;
};

// Rows hold requests and inline inputs: whatever the umask, only the owner can read a copy.
TEST_F(JobAdminTest, BackupsAreTheOwnersAlone) {
  Open();
  Submit("a", {"graph", "input a"});
  const mode_t mask = umask(0);
  const auto backup = BackUpJobs(folder_, to_);
  umask(mask);
  ASSERT_TRUE(backup.ok()) << backup.status();
  for (const auto& entry : std::filesystem::recursive_directory_iterator(to_)) {
    struct stat info {};
    ASSERT_EQ(lstat(entry.path().c_str(), &info), 0);
    EXPECT_EQ(info.st_mode & 077, 0u) << entry.path();
  }
}

// During and after a daemon's run, the backup opens as a store, with the same jobs and blobs, and is sound.
TEST_F(JobAdminTest, BacksUpAndRestores) {
  for (const bool running : {true, false}) {
    SCOPED_TRACE(running);
    const std::string to = to_ + (running ? "-1" : "-2");
    Open();
    if (running) {
      Submit("a", {"graph", "input a"});
      const StoredJob b = Submit("b", {"graph", "input b"});
      Write(MakeChange(b, v1::JOB_STATE_SUCCEEDED));
    } else {
      store_.reset();
    }
    const auto backup = BackUpJobs(folder_, to);
    ASSERT_TRUE(backup.ok()) << backup.status();
    EXPECT_EQ(backup->jobs, 2u);
    EXPECT_EQ(backup->blobs, 3u);
    EXPECT_EQ(backup->blob_bytes, 5u + 7 + 7);
    EXPECT_THAT(backup->notes, IsEmpty());
    EXPECT_THAT(*CheckJobs(to), IsEmpty());
    EXPECT_TRUE(absl::IsAlreadyExists(BackUpJobs(folder_, to).status()));
    const auto restored = OpenLocalJobStore(to, nullptr);
    ASSERT_TRUE(restored.ok()) << restored.status();
    EXPECT_EQ((*restored)->database().Find("blue", "b")->job().state(), v1::JOB_STATE_SUCCEEDED);
    EXPECT_EQ((*restored)->database().FindKey("blue", "key-a")->job_id, "a");
    EXPECT_EQ(*(*restored)->blobs().Read("blue", HashOf("input a"), 7), "input a");
  }
}

// Blobs that the source has lost, or that are damaged there, are noted, and the backup is sound without them. The
// check of the source names the jobs.
TEST_F(JobAdminTest, LostAndDamagedBlobs) {
  Open();
  Submit("whole", {"graph"});
  Submit("lost", {"graph", "lost input"});
  const StoredJob ended = Submit("damaged", {"damaged input"});
  Write(MakeChange(ended, v1::JOB_STATE_SUCCEEDED));
  EXPECT_THAT(*CheckJobs(folder_), IsEmpty());
  std::filesystem::remove(PathOf(folder_, "lost input"));
  std::ofstream(PathOf(folder_, "damaged input")) << "damaged inpux";
  EXPECT_THAT(*CheckJobs(folder_), testing::UnorderedElementsAre(HasSubstr("\"lost\""), HasSubstr("\"damaged\"")));
  const auto backup = BackUpJobs(folder_, to_);
  ASSERT_TRUE(backup.ok()) << backup.status();
  EXPECT_THAT(backup->notes, testing::UnorderedElementsAre(HasSubstr("\"lost\""), HasSubstr("\"damaged\"")));
  EXPECT_THAT(*CheckJobs(to_), IsEmpty());
  const auto restored = OpenLocalJobStore(to_, nullptr);
  ASSERT_TRUE(restored.ok()) << restored.status();
  const StoredJob lost = *(*restored)->database().Find("blue", "lost");
  EXPECT_EQ(lost.job().state(), v1::JOB_STATE_FAILED);
  EXPECT_EQ(lost.job().error().code(), static_cast<int>(absl::StatusCode::kDataLoss));
  EXPECT_TRUE(lost.job().dropped());
  EXPECT_EQ((*restored)->database().Find("blue", "damaged")->job().state(), v1::JOB_STATE_SUCCEEDED);
  EXPECT_EQ((*restored)->database().Find("blue", "whole")->job().state(), v1::JOB_STATE_ACCEPTED);
}

// While jobs come, end and are dropped, every backup and every check is sound.
TEST_F(JobAdminTest, BesideALoad) {
  Open();
  std::atomic<bool> done = false;
  std::thread load([&] {
    for (int i = 0; !done; ++i) {
      const std::string id = "job-" + std::to_string(i);
      const StoredJob job = Submit(id, {"graph", "input " + std::to_string(i)});
      Write(MakeChange(job, v1::JOB_STATE_SUCCEEDED));
      if (i % 3 != 0) {
        Write(DropJob{"blue", id, i % 3 == 1});
      }
    }
  });
  for (int i = 0; i < 3; ++i) {
    const std::string to = to_ + std::to_string(i);
    const auto backup = BackUpJobs(folder_, to);
    EXPECT_TRUE(backup.ok()) << backup.status();
    EXPECT_THAT(*CheckJobs(to), IsEmpty());
    EXPECT_THAT(*CheckJobs(folder_), IsEmpty());
  }
  done = true;
  load.join();
}

// A backup that is not possible returns an error and makes nothing.
TEST_F(JobAdminTest, Refusals) {
  EXPECT_TRUE(absl::IsNotFound(BackUpJobs(folder_, to_).status()));
  EXPECT_TRUE(absl::IsNotFound(CheckJobs(folder_).status()));
  EXPECT_FALSE(std::filesystem::exists(folder_));
  Open();
  EXPECT_TRUE(absl::IsInvalidArgument(BackUpJobs(folder_, "backup").status()));
  EXPECT_TRUE(absl::IsNotFound(BackUpJobs(folder_, to_ + "/there/is/none").status()));
  EXPECT_FALSE(std::filesystem::exists(to_));
}

}  // namespace
}  // namespace hpvm::server
