// SPDX-License-Identifier: Apache-2.0
// hpv-sim: runs seeds of the simulation and reports the first broken promise of each.
//
//   hpv-sim --seed 17 --trace          one world, every line
//   hpv-sim --seeds 0..99999 --jobs 2 --log FILE
//   hpv-sim --seconds 60 [--seeds 0..] as many seeds as fit
//   hpv-sim --store ...                the job store alone, much faster
//   hpv-sim --cluster ...              hosts that share a model of a store (server/cluster)
//   hpv-sim --cluster --sqlite ...     hosts that share a daemon's store, on SQLite
//   hpv-sim --mutant NAME ...          with a seeded bug (builds with HPVMD_MUTANTS)
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cinttypes>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>

#include "base/failpoint.h"
#include "server/process/log.h"
#include "tests/sim/cluster_world.h"
#include "tests/sim/store_world.h"
#include "tests/sim/world.h"
#ifdef HPVMD_MUTANTS
#include "base/mutant.h"  // tests/mutants/patched.py writes it.
#endif

namespace hpvm::server::sim {
namespace {

struct Options {
  uint64_t first = 0, last = 0;
  double seconds = 0;
  uint32_t jobs = 1;
  uint32_t failures_max = 10;
  bool trace = false, twice = false, hashes = false, verbose = false, store = false, cluster = false, sqlite = false;
  std::string log, mutant;
};

double Now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

struct Totals {
  uint64_t seeds = 0, failures = 0, jobs = 0, runs = 0, starts = 0, steps = 0;
  double simulated_s = 0;
};

template <typename AnyWorld>
void Report(std::FILE* out, uint64_t seed, const AnyWorld& world, const Verdict& verdict) {
  std::fprintf(out, "FAILED seed %" PRIu64 " commit %s\n  %s: %s\n  plan: %s\n", seed, HPVMD_COMMIT,
               verdict.failure->checker.c_str(), verdict.failure->sentence.c_str(), world.plan().Describe().c_str());
  for (const std::string& line : world.trace().last()) {
    std::fprintf(out, "  | %s\n", line.c_str());
  }
  std::fflush(out);
}

// Returns true when the seed keeps all promises.
template <typename AnyWorld>
bool RunSeed(uint64_t seed, const Options& options, Totals& totals) {
  AnyWorld world(seed, options.trace);
  const Verdict verdict = world.Run();
  ++totals.seeds;
  totals.jobs += verdict.jobs;
  totals.runs += verdict.runs;
  totals.starts += verdict.starts;
  totals.steps += verdict.steps;
  totals.simulated_s += std::chrono::duration<double>(verdict.simulated).count();
  if (options.hashes) {
    std::printf("%" PRIu64 " %016" PRIx64 " %" PRIu64 "\n", seed, verdict.trace_hash, verdict.trace_lines);
  }
  if (options.twice) {
    AnyWorld again(seed, false);
    const Verdict second = again.Run();
    if (second.trace_hash != verdict.trace_hash) {
      std::printf("FAILED seed %" PRIu64 "\n  replay: The same seed gave another trace.\n", seed);
      ++totals.failures;
      return false;
    }
  }
  if (verdict.failure.has_value()) {
    Report(stdout, seed, world, verdict);
    ++totals.failures;
    return false;
  }
  return true;
}

Totals RunRange(const Options& options, uint64_t offset) {
  if (!options.verbose && std::freopen("/dev/null", "w", stderr) == nullptr) {
    std::exit(2);
  }
  StartLog(options.verbose ? "debug" : "error");
  Totals totals;
  const double end = options.seconds > 0 ? Now() + options.seconds : 1e300;
  for (uint64_t seed = options.first + offset; seed <= options.last; seed += options.jobs) {
    if (Now() >= end || totals.failures >= options.failures_max) {
      break;
    }
    if (options.cluster) {
      options.sqlite ? RunSeed<SqliteClusterWorld>(seed, options, totals)
                     : RunSeed<ClusterWorld>(seed, options, totals);
    } else {
      options.store ? RunSeed<StoreWorld>(seed, options, totals) : RunSeed<World>(seed, options, totals);
    }
  }
  return totals;
}

std::string Summary(const Totals& totals, double seconds) {
  char text[512];
  std::snprintf(text, sizeof(text),
                "%" PRIu64 " seeds, %" PRIu64 " failed; %" PRIu64 " jobs, %" PRIu64 " runs, %" PRIu64
                " starts of the daemon, %" PRIu64 " steps; %.0f s simulated in %.1f s (%.1f seeds/s)",
                totals.seeds, totals.failures, totals.jobs, totals.runs, totals.starts, totals.steps,
                totals.simulated_s, seconds, static_cast<double>(totals.seeds) / std::max(seconds, 1e-9));
  return text;
}

// One process for each share of the seeds: worlds share nothing, and SQLite keeps a little state per process.
Totals RunProcesses(const Options& options) {
  if (options.jobs <= 1) {
    return RunRange(options, 0);
  }
  int pipe_fds[2];
  if (pipe(pipe_fds) != 0) {
    std::perror("pipe");
    std::exit(2);
  }
  std::fflush(stdout);
  for (uint32_t job = 0; job < options.jobs; ++job) {
    if (fork() == 0) {
      const Totals totals = RunRange(options, job);
      std::fflush(stdout);
      const ssize_t put = write(pipe_fds[1], &totals, sizeof(totals));
      _exit(put == sizeof(totals) ? 0 : 1);
    }
  }
  close(pipe_fds[1]);
  Totals sum, part;
  uint32_t answers = 0;
  while (read(pipe_fds[0], &part, sizeof(part)) == sizeof(part)) {
    ++answers;
    sum.seeds += part.seeds;
    sum.failures += part.failures;
    sum.jobs += part.jobs;
    sum.runs += part.runs;
    sum.starts += part.starts;
    sum.steps += part.steps;
    sum.simulated_s += part.simulated_s;
  }
  while (wait(nullptr) > 0) {
  }
  if (answers != options.jobs) {
    std::printf("FAILED: a process of the simulation ended early.\n");
    ++sum.failures;
  }
  return sum;
}

int Main(int argc, char** argv) {
  CLI::App app{"Simulates the daemon from seeds: faults, crashes, restarts; and checks its promises."};
  Options options;
  std::string seeds, seed;
  app.add_option("--seed", seed, "One seed");
  app.add_option("--seeds", seeds, "A range, A..B");
  app.add_option("--seconds", options.seconds, "Stop after so long");
  app.add_option("--jobs", options.jobs, "Processes")->check(CLI::Range(1, 64));
  app.add_option("--failures", options.failures_max, "Stop after so many failures");
  app.add_option("--log", options.log, "Append a line on what was run to this file");
  app.add_option("--mutant", options.mutant, "Switch on a seeded bug");
  CLI::Option* const store = app.add_flag("--store", options.store, "The job store alone");
  CLI::Option* const cluster =
      app.add_flag("--cluster", options.cluster, "Hosts that share a model of a store")->excludes(store);
  app.add_flag("--sqlite", options.sqlite, "The hosts share a daemon's store, on SQLite")->needs(cluster);
  app.add_flag("--trace", options.trace, "Print every line");
  app.add_flag("--twice", options.twice, "Run each seed twice and compare");
  app.add_flag("--hashes", options.hashes, "Print each seed's trace hash");
  app.add_flag("--verbose", options.verbose, "Let the daemon log");
  CLI11_PARSE(app, argc, argv);
  options.last = options.seconds > 0 ? UINT64_MAX - options.jobs : 1'999;
  if (!seed.empty()) {
    options.first = options.last = std::strtoull(seed.c_str(), nullptr, 10);
  } else if (!seeds.empty()) {
    const size_t dots = seeds.find("..");
    options.first = std::strtoull(seeds.c_str(), nullptr, 10);
    if (dots != seeds.npos && dots + 2 < seeds.size()) {
      options.last = std::strtoull(seeds.c_str() + dots + 2, nullptr, 10);
    }
  }
  if (!options.mutant.empty()) {
#ifdef HPVMD_MUTANTS
    SetMutant(options.mutant);
#else
    std::fprintf(stderr, "hpv-sim: this build has no seeded bugs (HPVMD_MUTANTS).\n");
    return 2;
#endif
  }
  const double start = Now();
  const Totals totals = RunProcesses(options);
  const std::string summary = Summary(totals, Now() - start);
  std::printf("%s\n", summary.c_str());
  if (!options.log.empty()) {
    if (std::FILE* file = std::fopen(options.log.c_str(), "a"); file != nullptr) {
      std::string command;
      for (int i = 0; i < argc; ++i) {
        command += (i == 0 ? "" : " ") + std::string(i == 0 ? "hpv-sim" : argv[i]);
      }
      std::fprintf(file, "commit %s: %s\n  seeds %" PRIu64 "..%" PRIu64 ": %s\n", HPVMD_COMMIT, command.c_str(),
                   options.first, options.first + totals.seeds - 1, summary.c_str());
      std::fclose(file);
    }
  }
  return totals.failures == 0 ? 0 : 1;
}

}  // namespace
}  // namespace hpvm::server::sim

int main(int argc, char** argv) { return hpvm::server::sim::Main(argc, argv); }
