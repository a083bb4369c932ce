// SPDX-License-Identifier: Apache-2.0
// hpvm-bench: measures the overhead of hpvmd and the speed of kernels, beside peers that do the same work.
//
//   hpvm-bench overhead [--json] [--only CASE]... [--quick]
//   hpvm-bench cpu [--json] [--filter NAME]... [--quick | --check] [--peer NAME]... [--seconds S]
//   hpvm-bench service [--json] [--filter NAME]... [--quick]
//   hpvm-bench clients [--json] [--quick]
//   hpvm-bench connections --direct HPVMD [--json] [--filter NAME]... [--quick] [--pairs N]
//   hpvm-bench tenants [--json] [--filter NAME]... [--quick]
//   hpvm-bench sched [--json] [--filter NAME]... [--quick]
//   hpvm-bench cluster [--json] [--filter NAME]... [--quick]
//   hpvm-bench gpu [--json] [--filter NAME]... [--quick | --check] [--device ID]... [--seconds S]
//   hpvm-bench compare BASE [--json] [--only BENCHMARK[/PART]]... [--pairs N]
//
// Exit code 0 when every case of the list (or every one asked for) was measured and verified, 1 otherwise, 2 for a
// wrong command line.
#include <algorithm>
#include <cstdio>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>

#include "bench/cluster/cluster.h"
#include "bench/compare.h"
#include "bench/cpu/cpu_measure.h"
#include "bench/gpu/gpu_run.h"
#include "bench/registry.h"
#include "bench/report.h"
#include "bench/sched/sched.h"
#ifdef HPVMD_BENCH_DAEMON
#include "absl/synchronization/mutex.h"

#include "bench/service/clients.h"
#include "bench/service/connections.h"
#include "bench/service/peer_server.h"
#include "bench/service/ring_echo.h"
#include "bench/service/service.h"
#include "bench/tenants/tenants.h"
#endif

namespace hpvm::bench {
namespace {

std::vector<Case> AllCases() {
  std::vector<Case> cases;
  AddEngineCases(cases);
  AddParseCases(cases);
#ifdef HPVMD_BENCH_DAEMON
  AddDaemonCases(cases);
#endif
  return cases;
}

// Returns false when the case is missing, fails or is not verified.
bool RunCase(const std::vector<Case>& cases, const std::string& name, bool json) {
  const auto c = std::find_if(cases.begin(), cases.end(), [&](const Case& one) { return one.name == name; });
  if (c == cases.end()) {
    std::fprintf(stderr, "hpvm-bench: Case \"%s\" is missing in this build.\n", name.c_str());
    return false;
  }
  return MeasureAndPrint(*c, json);
}

int Overhead(bool json, bool quick, const std::vector<std::string>& only) {
  const std::vector<std::string> names = OverheadCaseNames();
  for (const std::string& name : only) {
    if (std::find(names.begin(), names.end(), name) == names.end()) {
      std::fprintf(stderr, "hpvm-bench: There is no case \"%s\".\n", name.c_str());
      return 2;
    }
  }
  const std::vector<Case> cases = AllCases();
  if (!json) {
    std::printf("%-34s %-20s %12s  peers\n", "case", "metric", "ours");
  }
  bool good = true;
  for (const std::string& name : !only.empty() ? only : quick ? QuickOverheadCaseNames() : names) {
    good = RunCase(cases, name, json) && good;
  }
  return good ? 0 : 1;
}

// A subcommand, and what it does with the whole command line.
struct Command {
  CLI::App* app = nullptr;
  std::function<int(const std::string& command)> run;
};
using Commands = std::vector<Command>;

// --json, --filter and --quick, which most suites have.
template <typename Options>
CLI::Option* AddCommonOptions(CLI::App* app, Options& options, bool& quick, const std::string& quick_text,
                              const std::string& filter_text = "Only cases with this in their names.") {
  app->add_flag("--json", options.json, "One JSON object a line.");
  app->add_option("--filter", options.filters, filter_text);
  return app->add_flag("--quick", quick, quick_text);
}

void AddOverhead(CLI::App& app, Commands& commands) {
  struct Options {
    bool json = false, quick = false;
    std::vector<std::string> only;
  };
  const auto options = std::make_shared<Options>();
  CLI::App* const overhead = app.add_subcommand("overhead", "Cost a node, a call, a byte and a parsed node.");
  overhead->add_flag("--json", options->json, "One JSON object a line.");
  overhead->add_option("--only", options->only, "Only these cases.");
  overhead->add_flag("--quick", options->quick, "Seven of the cases.");
  commands.push_back(
      {overhead, [options](const auto&) { return Overhead(options->json, options->quick, options->only); }});
}

void AddCompare(CLI::App& app, Commands& commands) {
  const auto options = std::make_shared<CompareOptions>();
  CLI::App* const compare =
      app.add_subcommand("compare", "The short forms of all of them, of this build and another in pairs.");
  compare->add_option("BASE", options->base, "The other build's folder.")->required();
  compare->add_flag("--json", options->json, "One JSON object a line.");
  compare->add_option("--only", options->only,
                      "Only \"cpu\", or of it what has \"nstream\" in its name: \"cpu/nstream\".");
  compare->add_option("--pairs", options->pairs, "Runs of each build.")
      ->check(CLI::Range(1, 1000))
      ->capture_default_str();
  commands.push_back({compare, [options](const auto& command) { return RunCompare(*options, command); }});
}

// --quick and --check of kernels.
struct Sizes {
  bool quick = false, check = false;
  CpuSize size() const { return check ? CpuSize::kCheck : quick ? CpuSize::kQuick : CpuSize::kFull; }
};

void AddCpu(CLI::App& app, Commands& commands) {
  const auto options = std::make_shared<CpuOptions>();
  const auto sizes = std::make_shared<Sizes>();
  CLI::App* const cpu = app.add_subcommand("cpu", "Kernels on the processor, beside OpenMP, PoCL and OpenBLAS.");
  CLI::Option* const quick = AddCommonOptions(cpu, *options, sizes->quick, "Smaller sizes, about a minute.");
  cpu->add_flag("--check", sizes->check, "Tiny sizes, one launch each: only whether results are right.")
      ->excludes(quick);
  cpu->add_option("--peer", options->peers, "Only these beside ours: ours_fast, openmp, openmp_contract, pocl ...");
  cpu->add_option("--seconds", options->seconds, "Measuring time of a case.")->check(CLI::Range(0.01, 600.0));
  commands.push_back({cpu, [options, sizes](const auto& command) {
                        options->size = sizes->size();
                        return RunCpu(*options, command);
                      }});
}

void AddGpu(CLI::App& app, Commands& commands) {
  const auto options = std::make_shared<GpuOptions>();
  const auto sizes = std::make_shared<Sizes>();
  CLI::App* const gpu = app.add_subcommand("gpu", "Kernels, launches and copies on GPUs, beside OpenCL C and CUDA.");
  CLI::Option* const quick =
      AddCommonOptions(gpu, *options, sizes->quick, "Smaller sizes, for processors behind a GPU's driver.",
                       "Only cases with this in their names; \"figures\": launches, copies.");
  gpu->add_flag("--check", sizes->check, "Tiny sizes, one launch each: only whether results are right.")
      ->excludes(quick);
  gpu->add_option("--device", options->devices, "As the server names it: opencl:0, vulkan:0.");
  gpu->add_option("--seconds", options->seconds, "Measuring time of a case.")->check(CLI::Range(0.01, 600.0));
  commands.push_back({gpu, [options, sizes](const auto& command) {
                        options->size = sizes->size();
                        return RunGpu(*options, command);
                      }});
}

void AddSched(CLI::App& app, Commands& commands) {
  const auto options = std::make_shared<SchedOptions>();
  CLI::App* const sched =
      app.add_subcommand("sched", "The scheduler: cost a node, quality of plans, mixed graphs, memory.");
  AddCommonOptions(sched, *options, options->quick, "Smaller sizes and few rounds: only whether all is right.");
  sched->add_flag("--large", options->large, "real/, memory/: sizes for large GPUs.");
  options->devices = {"cpu", "opencl", "vulkan"};
  sched->add_option("--device", options->devices, "real/, memory/: cpu, opencl:0, vulkan:0.")->capture_default_str();
  commands.push_back({sched, [options](const auto& command) { return RunSched(*options, command); }});
}

void AddCluster(CLI::App& app, Commands& commands) {
  const auto options = std::make_shared<ClusterOptions>();
  CLI::App* const cluster =
      app.add_subcommand("cluster", "The store of jobs that hosts share, on PostgreSQL and SQLite.");
  AddCommonOptions(cluster, *options, options->quick, "Few jobs: only whether all is right.");
  commands.push_back({cluster, [options](const auto& command) { return RunCluster(*options, command); }});
}

#ifdef HPVMD_BENCH_DAEMON
void AddService(CLI::App& app, Commands& commands) {
  using Run = int (*)(const ServiceOptions&, const std::string&);
  const auto add = [&](const char* name, const char* text, const char* quick_text, Run run) {
    const auto options = std::make_shared<ServiceOptions>();
    CLI::App* const suite = app.add_subcommand(name, text);
    AddCommonOptions(suite, *options, options->quick, quick_text);
    commands.push_back({suite, [options, run](const auto& command) { return run(*options, command); }});
  };
  add("service", "The daemon under load: submits, runs, overload, restart.",
      "A few calls each: only whether all is right.", &RunService);
  add("tenants", "What tenants cost: their processes, sandboxes and company.",
      "A few rounds each: only whether all is right.", &RunTenants);
  add("clients", "Callers on the daemon's host, by ring and by gRPC.", "A few calls each: only whether all is right.",
      &RunClients);
}

void AddConnections(CLI::App& app, Commands& commands) {
  const auto options = std::make_shared<ConnectionOptions>();
  CLI::App* const connections =
      app.add_subcommand("connections", "What limiting connections costs, beside a daemon without.");
  AddCommonOptions(connections, options->service, options->service.quick,
                   "A few calls each: only whether all is right.");
  connections->add_option("--direct", options->direct, "The daemon without limits: its program.")->required();
  connections->add_option("--pairs", options->pairs, "Rounds of each.")
      ->check(CLI::Range(1, 1000))
      ->capture_default_str();
  commands.push_back({connections, [options](const auto& command) { return RunConnections(*options, command); }});
}

// Internal commands with which the daemon's cases start their peers.
void AddPeers(CLI::App& app, Commands& commands) {
  const auto endpoint = std::make_shared<std::string>();
  CLI::App* const peer = app.add_subcommand("serve-peer", "")->group("");
  peer->add_option("endpoint", *endpoint)->required();
  commands.push_back({peer, [endpoint](const auto&) { return ServePeer(*endpoint); }});
  const auto fds = std::make_shared<std::vector<int>>();
  CLI::App* const middle = app.add_subcommand("serve-ring-middle", "")->group("");
  middle->add_option("fds", *fds)->required()->expected(5);
  commands.push_back({middle, [fds](const auto&) { return ServeRingMiddle(*fds); }});
  CLI::App* const worker = app.add_subcommand("serve-ring-worker", "")->group("");
  worker->add_option("fds", *fds)->required()->expected(3);
  commands.push_back({worker, [fds](const auto&) { return ServeRingWorker(*fds); }});
}
#endif

int Main(int argc, char** argv) {
  CLI::App app("Measures what hpvmd costs and how quick kernels are, beside peers that do the same work.",
               "hpvm-bench");
  app.require_subcommand(1);
  Commands commands;
  AddOverhead(app, commands);
  AddCompare(app, commands);
  AddCpu(app, commands);
  AddGpu(app, commands);
  AddSched(app, commands);
  AddCluster(app, commands);
#ifdef HPVMD_BENCH_DAEMON
  AddService(app, commands);
  AddConnections(app, commands);
  AddPeers(app, commands);
#endif
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;
  }
  std::string line;
  for (int i = 0; i < argc; ++i) {
    line += std::string(i == 0 ? "" : " ") + argv[i];
  }
  const auto chosen = std::ranges::find_if(commands, [](const Command& command) { return command.app->parsed(); });
  return chosen == commands.end() ? 2 : chosen->run(line);
}

}  // namespace
}  // namespace hpvm::bench

int main(int argc, char** argv) {
#ifdef HPVMD_BENCH_DAEMON
  // As in hpvmd, for the load and the peer alike: Debian's Abseil otherwise checks the order of gRPC's locks.
  absl::SetMutexDeadlockDetectionMode(absl::OnDeadlockCycle::kIgnore);
#endif
  return hpvm::bench::Main(argc, argv);
}
