// SPDX-License-Identifier: Apache-2.0
#include "server/jobs/blobs/disk_room.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "base/failpoint.h"

namespace hpvm::server {
namespace {

constexpr uint64_t kReserveShare = 16, kMarginShare = 64;
constexpr uint64_t kMarginBytesMax = 1 * limits::kMiB;
// With more free space than this, and than a sixteenth, a disk is not full because one tenant's result is larger
// still.
constexpr uint64_t kScarceBytesMax = 256 * limits::kMiB;
// For the logs and indexes of two databases, a lease, a line of the audit.
constexpr uint64_t kStartBytes = 512 * limits::kKiB;

std::string Bytes(uint64_t bytes) { return std::to_string(bytes) + " bytes"; }

}  // namespace

DiskRoom::DiskRoom(DiskRoomOptions options)
    : options_(std::move(options)), clock_(options_.clock != nullptr ? *options_.clock : RealClock()) {}

uint64_t DiskRoom::Target() const { return std::min(options_.reserve_bytes_max, space_.size_bytes / kReserveShare); }

uint64_t DiskRoom::Margin() const { return std::min(kMarginBytesMax, space_.size_bytes / kMarginShare); }

// Returns the space that blobs leave free: the missing part of the reserve, and the margin.
uint64_t DiskRoom::Kept() const { return Target() - std::min(Target(), held_bytes_) + Margin(); }

// Returns the free space, beside the reserve held, below which the disk counts as full.
uint64_t DiskRoom::Needed() const {
  const uint64_t awaited = clock_.Now() < awaited_until_ ? awaited_bytes_ : 0;
  return Kept() + awaited;
}

bool DiskRoom::IsFull() const {
  return space_.size_bytes != 0 && (space_.free_bytes < Needed() || clock_.Now() < awaited_until_);
}

bool DiskRoom::is_full() const {
  std::lock_guard lock(mutex_);
  return IsFull();
}

uint64_t DiskRoom::reserve_bytes() const {
  std::lock_guard lock(mutex_);
  return held_bytes_;
}

std::string DiskRoom::Why() const {
  std::lock_guard lock(mutex_);
  if (!IsFull()) {
    return "";
  }
  const std::string disk = "The disk of \"" + options_.folder + "\" ";
  return space_.free_bytes < Needed()
             ? disk + "is full: " + Bytes(space_.free_bytes) + " are free, and " + Bytes(Needed()) + " are needed."
             : disk + "refused a write for lack of space, though " + Bytes(space_.free_bytes) + " are free.";
}

// Returns true when the disk gave an answer.
bool DiskRoom::Measure() {
  const DiskSpace space = Space();
  std::lock_guard lock(mutex_);
  space_ = space;
  return space_.size_bytes != 0;
}

DiskSpace DiskRoom::Space() const {
  DiskSpace space = options_.disk->Space(options_.folder).value_or(DiskSpace{});
  if (!HPVMD_FAILPOINT("disk.space").ok()) {
    space.free_bytes = 0;
  }
  return space;
}

void DiskRoom::MakeReserve() {
  uint64_t target = 0;
  {
    std::lock_guard lock(mutex_);
    target = Target();
  }
  StatusOr<std::unique_ptr<DiskFile>> file = options_.disk->Open(path(), Disk::Mode::kOpenOrCreate);
  Status made = file.status();
  // A larger reserve of an earlier configuration is shortened.
  made = made.ok() ? (*file)->Allocate(target) : made;
  made = made.ok() ? (*file)->Truncate(target) : made;
  if (!made.ok()) {
    options_.disk->Remove(path()).IgnoreError();  // A partial reserve would only take room.
  }
  std::lock_guard lock(mutex_);
  held_bytes_ = made.ok() ? target : 0;
}

Status DiskRoom::Start() {
  if (!Measure()) {
    return absl::OkStatus();
  }
  uint64_t needed = 0, free = 0;
  {
    std::lock_guard lock(mutex_);
    needed = std::min(kStartBytes, Margin());
    free = space_.free_bytes;
  }
  if (free < needed) {
    options_.disk->Remove(path()).IgnoreError();
    Measure();
    std::lock_guard lock(mutex_);
    if (space_.free_bytes < needed) {
      return ResourceExhausted("The disk of the state folder \"" + options_.folder +
                               "\" is full: " + Bytes(space_.free_bytes) + " are free, and " + Bytes(needed) +
                               " are needed to start. Make room on it, then start hpvmd again.");
    }
    return absl::OkStatus();
  }
  if (options_.disk->Open(path(), Disk::Mode::kRead).ok()) {
    MakeReserve();  // The reserve of an earlier daemon may be incomplete.
  }
  Look();
  return absl::OkStatus();
}

void DiskRoom::Look() {
  if (!Measure()) {
    return;
  }
  bool makes = false;
  {
    std::lock_guard lock(mutex_);
    makes = held_bytes_ != Target() && space_.free_bytes >= Kept();
  }
  if (makes) {
    MakeReserve();
    Measure();
  }
}

bool DiskRoom::GiveUp() {
  bool given = false;
  {
    std::lock_guard lock(mutex_);
    given = std::exchange(held_bytes_, 0) > 0;
  }
  given = given && options_.disk->Remove(path()).ok();
  Measure();
  return given;
}

Status DiskRoom::Admit(uint64_t bytes) const {
  const DiskSpace space = Space();
  std::lock_guard lock(mutex_);
  const uint64_t kept = Kept();
  if (space.size_bytes == 0 || (space.free_bytes >= kept && space.free_bytes - kept >= bytes)) {
    return absl::OkStatus();
  }
  return ResourceExhausted("The disk of \"" + options_.folder + "\" has no room for " + Bytes(bytes) + ": " +
                           Bytes(space.free_bytes) + " are free, of which " + Bytes(kept) + " are kept free.");
}

void DiskRoom::Await(uint64_t bytes) {
  std::lock_guard lock(mutex_);
  const uint64_t kept = Kept();
  const bool is_scarce = space_.free_bytes < std::min(kScarceBytesMax, space_.size_bytes / kReserveShare);
  const bool should_fit = space_.free_bytes >= kept && space_.free_bytes - kept >= bytes;
  if (!is_scarce && !should_fit) {
    return;
  }
  const Time now = clock_.Now();
  awaited_bytes_ = now < awaited_until_ ? std::max(awaited_bytes_, bytes) : bytes;
  awaited_until_ = now + kAwaited;
}

}  // namespace hpvm::server
