// SPDX-License-Identifier: Apache-2.0
#include "bench/service/service.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

#include <nlohmann/json.hpp>

#include "bench/report.h"

namespace hpvm::bench {
namespace {

// Rounds to five significant digits, more than such a figure has.
double Rounded(double value) {
  char text[32];
  std::snprintf(text, sizeof(text), "%.5g", value);
  return std::strtod(text, nullptr);
}

bool IsReached(const ServiceResult& result, const ServiceReach& reach) {
  const double value = result.Get(reach.figure);
  return reach.at_least ? value >= reach.bound : value <= reach.bound;
}

void PrintJson(const std::string& suite, const std::string& name, const ServiceResult& result) {
  nlohmann::ordered_json line = {{"suite", suite}, {"case", name}};
  for (const auto& [figure, value] : result.figures) {
    line["figures"][figure] = Rounded(value);
  }
  line["reach"] = nlohmann::ordered_json::array();
  for (const ServiceReach& reach : result.reach) {
    line["reach"].push_back({{"figure", reach.figure},
                             {reach.at_least ? "at_least" : "at_most", reach.bound},
                             {"reached", IsReached(result, reach)}});
  }
  line["note"] = result.note;
  line["verified"] = result.verified;
  std::printf("%s\n", line.dump().c_str());
  std::fflush(stdout);
}

void PrintRows(const std::string& name, const ServiceResult& result) {
  std::printf("%s%s\n", name.c_str(), result.verified ? "" : "   NOT VERIFIED");
  for (const auto& [figure, value] : result.figures) {
    std::printf("  %-28s %12.5g", figure.c_str(), value);
    for (const ServiceReach& reach : result.reach) {
      if (reach.figure == figure) {
        std::printf("   (%s %g: %s)", reach.at_least ? "at least" : "at most", reach.bound,
                    IsReached(result, reach) ? "reached" : "MISSED");
      }
    }
    std::printf("\n");
  }
  if (!result.note.empty()) {
    std::printf("  %s\n", result.note.c_str());
  }
  std::fflush(stdout);
}

bool IsWanted(const ServiceOptions& options, const std::string& name) {
  return options.filters.empty() ||
         std::any_of(options.filters.begin(), options.filters.end(),
                     [&](const std::string& filter) { return name.find(filter) != name.npos; });
}

}  // namespace

double ServiceResult::Get(const std::string& name) const {
  const auto found = std::find_if(figures.begin(), figures.end(), [&](const auto& one) { return one.first == name; });
  return found == figures.end() ? 0 : found->second;
}

double Median(std::vector<double> values) {
  if (values.empty()) {
    return 0;
  }
  const auto middle = values.begin() + static_cast<ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

int RunService(const ServiceOptions& options, const std::string& command) {
  std::vector<ServiceCase> cases;
  AddSubmitCases(cases);
  AddManyCases(cases);
  AddRunCases(cases);
  AddOverloadCases(cases);
  AddRestartCases(cases);
  return RunSuite("service", cases, options, command);
}

int RunSuite(const std::string& suite, const std::vector<ServiceCase>& cases, const ServiceOptions& options,
             const std::string& command) {
  PrintHead(suite, command, options.json);
  bool good = true, any = false;
  for (const ServiceCase& one : cases) {
    if (!IsWanted(options, one.name)) {
      continue;
    }
    any = true;
    const StatusOr<ServiceResult> result = one.run(options);
    if (!result.ok()) {
      std::fprintf(stderr, "hpvm-bench: Case \"%s\": %s\n", one.name.c_str(), Message(result.status()).c_str());
      good = false;
      continue;
    }
    if (options.json) {
      PrintJson(suite, one.name, *result);
    } else {
      PrintRows(one.name, *result);
    }
    good = good && result->verified;
  }
  if (!any) {
    std::fprintf(stderr, "hpvm-bench: No case has that in its name.\n");
    return 2;
  }
  return good ? 0 : 1;
}

}  // namespace hpvm::bench
