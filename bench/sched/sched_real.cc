// SPDX-License-Identifier: Apache-2.0
// real/: graphs on this machine's devices, placed by us; compared with the same graph with every node on one device,
// with equal shares of a launch on the GPUs alone, and with the best static split or assignment found by search.
//
// Ours runs first, so that nothing is known yet in its first runs: `first_30_ratio` is their time, in units of later
// runs. Later runs go in pairs with the best single device's: `pairs_ratio` is their median, `worst_pair_ratio` the
// worst (including this machine's noise); above 1 ours is faster.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <utility>

#include "bench/sched/sched.h"
#include "bench/sched/sched_problems.h"

namespace hpvm::bench {
namespace {

// Runs in which placement explores, and more runs until exploration ends.
constexpr int kFirstRuns = 30, kMoreRuns = 10;
constexpr int kRounds = 7, kPairs = 15;

// Returns the engine's names for what CreateDevice calls "cpu" or "opencl".
std::vector<std::string> IdsOf(LocalEngine& engine, size_t count) {
  std::vector<std::string> ids;
  for (size_t i = 0; i < count; ++i) {
    ids.push_back(engine.device(i).info().id);
  }
  return ids;
}

// Returns the bytes of outputs in the order of their names, because slices of one output follow each other.
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

// Rivals that take this many times as long as another are not measured any further.
constexpr double kHopeless = 4;

// Returns the best of several graphs, by the best of a few runs each.
StatusOr<BenchRun> BestOf(LocalEngine& engine, const std::vector<BenchGraph>& graphs) {
  std::optional<BenchRun> best;
  double best_s = std::numeric_limits<double>::infinity();
  for (const BenchGraph& graph : graphs) {
    HPVMD_ASSIGN_OR_RETURN(BenchRun run, BenchRun::Prepare(engine, graph));
    HPVMD_ASSIGN_OR_RETURN(double least, run.Run());
    for (int i = 0; i < 4 && least < kHopeless * best_s; ++i) {
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

double MedianOf(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + static_cast<ptrdiff_t>(values.size() / 2), values.end());
  return values[values.size() / 2];
}

// Describes where launches and their parts ran, and why long ones were not split.
std::string Used(const engine::RunResult& result) {
  std::map<std::string, int> nodes;
  std::set<std::string_view> reasons;
  for (const engine::NodeRecord& record : result.nodes) {
    ++nodes[record.device];
    if (!record.whole.empty()) {
      reasons.insert(record.whole);
    }
  }
  std::string text;
  for (const auto& [device, count] : nodes) {
    text += (text.empty() ? "" : ", ") + std::to_string(count) + " on " + device;
  }
  for (const std::string_view reason : reasons) {
    text += "; not split: " + std::string(reason);
  }
  return text;
}

// The contenders of one case.
struct Alternatives {
  BenchGraph ours;
  std::map<std::string, BenchGraph> single;  // Keyed by device.
  std::vector<BenchGraph> gpus;              // Equal shares for the GPUs alone; none or one.
  std::vector<BenchGraph> search;            // The fastest of these is the rival.
};

// Measures ours and the fastest single device in turn, ours first in every other pair.
Status MeasurePairs(BenchRun& ours, BenchRun& single, int pairs, Measurement* measured) {
  std::vector<double> ratios;
  for (int i = 0; i < pairs; ++i) {
    std::array<double, 2> seconds{};  // Ours, single.
    for (const int which : {i % 2, 1 - i % 2}) {
      HPVMD_ASSIGN_OR_RETURN(seconds[static_cast<size_t>(which)], (which == 0 ? ours : single).Run());
    }
    ratios.push_back(seconds[1] / seconds[0]);
  }
  measured->figures["worst_pair_ratio"] = *std::min_element(ratios.begin(), ratios.end());
  measured->figures["pairs_ratio"] = MedianOf(ratios);
  return absl::OkStatus();
}

StatusOr<Measurement> Measure(LocalEngine& engine, const Alternatives& alternatives, bool quick) {
  HPVMD_ASSIGN_OR_RETURN(BenchRun ours, BenchRun::Prepare(engine, alternatives.ours));
  double first_s = 0;
  const int first_runs = quick ? 2 : kFirstRuns;
  for (int i = 0; i < first_runs; ++i) {
    HPVMD_ASSIGN_OR_RETURN(const double seconds, ours.Run());
    first_s += seconds;
  }
  for (int i = 0; i < (quick ? 0 : kMoreRuns); ++i) {
    HPVMD_RETURN_IF_ERROR(ours.Run().status());
  }
  std::map<std::string, BenchRun> peers;
  std::map<std::string, double> warm_s;
  double best_s = std::numeric_limits<double>::infinity();
  for (const auto& [device, graph] : alternatives.single) {
    HPVMD_ASSIGN_OR_RETURN(BenchRun run, Warm(engine, graph, 1));
    HPVMD_ASSIGN_OR_RETURN(warm_s[device], run.Run());
    best_s = std::min(best_s, warm_s[device]);
    peers.emplace(device, std::move(run));
  }
  for (const auto& [name, graphs] :
       {std::pair("gpus", &alternatives.gpus), std::pair("search", &alternatives.search)}) {
    if (!graphs->empty()) {
      HPVMD_ASSIGN_OR_RETURN(BenchRun run, BestOf(engine, *graphs));
      peers.emplace(name, std::move(run));
    }
  }
  std::vector<Contender> contenders = {{"ours", [&] { return ours.Run(); }}};
  for (auto& [name, run] : peers) {
    if (!warm_s.contains(name) || warm_s[name] < kHopeless * best_s) {
      contenders.push_back({name, [&run = run] { return run.Run(); }});
    }
  }
  HPVMD_ASSIGN_OR_RETURN(Measurement measured, MeasureInterleaved(Better::kLower, contenders, quick ? 1 : kRounds));
  measured.peers.insert(warm_s.begin(), warm_s.end());
  std::string best;
  for (const auto& [device, graph] : alternatives.single) {
    best = best.empty() || measured.peers[device] < measured.peers[best] ? device : best;
  }
  measured.figures["of_best_single_ratio"] = measured.peers[best] / measured.ours;
  for (const std::string name : {"gpus", "search"}) {
    if (measured.peers.contains(name)) {
      measured.figures["of_" + name + "_ratio"] = measured.peers[name] / measured.ours;
    }
  }
  measured.figures["first_30_ratio"] = first_s / first_runs / measured.ours;
  HPVMD_RETURN_IF_ERROR(MeasurePairs(ours, peers.at(best), quick ? 1 : kPairs, &measured));
  measured.note = Used(ours.last());
  measured.verified =
      std::all_of(peers.begin(), peers.end(), [&](const auto& peer) { return SameOutputs(ours, peer.second); });
  return measured;
}

// Divides a launch into parts of the given shares, one per device; the last one gets the rounding remainder.
BenchGraph InShares(const RowLaunch& launch, const std::vector<std::string>& devices, std::span<const double> shares) {
  std::vector<RowLaunch::Part> parts;
  uint64_t at = 0;
  for (size_t i = 0; i < devices.size(); ++i) {
    const auto rows =
        static_cast<uint64_t>(std::llround(shares[i] * static_cast<double>(launch.rows))) / launch.grain * launch.grain;
    const uint64_t part = i + 1 == devices.size() ? launch.rows - at : std::min(rows, launch.rows - at);
    if (part > 0) {
      parts.push_back({devices[i], at, part});
      at += part;
    }
  }
  return launch.Parts(parts);
}

// At most twelve static splits: the processor, which comes first, gets a share, equal GPUs the rest, in equal and in
// unequal parts.
std::vector<BenchGraph> SearchSplits(const RowLaunch& launch, const std::vector<std::string>& devices) {
  std::vector<BenchGraph> graphs;
  const auto gpus = static_cast<double>(devices.size() - 1);
  std::vector<double> shares(devices.size());
  for (const double processor : {0.0, 0.01, 0.02, 0.05, 0.1, 0.2, 0.35, 0.5, 0.65, 0.8}) {
    std::fill(shares.begin(), shares.end(), (1 - processor) / gpus);
    shares[0] = processor;
    graphs.push_back(InShares(launch, devices, shares));
  }
  if (devices.size() == 3) {
    for (const double second : {0.45, 0.55}) {
      graphs.push_back(InShares(launch, devices, std::vector<double>{0, second, 1 - second}));
    }
  }
  return graphs;
}

// Every assignment of nodes to two devices.
std::vector<BenchGraph> SearchPlacements(const MixedProblem& problem, const std::vector<std::string>& devices) {
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
    Alternatives alternatives{.ours = launch.Whole(""), .single = {}, .gpus = {}, .search = {}};
    for (const std::string& id : Singles(launch.entry == "mri_q")) {
      alternatives.single[id] = launch.Whole(id);
    }
    const std::vector<std::string> devices = OneApi();
    if (devices.size() > 1 && devices[0].starts_with("cpu")) {
      alternatives.search = SearchSplits(launch, devices);
    }
    const std::vector<std::string> gpus(devices.begin() + (devices[0].starts_with("cpu") ? 1 : 0), devices.end());
    if (gpus.size() > 1) {
      alternatives.gpus.push_back(
          InShares(launch, gpus, std::vector<double>(gpus.size(), 1 / static_cast<double>(gpus.size()))));
    }
    return Measure(*engine_, alternatives, options_.quick);
  }

  StatusOr<Measurement> Mixed(size_t index) {
    HPVMD_RETURN_IF_ERROR(Start());
    const std::unique_ptr<MixedProblem> problem = std::move(MixedProblems(size())[index]);
    Alternatives alternatives{.ours = problem->On({}), .single = {}, .gpus = {}, .search = {}};
    for (const std::string& id : Singles(problem->name == "branches")) {
      alternatives.single[id] = problem->On(std::vector<std::string>(problem->graph.nodes.size(), id));
    }
    const std::vector<std::string> devices = OneApi();
    if (devices.size() > 1 && problem->graph.nodes.size() <= 3) {
      alternatives.search = SearchPlacements(*problem, devices);
    }
    return Measure(*engine_, alternatives, options_.quick);
  }

  // Dependent launches on the first GPU: their time by its own clock, as a share of the whole run. The point where
  // the curve passes a half is the METG of E. Slaughter et al., "Task Bench" (SC 2020).
  StatusOr<Measurement> Launches(uint64_t elements) {
    HPVMD_RETURN_IF_ERROR(Start());
    const auto gpu =
        std::find_if(ids_.begin(), ids_.end(), [](const std::string& id) { return !id.starts_with("cpu"); });
    if (gpu == ids_.end()) {
      return NotFound("There is no GPU among the devices.");
    }
    constexpr int kNodes = 256;
    const MixedProblem chain = LaunchChain(elements, kNodes);
    HPVMD_ASSIGN_OR_RETURN(
        BenchRun run, Warm(*engine_, chain.On(std::vector<std::string>(kNodes, *gpu)), options_.quick ? 2 : kMoreRuns));
    Measurement measured;
    for (int i = 0; i < (options_.quick ? 1 : kRounds); ++i) {
      HPVMD_RETURN_IF_ERROR(run.Run().status());
      double nodes_ns = 0;
      for (const engine::NodeRecord& node : run.last().nodes) {
        nodes_ns += static_cast<double>(node.end_ns - node.start_ns);
      }
      const double efficiency = nodes_ns / static_cast<double>(run.last().run.count());
      if (efficiency > measured.ours) {
        measured.ours = efficiency;
        measured.figures["node_us"] = nodes_ns / kNodes / 1000;
      }
    }
    measured.note = Used(run.last());
    const std::vector<float> expected = LaunchChainResult(chain);
    measured.verified =
        std::memcmp(expected.data(), run.outputs().at("sum").data(), expected.size() * sizeof(float)) == 0;
    return measured;
  }

 private:
  // lavapipe takes minutes for exact sines.
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
  std::vector<std::string> OneApi() const {
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
  std::unique_ptr<LocalEngine> engine_;  // Shared by all cases, so that measurements of kernels are kept.
  std::vector<std::string> ids_;
};

}  // namespace

void AddSchedRealCases(std::vector<Case>& cases, const SchedOptions& options) {
  const auto all = std::make_shared<RealCases>(options);
  const auto add = [&](const std::string& name, auto run) {
    cases.push_back({.suite = "sched", .name = "real/" + name, .metric = "s", .better = Better::kLower, .run = run});
  };
  const char* const splits[] = {"black_scholes", "sgemm", "mri_q", "n_body"};
  for (size_t i = 0; i < std::size(splits); ++i) {
    add(std::string("split/") + splits[i], [all, i] { return all->Split(i); });
  }
  const char* const mixed[] = {"branches", "chain", "heat_200", "tree"};
  for (size_t i = 0; i < std::size(mixed); ++i) {
    add(std::string("mixed/") + mixed[i], [all, i] { return all->Mixed(i); });
  }
  for (const uint64_t elements : {uint64_t{1} << 10, uint64_t{1} << 16, uint64_t{1} << 20, uint64_t{1} << 24}) {
    if (!options.quick || elements <= 1 << 16) {
      cases.push_back({.suite = "sched",
                       .name = "overhead/efficiency/gpu/" + std::to_string(elements),
                       .metric = "efficiency",
                       .better = Better::kHigher,
                       .run = [all, elements] { return all->Launches(elements); }});
    }
  }
}

}  // namespace hpvm::bench
