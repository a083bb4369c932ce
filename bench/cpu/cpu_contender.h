// SPDX-License-Identifier: Apache-2.0
// Who runs a case of `hpvm-bench cpu`: hpvmd and its peers, on the same inputs.
#ifndef HPVMD_BENCH_CPU_CPU_CONTENDER_H_
#define HPVMD_BENCH_CPU_CPU_CONTENDER_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "bench/cpu/cpu_case.h"

namespace hpvm::bench {

// Holds the arrays it writes; inputs are the case's own, which outlives it.
class CpuContender {
 public:
  CpuContender(std::string name, const CpuCase& problem);
  virtual ~CpuContender() = default;
  CpuContender(const CpuContender&) = delete;
  CpuContender& operator=(const CpuContender&) = delete;

  const std::string& name() const { return name_; }
  // One launch on fresh arrays. Returns how long the launch took, in seconds.
  StatusOr<double> Run();
  // What array number `array` holds after the last Run.
  uint8_t* data(size_t array) const;
  // What was chosen, for people: vectors and tiles, a local size.
  virtual std::string chosen() const { return ""; }
  // Its threads keep a processor busy for a while after a run.
  virtual bool spins() const { return false; }
  // A library's function of its own, which sums in whichever order it likes: CpuCase::error_bound holds for it.
  virtual bool is_library() const { return false; }
  // Launches it again until it has settled (variants are measured, sizes tried); at most about `seconds`.
  virtual Status Settle(double seconds);

 protected:
  // The launch alone; arrays that are updated in place hold their initial values.
  virtual StatusOr<double> Launch() = 0;
  // True if Launch does not write data() of what is kInOut from where it is: it copies by itself.
  virtual bool copies() const { return false; }
  const CpuCase& problem() const { return problem_; }

 private:
  std::string name_;
  const CpuCase& problem_;
  std::vector<PageMemory> written_;  // By array; empty for inputs.
};

// Seconds of one call.
double Seconds(const std::function<void()>& call);

// Each gives kUnavailable, with the reason, where the peer is not installed or has no such kernel.

// hpvmd itself: compiler, engine and CPU device in this process. `math` is "exact" or "fast".
class CpuEngine {
 public:
  static StatusOr<std::unique_ptr<CpuEngine>> Start();
  virtual ~CpuEngine() = default;
  virtual StatusOr<std::unique_ptr<CpuContender>> Prepare(const CpuCase& problem, const std::string& math) = 0;
  virtual uint32_t threads() const = 0;
  virtual std::string device() const = 0;
};

// The same C, native, with OpenMP: kernels of the shared library bin/bench_cpu/`library`.
StatusOr<std::unique_ptr<CpuContender>> MakeNative(const CpuCase& problem, const std::string& name,
                                                   const std::string& library, const std::string& kernel);

// The same bodies in OpenCL C on PoCL. `tries_sizes`: also groups of 64, 256 and 16 by 16.
StatusOr<std::unique_ptr<CpuContender>> MakePocl(const CpuCase& problem, bool tries_sizes);

// The library's own product, for sgemm and dgemm.
StatusOr<std::unique_ptr<CpuContender>> MakeOpenBlas(const CpuCase& problem, uint32_t threads);

// Environment of the peers' thread pools; before any of them is loaded.
void SetPeerThreads(uint32_t threads);

}  // namespace hpvm::bench

#endif  // HPVMD_BENCH_CPU_CPU_CONTENDER_H_
