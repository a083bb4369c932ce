// SPDX-License-Identifier: Apache-2.0
// Allocates ranges of a file, and reads and writes them by offset.
//
// Threads: thread-safe.
#ifndef HPVMD_ENGINE_MEMORY_SPILL_FILE_H_
#define HPVMD_ENGINE_MEMORY_SPILL_FILE_H_

#include <atomic>
#include <cstdint>
#include <map>
#include <mutex>

#include "base/status.h"

namespace hpvm::engine {

class SpillFile {
 public:
  // Owns `fd`.
  SpillFile(int fd, uint64_t bytes_max);
  ~SpillFile();
  SpillFile(const SpillFile&) = delete;
  SpillFile& operator=(const SpillFile&) = delete;

  // Returns the offset of a range that reads as zero, or kResourceExhausted with the sizes.
  StatusOr<uint64_t> Take(uint64_t bytes);
  void GiveBack(uint64_t offset, uint64_t bytes);
  // These fail with kCancelled once `stop` (optional) is not zero, kResourceExhausted when the disk is full,
  // kUnavailable when the disk fails.
  Status Read(uint64_t offset, uint8_t* data, uint64_t bytes, const std::atomic<uint32_t>* stop) const;
  Status Write(uint64_t offset, const uint8_t* data, uint64_t bytes, const std::atomic<uint32_t>* stop) const;
  Status Fill(uint64_t offset, uint64_t bytes, uint8_t value, const std::atomic<uint32_t>* stop) const;

  uint64_t bytes_max() const { return bytes_max_; }

 private:
  bool Punch(uint64_t offset, uint64_t bytes) const;

  const int fd_;
  const uint64_t bytes_max_;
  std::mutex mutex_;
  std::map<uint64_t, uint64_t> free_;  // Bytes by offset; adjacent ranges are merged. Guarded by mutex_.
  // Bytes by offset of free ranges that could not be punched and may hold old bytes; merged likewise. Guarded by
  // mutex_.
  std::map<uint64_t, uint64_t> dirty_;
};

}  // namespace hpvm::engine

#endif  // HPVMD_ENGINE_MEMORY_SPILL_FILE_H_
