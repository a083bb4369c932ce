// SPDX-License-Identifier: Apache-2.0
// `hpvm-bench gpu`: Wasm leaves on GPUs beside hand-written OpenCL C, and beside CUDA C++ when the build had nvcc.
#ifndef HPVMD_BENCH_GPU_GPU_RUN_H_
#define HPVMD_BENCH_GPU_GPU_RUN_H_

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "bench/cpu/cpu_measure.h"

namespace hpvm::bench {

struct GpuOptions {
  CpuSize size = CpuSize::kFull;
  bool json = false;
  std::vector<std::string> devices;  // "opencl:0"; when empty, the first real one of each interface, else the first.
  std::vector<std::string> filters;  // Parts of case names; all when empty.
  double seconds = 0;                // Measuring time of a case; determined by the size when 0.
};

struct GpuMachine {
  std::vector<std::pair<std::string, std::string>> devices;  // Id and name.
  std::string date, command;
};

// Figures other than kernels: the cost of launches (us each) and copies (GB/s), by measurement, then by contender.
using GpuFigures = std::map<std::string, std::map<std::string, double>>;

struct GpuCaseResult {
  std::string name, sizes, unit;
  double work = 0;
  CpuMeasurement measurement;
};

class GpuPrinter {
 public:
  explicit GpuPrinter(const GpuOptions& options) : options_(options) {}
  void Head(const GpuMachine& machine) const;
  void Case(const GpuCaseResult& result) const;
  void Figures(const GpuFigures& figures) const;
  // Prints figures over all cases, beside their targets. `ours` lists hpvmd's contenders.
  void Summary(const std::vector<GpuCaseResult>& results, const GpuFigures& figures,
               const std::vector<std::string>& ours) const;

 private:
  // Prints, over all cases that both have, the geometric mean of the peer's time over ours, and the minimum, beside
  // their targets. Prints nothing when they have none in common.
  void Over(const std::vector<GpuCaseResult>& results, const std::string& ours, const std::string& peer,
            const std::string& title, double mean, double least) const;
  void Asked(const std::string& name, double value, double asked, bool less = false) const;
  const GpuOptions& options_;
};

// Returns the exit code.
int RunGpu(const GpuOptions& options, const std::string& command);

}  // namespace hpvm::bench

#endif  // HPVMD_BENCH_GPU_GPU_RUN_H_
