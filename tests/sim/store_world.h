// SPDX-License-Identifier: Apache-2.0
// StoreWorld is the store alone in a simulated world: thousands of commits a second of random writes, including stale
// ones, on a disk that fails and loses power; acknowledged writes are compared with the contents after each restart.
#ifndef HPVMD_TESTS_SIM_STORE_WORLD_H_
#define HPVMD_TESTS_SIM_STORE_WORLD_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "server/jobs/testing/disk_vfs.h"
#include "server/testing/sim_disk.h"
#include "tests/sim/context.h"
#include "tests/sim/sim_job_store.h"
#include "tests/sim/store_model.h"
#include "tests/sim/verdict.h"

namespace hpvm::server::sim {

class StoreWorld {
 public:
  StoreWorld(uint64_t seed, bool prints);
  ~StoreWorld();
  Verdict Run();
  const Trace& trace() const { return context_.trace; }
  const Plan& plan() const { return context_.plan; }

 private:
  Status Open();
  void Close();
  void CrashAndReopen();
  void GoOnBroken();
  void Step();
  void InsertSome();
  void ChangeOne();
  void DropOne();
  void Write(JobWrite write, std::vector<BlobPinRef> pins);
  void Answered(const JobWrite& write, const WriteResult& result);
  StoredJob NewJob(const std::string& tenant, const std::vector<PinnedBlob>& blobs);
  const StoredJob* AnyRow();
  void CheckBlobFiles();

  Context context_;
  StoreModel model_;
  SimDisk disk_;
  SeededRng rng_, store_rng_, vfs_rng_;
  std::unique_ptr<DiskVfs> vfs_;
  std::unique_ptr<JobDatabase> database_;
  std::unique_ptr<WatchedDatabase> watched_;
  std::unique_ptr<BlobFolder> blobs_;
  std::unique_ptr<SimJobStore> store_;
  bool is_broken_ = false;
  // Jobs as a client of the store knows them, from responses.
  std::map<std::string, StoredJob> known_;
  std::vector<StoredJob> old_;     // Earlier forms, for stale writes.
  std::set<std::string> stale_;    // Jobs that a stale write concerned.
  std::set<std::string> writing_;  // One write per job at a time.
  uint64_t next_id_ = 1, lease_ = 0, opens_ = 0, writes_ = 0;
};

}  // namespace hpvm::server::sim

#endif  // HPVMD_TESTS_SIM_STORE_WORLD_H_
