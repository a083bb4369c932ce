// SPDX-License-Identifier: Apache-2.0
// Common parts of the peers of `hpvm-bench gpu`: device buffers, and a search for the best group size.
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
  // `may_leave_open`: the driver accepts {0, 0, 0} and chooses by itself.
  NativeGpuContender(std::string name, const CpuCase& problem, bool may_leave_open);

  std::string chosen() const override;
  // Finds the fastest of the sizes that divide the case's extents and that the device accepts.
  Status Settle(double seconds) override;
  StatusOr<double> Batch(uint32_t launches) override { return Enqueue(size_, launches); }

 protected:
  // Launches that many times with groups of `size`, with one wait at the end; returns the seconds per launch. An
  // error when the device does not support the size.
  virtual StatusOr<double> Enqueue(const GroupSize& size, uint32_t launches) = 0;
  // Writes all bytes of one array at once.
  virtual Status Write(size_t array, const uint8_t* from, uint64_t bytes) = 0;
  virtual Status Read(size_t array, uint8_t* to, uint64_t bytes) = 0;

  uint64_t BytesOf(size_t array) const;
  // Copies arrays that are updated in place, or `all`, to the device. Outputs are zeros at first, like ours.
  Status Upload(bool all);

 private:
  StatusOr<double> Launch() override;

  const std::vector<GroupSize> sizes_;
  GroupSize size_;
};

// Returns the seconds per launch of `count` launches, where `launch` enqueues number i and `finish` waits for all of
// them.
double SecondsEach(uint32_t count, const std::function<void(uint32_t)>& launch, const std::function<void()>& finish);

// Returns 1 for "opencl:1"; 0 when there is no number.
size_t NumberOf(const std::string& device);

}  // namespace hpvm::bench

#endif  // HPVMD_BENCH_GPU_GPU_NATIVE_H_
