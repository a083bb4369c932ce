// SPDX-License-Identifier: Apache-2.0
// Room on the disk of the state folder: whether there is enough, and a reserve for when there is not.
//
//   FOLDER/reserve   bytes that nobody uses, allocated. When a commit finds the disk full the file is removed, so that
//                    what makes room (deleting jobs) and what must not be lost (how jobs ended) can still be written.
//                    It is made again when there is room for it.
//
// The disk counts as full while less than the reserve and a margin are free, so that a neighbour who fills it is
// noticed before a write fails; and while somebody awaits room on it (Await). Blobs are only written into what is free
// beside the reserve.
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
  std::string folder;            // Absolute; is there.
  // On a smaller disk a sixteenth of it; 0: no reserve.
  uint64_t reserve_bytes_max = 16 * limits::kMiB;
};

// Any thread, but for what it says of Start, Look and GiveUp.
class DiskRoom {
 public:
  // How long Await counts: who still waits says so again.
  static constexpr Duration kAwaited = std::chrono::seconds(3);

  explicit DiskRoom(DiskRoomOptions options);

  // Start, Look and GiveUp: one thread at a time. Start comes first, under the folder's lock: on a full disk the
  // reserve goes. kResourceExhausted, with path, free bytes and what is needed, when a daemon cannot start even so.
  Status Start();
  // Measures, and makes the reserve when there is room for it. To be called each second or so.
  void Look();
  // A write found the disk full: removes the reserve. False when there was none: trying again is of no use yet.
  bool GiveUp();

  // Asks the disk whether so many bytes may be written without using up the reserve's room: else kResourceExhausted.
  Status Admit(uint64_t bytes) const;
  // Something that must not be lost waits for so many bytes. That makes the disk full for everybody when it is nearly
  // so (a sixteenth, or 256 MiB), or refuses what it seems to have room for; otherwise a single tenant's result is too
  // large for what is left, and others go on.
  void Await(uint64_t bytes);

  bool is_full() const;
  // A sentence for operators; empty unless it is full.
  std::string Why() const;
  uint64_t reserve_bytes() const;  // That are held.

 private:
  // The mutex is held by callers of these.
  uint64_t Target() const;
  uint64_t Margin() const;
  uint64_t Kept() const;
  uint64_t Needed() const;
  bool IsFull() const;

  bool Measure();
  DiskSpace Space() const;  // No size: not known.
  void MakeReserve();
  std::string path() const { return options_.folder + "/reserve"; }

  const DiskRoomOptions options_;
  const Clock& clock_;

  mutable std::mutex mutex_;
  DiskSpace space_;  // As last measured; no size: not known.
  uint64_t held_bytes_ = 0;
  uint64_t awaited_bytes_ = 0;
  Time awaited_until_{0};
};

}  // namespace hpvm::server

#endif  // HPVMD_SERVER_JOBS_BLOBS_DISK_ROOM_H_
