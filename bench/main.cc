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

}  // namespace
}  // namespace hpvm::bench

int main(int argc, char** argv) {
#ifdef HPVMD_BENCH_DAEMON
  // As in hpvmd, for the load and the peer alike: Debian's Abseil otherwise checks the order of gRPC's locks.
  absl::SetMutexDeadlockDetectionMode(absl::OnDeadlockCycle::kIgnore);
#endif
  CLI::App app("Measures what hpvmd costs and how quick kernels are, beside peers that do the same work.",
               "hpvm-bench");
  app.require_subcommand(1);
  CLI::App* overhead = app.add_subcommand("overhead", "Cost a node, a call, a byte and a parsed node.");
  bool json = false;
  std::vector<std::string> only;
  overhead->add_flag("--json", json, "One JSON object a line.");
  overhead->add_option("--only", only, "Only these cases.");
  bool quick = false, check = false;
  overhead->add_flag("--quick", quick, "Seven of the cases.");
  CLI::App* compare =
      app.add_subcommand("compare", "The short forms of all of them, of this build and another in pairs.");
  hpvm::bench::CompareOptions compare_options;
  compare->add_option("BASE", compare_options.base, "The other build's folder.")->required();
  compare->add_flag("--json", compare_options.json, "One JSON object a line.");
  compare->add_option("--only", compare_options.only,
                      "Only \"cpu\", or of it what has \"nstream\" in its name: \"cpu/nstream\".");
  compare->add_option("--pairs", compare_options.pairs, "Runs of each build.")
      ->check(CLI::Range(1, 1000))
      ->capture_default_str();
  CLI::App* cpu = app.add_subcommand("cpu", "Kernels on the processor, beside OpenMP, PoCL and OpenBLAS.");
  hpvm::bench::CpuOptions cpu_options;
  cpu->add_flag("--json", cpu_options.json, "One JSON object a line.");
  cpu->add_option("--filter", cpu_options.filters, "Only cases with this in their names.");
  CLI::Option* quick_flag = cpu->add_flag("--quick", quick, "Smaller sizes, about a minute.");
  cpu->add_flag("--check", check, "Tiny sizes, one launch each: only whether results are right.")->excludes(quick_flag);
  cpu->add_option("--peer", cpu_options.peers, "Only these beside ours: ours_fast, openmp, openmp_contract, pocl ...");
  cpu->add_option("--seconds", cpu_options.seconds, "Measuring time of a case.")->check(CLI::Range(0.01, 600.0));
  CLI::App* gpu = app.add_subcommand("gpu", "Kernels, launches and copies on GPUs, beside OpenCL C and CUDA.");
  hpvm::bench::GpuOptions gpu_options;
  gpu->add_flag("--json", gpu_options.json, "One JSON object a line.");
  gpu->add_option("--filter", gpu_options.filters,
                  "Only cases with this in their names; \"figures\": launches, copies.");
  CLI::Option* gpu_quick = gpu->add_flag("--quick", quick, "Smaller sizes, for processors behind a GPU's driver.");
  gpu->add_flag("--check", check, "Tiny sizes, one launch each: only whether results are right.")->excludes(gpu_quick);
  gpu->add_option("--device", gpu_options.devices, "As the server names it: opencl:0, vulkan:0.");
  gpu->add_option("--seconds", gpu_options.seconds, "Measuring time of a case.")->check(CLI::Range(0.01, 600.0));
  CLI::App* sched = app.add_subcommand("sched", "The scheduler: cost a node, quality of plans, mixed graphs, memory.");
  hpvm::bench::SchedOptions sched_options;
  sched->add_flag("--json", sched_options.json, "One JSON object a line.");
  sched->add_option("--filter", sched_options.filters, "Only cases with this in their names.");
  sched->add_flag("--quick", sched_options.quick, "Smaller sizes and few rounds: only whether all is right.");
  sched->add_flag("--large", sched_options.large, "real/, memory/: sizes for large GPUs.");
  sched_options.devices = {"cpu", "opencl", "vulkan"};
  sched->add_option("--device", sched_options.devices, "real/, memory/: cpu, opencl:0, vulkan:0.")
      ->capture_default_str();
  CLI::App* cluster = app.add_subcommand("cluster", "The store of jobs that hosts share, on PostgreSQL and SQLite.");
  hpvm::bench::ClusterOptions cluster_options;
  cluster->add_flag("--json", cluster_options.json, "One JSON object a line.");
  cluster->add_option("--filter", cluster_options.filters, "Only cases with this in their names.");
  cluster->add_flag("--quick", cluster_options.quick, "Few jobs: only whether all is right.");
#ifdef HPVMD_BENCH_DAEMON
  CLI::App* service = app.add_subcommand("service", "The daemon under load: submits, runs, overload, restart.");
  hpvm::bench::ServiceOptions service_options;
  service->add_flag("--json", service_options.json, "One JSON object a line.");
  service->add_option("--filter", service_options.filters, "Only cases with this in their names.");
  service->add_flag("--quick", service_options.quick, "A few calls each: only whether all is right.");
  CLI::App* tenants = app.add_subcommand("tenants", "What tenants cost: their processes, sandboxes and company.");
  tenants->add_flag("--json", service_options.json, "One JSON object a line.");
  tenants->add_option("--filter", service_options.filters, "Only cases with this in their names.");
  tenants->add_flag("--quick", service_options.quick, "A few rounds each: only whether all is right.");
  CLI::App* connections =
      app.add_subcommand("connections", "What limiting connections costs, beside a daemon without.");
  hpvm::bench::ConnectionOptions connection_options;
  connections->add_flag("--json", connection_options.service.json, "One JSON object a line.");
  connections->add_option("--filter", connection_options.service.filters, "Only cases with this in their names.");
  connections->add_flag("--quick", connection_options.service.quick, "A few calls each: only whether all is right.");
  connections->add_option("--direct", connection_options.direct, "The daemon without limits: its program.")->required();
  connections->add_option("--pairs", connection_options.pairs, "Rounds of each.")
      ->check(CLI::Range(1, 1000))
      ->capture_default_str();
  // Internal option with which the daemon's cases start their peer.
  std::string peer_endpoint;
  CLI::App* serve_peer = app.add_subcommand("serve-peer", "")->group("");
  serve_peer->add_option("endpoint", peer_endpoint)->required();
  std::vector<int> ring_fds;
  CLI::App* ring_middle = app.add_subcommand("serve-ring-middle", "")->group("");
  ring_middle->add_option("fds", ring_fds)->required()->expected(5);
  CLI::App* ring_worker = app.add_subcommand("serve-ring-worker", "")->group("");
  ring_worker->add_option("fds", ring_fds)->required()->expected(3);
  CLI::App* clients = app.add_subcommand("clients", "Callers on the daemon's host, by ring and by gRPC.");
  clients->add_flag("--json", service_options.json, "One JSON object a line.");
  clients->add_option("--filter", service_options.filters, "Only cases with this in their names.");
  clients->add_flag("--quick", service_options.quick, "A few calls each: only whether all is right.");
#endif
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;
  }
#ifdef HPVMD_BENCH_DAEMON
  if (*serve_peer) {
    return hpvm::bench::ServePeer(peer_endpoint);
  }
  if (*ring_middle) {
    return hpvm::bench::ServeRingMiddle(ring_fds);
  }
  if (*ring_worker) {
    return hpvm::bench::ServeRingWorker(ring_fds);
  }
#endif
  using hpvm::bench::CpuSize;
  const CpuSize size = check ? CpuSize::kCheck : quick ? CpuSize::kQuick : CpuSize::kFull;
  std::string command;
  for (int i = 0; i < argc; ++i) {
    command += std::string(i == 0 ? "" : " ") + argv[i];
  }
#ifdef HPVMD_BENCH_DAEMON
  if (*clients) {
    return hpvm::bench::RunClients(service_options, command);
  }
  if (*connections) {
    return hpvm::bench::RunConnections(connection_options, command);
  }
  if (*service) {
    return hpvm::bench::RunService(service_options, command);
  }
  if (*tenants) {
    return hpvm::bench::RunTenants(service_options, command);
  }
#endif
  if (*compare) {
    return hpvm::bench::RunCompare(compare_options, command);
  }
  if (*cpu) {
    cpu_options.size = size;
    return hpvm::bench::RunCpu(cpu_options, command);
  }
  if (*sched) {
    return hpvm::bench::RunSched(sched_options, command);
  }
  if (*cluster) {
    return hpvm::bench::RunCluster(cluster_options, command);
  }
  if (*gpu) {
    gpu_options.size = size;
    return hpvm::bench::RunGpu(gpu_options, command);
  }
  return hpvm::bench::Overhead(json, quick, only);
}
