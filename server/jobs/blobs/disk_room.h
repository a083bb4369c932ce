// SPDX-License-Identifier: Apache-2.0
// DiskRoom tracks the room on the disk of the state folder, and keeps a reserve for when the disk is full.
//
//   FOLDER/reserve   unused, allocated bytes. When a commit finds the disk full the file is removed, so that writes
//                    that make room (deleting jobs) and writes that must not be lost (the ends of jobs) still succeed.
//                    The file is made again when there is room for it.
//
// The disk counts as full while less than the reserve and a margin are free, so that another user who fills it is
// noticed before a write fails; and while a caller awaits room on it (Await). Blobs are only written into the free
// space beside the reserve.
#ifndef HPVMD_SERVER_JOBS_BLOBS_DISK_ROOM_H_
#define HPVMD_SERVER_JOBS_BLOBS_DISK_ROOM_H_

#include <cstdint>
#include <mutex>
#include <string>

#include "base/clock.h"
#include "base/io/disk.h"
#include "base/limits.h"
#include "base/status.h"

namespace hpvm::server {

struct DiskRoomOptions {
  Disk* disk = nullptr;          // Borrowed, as the clock.
  const Clock* clock = nullptr;  // Null: the machine's.
  std::string folder;            // Absolute; exists.
  // Size of the reserve; a sixteenth of a smaller disk; 0: no reserve.
  uint64_t reserve_bytes_max = 16 * limits::kMiB;
};

// Thread-safe, except as stated for Start, Look and GiveUp.
class DiskRoom {
 public:
  // Time for which a call of Await counts; a caller that still waits calls it again.
  static constexpr Duration kAwaited = std::chrono::seconds(3);

  explicit DiskRoom(DiskRoomOptions options);

  // Start, Look and GiveUp are called by one thread at a time. Start is called first, under the folder's lock; on a
  // full disk it removes the reserve. kResourceExhausted, with path, free bytes and needed bytes, when a daemon cannot
  // start even then.
  Status Start();
  // Measures the disk, and makes the reserve when there is room for it. Called about every second.
  void Look();
  // Called when a write found the disk full: removes the reserve. Returns false when there was none: trying again is
  // useless for now.
  bool GiveUp();

  // Checks with the disk whether so many bytes may be written without using the reserve's room; otherwise returns
  // kResourceExhausted.
  Status Admit(uint64_t bytes) const;
  // Reports that data that must not be lost waits for so many bytes. The disk then counts as full for all tenants when
  // it is nearly full (a sixteenth, or 256 MiB), or refuses a write for which it seems to have room; otherwise only
  // this tenant's result is too large for the remaining space, and others continue.
  void Await(uint64_t bytes);

  bool is_full() const;
  // Returns a sentence for operators; empty unless the disk is full.
  std::string Why() const;
  uint64_t reserve_bytes() const;  // Number of bytes held.

 private:
  // The caller of these holds the mutex.
  uint64_t Target() const;
  uint64_t Margin() const;
  uint64_t Kept() const;
  uint64_t Needed() const;
  bool IsFull() const;

  bool Measure();
  DiskSpace Space() const;  // The size is 0 when it is not known.
  void MakeReserve();
  std::string path() const { return options_.folder + "/reserve"; }

  const DiskRoomOptions options_;
  const Clock& clock_;

  mutable std::mutex mutex_;
  DiskSpace space_;  // As last measured; the size is 0 when it is not known.
  uint64_t held_bytes_ = 0;
  uint64_t awaited_bytes_ = 0;
  Time awaited_until_{0};
};

}  // namespace hpvm::server

#endif  // HPVMD_SERVER_JOBS_BLOBS_DISK_ROOM_H_
