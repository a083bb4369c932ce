// SPDX-License-Identifier: Apache-2.0
// SimDisk is a disk in memory that loses unsynced data, for simulations and fault tests.
//
// Every file has the contents that readers see, the contents after a loss of power, and the writes between the two;
// every folder has the same for its names. Crash keeps any part of the unsynced changes, in no order, torn at
// sectors, as real disks and file systems do at their worst. A failed sync drops what it should have written, and the
// next one returns OK. All random choices come from the seed and the caller's Rng: a run can be replayed.
//
//   disk.FailNth(SimDisk::Op::kSync, 3, {absl::StatusCode::kDataLoss});    // EIO from the third sync from now
//   disk.PowerOffAfter(17);                                                // then nothing works, until
//   database.reset(); disk.Crash(rng);                                     // all users of its files are gone
#ifndef HPVMD_SERVER_TESTING_SIM_DISK_H_
#define HPVMD_SERVER_TESTING_SIM_DISK_H_

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/io/disk.h"

namespace hpvm::server {

class SimDisk final : public Disk {
 public:
  // kCreate is an Open that makes a file, kOpen any other.
  enum class Op : uint8_t {
    kOpen,
    kCreate,
    kRead,
    kWrite,
    kTruncate,
    kSync,
    kRename,
    kRemove,
    kMakeFolder,
    kSyncFolder,
    kList
  };
  static constexpr size_t kOpCount = 11;

  // The result of an operation instead of doing its work. A failing write has written a part of its bytes (short); a
  // failing sync has written some of the pending data and forgets the rest.
  struct Fault {
    absl::StatusCode code = absl::StatusCode::kDataLoss;
    bool is_short = false;  // For writes; otherwise a failing write writes nothing.
    bool for_ever = false;  // From the nth on.
    // Restricts the fault to such paths; must outlive the fault (a literal). All when empty.
    std::string_view path_contains = {};
  };

  // The unsynced changes that a loss of power leaves.
  enum class Keep : uint8_t { kAnything, kNothing, kEverything };

  explicit SimDisk(uint64_t seed = 1);
  ~SimDisk() override;

  StatusOr<std::unique_ptr<DiskFile>> Open(const std::string& path, Mode mode) override;
  Status Rename(const std::string& from, const std::string& to) override;
  Status Remove(const std::string& path) override;
  Status MakeFolder(const std::string& path) override;
  Status SyncFolder(const std::string& path) override;
  StatusOr<std::vector<DiskEntry>> List(const std::string& path) override;
  // Without SetSpace: a terabyte, all of it free.
  StatusOr<DiskSpace> Space(const std::string& folder) override;

  // --- Set-up ---
  // Adds the folder and its parents, durably; does not count as an operation.
  void AddFolder(const std::string& path);
  // Limits all files together, as readers see them; a write beyond it writes what fits and fails with
  // kResourceExhausted.
  void SetSpace(uint64_t bytes);
  uint64_t used_bytes() const;

  // --- Faults ---
  // `nth` counts operations of that kind from now, beginning at 1. Several faults may be set.
  void FailNth(Op op, uint64_t nth, Fault fault);
  void FailByChance(Op op, uint64_t one_in, Fault fault);
  void ClearFaults();  // The space limit and SetSyncLies stay.
  // Simulates a broken disk: syncs return OK and keep nothing.
  void SetSyncLies(bool lies);
  // Inverts stored and synced bits; returns false when there is no such byte.
  bool Damage(const std::string& path, uint64_t offset, uint8_t bits = 0xff);

  // --- Power ---
  // After `count` more changes (every Op but kOpen, kRead and kList) everything fails; at once for 0.
  void PowerOffAfter(uint64_t count);
  bool is_off() const;
  // The power was lost, and is back: every open file fails from now on. Clears faults. Objects that write when they
  // are closed must be closed before, with the power off.
  void Crash(Rng& rng, Keep keep = Keep::kAnything);

  // --- Counts, since the beginning ---
  uint64_t count(Op op) const;
  uint64_t changes() const;

 private:
  friend class SimDiskFile;
  struct Node;
  struct File;
  struct Folder;
  struct Plan;
  using NodeRef = std::shared_ptr<Node>;  // Shared by names and open files.

  // The caller of these functions holds the mutex. Returns the fault of the operation; OK to perform it.
  Status Begin(Op op, std::string_view path, bool* is_short = nullptr);
  Folder* FindFolder(std::string_view path) const;
  // Returns the folder that holds `path`, and the path's last part.
  StatusOr<std::pair<Folder*, std::string>> FindParent(const std::string& path) const;
  Status WriteFile(File& file, uint64_t offset, std::span<const uint8_t> from);
  void SyncNames(Folder& folder);
  void Resize(File& file, uint64_t size_bytes);
  void CrashFolder(Folder& folder, Rng& rng, Keep keep);

  mutable std::mutex mutex_;
  SeededRng rng_;
  std::shared_ptr<Folder> root_;
  std::shared_ptr<uint64_t> used_bytes_;  // Shared with files, which outlive their names.
  uint64_t space_bytes_ = UINT64_MAX;
  uint64_t incarnation_ = 1;  // Incarnation of open files.
  bool sync_lies_ = false;
  bool is_off_ = false;
  uint64_t off_after_ = UINT64_MAX;  // Number of changes.
  uint64_t changes_ = 0;
  std::array<uint64_t, kOpCount> counts_{};
  std::vector<Plan> plans_;
};

}  // namespace hpvm::server

#endif  // HPVMD_SERVER_TESTING_SIM_DISK_H_
