// SPDX-License-Identifier: Apache-2.0
// The common part of the peers of `hpvm-bench gpu`: buffers of the device, and a search for the best size of groups.
#ifndef HPVMD_BENCH_GPU_GPU_NATIVE_H_
#define HPVMD_BENCH_GPU_GPU_NATIVE_H_

#include <array>
#include <functional>
#include <string>
#include <vector>

#include "bench/gpu/gpu_contender.h"

namespace hpvm::bench {

using GroupSize = std::array<uint64_t, 3>;

class NativeGpuContender : public GpuContender {
 public:
  // `may_leave_open`: the driver takes {0, 0, 0} and chooses by itself.
  NativeGpuContender(std::string name, const CpuCase& problem, bool may_leave_open);

  std::string chosen() const override;
  // The quickest size of those that divide the case's extents and that the device takes.
  Status Settle(double seconds) override;
  StatusOr<double> Batch(uint32_t launches) override { return Enqueue(size_, launches); }

 protected:
  // As many launches with groups of `size`, one wait behind them; seconds of one. A size that is more than the device
  // has is an error.
  virtual StatusOr<double> Enqueue(const GroupSize& size, uint32_t launches) = 0;
  // All bytes of one array, at once.
  virtual Status Write(size_t array, const uint8_t* from, uint64_t bytes) = 0;
  virtual Status Read(size_t array, uint8_t* to, uint64_t bytes) = 0;

  uint64_t BytesOf(size_t array) const;
  // Copies what is updated in place, or `all`, to the device. Outputs are zeros at first, as ours are.
  Status Upload(bool all);

 private:
  StatusOr<double> Launch() override;

  const std::vector<GroupSize> sizes_;
  GroupSize size_;
};

// Seconds of each of `count` launches, of which `launch` enqueues number i; `finish` waits for all of them.
double SecondsEach(uint32_t count, const std::function<void(uint32_t)>& launch, const std::function<void()>& finish);

// 1 of "opencl:1"; 0 where none is said.
size_t NumberOf(const std::string& device);

}  // namespace hpvm::bench

#endif  // HPVMD_BENCH_GPU_GPU_NATIVE_H_
