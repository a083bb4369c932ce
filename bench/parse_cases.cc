// SPDX-License-Identifier: Apache-2.0
// parse/N: parses and validates a document of N leaf nodes.
#include <string>

#include "base/clock.h"
#include "bench/registry.h"
#include "bench/workload.h"
#include "graph/parse.h"

namespace hpvm::bench {
namespace {

constexpr int kRounds = 5;

StatusOr<Measurement> Measure(uint32_t nodes) {
  const std::string document = ToDocument(MakeDag(nodes));
  const auto round = [&]() -> StatusOr<double> {
    const Time start = RealClock().Now();
    const graph::ParseOutcome outcome = graph::Parse(document);
    const Duration elapsed = RealClock().Now() - start;
    // The root and one node per task, without errors.
    if (!outcome.graph.has_value() || outcome.graph->nodes.size() != nodes + 1) {
      return Internal("The document of " + std::to_string(nodes) + " nodes is not parsed as it was written.\n" +
                      ToString(outcome.diagnostics));
    }
    return static_cast<double>(elapsed.count()) / 1e6;
  };
  HPVMD_ASSIGN_OR_RETURN(Measurement measurement, MeasureInterleaved(Better::kLower, {{"ours", round}}, kRounds));
  measurement.verified = true;
  return measurement;
}

}  // namespace

void AddParseCases(std::vector<Case>& cases) {
  for (uint32_t nodes : {1'000u, 10'000u, 100'000u}) {
    cases.push_back({.suite = "overhead",
                     .name = "parse/" + std::to_string(nodes),
                     .metric = "ms",
                     .better = Better::kLower,
                     .run = [nodes] { return Measure(nodes); }});
  }
}

}  // namespace hpvm::bench
