// SPDX-License-Identifier: Apache-2.0
// real/: graphs on this machine's devices, placed by us; against the same graph with every node on one device, and
// against the best that somebody would have got by trying out assignments, or shares of a launch, by hand.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <optional>
#include <utility>

#include "bench/sched/sched.h"
#include "bench/sched/sched_problems.h"

namespace hpvm::bench {
namespace {

// Runs until placement has measured what it wants to know; what is kept afterwards is the same for everybody.
constexpr int kWarmRuns = 40;
constexpr int kRounds = 7;

// The engine's name for what CreateDevice calls "cpu" or "opencl".
std::vector<std::string> IdsOf(LocalEngine& engine, size_t count) {
  std::vector<std::string> ids;
  for (size_t i = 0; i < count; ++i) {
    ids.push_back(engine.device(i).info().id);
  }
  return ids;
}

// Bytes of outputs in the order of their names, as slices of one output follow each other.
std::vector<uint8_t> Gather(const BenchRun& run, const std::string& name) {
  std::vector<uint8_t> all;
  for (const auto& [output, memory] : run.outputs()) {
    if (output.substr(0, output.find_last_not_of("0123456789") + 1) == name) {
      all.insert(all.end(), memory.data(), memory.data() + memory.bytes());
    }
  }
  return all;
}

bool SameOutputs(const BenchRun& a, const BenchRun& b) {
  return std::all_of(a.outputs().begin(), a.outputs().end(), [&](const auto& output) {
    const std::string name = output.first.substr(0, output.first.find_last_not_of("0123456789") + 1);
    return Gather(a, name) == Gather(b, name);
  });
}

StatusOr<BenchRun> Warm(LocalEngine& engine, const BenchGraph& graph, int runs) {
  HPVMD_ASSIGN_OR_RETURN(BenchRun run, BenchRun::Prepare(engine, graph));
  for (int i = 0; i < runs; ++i) {
    HPVMD_RETURN_IF_ERROR(run.Run().status());
  }
  return run;
}

// The best of several graphs, by the best of a few runs each.
StatusOr<BenchRun> BestOf(LocalEngine& engine, const std::vector<BenchGraph>& graphs) {
  std::optional<BenchRun> best;
  double best_s = std::numeric_limits<double>::infinity();
  for (const BenchGraph& graph : graphs) {
    HPVMD_ASSIGN_OR_RETURN(BenchRun run, Warm(engine, graph, 2));
    double least = std::numeric_limits<double>::infinity();
    for (int i = 0; i < 3; ++i) {
      HPVMD_ASSIGN_OR_RETURN(const double seconds, run.Run());
      least = std::min(least, seconds);
    }
    if (least < best_s) {
      best_s = least;
      best = std::move(run);
    }
  }
  return *std::move(best);
}

std::string Used(const RunResult& result) {
  std::map<std::string, int> nodes;
  for (const NodeRecord& record : result.nodes) {
    ++nodes[record.device];
  }
  std::string text;
  for (const auto& [device, count] : nodes) {
    text += (text.empty() ? "" : ", ") + std::to_string(count) + " on " + device;
  }
  return text;
}

// What one case compares.
struct Rivals {
  BenchGraph ours;
  std::map<std::string, BenchGraph> single;  // By device.
  std::vector<BenchGraph> hand;              // Of which the best is taken.
};

StatusOr<Measurement> Measure(LocalEngine& engine, const Rivals& rivals, bool quick) {
  std::map<std::string, BenchRun> peers;
  for (const auto& [device, graph] : rivals.single) {
    HPVMD_ASSIGN_OR_RETURN(BenchRun run, Warm(engine, graph, 2));
    peers.emplace(device, std::move(run));
  }
  if (!rivals.hand.empty()) {
    HPVMD_ASSIGN_OR_RETURN(BenchRun run, BestOf(engine, rivals.hand));
    peers.emplace("hand", std::move(run));
  }
  HPVMD_ASSIGN_OR_RETURN(BenchRun ours, Warm(engine, rivals.ours, quick ? 2 : kWarmRuns));
  std::vector<Contender> contenders = {{"ours", [&] { return ours.Run(); }}};
  for (auto& [name, run] : peers) {
    contenders.push_back({name, [&run = run] { return run.Run(); }});
  }
  HPVMD_ASSIGN_OR_RETURN(Measurement measured, MeasureInterleaved(Better::kLower, contenders, quick ? 1 : kRounds));
  double best = std::numeric_limits<double>::infinity();
  for (const auto& [name, seconds] : measured.peers) {
    best = name == "hand" ? best : std::min(best, seconds);
  }
  measured.figures["of_best_single_ratio"] = best / measured.ours;
  if (measured.peers.contains("hand")) {
    measured.figures["of_hand_ratio"] = measured.peers["hand"] / measured.ours;
  }
  measured.note = Used(ours.last());
  measured.verified =
      std::all_of(peers.begin(), peers.end(), [&](const auto& peer) { return SameOutputs(ours, peer.second); });
  return measured;
}

// Shares of one launch for two or more devices: the first gets what the others leave.
std::vector<BenchGraph> HandSplits(const RowLaunch& launch, const std::vector<std::string>& devices) {
  std::vector<BenchGraph> graphs;
  for (const double share : {0.02, 0.05, 0.1, 0.2, 0.35, 0.5, 0.65, 0.8}) {
    const double each = share / static_cast<double>(devices.size() - 1);
    std::vector<RowLaunch::Part> parts;
    uint64_t at = 0;
    for (size_t i = 1; i < devices.size(); ++i) {
      const auto rows =
          static_cast<uint64_t>(std::llround(each * static_cast<double>(launch.rows))) / launch.grain * launch.grain;
      if (rows > 0) {
        parts.push_back({devices[i], at, rows});
        at += rows;
      }
    }
    parts.push_back({devices[0], at, launch.rows - at});
    graphs.push_back(launch.Parts(parts));
  }
  return graphs;
}

// Every assignment of nodes to two devices.
std::vector<BenchGraph> HandPlacements(const MixedProblem& problem, const std::vector<std::string>& devices) {
  std::vector<BenchGraph> graphs;
  const size_t nodes = problem.graph.nodes.size();
  for (uint64_t mask = 0; mask < (uint64_t{1} << nodes); ++mask) {
    std::vector<std::string> assigned;
    for (size_t i = 0; i < nodes; ++i) {
      assigned.push_back(devices[mask >> i & 1]);
    }
    graphs.push_back(problem.On(assigned));
  }
  return graphs;
}

class RealCases {
 public:
  explicit RealCases(const SchedOptions& options) : options_(options) {}

  StatusOr<Measurement> Split(size_t index) {
    HPVMD_RETURN_IF_ERROR(Start());
    const std::unique_ptr<RowLaunch> problem = std::move(SplitProblems(size())[index]);
    const RowLaunch& launch = *problem;
    Rivals rivals{.ours = launch.Whole(""), .single = {}, .hand = {}};
    for (const std::string& id : Singles(launch.entry == "mri_q")) {
      rivals.single[id] = launch.Whole(id);
    }
    if (const std::vector<std::string> devices = HandDevices(); devices.size() > 1) {
      rivals.hand = HandSplits(launch, devices);
    }
    return Measure(*engine_, rivals, options_.quick);
  }

  StatusOr<Measurement> Mixed(size_t index) {
    HPVMD_RETURN_IF_ERROR(Start());
    const std::unique_ptr<MixedProblem> problem = std::move(MixedProblems(size())[index]);
    Rivals rivals{.ours = problem->On({}), .single = {}, .hand = {}};
    for (const std::string& id : Singles(problem->name == "branches")) {
      rivals.single[id] = problem->On(std::vector<std::string>(problem->graph.nodes.size(), id));
    }
    const std::vector<std::string> devices = HandDevices();
    if (devices.size() > 1 && problem->graph.nodes.size() <= 5) {
      rivals.hand = HandPlacements(*problem, devices);
    }
    return Measure(*engine_, rivals, options_.quick);
  }

 private:
  // lavapipe takes minutes over exact sines.
  std::vector<std::string> Singles(bool has_sines) const {
    std::vector<std::string> ids;
    for (size_t i = 0; i < ids_.size(); ++i) {
      if (!has_sines || !engine_->device(i).info().is_emulated || !ids_[i].starts_with("vulkan")) {
        ids.push_back(ids_[i]);
      }
    }
    return ids;
  }
  // Vulkan's devices are OpenCL's under another name.
  std::vector<std::string> HandDevices() const {
    std::vector<std::string> ids;
    for (const std::string& id : ids_) {
      if (!id.starts_with("vulkan")) {
        ids.push_back(id);
      }
    }
    return ids;
  }
  RealSize size() const {
    return options_.quick ? RealSize::kQuick : options_.large ? RealSize::kLarge : RealSize::kSmall;
  }
  Status Start() {
    if (engine_ == nullptr) {
      HPVMD_ASSIGN_OR_RETURN(engine_,
                             LocalEngine::Start({.kernels = "bench_gpu/kernels.wasm", .devices = options_.devices}));
      ids_ = IdsOf(*engine_, options_.devices.size());
    }
    return absl::OkStatus();
  }

  const SchedOptions options_;
  std::unique_ptr<LocalEngine> engine_;  // One for all cases: what is learnt of kernels stays.
  std::vector<std::string> ids_;
};

}  // namespace

void AddSchedRealCases(std::vector<Case>& cases, const SchedOptions& options) {
  const auto all = std::make_shared<RealCases>(options);
  const auto add = [&](const std::string& name, auto run) {
    cases.push_back({.suite = "sched", .name = "real/" + name, .metric = "s", .better = Better::kLower, .run = run});
  };
  const char* const splits[] = {"black_scholes", "sgemm", "mri_q"};
  for (size_t i = 0; i < std::size(splits); ++i) {
    add(std::string("split/") + splits[i], [all, i] { return all->Split(i); });
  }
  const char* const mixed[] = {"branches", "chain", "tree"};
  for (size_t i = 0; i < std::size(mixed); ++i) {
    add(std::string("mixed/") + mixed[i], [all, i] { return all->Mixed(i); });
  }
}

}  // namespace hpvm::bench
