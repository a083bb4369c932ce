// SPDX-License-Identifier: Apache-2.0
// Measures the speed of large copies between host memory and devices while devices make them, and counts this process's
// threads that make them.
//
// A copy through staging memory runs at the slower of two speeds, the host's and the link's, once the staging memory is
// full. Only that part is measured. Concurrent copies share the host's cores and memory, and are counted separately.
#ifndef HPVMD_BACKENDS_CONTRACT_COPY_METER_H_
#define HPVMD_BACKENDS_CONTRACT_COPY_METER_H_

#include <atomic>
#include <cstdint>
#include <mutex>

#include "base/limits.h"

namespace hpvm {

// Bytes moved by large copies so far, and the time that they took.
struct CopySums {
  struct Flow {
    uint64_t bytes = 0;
    int64_t ns = 0;
  };
  Flow up, down;  // From and to host memory, while no other copy of the process was in progress.
  Flow together;  // While other copies were in progress: the bytes of all of them.
};

// CopyMeter belongs to one device. Thread-safe.
class CopyMeter {
 public:
  CopySums sums() const {
    std::lock_guard lock(mutex_);
    return sums_;
  }
  // Increases with every measured copy.
  uint32_t copies() const { return copies_.load(std::memory_order_acquire); }

  void Note(CopySums::Flow CopySums::*kind, uint64_t bytes, int64_t ns);

 private:
  mutable std::mutex mutex_;
  CopySums sums_;  // Guarded by mutex_.
  std::atomic<uint32_t> copies_{0};
};

// CopyFlow is one large copy, from before its first byte moves until after its last. Used by one thread.
class CopyFlow {
 public:
  // Smaller copies are not measured, and no room is made for them.
  static constexpr uint64_t kBytesMin = 16 * limits::kMiB;

  // Measures the bytes after the first `staging_bytes`, if there are enough. `threads` host threads work on the copy.
  // The meter is borrowed.
  CopyFlow(CopyMeter& meter, bool is_up, uint64_t bytes, uint64_t staging_bytes, uint32_t threads);
  // Discards the measurement of a copy that has not moved all its bytes.
  ~CopyFlow();
  CopyFlow(const CopyFlow&) = delete;
  CopyFlow& operator=(const CopyFlow&) = delete;

  // Reports that `bytes` more have been moved.
  void Moved(uint64_t bytes);

  // Number of host threads of this process that work on large copies now, and a number that changes whenever it does.
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
  // The time at which the staging memory was full.
  int64_t begin_ns_ = 0;
  uint64_t begin_moved_ = 0, begin_by_all_ = 0;
  // shared_pieces_ counts the pieces moved while another copy was in progress.
  uint64_t pieces_ = 0, shared_pieces_ = 0;
};

}  // namespace hpvm

#endif  // HPVMD_BACKENDS_CONTRACT_COPY_METER_H_
