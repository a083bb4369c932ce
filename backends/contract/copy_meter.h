// SPDX-License-Identifier: Apache-2.0
// How quickly large copies between host memory and devices flow, as devices measure it while they make them, and how
// many of this process's threads make them.
//
// A copy by way of staging memory runs at the slower of two speeds, the host's and the link's, from the moment at which
// the staging memory is full. Only that part of it is measured. Copies that flow at the same time share the host's
// cores and memory, so that they are counted apart.
#ifndef HPVMD_BACKENDS_CONTRACT_COPY_METER_H_
#define HPVMD_BACKENDS_CONTRACT_COPY_METER_H_

#include <atomic>
#include <cstdint>
#include <mutex>

#include "base/limits.h"

namespace hpvm {

// The bytes that large copies have moved so far, and the time that they took.
struct CopySums {
  struct Flow {
    uint64_t bytes = 0;
    int64_t ns = 0;
  };
  Flow up, down;  // From and to host memory, while no other copy of the process flowed.
  Flow together;  // While others did: the bytes of all of them.
};

// One device's. Any thread.
class CopyMeter {
 public:
  CopySums sums() const {
    std::lock_guard lock(mutex_);
    return sums_;
  }
  // Grows with every copy that was measured.
  uint32_t copies() const { return copies_.load(std::memory_order_acquire); }

  void Note(CopySums::Flow CopySums::*kind, uint64_t bytes, int64_t ns);

 private:
  mutable std::mutex mutex_;
  CopySums sums_;  // Guarded by mutex_.
  std::atomic<uint32_t> copies_{0};
};

// One large copy, from before its first byte moves until after its last one has. One thread.
class CopyFlow {
 public:
  // Smaller copies are neither measured nor made room for.
  static constexpr uint64_t kBytesMin = 16 * limits::kMiB;

  // Measured are the bytes behind the first `staging_bytes`, if they are enough. `threads` of the host are busy with
  // the copy. The meter is borrowed.
  CopyFlow(CopyMeter& meter, bool is_up, uint64_t bytes, uint64_t staging_bytes, uint32_t threads);
  // Keeps nothing of a copy that has not moved all its bytes.
  ~CopyFlow();
  CopyFlow(const CopyFlow&) = delete;
  CopyFlow& operator=(const CopyFlow&) = delete;

  // So many more bytes have been moved.
  void Moved(uint64_t bytes);

  // Host threads of this process that are busy with large copies now, and a number that changes whenever they do.
  static uint32_t BusyThreads() { return busy_threads_.load(std::memory_order_relaxed); }
  static uint32_t Epoch() { return epoch_.load(std::memory_order_relaxed); }

 private:
  static inline std::atomic<uint32_t> busy_threads_{0}, epoch_{0}, flowing_{0};
  static inline std::atomic<uint64_t> moved_by_all_{0};

  CopyMeter& meter_;
  const bool is_up_, is_large_;
  const uint32_t threads_;
  const uint64_t bytes_, staging_bytes_;
  uint64_t moved_ = 0;
  // Since the staging memory was full.
  int64_t begin_ns_ = 0;
  uint64_t begin_moved_ = 0, begin_by_all_ = 0;
  uint64_t pieces_ = 0, shared_pieces_ = 0;  // The latter moved while another copy flowed.
};

}  // namespace hpvm

#endif  // HPVMD_BACKENDS_CONTRACT_COPY_METER_H_
