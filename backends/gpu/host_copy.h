// SPDX-License-Identifier: Apache-2.0
// Copies between staging memory and the rest of the host's, by several threads where they are large: one thread reaches
// a fraction of what a bus to a device does.
#ifndef HPVMD_BACKENDS_GPU_HOST_COPY_H_
#define HPVMD_BACKENDS_GPU_HOST_COPY_H_

#include <atomic>
#include <cstdint>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "backends/contract/copy_meter.h"
#include "backends/gpu/near_cpus.h"

namespace hpvm::gpu {

class HostCopier {
 public:
  // As many helpers as a host of so many processors can spare for a device, none on small ones.
  static uint32_t UsualHelpers();

  // Helpers start with the first large copy, and run on `near`; where none can be started the caller copies alone.
  // The meter is borrowed for its life.
  HostCopier(uint32_t helpers, CopyMeter& meter, NearCpus near = {})
      : wanted_(helpers), near_(std::move(near)), meter_(meter) {}
  ~HostCopier();
  HostCopier(const HostCopier&) = delete;
  HostCopier& operator=(const HostCopier&) = delete;

  // memcpy. Any thread; helpers serve one copy at a time, another that comes meanwhile is made by its caller alone.
  void Copy(uint8_t* target, const uint8_t* source, uint64_t bytes);

  // For a copy of so many bytes that is made by many calls of Copy: measures it, and has the helpers' cores left alone.
  CopyFlow Flow(bool is_up, uint64_t bytes, uint64_t staging_bytes) {
    return CopyFlow(meter_, is_up, bytes, staging_bytes, wanted_);
  }
  // The same for one that the device makes alone, of which so many bytes are under way at a time.
  CopyFlow PinnedFlow(bool is_up, uint64_t bytes, uint64_t bytes_ahead) {
    return CopyFlow(meter_, is_up, bytes, bytes_ahead, 0);
  }

 private:
  void Start();
  void Serve();
  bool CopySlice();

  const uint32_t wanted_;
  const NearCpus near_;
  CopyMeter& meter_;
  std::mutex mutex_;                  // Held by the one whose copy is served.
  bool has_started_ = false;          // Guarded by mutex_.
  std::vector<std::thread> helpers_;  // The same.

  // The copy being served. A slice is claimed by taking one from left_; whoever has claimed one may read the rest,
  // which changes only when all claimed ones are done.
  std::atomic<int64_t> left_{0};
  std::atomic<int64_t> undone_{0};
  uint8_t* target_ = nullptr;
  const uint8_t* source_ = nullptr;
  uint64_t bytes_ = 0;

  std::atomic<uint32_t> turns_{0};  // Counts copies; what idle helpers wait on.
  std::atomic<bool> closing_{false};
};

}  // namespace hpvm::gpu

#endif  // HPVMD_BACKENDS_GPU_HOST_COPY_H_
