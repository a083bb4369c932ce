// SPDX-License-Identifier: Apache-2.0
// CpuContender runs a case of `hpvm-bench cpu`: hpvmd and its peers, on the same inputs.
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

// Owns the arrays that it writes; the case owns the inputs, and must outlive it.
class CpuContender {
 public:
  CpuContender(std::string name, const CpuCase& problem);
  virtual ~CpuContender() = default;
  CpuContender(const CpuContender&) = delete;
  CpuContender& operator=(const CpuContender&) = delete;

  const std::string& name() const { return name_; }
  // Performs one launch on fresh arrays. Returns its duration in seconds.
  StatusOr<double> Run();
  // Returns the contents of array number `array` after the last Run.
  uint8_t* data(size_t array) const;
  // Describes the chosen configuration: vectors and tiles, a local size.
  virtual std::string chosen() const { return ""; }
  // Returns true when its threads keep a processor busy for a while after a run.
  virtual bool spins() const { return false; }
  // Returns true for a library's own function, which may sum in any order: CpuCase::error_bound applies to it.
  virtual bool is_library() const { return false; }
  // Launches repeatedly until the contender has settled (variants are measured, sizes tried); for at most about
  // `seconds`.
  virtual Status Settle(double seconds);

 protected:
  // Performs the launch alone; arrays that are updated in place hold their initial values.
  virtual StatusOr<double> Launch() = 0;
  // Returns true if Launch copies kInOut arrays itself instead of writing data() in place.
  virtual bool copies() const { return false; }
  const CpuCase& problem() const { return problem_; }

 private:
  std::string name_;
  const CpuCase& problem_;
  std::vector<PageMemory> written_;  // Indexed by array; empty for inputs.
};

// Returns the duration of one call in seconds.
double Seconds(const std::function<void()>& call);

// Each returns kUnavailable, with the reason, when the peer is not installed or has no such kernel.

// hpvmd itself: compiler, engine and CPU device in this process. `math` is "exact" or "fast".
class CpuEngine {
 public:
  static StatusOr<std::unique_ptr<CpuEngine>> Start();
  virtual ~CpuEngine() = default;
  virtual StatusOr<std::unique_ptr<CpuContender>> Prepare(const CpuCase& problem, const std::string& math) = 0;
  virtual uint32_t threads() const = 0;
  virtual std::string device() const = 0;
};

// The same C, compiled natively with OpenMP: kernels of the shared library bin/bench_cpu/`library`.
StatusOr<std::unique_ptr<CpuContender>> MakeNative(const CpuCase& problem, const std::string& name,
                                                   const std::string& library, const std::string& kernel);

// The same bodies in OpenCL C on PoCL. `tries_sizes`: also groups of 64, 256 and 16 by 16.
StatusOr<std::unique_ptr<CpuContender>> MakePocl(const CpuCase& problem, bool tries_sizes);

// The library's own matrix product, for sgemm and dgemm.
StatusOr<std::unique_ptr<CpuContender>> MakeOpenBlas(const CpuCase& problem, uint32_t threads);

// Sets the environment of the peers' thread pools; call before any of them is loaded.
void SetPeerThreads(uint32_t threads);

}  // namespace hpvm::bench

#endif  // HPVMD_BENCH_CPU_CPU_CONTENDER_H_
