// SPDX-License-Identifier: Apache-2.0
// Runs the short forms of all benchmarks in pairs, of this build and of another, and prints the comparison.
#include <unistd.h>

#include <algorithm>
#include <cstdio>

#include <nlohmann/json.hpp>

#include "backends/registry.h"
#include "bench/compare.h"
#include "bench/processes.h"
#include "bench/report.h"

namespace hpvm::bench {
namespace {

// Command line of a benchmark's short form, understood also by builds older than this command.
struct Benchmark {
  const char* name;
  std::vector<std::string> words;
  // Option that takes a part of a case's name; null when whole names of QuickOverheadCaseNames are passed with
  // --only.
  const char* filter;
};

// Returns true when OpenCL and Vulkan devices, if there are any, are the processor.
bool IsGpuEmulated() {
  Hub hub;
  for (const char* backend : {"opencl:0", "vulkan:0"}) {
    const StatusOr<std::unique_ptr<Device>> device = backends::CreateDevice(backend, hub, {});
    if (device.ok() && !(*device)->info().is_emulated) {
      return false;
    }
  }
  return true;
}

// Drivers that compile for the processor take minutes for the larger kernels.
constexpr const char* kSmallGpuCases[] = {"nstream", "transpose", "tree_sum"};

std::vector<Benchmark> Benchmarks() {
  return {{"cpu", {"--quick", "--peer", "ours_fast"}, "--filter"},
          {"gpu", {"--quick"}, "--filter"},
          {"overhead", {}, nullptr},
          {"sched", {"--quick", "--device", "cpu"}, "--filter"},
          {"service", {"--quick"}, "--filter"},
          {"tenants", {"--quick"}, "--filter"}};
}

// "cpu/nstream" is part "nstream" of benchmark "cpu"; "cpu" is all of it. `is_wanted` is false when `only` does not
// name the benchmark.
std::vector<std::string> PartsOf(const std::string& benchmark, const std::vector<std::string>& only, bool* is_wanted) {
  std::vector<std::string> parts;
  *is_wanted = only.empty();
  for (const std::string& one : only) {
    if (one == benchmark) {
      *is_wanted = true;
      return {};
    }
    if (one.starts_with(benchmark + "/")) {
      *is_wanted = true;
      parts.push_back(one.substr(benchmark.size() + 1));
    }
  }
  return parts;
}

// Returns an empty list when no case is left.
std::vector<std::string> WordsOf(const Benchmark& benchmark, const std::vector<std::string>& parts) {
  std::vector<std::string> words{benchmark.name, "--json"};
  words.insert(words.end(), benchmark.words.begin(), benchmark.words.end());
  if (benchmark.filter != nullptr) {
    if (parts.empty() && benchmark.name == std::string("gpu") && IsGpuEmulated()) {
      for (const char* part : kSmallGpuCases) {
        words.insert(words.end(), {benchmark.filter, part});
      }
    }
    for (const std::string& part : parts) {
      words.insert(words.end(), {benchmark.filter, part});
    }
    return words;
  }
  const size_t before = words.size();
  for (const std::string& name : QuickOverheadCaseNames()) {
    const bool is_wanted = parts.empty() || std::any_of(parts.begin(), parts.end(), [&](const std::string& part) {
                             return name.find(part) != name.npos;
                           });
    if (is_wanted) {
      words.insert(words.end(), {"--only", name});
    }
  }
  return words.size() == before ? std::vector<std::string>() : words;
}

std::string ProgramIn(const std::string& folder) {
  for (const char* place : {"/bin/hpvm-bench", "/hpvm-bench"}) {
    if (access((folder + place).c_str(), X_OK) == 0) {
      return folder + place;
    }
  }
  return "";
}

class Runner {
 public:
  Runner(const CompareOptions& options, std::string base) : options_(options), base_(std::move(base)) {}

  // Returns false when `only` names no case of it.
  bool Run(const Benchmark& benchmark) {
    bool is_wanted = false;
    const std::vector<std::string> parts = PartsOf(benchmark.name, options_.only, &is_wanted);
    const std::vector<std::string> words = WordsOf(benchmark, parts);
    if (!is_wanted || words.empty()) {
      return false;
    }
    for (int pair = 0; pair < options_.pairs; ++pair) {
      std::fprintf(stderr, "hpvm-bench: %s, pair %d of %d\n", benchmark.name, pair + 1, options_.pairs);
      RunOutput outputs[2];  // The base's, then ours.
      for (int turn = 0; turn < 2; ++turn) {
        const int who = (turn + pair) & 1;
        outputs[who] = RunAndRead(who == 0 ? base_ : ProgramFolder() + "/hpvm-bench", words);
      }
      if (!Take(benchmark.name, outputs[0], outputs[1])) {
        break;
      }
    }
    return true;
  }

  const Comparison& comparison() const { return comparison_; }

 private:
  static std::string Ended(int code) {
    return code == kUsage ? "does not know it" : "ended with exit status " + std::to_string(code);
  }

  // Returns false when the base has no such benchmark.
  bool Take(const std::string& benchmark, const RunOutput& base, const RunOutput& ours) {
    const BenchOutput theirs = ReadBenchOutput(base.text), own = ReadBenchOutput(ours.text);
    comparison_.AddPair(benchmark, theirs, own);
    if (ours.code != 0 && own.unverified.empty()) {
      if (base.code == 0) {
        comparison_.Fault(benchmark, "this build's run " + Ended(ours.code) + ", the base's did not");
      } else {
        comparison_.Skip(benchmark, "the runs of both builds end with a failure (" + std::to_string(ours.code) + ")");
      }
    }
    if (theirs.figures.empty()) {
      comparison_.Skip(benchmark, "the base " + Ended(base.code));
      return false;
    }
    return true;
  }

  static constexpr int kUsage = 2;
  const CompareOptions& options_;
  const std::string base_;
  Comparison comparison_;
};

void PrintRow(const ComparedCase& one, double slack, bool json) {
  const MedianInterval ratio = FindMedian(one.ratios);
  const bool is_slower = IsSlower(ratio, slack);
  if (json) {
    const nlohmann::ordered_json line = {{"benchmark", one.benchmark}, {"case", one.name},
                                         {"ratio", ratio.median},      {"low", ratio.low},
                                         {"high", ratio.high},         {"confidence", ratio.confidence},
                                         {"ratios", one.ratios},       {"slower", is_slower}};
    std::printf("%s\n", line.dump().c_str());
    return;
  }
  std::printf("%-10s %-48s %7.3f   %.3f to %.3f%s\n", one.benchmark.c_str(), one.name.c_str(), ratio.median, ratio.low,
              ratio.high, is_slower ? "   SLOWER" : "");
}

void Print(const Comparison& comparison, bool json) {
  if (!json) {
    std::printf(
        "Times of this build over the base's (rates: the base's over this one's): above 1 this build is slower.\n");
    std::printf("%-10s %-48s %7s   %s\n", "benchmark", "case", "ratio", "of pairs");
  }
  for (const ComparedCase& one : comparison.cases()) {
    PrintRow(one, kCaseSlack, json);
  }
  for (const ComparedCase& mean : comparison.Means()) {
    PrintRow(mean, kMeanSlack, json);
  }
  for (const auto& [name, reason] : comparison.skipped()) {
    json ? std::printf("%s\n", nlohmann::ordered_json{{"skipped", name}, {"reason", reason}}.dump().c_str())
         : std::printf("skipped %s: %s\n", name.c_str(), reason.c_str());
  }
  for (const auto& [name, fault] : comparison.faults()) {
    json ? std::printf("%s\n", nlohmann::ordered_json{{"fault", name}, {"reason", fault}}.dump().c_str())
         : std::printf("FAULT %s: %s\n", name.c_str(), fault.c_str());
  }
}

}  // namespace

int RunCompare(const CompareOptions& options, const std::string& command) {
  const std::string base = ProgramIn(options.base);
  if (base.empty()) {
    std::fprintf(stderr, "hpvm-bench: \"%s\" is no build's folder: it has no hpvm-bench, in bin or by itself.\n",
                 options.base.c_str());
    return 2;
  }
  Runner runner(options, base);
  bool any = false;
  for (const Benchmark& benchmark : Benchmarks()) {
    any = runner.Run(benchmark) || any;
  }
  if (!any) {
    std::fprintf(stderr, "hpvm-bench: --only names no case of any benchmark.\n");
    return 2;
  }
  PrintHead("compare", command, options.json);
  if (options.pairs < kPairsToDecide) {
    std::fprintf(stderr, "hpvm-bench: Fewer than %d pairs decide nothing; ratios are printed only.\n", kPairsToDecide);
  }
  Print(runner.comparison(), options.json);
  return runner.comparison().Fails() ? 1 : 0;
}

}  // namespace hpvm::bench
