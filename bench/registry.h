// SPDX-License-Identifier: Apache-2.0
// The benchmark's cases. One file per family, each with one Add function; overhead.cc holds the fixed list of names
// that must all exist.
//
// A case measures ours and its peers in the same process run, interleaved, and takes the minimum (for rates the
// maximum) of several rounds; MeasureInterleaved does that. `verified` says that the data of every contender was
// checked after its last round.
#ifndef HPVMD_BENCH_REGISTRY_H_
#define HPVMD_BENCH_REGISTRY_H_

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "base/status.h"

namespace hpvm::bench {

enum class Better { kHigher, kLower };

struct Measurement {
  double ours = 0;
  std::map<std::string, double> peers;
  std::map<std::string, double> figures{};  // Further figures; names end in their unit.
  std::string note{};                       // For people.
  bool verified = false;
};

struct Case {
  std::string suite;   // "overhead", "sched".
  std::string name;    // "chain/10000".
  std::string metric;  // With its unit: "us_per_node", "calls_per_s".
  Better better = Better::kLower;
  std::function<StatusOr<Measurement>()> run;
};

// One contender of a case. `round` does the work once and returns the value of the metric; an error ends the case.
struct Contender {
  std::string name;  // "ours" or the peer's name.
  std::function<StatusOr<double>()> round;
};
// Runs the contenders in turn, `rounds` times after one unmeasured turn, and keeps the best value of each.
StatusOr<Measurement> MeasureInterleaved(Better better, const std::vector<Contender>& contenders, int rounds);

// bench/engine_cases.cc: chain/N, wide/N, dag/N in the engine alone; peers tbb and starpu.
void AddEngineCases(std::vector<Case>& cases);
// bench/parse_cases.cc: parse/N.
void AddParseCases(std::vector<Case>& cases);
// bench/service/daemon_cases.cc: run/1, run/64, transfer/64MiB, and chain, wide and dag through an executor;
// bench/service/local_cases.cc: local/64MiB, registered/256MiB; bench/service/ring_cases.cc: ring/1, ring/64.
void AddDaemonCases(std::vector<Case>& cases);

// Returns every case of the suite, in order; the command fails when one is missing or not verified.
std::vector<std::string> OverheadCaseNames();
// Returns the cases of its short form.
std::vector<std::string> QuickOverheadCaseNames();

}  // namespace hpvm::bench

#endif  // HPVMD_BENCH_REGISTRY_H_
