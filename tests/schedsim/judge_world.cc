// SPDX-License-Identifier: Apache-2.0
#include "tests/schedsim/judge_world.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <optional>
#include <utility>

#include "base/clock.h"
#include "scheduler/review/plan_judge.h"

namespace hpvm::schedsim {
namespace {

using scheduler::PlanJudge;

constexpr uint32_t kRuns = 800, kLast = 200, kFirst = 30, kSoon = 60;
// Time at which speeds change, and time at which other tenants have gone: in the remaining runs the judge has to
// notice.
constexpr uint32_t kChangeAt = 200, kQuietFrom = 300;

class JudgeWorld {
 public:
  explicit JudgeWorld(uint64_t seed) : rng_(seed), devices_(1 + rng_.Next() % 4), judge_(1 + devices_) {
    has_noise_ = Chance(0.8);
    has_contention_ = Chance(0.4);
    has_drift_ = Chance(0.3);
    const double base = std::exp(In(std::log(1e5), std::log(1e9)));
    bool was_twin = false;
    for (uint32_t d = 0; d < devices_; ++d) {
      const bool is_twin = d > 0 && !was_twin && Chance(0.4);  // Looks like the previous device, but is slower.
      was_twin = is_twin;
      alone_ns_.push_back(is_twin ? alone_ns_[d - 1] * In(1, 3) : base * In(1, 4));
      drift_.push_back(has_drift_ && Chance(0.5) ? In(0.5, 2) : 1);
      experiments_.push_back(Chance(0.7) ? static_cast<uint32_t>(rng_.Next() % 12) : 0);
      plans_.push_back({d});
      planned_ns_.push_back(is_twin ? planned_ns_.back() : alone_ns_[d] * std::exp(In(-0.3, 0.3)));
    }
    if (devices_ > 1) {
      plans_.emplace_back();
      double rate = 0;
      for (uint32_t d = 0; d < devices_; ++d) {
        plans_.back().push_back(d);
        rate += 1 / alone_ns_[d];
      }
      loss_ = In(1, 2);  // Slowdown of devices that work concurrently.
      planned_ns_.push_back(In(1.0, 1.2) / rate);
    }
    is_known_.assign(plans_.size(), false);
    champion_ = Planned();
  }

  JudgeVerdict Go() {
    double took = 0, best_of_last = 0;
    std::vector<double> static_ns(plans_.size());
    for (run_ = 0; run_ < kRuns; ++run_) {
      Disturb();
      const double ns = RunOne();
      if (run_ >= kRuns - kLast) {
        took += ns;
        for (uint32_t plan = 0; plan < plans_.size(); ++plan) {
          static_ns[plan] += TrueNs(plan);
        }
      }
      if (run_ + 1 == kFirst) {
        CheckFirst();
      }
      if (run_ + 1 == kSoon) {
        CheckSoon();
      }
      spent_ += challenger_.has_value() && was_trial_ ? std::max(ns - TrueNs(champion_before_), 0.0) : 0;
      total_ += ns;
    }
    best_of_last = *std::ranges::min_element(static_ns);
    verdict_.final_ratio = took / best_of_last;
    if (took > (1.05 + PlanJudge::kShare) * best_of_last) {
      Add("best: The last runs take " + std::to_string(took / best_of_last) + " times as long as the best plan's.");
    }
    CheckLast(static_ns);
    return verdict_;
  }

 private:
  double In(double low, double high) { return low + (high - low) * static_cast<double>(rng_.Next() >> 11) * 0x1p-53; }
  bool Chance(double p) { return In(0, 1) < p; }
  void Add(const std::string& fault) { verdict_.faults.push_back(fault); }

  // Other tenants come and go.
  void Disturb() {
    if (has_contention_ && run_ + 20 < kQuietFrom && Chance(0.03)) {
      busy_device_ = static_cast<uint32_t>(rng_.Next() % devices_);
      busy_until_ = run_ + static_cast<uint32_t>(rng_.Next() % 20);
    }
  }

  double DeviceNs(uint32_t device) const {
    const bool is_busy = run_ < busy_until_ && device == busy_device_;
    return alone_ns_[device] * (run_ >= kChangeAt ? drift_[device] : 1) * (is_busy ? 2 : 1);
  }
  // Without noise and experiments.
  double TrueNs(uint32_t plan) const {
    if (plans_[plan].size() == 1) {
      return DeviceNs(plans_[plan][0]);
    }
    double rate = 0, longest = 0;
    for (const uint32_t device : plans_[plan]) {
      rate += 1 / alone_ns_[device];
    }
    for (const uint32_t device : plans_[plan]) {
      longest = std::max(longest, DeviceNs(device) / alone_ns_[device] / rate);
    }
    return loss_ * longest;
  }

  // Returns what placement would choose from present knowledge.
  uint32_t Planned() const {
    return static_cast<uint32_t>(std::ranges::min_element(planned_ns_) - planned_ns_.begin());
  }

  double RunOne() {
    const uint32_t plan = judge_.is_trial() ? *challenger_ : champion_;
    was_trial_ = judge_.is_trial();
    champion_before_ = champion_;
    const double true_ns = TrueNs(plan);
    double ns = true_ns, settled_ns = ns;
    if (has_noise_) {
      settled_ns = ns = ns * In(0.98, 1.02) * (Chance(0.02) ? In(1, 4) : 1);
    }
    bool is_settled = true;
    double slower = 1;
    for (const uint32_t device : plans_[plan]) {
      if (experiments_[device] > 0) {
        --experiments_[device];
        is_settled = false;
        slower = std::max(slower, In(1, 2.5));
      }
    }
    ns *= slower;
    first_ns_ += run_ < kFirst ? TrueNs(plan) : 0;
    if (is_settled) {
      planned_ns_[plan] = is_known_[plan] ? planned_ns_[plan] + (settled_ns - planned_ns_[plan]) / 8 : settled_ns;
      is_known_[plan] = true;
    }
    Obey(judge_.After(
        {.ns = ns, .is_settled = is_settled, .promises = planned_ns_[Planned()] < 0.85 * planned_ns_[plan]}));
    return true_ns;
  }

  void Obey(PlanJudge::Step step) {
    switch (step) {
      case PlanJudge::Step::kKeep:
      case PlanJudge::Step::kSwitch:
        break;
      case PlanJudge::Step::kAdopt:
        formers_[judge_.former() - judge_.first_former()] = std::exchange(champion_, *challenger_);
        challenger_.reset();
        break;
      case PlanJudge::Step::kGoBack:
        if (judge_.former() != PlanJudge::kNone) {
          formers_[judge_.former() - judge_.first_former()] = *challenger_;
        }
        challenger_.reset();
        break;
      case PlanJudge::Step::kTry: {
        const uint32_t source = judge_.source();
        const uint32_t plan = source == 0         ? Planned()
                              : source > devices_ ? formers_[source - (1 + devices_)]
                                                  : source - 1;
        if (plan == champion_ || (source == 0 && std::ranges::find(formers_, plan) != formers_.end())) {
          judge_.Refuse();
        } else if (judge_.Made(planned_ns_[plan], true)) {
          challenger_ = plan;
        }
        break;
      }
    }
  }

  uint32_t BestAlone() const {
    const auto alone = [this](uint32_t a, uint32_t b) { return TrueNs(a) < TrueNs(b); };
    uint32_t best = 0;
    for (uint32_t d = 1; d < devices_; ++d) {
      best = alone(d, best) ? d : best;
    }
    return best;
  }

  void CheckFirst() {
    if (has_contention_) {
      return;
    }
    verdict_.first_30 = first_ns_ / (kFirst * TrueNs(champion_));
    if (verdict_.first_30 > 1.25) {
      Add("first: The first runs take " + std::to_string(verdict_.first_30) + " times as long as settled ones.");
    }
    const double ratio = TrueNs(champion_) / TrueNs(BestAlone());
    if (ratio > 1 / 0.98) {
      Add("alone: After the first runs the plan takes " + std::to_string(ratio) + " times as long as one device.");
    }
  }

  // Only experiments, noise and estimates have misled the judge.
  void CheckSoon() {
    double best_ns = TrueNs(0);
    for (uint32_t plan = 1; plan < plans_.size(); ++plan) {
      best_ns = std::min(best_ns, TrueNs(plan));
    }
    if (!has_contention_ && TrueNs(champion_) > 1.05 * best_ns) {
      Add("soon: After " + std::to_string(kSoon) + " runs the champion takes " +
          std::to_string(TrueNs(champion_) / best_ns) + " times as long as the best plan.");
    }
  }

  void CheckLast(const std::vector<double>& static_ns) {
    const double ratio = static_ns[champion_] / *std::ranges::min_element(static_ns);
    if (ratio > 1.05) {
      Add("best: In the end the champion takes " + std::to_string(ratio) + " times as long as the best plan.");
    }
    if (spent_ > (PlanJudge::kShare + 0.01) * total_ + 2 * PlanJudge::kGrace * *std::ranges::max_element(alone_ns_)) {
      Add("share: Trials take " + std::to_string(spent_ / total_) + " of all time.");
    }
  }

  SeededRng rng_;
  const uint32_t devices_;
  PlanJudge judge_;
  bool has_noise_ = false, has_contention_ = false, has_drift_ = false;
  std::vector<double> alone_ns_, drift_;      // Indexed by device.
  std::vector<uint32_t> experiments_;         // Indexed by device: launches that its tuner still needs.
  std::vector<std::vector<uint32_t>> plans_;  // Devices of each plan: each alone, then all together.
  std::vector<double> planned_ns_;            // Indexed by plan.
  std::vector<bool> is_known_;
  double loss_ = 1;
  uint32_t run_ = 0, champion_ = 0, champion_before_ = 0;
  std::vector<uint32_t> formers_ = std::vector<uint32_t>(PlanJudge::kFormers, PlanJudge::kNone);
  bool was_trial_ = false;
  std::optional<uint32_t> challenger_;
  uint32_t busy_device_ = 0, busy_until_ = 0;
  double first_ns_ = 0, spent_ = 0, total_ = 0;
  JudgeVerdict verdict_;
};

}  // namespace

JudgeVerdict RunJudgeWorld(uint64_t seed) { return JudgeWorld(seed).Go(); }

std::vector<std::string> RunJudgeWorlds(uint64_t first_seed, uint64_t last_seed) {
  const std::map<std::string, double> misled = {
      {"best", 0.012}, {"soon", 0.006}, {"first", 0.015}, {"alone", 0.008}, {"share", 0}};
  constexpr double kFirstMost = 1.5;
  std::map<std::string, std::pair<uint64_t, std::string>> faults;
  std::vector<std::string> broken;
  for (uint64_t seed = first_seed; seed <= last_seed; ++seed) {
    const JudgeVerdict verdict = RunJudgeWorld(seed);
    for (const std::string& fault : verdict.faults) {
      auto& [count, last] = faults[fault.substr(0, fault.find(':'))];
      ++count;
      last = fault + " (judge seed " + std::to_string(seed) + ")";
    }
    if (verdict.first_30 > kFirstMost) {
      broken.push_back("first: The first runs take " + std::to_string(verdict.first_30) +
                       " times as long (judge seed " + std::to_string(seed) + ").");
    }
  }
  for (const auto& [promise, found] : faults) {
    if (static_cast<double>(found.first) > misled.at(promise) * static_cast<double>(last_seed - first_seed + 1)) {
      broken.push_back(found.second + "; so " + std::to_string(found.first) + " worlds.");
    }
  }
  return broken;
}

}  // namespace hpvm::schedsim
