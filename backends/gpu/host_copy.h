// SPDX-License-Identifier: Apache-2.0
// Copies between staging memory and the rest of the host's, by several threads where they are large: one thread reaches
// a fraction of what a bus to a device does.
//
// Copies are tasks of slices. Threads take slices of the oldest task first and go on to the next one at once, so that
// none is idle while a task's last slices are made, or while its owner talks to a driver.
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
  // A copy under way. Its owner keeps it where it is from Start until Finish has returned, and may start it again then.
  class Task {
   public:
    Task() = default;
    Task(const Task&) = delete;
    Task& operator=(const Task&) = delete;
    // Behind Finish, if Start asked for them: the least and the greatest of the words of what arrived.
    const ir::WordRange& words() const { return words_; }

   private:
    friend class HostCopier;
    uint8_t* target_ = nullptr;
    const uint8_t* source_ = nullptr;
    uint64_t bytes_ = 0;
    bool has_indices_ = false, is_streamed_ = false;
    uint64_t claimed_ = 0;             // Bytes; guarded by the copier's mutex_.
    ir::WordRange words_;              // The same until all slices are made.
    std::atomic<uint64_t> undone_{0};  // Slices. When it is 0 nobody else looks at the task any more.
  };
  // Both are borrowed until the task is finished.
  struct Bytes {
    uint8_t* target = nullptr;
    const uint8_t* source = nullptr;
    uint64_t bytes = 0;
    bool has_indices = false;  // Looks at the words at `target` once they are there.
    bool is_streamed = false;  // Writes `target` around the caches: nobody here is about to read it.
  };

  // Helpers start with the first task, and run on `near`; where none can be started the owners make all slices. The
  // meter is borrowed for its life.
  HostCopier(uint32_t helpers, CopyMeter& meter, NearCpus near = {})
      : wanted_(helpers), near_(std::move(near)), meter_(meter) {}
  // No task may be under way.
  ~HostCopier();
  HostCopier(const HostCopier&) = delete;
  HostCopier& operator=(const HostCopier&) = delete;

  // Everything is for any thread. Start does not wait; Finish makes slices itself, also other tasks', until the task is
  // done.
  void Start(Task& task, const Bytes& copy);
  void Finish(Task& task);
  // memcpy.
  void Copy(uint8_t* target, const uint8_t* source, uint64_t bytes);

  // For a copy of so many bytes that is made by many tasks: measures it, and has the helpers' cores left alone.
  CopyFlow Flow(bool is_up, uint64_t bytes, uint64_t staging_bytes) {
    return CopyFlow(meter_, is_up, bytes, staging_bytes, wanted_);
  }
  // The same for one that the device makes alone, of which so many bytes are under way at a time.
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
  std::condition_variable came_, done_;  // A task, for helpers; the end of one, for owners.
  std::deque<Task*> open_;               // Guarded by mutex_; those of which slices are left to take, oldest first.
  std::atomic<bool> has_open_{false};    // As open_, for helpers that look before they sleep.
  bool has_started_ = false;             // Guarded by mutex_.
  std::vector<std::thread> helpers_;     // The same.
  std::atomic<bool> closing_{false};     // Changes with mutex_ held.
};

}  // namespace hpvm::gpu

#endif  // HPVMD_BACKENDS_GPU_HOST_COPY_H_
