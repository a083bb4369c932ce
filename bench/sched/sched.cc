// SPDX-License-Identifier: Apache-2.0
#include "bench/sched/sched.h"

#include <algorithm>
#include <cstdio>

#include "bench/report.h"

namespace hpvm::bench {
namespace {

bool IsWanted(const SchedOptions& options, const std::string& name) {
  return options.filters.empty() ||
         std::any_of(options.filters.begin(), options.filters.end(),
                     [&](const std::string& filter) { return name.find(filter) != name.npos; });
}

}  // namespace

int RunSched(const SchedOptions& options, const std::string& command) {
  std::vector<Case> cases;
  AddSchedOverheadCases(cases, options);
  AddSchedQualityCases(cases, options);
  AddSchedRealCases(cases, options);
  AddSchedMemoryCases(cases, options);
  std::erase_if(cases, [&](const Case& one) { return !IsWanted(options, one.name); });
  if (cases.empty()) {
    std::fprintf(stderr, "hpvm-bench: No case has that in its name.\n");
    return 2;
  }
  PrintHead("sched", command, options.json);
  bool good = true;
  for (const Case& one : cases) {
    good = MeasureAndPrint(one, options.json) && good;
  }
  return good ? 0 : 1;
}

}  // namespace hpvm::bench
