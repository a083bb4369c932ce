// SPDX-License-Identifier: Apache-2.0
// Who runs a case of `hpvm-bench gpu`: hpvmd's devices and hand-written OpenCL C, on one GPU each.
#ifndef HPVMD_BENCH_GPU_GPU_CONTENDER_H_
#define HPVMD_BENCH_GPU_GPU_CONTENDER_H_

#include <memory>
#include <string>

#include "bench/cpu/cpu_contender.h"
#include "bench/local_engine.h"

namespace hpvm::bench {

// Its arrays stay on the device. Run() is one launch on fresh ones, whose outputs come back for looking at.
class GpuContender : public CpuContender {
 public:
  using CpuContender::CpuContender;
  // As many launches in a row on what lies there, one wait at the end; seconds of one.
  virtual StatusOr<double> Batch(uint32_t launches) = 0;
  // At least until `seconds` are spent on finding variants and group sizes.
  Status Settle(double seconds) override = 0;

 protected:
  bool copies() const override { return true; }
};

// hpvmd's compiler and one of its GPU devices, in this process. `rig` has that device first and the CPU device second.
StatusOr<std::unique_ptr<GpuContender>> MakeGpuOurs(const std::string& name, const CpuCase& problem, LocalEngine& rig,
                                                    bool fast_math);

// Plain OpenCL on the same GPU: a queue, in order, and the kernels of bin/bench_gpu/opencl.cl.
class OpenClPeer {
 public:
  // `device` as hpvmd names it, "opencl:0".
  static StatusOr<std::unique_ptr<OpenClPeer>> Start(const std::string& device);
  virtual ~OpenClPeer() = default;
  // `exact`: without contraction, with correctly rounded division and square roots; else as the driver builds it
  // without options.
  virtual StatusOr<std::unique_ptr<GpuContender>> Prepare(const CpuCase& problem, bool exact) = 0;
  // Seconds of a launch: `count` tiny kernels, each waiting for the one before (one buffer), or not (a buffer each of
  // 250).
  virtual StatusOr<double> Launches(uint32_t count, bool dependent) = 0;
  // Bytes a second, from and to pinned memory, and on the device.
  struct Copies {
    double to_device = 0, from_device = 0, on_device = 0;
  };
  virtual StatusOr<Copies> MeasureCopies(uint64_t bytes) = 0;
};

}  // namespace hpvm::bench

#endif  // HPVMD_BENCH_GPU_GPU_CONTENDER_H_
