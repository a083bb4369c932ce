// SPDX-License-Identifier: Apache-2.0
#include "engine/costs.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <mutex>
#include <set>
#include <unordered_map>
#include <utility>

#include "engine/cost_store.h"
#include "engine/launch_work.h"
#include "engine/prepared_graph.h"
#include "scheduler/cost/cost_history.h"

namespace hpvm::engine {
namespace {

using scheduler::CostHistory;
using scheduler::DeviceFacts;
using scheduler::SampleOption;
using scheduler::Task;
using scheduler::TransferLine;
using scheduler::Work;

// The divisor that gives the share of a run's time for feeding, and the time for examining one launch.
constexpr int64_t kFeedShare = 100;
constexpr int64_t kLookNs = 500;
// A plan's first runs are examined at any cost.
constexpr uint64_t kFirstFeeds = 2;
// Limits on the launches that a plan may pin, and on the nodes examined for it.
constexpr size_t kPinsMax = 64;
constexpr size_t kPinNodesMax = 65'536;
// A new plan must promise at least this gain, and the costs behind the present plan must be off by at least kChange.
constexpr double kGain = 0.15;
constexpr double kGainNs = 20'000;
constexpr double kChange = 0.25;
// From this number of samples on, a class serves to compare devices.
constexpr uint64_t kSamplesToCompare = 2;

double NsOf(Duration duration) { return static_cast<double>(duration.count()); }

class PlanCostsCopy final : public PlanCosts {
 public:
  PlanCostsCopy(const PreparedGraph& prepared, const graph::FlatGraph& flat)
      : works_(prepared.graph, flat, prepared.executables, cache_) {}

  scheduler::Cost Run(const Work& work, scheduler::DeviceIndex index, const DeviceFacts& device) const override {
    return measured_.Run(work, index, device);
  }
  Duration Transfer(uint64_t bytes, scheduler::SpaceIndex from, scheduler::SpaceIndex to) const override {
    return measured_.Transfer(bytes, from, to);
  }
  double HostCopyBytesPerSecond() const override { return measured_.HostCopyBytesPerSecond(); }
  Work Of(graph::FlatNodeId node, uint32_t choice, const scheduler::Box& box) const override {
    return works_.Of(node, choice, box);
  }
  std::span<const scheduler::PlacementPin> pins() const override { return pins_; }

  scheduler::MeasuredCosts& measured() { return measured_; }
  std::vector<scheduler::PlacementPin>& mutable_pins() { return pins_; }

 private:
  scheduler::MeasuredCosts measured_;
  mutable WorkCache cache_;
  LaunchWork works_;
  std::vector<scheduler::PlacementPin> pins_;
};

// The costs of an executable's kernel; leaves may share it.
struct KernelUse {
  KernelCosts* kernel = nullptr;
  DeviceCosts* costs = nullptr;
  scheduler::DeviceIndex device = 0;
};

}  // namespace

struct GraphCosts::Kernels {
  std::vector<KernelUse> uses;      // Distinct.
  std::vector<uint32_t> first{0};   // Indexed by NodeId, with one more entry: the first index in `of_choice`.
  std::vector<uint32_t> of_choice;  // Indices in `uses`, by choice.
  WorkCache cache;
  // Kept between calls to avoid allocation.
  std::vector<SampleOption> options;
  std::vector<uint32_t> choices;
  std::vector<KernelCosts*> fed;
};

namespace {

// Predicts the times of launches' candidates. The caller holds the store's mutex.
class Options {
 public:
  Options(const PreparedGraph& prepared, const graph::FlatGraph& flat, CostStore& store, GraphCosts::Kernels& kernels)
      : prepared_(prepared),
        flat_(flat),
        store_(store),
        kernels_(kernels),
        works_(prepared.graph, flat, prepared.executables, kernels.cache) {}

  uint32_t ChoicesOf(graph::FlatNodeId node) const {
    const uint32_t leaf = flat_.nodes[node.index].leaf.index;
    return leaf + size_t{1} < kernels_.first.size() ? kernels_.first[leaf + 1] - kernels_.first[leaf] : 0;
  }
  KernelUse& UseOf(graph::FlatNodeId node, uint32_t choice) const {
    return kernels_.uses[kernels_.of_choice[kernels_.first[flat_.nodes[node.index].leaf.index] + choice]];
  }
  Work WorkOf(graph::FlatNodeId node, uint32_t choice, const scheduler::Box& box) const {
    return works_.Of(node, choice, box);
  }
  const DeviceFacts& FactsOf(graph::FlatNodeId node, uint32_t choice) const {
    return prepared_.facts[CandidatesOf(node)[choice].device];
  }
  double Expect(graph::FlatNodeId node, uint32_t choice, const Work& work) const {
    return NsOf(CostOf(node, choice, work).time) * FactorOf(node, choice);
  }
  // Returns the cost for the device's equals together.
  scheduler::Cost CostOf(graph::FlatNodeId node, uint32_t choice, const Work& work) const {
    const DeviceFacts& facts = FactsOf(node, choice);
    return CostStore::CurveOf(*UseOf(node, choice).costs, facts).At(work, facts);
  }
  double FactorOf(graph::FlatNodeId node, uint32_t choice) const { return store_.FactorOf(DeviceOf(node, choice)); }
  void NoteRatio(graph::FlatNodeId node, uint32_t choice, double ratio) const {
    store_.NoteRatio(DeviceOf(node, choice), ratio);
  }

  // Fills Kernels::options, and the candidate of each option: those that a placement may choose by cost, that is,
  // those with the best hint if any has one.
  std::span<const SampleOption> Collect(graph::FlatNodeId node, const scheduler::Box& box) {
    kernels_.options.clear();
    kernels_.choices.clear();
    const std::vector<scheduler::Candidate>& candidates = CandidatesOf(node);
    uint32_t hint = scheduler::Candidate::kNoHint;
    for (const scheduler::Candidate& candidate : candidates) {
      hint = std::min(hint, candidate.hint);
    }
    for (uint32_t choice = 0; choice < ChoicesOf(node); ++choice) {
      if (candidates[choice].hint == hint) {
        kernels_.options.push_back(OptionOf(node, choice, WorkOf(node, choice, box)));
        kernels_.choices.push_back(choice);
      }
    }
    return kernels_.options;
  }
  uint32_t ChoiceOf(uint32_t option) const { return kernels_.choices[option]; }

 private:
  const std::vector<scheduler::Candidate>& CandidatesOf(graph::FlatNodeId node) const {
    return prepared_.candidates[flat_.nodes[node.index].leaf.index];
  }

  const Device& DeviceOf(graph::FlatNodeId node, uint32_t choice) const {
    return *prepared_.devices[CandidatesOf(node)[choice].device];
  }

  SampleOption OptionOf(graph::FlatNodeId node, uint32_t choice, const Work& work) const {
    const scheduler::Cost cost = CostOf(node, choice, work);
    SampleOption option{.expected_ns = NsOf(cost.time) * FactorOf(node, choice)};
    const scheduler::CostClass* c = UseOf(node, choice).costs->history.Find(work);
    option.samples = c != nullptr && c->samples > 0 ? c->samples : cost.is_estimate ? 0 : ~uint64_t{0};
    option.tries = c != nullptr ? c->tries : 0;
    if (FactsOf(node, choice).space != scheduler::kHostSpace) {
      option.expected_ns += store_.TransfersOf(DeviceOf(node, choice)).up.At(work.bytes);
    }
    return option;
  }

  const PreparedGraph& prepared_;
  const graph::FlatGraph& flat_;
  CostStore& store_;
  GraphCosts::Kernels& kernels_;
  LaunchWork works_;
};

}  // namespace

GraphCosts::GraphCosts(std::shared_ptr<CostStore> store, const PreparedGraph& prepared)
    : store_(std::move(store)), kernels_(std::make_unique<Kernels>()) {
  if (prepared.is_checked) {
    return;
  }
  std::lock_guard lock(store_->mutex());
  std::unordered_map<const Executable*, uint32_t> known;
  for (size_t leaf = 0; leaf < prepared.candidates.size(); ++leaf) {
    for (size_t choice = 0; choice < prepared.candidates[leaf].size(); ++choice) {
      const Executable* executable = prepared.executables[leaf][choice];
      const auto [use, is_new] = known.try_emplace(executable, static_cast<uint32_t>(kernels_->uses.size()));
      if (is_new) {
        const scheduler::DeviceIndex device = prepared.candidates[leaf][choice].device;
        KernelCosts* kernel = store_->Acquire(executable->artifact());
        DeviceCosts* costs = CostStore::On(*kernel, DeviceKeyOf(prepared.devices[device]->info()));
        kernels_->uses.push_back({.kernel = kernel, .costs = costs, .device = device});
      }
      kernels_->of_choice.push_back(use->second);
    }
    kernels_->first.push_back(static_cast<uint32_t>(kernels_->of_choice.size()));
  }
}

GraphCosts::~GraphCosts() {
  std::lock_guard lock(store_->mutex());
  for (const KernelUse& use : kernels_->uses) {
    store_->Release(use.kernel);
  }
}

namespace {

// Transfers between any two devices pass through host memory.
void SetTransfers(const PreparedGraph& prepared, const CostStore& store, scheduler::MeasuredCosts& costs) {
  std::map<scheduler::SpaceIndex, DeviceTransfers> spaces;  // Transfers of the first device that has the space.
  for (size_t i = 0; i < prepared.devices.size(); ++i) {
    if (prepared.facts[i].space != scheduler::kHostSpace) {
      spaces.try_emplace(prepared.facts[i].space, store.TransfersOf(*prepared.devices[i]));
    }
  }
  for (const auto& [space, transfers] : spaces) {
    costs.SetTransfer(scheduler::kHostSpace, space, transfers.up);
    costs.SetTransfer(space, scheduler::kHostSpace, transfers.down);
    for (const auto& [other, others] : spaces) {
      if (other != space) {
        costs.SetTransfer(space, other, Through(transfers.down, others.up));
      }
    }
  }
}

// Chooses one launch of each (kernel, class) whose candidates want a sample.
void ChoosePins(Options& options, const graph::FlatGraph& flat, std::vector<scheduler::PlacementPin>* pins) {
  std::set<std::pair<const DeviceCosts*, scheduler::CostKey>> seen;
  const size_t nodes = std::min(flat.nodes.size(), kPinNodesMax);
  for (uint32_t i = 0; i < nodes && pins->size() < kPinsMax; ++i) {
    const graph::FlatNodeId node(i);
    if (options.ChoicesOf(node) < 2) {
      continue;
    }
    const scheduler::Box whole{.count = flat.nodes[i].extent};
    if (!seen.emplace(options.UseOf(node, 0).costs, KeyOf(options.WorkOf(node, 0, whole))).second) {
      continue;
    }
    const uint32_t wanted = WantsSample(options.Collect(node, whole));
    if (wanted != scheduler::kNoSample) {
      const uint32_t choice = options.ChoiceOf(wanted);
      options.UseOf(node, choice).costs->history.CountTry(options.WorkOf(node, choice, whole));
      pins->push_back({.node = node, .choice = choice});
    }
  }
}

}  // namespace

std::unique_ptr<PlanCosts> GraphCosts::ForPlan(const PreparedGraph& prepared, const graph::FlatGraph& flat,
                                               bool may_pin) {
  std::vector<bool> is_used(prepared.devices.size());
  for (const std::vector<scheduler::Candidate>& candidates : prepared.candidates) {
    for (const scheduler::Candidate& candidate : candidates) {
      is_used[candidate.device] = true;
    }
  }
  for (size_t i = 0; i < is_used.size(); ++i) {
    if (is_used[i]) {
      store_->MeasureTransfers(*prepared.devices[i]);
    }
  }
  auto costs = std::make_unique<PlanCostsCopy>(prepared, flat);
  SetTransfers(prepared, *store_, costs->measured());
  costs->measured().SetHostCopies(store_->HostCopyBytesPerSecond());
  std::lock_guard lock(store_->mutex());
  for (scheduler::DeviceIndex device = 0; device < prepared.devices.size(); ++device) {
    costs->measured().SetFactor(device, store_->FactorOf(*prepared.devices[device]));
  }
  for (const KernelUse& use : kernels_->uses) {
    costs->measured().AddCurve(CostStore::CurveOf(*use.costs, prepared.facts[use.device]));
  }
  for (size_t leaf = 0; leaf + 1 < kernels_->first.size(); ++leaf) {
    costs->measured().AddLeaf(std::span(kernels_->of_choice)
                                  .subspan(kernels_->first[leaf], kernels_->first[leaf + 1] - kernels_->first[leaf]));
  }
  if (may_pin) {
    Options options(prepared, flat, *store_, *kernels_);
    ChoosePins(options, flat, &costs->mutable_pins());
  }
  return costs;
}

namespace {

// Returns the number of launches to examine now.
size_t LooksOf(size_t tasks, Duration run, FeedState& state) {
  const size_t most = std::min(tasks, kFedLaunchesMax);
  if (state.feeds++ < kFirstFeeds) {
    return most;
  }
  state.credit_ns = std::min<int64_t>(state.credit_ns + std::max<int64_t>(run.count(), 0) / kFeedShare,
                                      static_cast<int64_t>(kFedLaunchesMax) * kLookNs);
  const size_t looks = std::min(most, static_cast<size_t>(state.credit_ns / kLookNs));
  state.credit_ns -= static_cast<int64_t>(looks) * kLookNs;
  return looks;
}

class Feeder {
 public:
  Feeder(Options& options, std::span<const Task> tasks, std::span<const NodeTiming> timings,
         std::vector<KernelCosts*>& fed)
      : options_(options), tasks_(tasks), timings_(timings), fed_(fed) {
    fed_.clear();
  }

  void Add(size_t index) {
    const Task& task = tasks_[index];
    const NodeTiming& timing = timings_[index];
    const uint32_t choices = options_.ChoicesOf(task.node);
    if (timing.end_ns == 0 || timing.end_ns < timing.start_ns || timing.is_shared || task.choice >= choices) {
      return;
    }
    const KernelUse& use = options_.UseOf(task.node, task.choice);
    const Work work = options_.WorkOf(task.node, task.choice, task.box);
    const double ns = static_cast<double>(timing.end_ns - timing.start_ns);
    const double predicted = options_.Expect(task.node, task.choice, work);
    const double factor = options_.FactorOf(task.node, task.choice);
    const scheduler::CostClass* const known = use.costs->history.Find(work);
    if (timing.is_settled && known != nullptr && known->is_settled && known->samples >= kSamplesToCompare) {
      options_.NoteRatio(task.node, task.choice, ns / NsOf(options_.CostOf(task.node, task.choice, work).time));
    }
    const bool is_first = use.costs->history.Add(work, ns / factor, predicted / factor, timing.is_settled).samples == 1;
    use.costs->fitted_samples = is_first ? 0 : use.costs->fitted_samples;
    review_.is_settled = review_.is_settled && timing.is_settled;
    review_.measured_ns += ns;
    review_.expected_ns += task.end > task.start ? NsOf(task.end - task.start) : predicted;
    review_.first_samples += is_first ? 1 : 0;
    if (is_first && timing.is_settled) {
      use.kernel->kept_samples = 0;  // The record on disk may contain the provisional samples.
    }
    if (is_first) {
      for (uint32_t choice = 0; choice < choices; ++choice) {
        options_.UseOf(task.node, choice).costs->history.Note(options_.WorkOf(task.node, choice, task.box));
      }
    }
    ++use.kernel->samples;
    if (std::find(fed_.begin(), fed_.end(), use.kernel) == fed_.end() && fed_.size() < kFedLaunchesMax) {
      fed_.push_back(use.kernel);
    }
  }

  // Call it when all samples of this run are added.
  void Review(size_t index) {
    const Task& task = tasks_[index];
    const uint32_t choices = options_.ChoicesOf(task.node);
    if (timings_[index].end_ns == 0 || task.choice >= choices) {
      return;
    }
    const double now = options_.Expect(task.node, task.choice, options_.WorkOf(task.node, task.choice, task.box));
    now_ns_ += now;
    const double change = task.end > task.start ? std::abs(now - NsOf(task.end - task.start)) : 0;
    change_ns_ += change;
    if (task.is_part) {
      parts_ns_ += task.end > task.start ? NsOf(task.end - task.start) : now;
      parts_change_ns_ += change;
    }
    double best = now;
    // Another device would finish a part sooner than a part of equal size; but that holds for all parts, and the
    // decision to cut the launch has taken it into account.
    if (choices > 1 && !task.is_part) {
      const std::span<const SampleOption> found = options_.Collect(task.node, task.box);
      review_.wants_samples |= WantsSample(found) != scheduler::kNoSample;
      for (uint32_t i = 0; i < found.size(); ++i) {
        const uint32_t choice = options_.ChoiceOf(i);
        best = std::min(best, options_.Expect(task.node, choice, options_.WorkOf(task.node, choice, task.box)));
      }
    }
    review_.best_ns += best;
  }

  CostReview Conclude(size_t looks) {
    const double share = looks == 0 ? 0 : static_cast<double>(tasks_.size()) / static_cast<double>(looks);
    const bool is_better = review_.best_ns < (1 - kGain) * now_ns_ && (now_ns_ - review_.best_ns) * share > kGainNs;
    const bool has_changed = review_.first_samples > 0 || change_ns_ > kChange * review_.expected_ns;
    // Parts whose times differ from the plan have wrong sizes, or should not exist.
    const bool has_wrong_parts = parts_change_ns_ > kChange * parts_ns_;
    review_.should_replan = review_.wants_samples || (is_better && has_changed) || has_wrong_parts;
    return review_;
  }

 private:
  Options& options_;
  std::span<const Task> tasks_;
  std::span<const NodeTiming> timings_;
  std::vector<KernelCosts*>& fed_;
  double now_ns_ = 0, change_ns_ = 0;
  double parts_ns_ = 0, parts_change_ns_ = 0;  // For parts of launches: the planned time, and the total deviation
                                               // from it.
  CostReview review_;
};

}  // namespace

CostReview GraphCosts::Feed(const PreparedGraph& prepared, const graph::FlatGraph& flat, std::span<const Task> tasks,
                            std::span<const NodeTiming> timings, Duration run, FeedState* state) {
  if (kernels_->uses.empty() || tasks.empty() || timings.size() < tasks.size()) {
    return {};
  }
  store_->LearnTransfers();
  const size_t looks = LooksOf(tasks.size(), run, *state);
  if (looks == 0) {
    return {};
  }
  std::vector<std::pair<Sha256, std::vector<uint8_t>>> records;
  CostReview review;
  {
    std::lock_guard lock(store_->mutex());
    Options options(prepared, flat, *store_, *kernels_);
    Feeder feeder(options, tasks, timings, kernels_->fed);
    for (size_t i = 0; i < looks; ++i) {
      feeder.Add((state->next + i) % tasks.size());
    }
    for (size_t i = 0; i < looks; ++i) {
      feeder.Review((state->next + i) % tasks.size());
    }
    state->next = (state->next + looks) % tasks.size();
    review = feeder.Conclude(looks);
    for (KernelCosts* kernel : kernels_->fed) {
      if (std::vector<uint8_t> record = CostStore::RecordOf(*kernel); !record.empty()) {
        records.emplace_back(kernel->name, std::move(record));
      }
    }
  }
  for (const auto& [name, record] : records) {
    store_->Keep(name, record);
  }
  return review;
}

bool ListKernels(const PreparedGraph& prepared, size_t most, std::vector<KernelCostRecord>* kernels) {
  const GraphCosts& costs = *prepared.costs;
  std::lock_guard lock(costs.store_->mutex());
  // Variants of a node may be the same kernel for a device.
  std::set<std::pair<const DeviceCosts*, scheduler::DeviceIndex>> seen;
  for (const KernelUse& use : costs.kernels_->uses) {
    if (!seen.emplace(use.costs, use.device).second) {
      continue;
    }
    for (const scheduler::CostClass& c : use.costs->history.classes()) {
      if (kernels->size() >= most) {
        return false;
      }
      const scheduler::Roofline roof = RooflineOf(MeanOf(c), prepared.facts[use.device]);
      kernels->push_back({.kernel = use.kernel->label,
                          .device = use.device,
                          .instances = c.size >= 64 ? ~uint64_t{0} : uint64_t{1} << c.size,
                          .estimate_ns = roof.launch_ns + roof.body_ns,
                          .measured_ns = c.time_ns,
                          .samples = c.samples,
                          .error = c.error});
    }
  }
  return true;
}

std::shared_ptr<CostStore> CreateCostStore(std::span<Device* const> devices, bool measures_transfers,
                                           TuningStore& keeper, const Clock& clock) {
  return std::make_shared<CostStore>(devices, measures_transfers, keeper, clock);
}

std::vector<TransferCostRecord> ListTransfers(const CostStore& store) {
  std::vector<TransferCostRecord> records;
  for (uint32_t i = 0; i < store.devices().size(); ++i) {
    if (store.devices()[i]->info().host_visible) {
      continue;
    }
    const DeviceTransfers transfers = store.TransfersOf(*store.devices()[i]);
    const auto add = [&](uint32_t source, uint32_t target, const TransferLine& line) {
      records.push_back({.source = source,
                         .target = target,
                         .start_ns = line.start_ns,
                         .bytes_per_second = line.bytes_per_second,
                         .is_estimate = line.is_estimate});
    };
    add(TransferCostRecord::kHost, i, transfers.up);
    add(i, TransferCostRecord::kHost, transfers.down);
  }
  return records;
}

}  // namespace hpvm::engine
