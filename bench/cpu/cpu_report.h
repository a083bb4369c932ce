// SPDX-License-Identifier: Apache-2.0
// Output of `hpvm-bench cpu`: a table for people, or one JSON object per line.
#ifndef HPVMD_BENCH_CPU_CPU_REPORT_H_
#define HPVMD_BENCH_CPU_CPU_REPORT_H_

#include <string>
#include <utility>
#include <vector>

#include "bench/cpu/cpu_measure.h"

namespace hpvm::bench {

struct CpuMachine {
  std::string processor;  // Name in /proc/cpuinfo, with family and model.
  std::string device;     // hpvmd's name.
  std::string date;       // In UTC.
  std::string command;
};
CpuMachine DescribeMachine(const std::string& device, const std::string& command);

// One figure over all cases, beside its target.
struct CpuFigure {
  std::string name;
  double value = 0;  // 0 when not measured.
  double asked = 0;
};
using CpuResults = std::vector<std::pair<CpuCase, CpuMeasurement>>;  // Without arrays.
std::vector<CpuFigure> CpuFigures(const CpuResults& results);

class CpuPrinter {
 public:
  explicit CpuPrinter(const CpuOptions& options) : options_(options) {}
  void Head(const CpuMachine& machine) const;
  void Case(const CpuCase& problem, const CpuMeasurement& measurement) const;
  void Figures(const std::vector<CpuFigure>& figures) const;

 private:
  const CpuOptions& options_;
};

}  // namespace hpvm::bench

#endif  // HPVMD_BENCH_CPU_CPU_REPORT_H_
