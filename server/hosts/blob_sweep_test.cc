// SPDX-License-Identifier: Apache-2.0
#include "server/hosts/blob_sweep.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <fstream>

#include "base/clock.h"
#include "proto/internal/stored_job.pb.h"
#include "server/cluster/testing/model_cluster_store.h"
#include "server/jobs/blobs/blob_folder.h"
#include "server/jobs/testing/temporary_folder.h"

namespace hpvm::server {
namespace {

class BlobSweepTest : public ::testing::Test {
 protected:
  BlobSweepTest() { blobs_.SetShared(); }

  Sha256 Put(const std::string& bytes) {
    const StatusOr<PinnedBlob> put =
        blobs_.Put("t", {.bytes = {reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()}});
    EXPECT_TRUE(put.ok()) << put.status();
    return put->hash;
  }
  std::string PathOf(const Sha256& hash) const {
    return folder_.path() + "/t/" + ToHex(hash).substr(0, 2) + "/" + ToHex(hash);
  }
  bool Exists(const Sha256& hash) const {
    struct stat facts;
    return stat(PathOf(hash).c_str(), &facts) == 0;
  }
  // Makes the file two days old.
  void Age(const std::string& path) {
    const int64_t then = RealClock().WallNs() / 1'000'000'000 - 2 * 86'400;
    const timespec times[2] = {{then, 0}, {then, 0}};
    ASSERT_EQ(utimensat(AT_FDCWD, path.c_str(), times, 0), 0);
  }
  void Submit(const Sha256& needs) {
    internal::StoredJob row;
    row.mutable_job()->set_id("job-1");
    row.add_blobs()->set_sha256(std::string(Raw(needs)));
    store_.Submit({{.tenant = "t", .id = "job-1", .record = row.SerializeAsString()}},
                  [](const auto& views) { EXPECT_TRUE(views.ok()) << views.status(); });
  }
  uint64_t Sweep() {
    const StatusOr<uint64_t> removed = sweep_.Run();
    EXPECT_TRUE(removed.ok()) << removed.status();
    return removed.value_or(0);
  }

  TemporaryFolder folder_;
  ManualClock clock_;
  cluster::ModelClusterStore store_{{}, clock_};
  BlobFolder blobs_{RealDisk(), folder_.path()};
  // Without a time between the two sweeps that a removal takes.
  BlobSweep sweep_{{.folder = folder_.path(), .between = Duration{0}}, store_, RealDisk(), RealClock()};
};

TEST_F(BlobSweepTest, RemovesWhatNoJobNeedsInTheSecondSweep) {
  const Sha256 needed = Put("needed"), unused = Put("unused"), young = Put("young");
  Submit(needed);
  Age(PathOf(needed));
  Age(PathOf(unused));
  EXPECT_EQ(Sweep(), 0u);
  EXPECT_EQ(Sweep(), 1u);
  EXPECT_TRUE(Exists(needed));
  EXPECT_FALSE(Exists(unused));
  EXPECT_TRUE(Exists(young));
}

// A job that is being submitted marks the file, so that it is young again.
TEST_F(BlobSweepTest, KeepsWhatIsUsedAgain) {
  const Sha256 hash = Put("bytes");
  Age(PathOf(hash));
  EXPECT_EQ(Sweep(), 0u);
  Put("bytes");
  EXPECT_EQ(Sweep(), 0u);
  EXPECT_TRUE(Exists(hash));
}

TEST_F(BlobSweepTest, RemovesFilesThatAHostLeftHalfWritten) {
  Put("bytes");
  const std::string path = folder_.path() + "/t/.new-7";
  std::ofstream(path) << "half";
  EXPECT_EQ(Sweep() + Sweep(), 0u);
  Age(path);
  EXPECT_EQ(Sweep() + Sweep(), 1u);
}

// Files may belong to a job whose record cannot be read.
TEST_F(BlobSweepTest, RemovesNothingBesideADamagedRecord) {
  const Sha256 hash = Put("bytes");
  Age(PathOf(hash));
  store_.Submit({{.tenant = "t", .id = "job-1", .record = "\xff"}}, [](const auto&) {});
  EXPECT_TRUE(absl::IsDataLoss(sweep_.Run().status()));
  EXPECT_TRUE(absl::IsDataLoss(sweep_.Run().status()));
  EXPECT_TRUE(Exists(hash));
}

}  // namespace
}  // namespace hpvm::server
