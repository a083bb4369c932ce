// SPDX-License-Identifier: Apache-2.0
// hpv-schedsim: runs seeds of the scheduler's simulation and reports the broken promises of each.
//
//   hpv-schedsim --seed 17               one world
//   hpv-schedsim --seeds 1-100000        many; --seconds ends them early
//   HPVMD_MUTANT=NAME hpv-schedsim ...   with a seeded bug (builds with HPVMD_MUTANTS)
#include <unistd.h>

#include <chrono>
#include <cinttypes>
#include <csignal>
#include <cstdio>
#include <string>

#include <CLI/CLI.hpp>

#include "tests/schedsim/judge_world.h"
#include "tests/schedsim/world.h"

namespace {

volatile uint64_t present_seed = 0;

// Prints the world in which the program dies. Only async-signal-safe calls.
void SayWhere(int signal_number) {
  char text[64] = "\nFAILED seed 00000000000000000000; ended by a signal\n";
  uint64_t rest = present_seed;
  for (int digit = 32; digit > 12; --digit, rest /= 10) {
    text[digit] = static_cast<char>('0' + rest % 10);
  }
  (void)!write(STDOUT_FILENO, text, 53);
  std::signal(signal_number, SIG_DFL);
  std::raise(signal_number);
}

double Now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

}  // namespace

int main(int argc, char** argv) {
  CLI::App app{"The scheduler in simulated worlds."};
  uint64_t seed = 0, failures_max = 1;
  double seconds = 0;
  std::string seeds = "1-1000";
  CLI::Option* one = app.add_option("--seed", seed, "This world alone.");
  app.add_option("--seeds", seeds, "FIRST-LAST.")->capture_default_str()->excludes(one);
  app.add_option("--seconds", seconds, "Begin no world later; 0: run all.");
  app.add_option("--failures", failures_max, "Stop after so many failed worlds.")->capture_default_str();
  CLI11_PARSE(app, argc, argv);
  uint64_t first = seed, last = seed;
  if (one->empty() && std::sscanf(seeds.c_str(), "%" SCNu64 "-%" SCNu64, &first, &last) != 2) {
    std::fprintf(stderr, "hpv-schedsim: --seeds (%s) is not FIRST-LAST.\n", seeds.c_str());
    return 2;
  }
  hpvm::schedsim::Counts counts;
  uint64_t failures = 0;
  for (const int signal_number : {SIGABRT, SIGSEGV, SIGFPE, SIGBUS}) {
    std::signal(signal_number, SayWhere);
  }
  const double start = Now();
  uint64_t at = first;
  for (; at <= last && failures < failures_max && (seconds <= 0 || Now() - start < seconds); ++at) {
    present_seed = at;
    const hpvm::schedsim::Verdict verdict = hpvm::schedsim::RunWorld(at);
    counts.Add(verdict.counts);
    if (!verdict.faults.empty()) {
      ++failures;
      std::printf("FAILED seed %" PRIu64 "; again: hpv-schedsim --seed %" PRIu64 "\n", at, at);
      for (const std::string& fault : verdict.faults) {
        std::printf("  %s\n", fault.c_str());
      }
    }
  }
  // Judges of plans have small worlds of their own.
  constexpr uint64_t kJudgeWorlds = 2000;
  if (one->empty() && failures < failures_max) {
    for (const std::string& broken : hpvm::schedsim::RunJudgeWorlds(first, first + kJudgeWorlds - 1)) {
      ++failures;
      std::printf("FAILED seed %" PRIu64 "; again: hpv-schedsim --seeds %" PRIu64 "-%" PRIu64 "\n  %s\n", first, first,
                  first, broken.c_str());
    }
  }
  const double took = Now() - start;
  std::printf("%s\n%" PRIu64 " seeds (%" PRIu64 " to %" PRIu64 "), %" PRIu64
              " failed, %.1f s, %.0f worlds/s, %.0f "
              "plans/s\n",
              counts.ToString().c_str(), at - first, first, at == first ? first : at - 1, failures, took,
              static_cast<double>(counts.worlds) / took, static_cast<double>(counts.plans) / took);
  return failures == 0 ? 0 : 1;
}
