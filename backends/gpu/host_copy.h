// SPDX-License-Identifier: Apache-2.0
// HostCopier copies between staging memory and other host memory, with several threads for large copies, because one
// thread reaches only a fraction of a device bus's speed.
//
// Copies are tasks of slices. Threads take slices of the oldest task first and continue with the next one at once, so
// that none is idle while a task's last slices are copied, or while its owner calls a driver.
#ifndef HPVMD_BACKENDS_GPU_HOST_COPY_H_
#define HPVMD_BACKENDS_GPU_HOST_COPY_H_

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "backends/contract/copy_meter.h"
#include "backends/gpu/known_words.h"
#include "backends/gpu/near_cpus.h"
#include "backends/gpu/staging_shape.h"

namespace hpvm::gpu {

class HostCopier {
 public:
  // A copy in progress. Its owner must not move it from Start until Finish has returned, and may then start it again.
  class Task {
   public:
    Task() = default;
    Task(const Task&) = delete;
    Task& operator=(const Task&) = delete;
    // After Finish, if requested by Start: the minimum and maximum of the copied words.
    const ir::WordRange& words() const { return words_; }

   private:
    friend class HostCopier;
    uint8_t* target_ = nullptr;
    const uint8_t* source_ = nullptr;
    uint64_t bytes_ = 0;
    bool has_indices_ = false, is_streamed_ = false;
    uint64_t claimed_ = 0;  // Bytes; guarded by the copier's mutex_.
    ir::WordRange words_;   // Guarded likewise until all slices are done.
    // Number of slices. When it is 0, no other thread accesses the task any more.
    std::atomic<uint64_t> undone_{0};
  };
  // Both are borrowed until the task is finished.
  struct Bytes {
    uint8_t* target = nullptr;
    const uint8_t* source = nullptr;
    uint64_t bytes = 0;
    bool has_indices = false;  // Scans the words at `target` once they are there.
    bool is_streamed = false;  // Writes `target` bypassing the caches, because no thread here is about to read it.
  };

  // Helpers start with the first task, and run on `near`; when none can be started the owners copy all slices. The
  // meter is borrowed for the copier's life.
  HostCopier(uint32_t helpers, CopyMeter& meter, NearCpus near = {})
      : wanted_(helpers), near_(std::move(near)), meter_(meter) {}
  // No task may be in progress.
  ~HostCopier();
  HostCopier(const HostCopier&) = delete;
  HostCopier& operator=(const HostCopier&) = delete;

  // All methods are thread-safe. Start does not wait; Finish copies slices itself, including other tasks', until the
  // task is done.
  void Start(Task& task, const Bytes& copy);
  void Finish(Task& task);
  // Like memcpy.
  void Copy(uint8_t* target, const uint8_t* source, uint64_t bytes);

  // Measures a copy of `bytes` made by many tasks, and reserves the helpers' cores for it.
  CopyFlow Flow(bool is_up, uint64_t bytes, uint64_t staging_bytes) {
    return CopyFlow(meter_, is_up, bytes, staging_bytes, wanted_);
  }
  // The same for a copy made by the device alone, of which `bytes_ahead` are in progress at a time.
  CopyFlow PinnedFlow(bool is_up, uint64_t bytes, uint64_t bytes_ahead) {
    return CopyFlow(meter_, is_up, bytes, bytes_ahead, 0);
  }

 private:
  void StartHelpers();
  void Serve();
  bool MakeSlice();
  void Await(const Task& task);

  const uint32_t wanted_;
  const NearCpus near_;
  CopyMeter& meter_;
  std::mutex mutex_;
  std::condition_variable came_, done_;  // Signals a new task to helpers, and the end of a task to owners.
  // Guarded by mutex_; tasks with slices left to take, oldest first.
  std::deque<Task*> open_;
  std::atomic<bool> has_open_{false};  // As open_, for helpers that poll before they sleep.
  bool has_started_ = false;           // Guarded by mutex_.
  std::vector<std::thread> helpers_;   // Guarded by mutex_.
  std::atomic<bool> closing_{false};   // Changed with mutex_ held.
};

}  // namespace hpvm::gpu

#endif  // HPVMD_BACKENDS_GPU_HOST_COPY_H_
