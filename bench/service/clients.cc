// SPDX-License-Identifier: Apache-2.0
#include "bench/service/clients.h"

#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <fstream>
#include <map>
#include <utility>

#include "base/processor_time.h"
#include "bench/service/ring_echo.h"
#include "bench/service/run_calls.h"
#include "bench/service/servers.h"

namespace hpvm::bench {
namespace {

// Resource usage of a process, or several, so far.
struct Spent {
  double sleeps = 0;     // Voluntary context switches: waits, each of which needs a wake-up.
  double displaced = 0;  // Involuntary ones.
  double cpu_us = 0;

  Spent operator-(const Spent& before) const {
    return {sleeps - before.sleeps, displaced - before.displaced, cpu_us - before.cpu_us};
  }
};

// Parses "Name:   12" from a file of /proc.
double NumberAfter(const std::filesystem::path& file, const std::string& name) {
  std::ifstream stream(file);
  for (std::string line; std::getline(stream, line);) {
    if (line.starts_with(name + ":")) {
      return std::strtod(line.c_str() + name.size() + 1, nullptr);
    }
  }
  return 0;
}

// Counts threads that have not ended.
Spent SpentBy(int pid) {
  Spent spent{.cpu_us = static_cast<double>(ProcessorTimeOf(pid).count()) / 1e3};
  std::error_code gone;
  for (const auto& task : std::filesystem::directory_iterator("/proc/" + std::to_string(pid) + "/task", gone)) {
    spent.sleeps += NumberAfter(task.path() / "status", "voluntary_ctxt_switches");
    spent.displaced += NumberAfter(task.path() / "status", "nonvoluntary_ctxt_switches");
  }
  return spent;
}

// Includes threads that have ended.
Spent SpentHere() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  const auto us = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) * 1e6 + static_cast<double>(time.tv_usec);
  };
  return {static_cast<double>(usage.ru_nvcsw), static_cast<double>(usage.ru_nivcsw),
          us(usage.ru_utime) + us(usage.ru_stime)};
}

// Sums all descendants of the process.
Spent SpentByChildren(int pid) {
  std::map<int, int> parents;
  for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
    if (const int other = std::atoi(entry.path().filename().c_str()); other > 0) {
      parents[other] = static_cast<int>(NumberAfter(entry.path() / "status", "PPid"));
    }
  }
  Spent all;
  for (const auto& [child, parent] : parents) {
    int above = parent;
    while (above > 1 && above != pid) {
      const auto found = parents.find(above);
      above = found == parents.end() ? 0 : found->second;
    }
    if (above == pid) {
      const Spent one = SpentBy(child);
      all = {all.sleeps + one.sleeps, all.displaced + one.displaced, all.cpu_us + one.cpu_us};
    }
  }
  return all;
}

// The first case that needs `servers` starts them, for all.
StatusOr<ServiceResult> Measure(std::unique_ptr<Servers>& servers, bool by_ring, uint32_t threads,
                                const ServiceOptions& options) {
  if (servers == nullptr) {
    HPVMD_ASSIGN_OR_RETURN(servers, Servers::Start());
  }
  HPVMD_ASSIGN_OR_RETURN(std::unique_ptr<Client> client,
                         Client::Connect({.endpoint = servers->daemon, .local_ring = by_ring}));
  HPVMD_ASSIGN_OR_RETURN(std::unique_ptr<CallLoad> load, MakeClientLoad(*client, servers->handle, threads));
  if (by_ring) {
    HPVMD_RETURN_IF_ERROR(AwaitRing(*client, *load));
  }
  const uint32_t calls = options.quick ? 200 : threads == 1 ? 20'000 : 60'000;
  HPVMD_RETURN_IF_ERROR(load->Run(calls / 10).status());
  const int daemon = servers->processes[0].pid();
  const Spent here = SpentHere(), there = SpentBy(daemon), below = SpentByChildren(daemon);
  HPVMD_ASSIGN_OR_RETURN(CallLoad::Outcome outcome, load->Run(calls));
  ServiceResult result;
  std::sort(outcome.call_ns.begin(), outcome.call_ns.end());
  const auto at = [&](double part) {
    const size_t i = static_cast<size_t>(part * static_cast<double>(outcome.call_ns.size() - 1));
    return static_cast<double>(outcome.call_ns[i]) / 1e3;
  };
  result.Add("calls_per_s", static_cast<double>(calls) * 1e9 / static_cast<double>(outcome.elapsed.count()));
  result.Add("median_us", at(0.5));
  result.Add("p99_us", at(0.99));
  const std::pair<const char*, Spent> processes[] = {{"client", SpentHere() - here},
                                                     {"daemon", SpentBy(daemon) - there},
                                                     {"executor", SpentByChildren(daemon) - below}};
  double sleeps = 0;
  for (const auto& [name, spent] : processes) {
    result.Add(std::string(name) + "_sleeps_a_call", spent.sleeps / calls);
    result.Add(std::string(name) + "_displaced_a_call", spent.displaced / calls);
    result.Add(std::string(name) + "_cpu_us", spent.cpu_us / calls);
    sleeps += spent.sleeps;
  }
  result.Add("handovers_a_call", sleeps / calls);
  result.verified = (client->CallPath() == "ring") == by_ring;  // Every answer was compared.
  return result;
}

double MedianUs(std::vector<int64_t> ns) {
  std::nth_element(ns.begin(), ns.begin() + static_cast<ptrdiff_t>(ns.size() / 2), ns.end());
  return static_cast<double>(ns[ns.size() / 2]) / 1e3;
}

// Overhead of the library over a gRPC call: the same run by the generated stub alone, by the library's own call, and
// with tensors; in short turns, so that all see the same machine state.
StatusOr<ServiceResult> MeasureAdded(std::unique_ptr<Servers>& servers, const ServiceOptions& options) {
  if (servers == nullptr) {
    HPVMD_ASSIGN_OR_RETURN(servers, Servers::Start());
  }
  HPVMD_ASSIGN_OR_RETURN(
      std::unique_ptr<Client> client,
      Client::Connect(
          {.endpoint = servers->daemon, .credentials = {.ticket = false}, .local_memory = false, .local_ring = false}));
  std::array<std::unique_ptr<CallLoad>, 3> loads;
  HPVMD_ASSIGN_OR_RETURN(loads[0], MakeStubLoad(servers->daemon, servers->handle));
  HPVMD_ASSIGN_OR_RETURN(loads[1], MakeClientLoad(*client, servers->handle, 1));
  HPVMD_ASSIGN_OR_RETURN(loads[2], MakeTensorLoad(*client, servers->handle));
  constexpr uint32_t kTurn = 100;
  std::array<std::vector<int64_t>, 3> took;
  std::array<int64_t, 3> cpu_ns{};  // Processor time of this thread, which makes the calls; waiting does not count.
  const auto cpu_now = [] {
    timespec now{};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return now.tv_sec * int64_t{1'000'000'000} + now.tv_nsec;
  };
  for (uint32_t turn = 0; turn < (options.quick ? 3 : 300); ++turn) {
    for (size_t i = 0; i < loads.size(); ++i) {
      const int64_t before = cpu_now();
      HPVMD_ASSIGN_OR_RETURN(const CallLoad::Outcome outcome, loads[i]->Run(kTurn));
      if (turn != 0) {  // The first turn is a warm-up.
        cpu_ns[i] += cpu_now() - before;
        took[i].insert(took[i].end(), outcome.call_ns.begin(), outcome.call_ns.end());
      }
    }
  }
  const double bare = MedianUs(took[0]), call = MedianUs(took[1]), tensors = MedianUs(took[2]);
  ServiceResult result;
  result.Add("stub_median_us", bare);
  result.Add("call_median_us", call);
  result.Add("tensors_median_us", tensors);
  result.Add("call_added_us", call - bare);
  result.Add("tensors_added_us", tensors - bare);
  const auto cpu_us = [&](size_t i) {
    return static_cast<double>(cpu_ns[i]) / 1e3 / static_cast<double>(took[i].size());
  };
  result.Add("stub_cpu_us", cpu_us(0));
  result.Add("call_added_cpu_us", cpu_us(1) - cpu_us(0));
  result.Add("tensors_added_cpu_us", cpu_us(2) - cpu_us(0));
  result.verified = true;  // Every answer was compared.
  return result;
}

// Effect of polling before sleeping, on calls that do no work.
StatusOr<ServiceResult> MeasureSpin(Duration spin, uint32_t threads, const ServiceOptions& options) {
  HPVMD_ASSIGN_OR_RETURN(std::unique_ptr<RingEcho> echo, RingEcho::Start(spin));
  HPVMD_ASSIGN_OR_RETURN(std::unique_ptr<CallLoad> load, MakeRingEchoLoad(echo->caller(), threads));
  const uint32_t calls = options.quick ? 200 : 30'000;
  HPVMD_RETURN_IF_ERROR(load->Run(calls / 10).status());
  const auto all = [&] {
    Spent spent = SpentHere();
    for (const Process& process : echo->processes()) {
      const Spent one = SpentBy(process.pid());
      spent = {spent.sleeps + one.sleeps, spent.displaced + one.displaced, spent.cpu_us + one.cpu_us};
    }
    return spent;
  };
  const Spent before = all();
  HPVMD_ASSIGN_OR_RETURN(CallLoad::Outcome outcome, load->Run(calls));
  const Spent spent = all() - before;
  std::sort(outcome.call_ns.begin(), outcome.call_ns.end());
  ServiceResult result;
  result.Add("calls_per_s", static_cast<double>(calls) * 1e9 / static_cast<double>(outcome.elapsed.count()));
  result.Add("median_us", static_cast<double>(outcome.call_ns[outcome.call_ns.size() / 2]) / 1e3);
  result.Add("handovers_a_call", spent.sleeps / calls);
  result.Add("cpu_us", spent.cpu_us / calls);
  result.verified = true;
  return result;
}

}  // namespace

int RunClients(const ServiceOptions& options, const std::string& command) {
  std::unique_ptr<Servers> servers;
  std::vector<ServiceCase> cases;
  for (const uint32_t threads : {1, 2, 4, 8, 16, 32, 64}) {
    for (const bool by_ring : {true, false}) {
      cases.push_back(
          {(by_ring ? "ring/" : "grpc/") + std::to_string(threads),
           [&servers, by_ring, threads](const ServiceOptions& o) { return Measure(servers, by_ring, threads, o); }});
    }
  }
  cases.push_back({"added/1", [&servers](const ServiceOptions& o) { return MeasureAdded(servers, o); }});
  for (const int us : {0, 5, 20, 50, 200}) {
    for (const uint32_t threads : {1, 16}) {
      cases.push_back(
          {"spin/" + std::to_string(us) + "us/" + std::to_string(threads),
           [us, threads](const ServiceOptions& o) { return MeasureSpin(std::chrono::microseconds(us), threads, o); }});
    }
  }
  AddPythonCases(cases);
  return RunSuite("clients", cases, options, command);
}

}  // namespace hpvm::bench
