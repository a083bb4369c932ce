// SPDX-License-Identifier: Apache-2.0
// `hpvm-bench cpu`: runs every case in turn; the arrays of one are freed before the next.
#include <cstdio>

#include "bench/cpu/cpu_measure.h"
#include "bench/cpu/cpu_report.h"

namespace hpvm::bench {
namespace {

bool Matches(const CpuOptions& options, const std::string& name) {
  for (const std::string& filter : options.filters) {
    if (name.find(filter) != std::string::npos) {
      return true;
    }
  }
  return options.filters.empty();
}

}  // namespace

int RunCpu(const CpuOptions& options, const std::string& command) {
  StatusOr<std::unique_ptr<CpuEngine>> engine = CpuEngine::Start();
  if (!engine.ok()) {
    std::fprintf(stderr, "hpvm-bench: %s\n", Message(engine.status()).c_str());
    return 1;
  }
  SetPeerThreads((*engine)->threads());
  const CpuPrinter printer(options);
  printer.Head(DescribeMachine((*engine)->device(), command));
  CpuResults results;
  bool good = true;
  for (std::span<const CpuCaseMaker> makers : {PrkCases(), ParboilCases(), OtherCases(), SmallArrayCases()}) {
    for (const CpuCaseMaker& maker : makers) {
      if (!Matches(options, maker.name)) {
        continue;
      }
      CpuCase problem = maker.make(options.size);
      StatusOr<CpuMeasurement> measurement = MeasureCpuCase(problem, **engine, options);
      if (!measurement.ok()) {
        std::fprintf(stderr, "hpvm-bench: Case \"%s\": %s\n", maker.name, Message(measurement.status()).c_str());
        good = false;
        continue;
      }
      printer.Case(problem, *measurement);
      good = good && measurement->verified();
      problem.arrays.clear();
      problem.reference = nullptr;
      results.emplace_back(std::move(problem), *std::move(measurement));
    }
  }
  if (results.empty() && good) {
    std::fprintf(stderr, "hpvm-bench: No case has such a name.\n");
    return 2;
  }
  if (options.size != CpuSize::kCheck) {
    printer.Figures(CpuFigures(results));
  }
  return good ? 0 : 1;
}

}  // namespace hpvm::bench
