// SPDX-License-Identifier: Apache-2.0
// Contenders of `hpvm-bench gpu`: hpvmd's devices, and hand-written OpenCL C and CUDA C++, on one GPU each.
#ifndef HPVMD_BENCH_GPU_GPU_CONTENDER_H_
#define HPVMD_BENCH_GPU_GPU_CONTENDER_H_

#include <memory>
#include <string>

#include "bench/cpu/cpu_contender.h"
#include "bench/local_engine.h"

namespace hpvm::bench {

// GpuContender keeps its arrays on the device. Run() is one launch on fresh arrays, whose outputs are copied back for
// verification.
class GpuContender : public CpuContender {
 public:
  using CpuContender::CpuContender;
  // Launches that many times in a row on the present arrays, with one wait at the end; returns the seconds per
  // launch.
  virtual StatusOr<double> Batch(uint32_t launches) = 0;
  // Spends at least `seconds` on finding variants and group sizes.
  Status Settle(double seconds) override = 0;

 protected:
  bool copies() const override { return true; }
};

// hpvmd's compiler and one of its GPU devices, in this process. `rig` has that device first and the CPU device second.
StatusOr<std::unique_ptr<GpuContender>> MakeGpuOurs(const std::string& name, const CpuCase& problem, LocalEngine& rig,
                                                    bool fast_math);

// GpuPeer is another API for the same GPU: one in-order queue, and the kernels of bench/gpu/kernels.h.
class GpuPeer {
 public:
  virtual ~GpuPeer() = default;
  virtual std::string name() const = 0;
  // `exact` means without contraction, with correctly rounded division and square roots; otherwise as fast as the
  // peer's compiler makes it. The contender is named after the peer and the mode.
  virtual StatusOr<std::unique_ptr<GpuContender>> Prepare(const CpuCase& problem, bool exact) = 0;
  // Returns a library's own function for the case; kUnavailable when there is none.
  virtual StatusOr<std::unique_ptr<GpuContender>> PrepareLibrary(const CpuCase&) {
    return Unavailable("This peer has no library.");
  }
  // Returns the seconds per launch: `count` tiny kernels, each waiting for the previous one (one buffer), or not
  // (kLaunchBuffers).
  virtual StatusOr<double> Launches(uint32_t count, bool dependent) = 0;
  // Bytes per second, from and to pinned memory, and on the device.
  struct Copies {
    double to_device = 0, from_device = 0, on_device = 0;
  };
  virtual StatusOr<Copies> MeasureCopies(uint64_t) { return Unavailable("This peer measures no copies."); }

 protected:
  static constexpr size_t kLaunchBuffers = 250, kLaunchBytes = 64;
};

// `device` is hpvmd's name, "opencl:0"; CUDA uses its number alone. kUnavailable when there is none.
StatusOr<std::unique_ptr<GpuPeer>> StartOpenClPeer(const std::string& device);
StatusOr<std::unique_ptr<GpuPeer>> StartCudaPeer(const std::string& device);

}  // namespace hpvm::bench

#endif  // HPVMD_BENCH_GPU_GPU_CONTENDER_H_
