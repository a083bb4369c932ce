// SPDX-License-Identifier: Apache-2.0
// `hpvm-bench compare BASE` compares this build with another one. The short form of every benchmark runs in pairs,
// one run of each build right after the other; the order alternates from pair to pair. The compared values are ratios
// within pairs.
//
// A ratio says how much slower this build is: 1.03 is 3 % more time, or 1 / 1.03 of the rate.
#ifndef HPVMD_BENCH_COMPARE_H_
#define HPVMD_BENCH_COMPARE_H_

#include <map>
#include <set>
#include <string>
#include <vector>

#include "bench/registry.h"

namespace hpvm::bench {

// A median, and an interval that contains it with `confidence` whatever the distribution (the interval's ends are
// values).
struct MedianInterval {
  double median = 0, low = 0, high = 0;
  double confidence = 0;
};
// Returns the narrowest interval of at least 90 %; for fewer than five values the interval of all. `values` must not
// be empty.
MedianInterval FindMedian(std::vector<double> values);
// Returns true when slower by more than `slack` (0.03: 3 %), and not by chance: with that confidence, and the whole
// interval above 1.
bool IsSlower(const MedianInterval& ratio, double slack);

inline constexpr int kPairsToDecide = 5;  // With fewer pairs no interval has that confidence.
inline constexpr double kCaseSlack = 0.03;
inline constexpr double kMeanSlack = 0.01;

// Output of one run of one benchmark.
struct BenchOutput {
  struct Figure {
    double value = 0;
    Better better = Better::kLower;
    bool counts = true;  // Part of the benchmark's geometric mean.
  };
  std::map<std::string, Figure> figures;  // By "case" or "case: figure".
  std::set<std::string> unverified;       // Names of cases.
};
// `text` holds the lines that `hpvm-bench ... --json` printed, of this build or an earlier one. Lines without figures
// of ours are skipped: heads, peers, tails (a short form has too few calls for them).
BenchOutput ReadBenchOutput(const std::string& text);

struct ComparedCase {
  std::string benchmark, name;
  std::vector<double> ratios;  // One per pair in which both builds have the figure.
  bool counts = true;
};

class Comparison {
 public:
  void AddPair(const std::string& benchmark, const BenchOutput& base, const BenchOutput& ours);
  void Skip(const std::string& name, const std::string& reason) { skipped_[name] = reason; }

  // In the order in which the benchmarks came, cases by name.
  const std::vector<ComparedCase>& cases() const { return cases_; }
  // Returns each benchmark's geometric mean over its cases, one per pair.
  std::vector<ComparedCase> Means() const;
  const std::map<std::string, std::string>& skipped() const { return skipped_; }
  void Fault(const std::string& name, const std::string& what) { faults_[name] = what; }
  // Returns the faults of this build's runs.
  const std::map<std::string, std::string>& faults() const { return faults_; }
  // Returns true when the geometric mean of cpu or gpu is slower, or a run of this build has a fault.
  bool Fails() const;

 private:
  ComparedCase& CaseOf(const std::string& benchmark, const std::string& name, bool counts);

  std::vector<ComparedCase> cases_;
  std::vector<std::string> benchmarks_;
  std::map<std::string, std::vector<double>> means_;  // Keyed by benchmark; one value per pair.
  std::map<std::string, std::string> skipped_;        // Reasons, by case or benchmark.
  std::map<std::string, std::string> faults_;
};

struct CompareOptions {
  std::string base;               // Folder of a build, or its bin.
  std::vector<std::string> only;  // "cpu", "cpu/nstream": parts of case names; everything when empty.
  int pairs = 5;
  bool json = false;
};
// Returns the exit code: 1 when Comparison::Fails, 2 when BASE holds no benchmark or `only` names none.
int RunCompare(const CompareOptions& options, const std::string& command);

}  // namespace hpvm::bench

#endif  // HPVMD_BENCH_COMPARE_H_
