// SPDX-License-Identifier: Apache-2.0
#include "engine/memory/spill_file.h"

#include <fcntl.h>
#include <sys/types.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string>
#include <vector>

namespace hpvm::engine {
namespace {

constexpr uint64_t kAlignment = 4096;         // Alignment of ranges: only whole blocks can be punched.
constexpr uint64_t kPieceBytes = 4ull << 20;  // Bytes between two polls of the stop word.

uint64_t RoundUp(uint64_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

Status FailedTo(const char* what, uint64_t offset, int error) {
  const std::string text = std::string("The spill file cannot be ") + what + " at byte " + std::to_string(offset) +
                           ": " + std::strerror(error) + ".";
  const bool is_full = error == ENOSPC || error == EDQUOT || error == EFBIG;
  return is_full ? ResourceExhausted(text) : Unavailable(text);
}

bool IsStopped(const std::atomic<uint32_t>* stop) {
  return stop != nullptr && stop->load(std::memory_order_relaxed) != 0;
}

// `move(done, bytes)` reads or writes a part of a piece, and returns a count as pread does.
template <typename Move>
Status InPieces(const char* what, uint64_t offset, uint64_t bytes, const std::atomic<uint32_t>* stop, Move move) {
  for (uint64_t done = 0; done < bytes;) {
    if (IsStopped(stop)) {
      return Cancelled("The copy was stopped.");
    }
    const ssize_t moved = move(done, std::min(bytes - done, kPieceBytes));
    if (moved < 0 && errno == EINTR) {
      continue;
    }
    if (moved <= 0) {
      // No bytes where some were written: somebody has truncated the file.
      return FailedTo(what, offset + done, moved < 0 ? errno : EIO);
    }
    done += static_cast<uint64_t>(moved);
  }
  return absl::OkStatus();
}

// Adds [offset, offset + bytes) to ranges of which no two touch.
void AddRange(std::map<uint64_t, uint64_t>& ranges, uint64_t offset, uint64_t bytes) {
  auto next = ranges.lower_bound(offset);
  if (next != ranges.begin()) {
    const auto before = std::prev(next);
    if (before->first + before->second >= offset) {
      bytes = std::max(before->first + before->second, offset + bytes) - before->first;
      offset = before->first;
      ranges.erase(before);
    }
  }
  while (next != ranges.end() && next->first <= offset + bytes) {
    bytes = std::max(next->first + next->second, offset + bytes) - offset;
    next = ranges.erase(next);
  }
  ranges.emplace(offset, bytes);
}

}  // namespace

SpillFile::SpillFile(int fd, uint64_t bytes_max) : fd_(fd), bytes_max_(bytes_max / kAlignment * kAlignment) {
  if (bytes_max_ > 0) {
    free_.emplace(0, bytes_max_);
  }
}

SpillFile::~SpillFile() { close(fd_); }

StatusOr<uint64_t> SpillFile::Take(uint64_t bytes) {
  const uint64_t wanted = bytes > bytes_max_ ? bytes : std::max(RoundUp(bytes), kAlignment);
  std::unique_lock lock(mutex_);
  const auto it = std::find_if(free_.begin(), free_.end(), [&](const auto& range) { return range.second >= wanted; });
  if (it == free_.end()) {
    uint64_t left = 0;
    for (const auto& [offset, size] : free_) {
      left += size;
    }
    return ResourceExhausted("The spill file (at most " + std::to_string(bytes_max_) + " bytes, " +
                             std::to_string(left) + " of them free) has no room for " + std::to_string(bytes) +
                             " bytes more.");
  }
  const auto [offset, size] = *it;
  free_.erase(it);
  if (size > wanted) {
    free_.emplace(offset + wanted, size - wanted);
  }
  bool is_dirty = false;
  for (const auto& [first, length] : dirty_) {
    is_dirty |= first < offset + wanted && offset < first + length;
  }
  lock.unlock();
  if (is_dirty) {
    if (const Status status = Fill(offset, wanted, 0, nullptr); !status.ok()) {
      GiveBack(offset, wanted);
      return status;
    }
  }
  return offset;
}

void SpillFile::GiveBack(uint64_t offset, uint64_t bytes) {
  const uint64_t size = std::max(RoundUp(bytes), kAlignment);
  const bool is_clean = Punch(offset, size);
  std::lock_guard lock(mutex_);
  AddRange(free_, offset, size);
  if (!is_clean) {
    AddRange(dirty_, offset, size);
  }
}

bool SpillFile::Punch(uint64_t offset, uint64_t bytes) const {
  return fallocate(fd_, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(offset),
                   static_cast<off_t>(bytes)) == 0;
}

Status SpillFile::Read(uint64_t offset, uint8_t* data, uint64_t bytes, const std::atomic<uint32_t>* stop) const {
  return InPieces("read", offset, bytes, stop, [&](uint64_t done, uint64_t piece) {
    const ssize_t got = pread(fd_, data + done, piece, static_cast<off_t>(offset + done));
    if (got == 0) {
      // Beyond the file's end: never written, so zero.
      std::memset(data + done, 0, piece);
      return static_cast<ssize_t>(piece);
    }
    return got;
  });
}

Status SpillFile::Write(uint64_t offset, const uint8_t* data, uint64_t bytes, const std::atomic<uint32_t>* stop) const {
  return InPieces("written", offset, bytes, stop, [&](uint64_t done, uint64_t piece) {
    return pwrite(fd_, data + done, piece, static_cast<off_t>(offset + done));
  });
}

Status SpillFile::Fill(uint64_t offset, uint64_t bytes, uint8_t value, const std::atomic<uint32_t>* stop) const {
  const std::vector<uint8_t> block(std::min(bytes, kPieceBytes), value);
  return InPieces("written", offset, bytes, stop, [&](uint64_t done, uint64_t piece) {
    return pwrite(fd_, block.data(), piece, static_cast<off_t>(offset + done));
  });
}

}  // namespace hpvm::engine
