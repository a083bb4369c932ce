// SPDX-License-Identifier: Apache-2.0
// Method: a sequential test on ratios of paired runs. One pair can end a trial (challenger 1.5 times slower), two
// if they agree (all below 0.8, or all above 1.15), three or more by their median (below 0.95, above 1.04), seven
// in any case.
// Invariants: a run of a trial begins only while the excess already spent, plus what this run is expected to add,
// is within kGrace runs of the champion and kShare of all time; at most three hurried trials are excepted. Only
// settled runs are paired, until a plan proves unable to settle (40 runs of a champion, 12 of a challenger). A
// closed source stays closed for 64 runs, doubled by each loss up to three times; a new reason reopens it at half
// of that run's number.
// Source: docs/decisions/0021-plans-are-judged-whole.md.
#include "scheduler/review/plan_judge.h"

#include <algorithm>
#include <utility>

namespace hpvm::scheduler {
namespace {

// Runs of the champion before anything is compared with it.
constexpr uint64_t kRunsFirst = 2;
// Devices that have not settled after this many runs never will (for example because each run has other sizes); their
// runs count then.
constexpr uint64_t kUnsettledMax = 40;
// The same limit for a challenger, whose runs are more expensive.
constexpr uint64_t kExperimentsMax = 12;
// Ratios of challenger to champion that decide after one pair, after two, after three, and finally.
constexpr double kLostAtOnce = 1.5;
constexpr double kWonSoon = 0.8, kLostSoon = 1.15;
constexpr double kWon = 0.95, kLost = 1.04;
constexpr double kBetter = 0.98;
constexpr size_t kPairsMax = 7;
// A loser is tried again when it would be better by this factor than the champion's current time.
constexpr double kReopen = 0.95;
// And after this many runs, initially.
constexpr uint64_t kRunsToRetry = 64;
constexpr uint32_t kDoublingsMax = 3;
// Number of plans adopted in a hurry, before their devices have settled.
constexpr uint32_t kHurriesMax = 3;
// Number of sources with one device, where settling is no reason to place anew.
constexpr uint32_t kSourcesAlone = 2;

double Median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

}  // namespace

PlanJudge::PlanJudge(uint32_t sources, uint32_t placed)
    : sources_(sources + size_t{kFormers}), placed_(placed), is_first_(sources > kSourcesAlone) {
  for (uint32_t i = 0; i < sources_.size(); ++i) {
    sources_[i].is_open = i > 0 && i < sources;
  }
}

void PlanJudge::Window::Add(double ns) { ns_[count_++ % kSize] = ns; }

double PlanJudge::Window::Middle() const {
  const size_t count = static_cast<size_t>(std::min<uint64_t>(count_, kSize));
  if (count == 0) {
    return 0;
  }
  std::array<double, kSize> sorted = ns_;  // Called after each run, so it does not allocate.
  const auto middle = sorted.begin() + static_cast<ptrdiff_t>(count / 2);
  std::nth_element(sorted.begin(), middle, sorted.begin() + static_cast<ptrdiff_t>(count));
  return *middle;
}

double PlanJudge::Allowance() const { return kGrace * usual_ns() + kShare * total_ns_; }

bool PlanJudge::HasBudget(double excess_ns) const { return spent_ns_ + std::max(excess_ns, 0.0) <= Allowance(); }

PlanJudge::Step PlanJudge::After(const Run& run) {
  ++runs_;
  total_ns_ += run.ns;
  if (is_trial_) {
    spent_ns_ += std::max(run.ns - usual_ns(), 0.0);
    planned_ns_ = run.ns;
    return Trial(run);
  }
  unsettled_ = run.is_settled ? 0 : unsettled_ + 1;
  const bool counts = run.is_settled || unsettled_ > kUnsettledMax;
  if (counts || settled_ == 0) {
    if (counts && settled_ == 0) {
      usual_.Clear();  // Earlier runs were experiments.
    }
    usual_.Add(run.ns);
    settled_ += counts ? 1 : 0;
  }
  if (settled_ > 0 && (least_ns_ == 0 || usual_ns() < least_ns_)) {
    least_ns_ = usual_ns();
  }
  if (has_challenger_) {
    champion_ns_ = counts ? run.ns : 0;
    return Judge();
  }
  Reopen(run);
  if (settled_ < kRunsFirst) {
    return Hurry(run);
  }
  if ((std::exchange(is_first_, false) && run.is_doubtful) || std::exchange(has_changed_, false)) {
    sources_[0].is_open = true;
    is_promised_ = run.promises;
  }
  return Watch(run);
}

// Called while devices still experiment with their code.
PlanJudge::Step PlanJudge::Hurry(const Run& run) {
  if (!run.is_far_off || !run.promises || hurries_ >= kHurriesMax) {
    return Step::kKeep;
  }
  ++hurries_;
  source_ = 0;
  is_hurried_ = is_promised_ = true;
  return Step::kTry;
}

// Reopens losers whose reason for losing may have changed. When former plans are kept, a newly placed plan may be
// better than all of them: a device that became slower gets less work in it, whereas a former plan waits for that
// device.
void PlanJudge::Reopen(const Run& run) {
  const bool has_rivals = std::any_of(sources_.begin() + first_former(), sources_.end(),
                                      [](const Source& former) { return former.losses > 0; });
  for (Source& source : sources_) {
    const bool is_better = source.lost_ns != 0 && source.lost_ns < kReopen * usual_ns();
    const bool is_first = &source == sources_.data();
    const bool is_due = (!is_first || has_rivals) && source.losses > 0 && runs_ >= source.next_run;
    if (is_due || ((is_first ? run.promises : is_better) && 2 * runs_ >= source.next_run)) {
      source.is_open = true;
      is_promised_ |= is_first && run.promises;
    }
  }
}

PlanJudge::Step PlanJudge::Watch(const Run& run) {
  // A challenger of unknown speed may take as long as the worst one that is still allowed to run.
  const auto open = std::ranges::find_if(sources_, [&](const Source& source) {
    const auto index = static_cast<uint32_t>(&source - sources_.data());
    return source.is_open && (run.is_doubtful || index < placed_ || index >= first_former());
  });
  if (open == sources_.end() || !HasBudget((kHopeless - 1) * usual_ns())) {
    return Step::kKeep;
  }
  source_ = static_cast<uint32_t>(open - sources_.begin());
  return Step::kTry;
}

bool PlanJudge::Made(double planned_ns, bool is_guess) {
  const double hope = is_guess || source_ >= first_former() ? kHopeless : kWorse;
  const double most = is_hurried_ ? kWonSoon : source_ == 0 && !is_promised_ ? kReopen : hope;
  is_promised_ = is_promised_ && source_ != 0;
  if (planned_ns > most * usual_ns()) {
    Refuse();
    return false;
  }
  has_challenger_ = is_trial_ = true;
  planned_ns_ = std::max(planned_ns, usual_ns());
  experiments_ = 0;
  champion_ns_ = challenger_ns_ = 0;
  ratios_.clear();
  return true;
}

void PlanJudge::TakeFormer() {
  const uint32_t first = first_former();
  next_former_ = (next_former_ + 1) % kFormers;
  former_ = first + next_former_;
}

void PlanJudge::Refuse() {
  if (!std::exchange(is_hurried_, false)) {
    Close(source_, 0);
  }
}

void PlanJudge::Close(uint32_t index, double lost_ns) {
  Source& source = sources_[index];
  source.is_open = false;
  source.lost_ns = lost_ns;
  source.next_run = runs_ + (kRunsToRetry << std::min(source.losses, kDoublingsMax));
  ++source.losses;
}

bool PlanJudge::Yield() {
  challenger_ns_ = champion_ns_ = 0;  // Abandons the current pair.
  return std::exchange(is_trial_, false);
}

void PlanJudge::DropChallenger() {
  if (has_challenger_) {
    Refuse();
  }
  has_challenger_ = is_trial_ = false;
}

void PlanJudge::StartOver() { *this = PlanJudge(first_former(), placed_); }

PlanJudge::Step PlanJudge::Trial(const Run& run) {
  if (std::exchange(is_hurried_, false) && run.ns < kWonSoon * usual_ns()) {
    ratios_ = {run.ns / usual_ns()};
    const Step step = Win();
    settled_ = 0;
    is_first_ = true;
    return step;
  }
  if (!run.is_settled && ++experiments_ <= kExperimentsMax) {
    if (run.ns > kHopeless * usual_ns() && experiments_ > 1) {
      return Lose(run.ns / usual_ns());
    }
    is_trial_ = HasBudget(run.ns - usual_ns());
    return is_trial_ ? Step::kKeep : Step::kSwitch;
  }
  challenger_ns_ = run.ns;
  return Judge();
}

// Decides which plan runs next and, when a pair is complete, whether it is conclusive.
PlanJudge::Step PlanJudge::Judge() {
  if (champion_ns_ > 0 && challenger_ns_ > 0) {
    ratios_.push_back(challenger_ns_ / champion_ns_);
    champion_ns_ = challenger_ns_ = 0;
    const auto [least, most] = std::ranges::minmax(ratios_);
    const double middle = Median(ratios_);
    const size_t pairs = ratios_.size();
    if ((pairs == 1 && middle > kLostAtOnce) || (pairs >= 2 && least > kLostSoon) || (pairs >= 3 && middle > kLost)) {
      return Lose(middle);
    }
    if ((pairs >= 2 && most < kWonSoon) || (pairs >= 3 && middle < kWon)) {
      return Win();
    }
    if (pairs >= kPairsMax) {
      return middle < kBetter ? Win() : Lose(middle);
    }
    return Step::kKeep;  // The next pair begins with the plan that ended this one.
  }
  const bool wants_trial = challenger_ns_ == 0;
  const bool may_try = wants_trial && HasBudget(planned_ns_ - usual_ns());
  return std::exchange(is_trial_, may_try) == may_try ? Step::kKeep : Step::kSwitch;
}

PlanJudge::Step PlanJudge::Lose(double ratio) {
  const double ns = ratio * usual_ns();
  const double before = sources_[source_].lost_ns;
  // A former plan may be slow only temporarily.
  Close(source_, source_ >= first_former() && before != 0 ? std::min(before, ns) : ns);
  if (source_ == 0) {
    // The costs that it taught may lead to another plan from now on.
    TakeFormer();
    sources_[former_] = sources_[0];
  } else {
    former_ = kNone;
  }
  has_challenger_ = is_trial_ = false;
  return Step::kGoBack;
}

PlanJudge::Step PlanJudge::Win() {
  const double ratio = Median(ratios_);
  const double usual = usual_ns();
  usual_.Clear();
  usual_.Add(ratio * usual);
  // The old champion takes the new one's place among the former plans, or that of the oldest.
  if (source_ < first_former()) {
    Refuse();  // The plan is the champion already.
    TakeFormer();
  } else {
    former_ = source_;
  }
  Close(former_, least_ns_ == 0 ? usual : std::min(least_ns_, usual));
  least_ns_ = 0;
  has_changed_ = source_ != 0;
  settled_ = kRunsFirst;
  unsettled_ = 0;
  has_challenger_ = is_trial_ = false;
  return Step::kAdopt;
}

}  // namespace hpvm::scheduler
