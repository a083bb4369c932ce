// SPDX-License-Identifier: Apache-2.0
// Method: a sample is clipped at three times the low mark, then moves the class's means with a gain of 1 / weight;
// weight stops at 32, so that later samples count a thirty-second each. The sixth sample in a row above the clip is
// believed and moves the mark.
// Invariants: classes_ is sorted by size, then intensity, without duplicates, and has at most kCostClassesMax
// entries. A settled class takes no experiments; a provisional one has the minimum of its samples. All figures are
// finite and not negative, and only such figures are restored.
// A lookup is logarithmic in the classes; everything else is linear in them.
// Source: cost_history.h (Welford's update).
#include "scheduler/cost/cost_history.h"

#include <algorithm>
#include <bit>
#include <cmath>

namespace hpvm::scheduler {
namespace {

// Number of samples that count; beyond it the oldest are forgotten.
constexpr double kWindow = 32;
// Weight of a first launch, which pays for page faults, cold caches and driver warm-up.
constexpr double kFirstWeight = 0.25;
// A sample is clipped at this factor above the low mark.
constexpr double kOutlier = 3;
// After this many outliers in a row, they are accepted as the new normal.
constexpr uint8_t kStreakMax = 6;
// Rate at which the low mark rises with each sample above it; a sample below lowers it half of the way in the
// logarithm.
constexpr double kLowStep = 0.05;
// Until there are this many samples, the low mark drops all of the way.
constexpr uint64_t kFewSamples = 8;
constexpr double kErrorMax = 100;
// Upper bound of what the runs of a process can add up to; a restored history with larger figures is rejected.
constexpr double kFigureMax = 1e24;
constexpr double kTimeMaxNs = 86'400e9 * 365;
constexpr uint8_t kBitsMax = 64;

uint8_t BitsOf(uint64_t n) { return n <= 1 ? 0 : static_cast<uint8_t>(std::bit_width(n - 1)); }

CostKey KeyOf(const CostClass& c) { return {c.size, c.intensity}; }

bool IsFigure(double value, double most) { return std::isfinite(value) && value >= 0 && value <= most; }

double OperationsOf(const Work& work) {
  return std::isfinite(work.operations) ? std::clamp(work.operations, 0.0, kFigureMax) : 0;
}

void Move(double& mean, double value, double gain) { mean += gain * (value - mean); }

void MoveLow(CostClass& c, double ns) {
  if (ns >= c.low_ns) {
    c.low_ns = std::min(c.low_ns * (1 + kLowStep), ns);
  } else {
    c.low_ns = c.samples < kFewSamples ? ns : std::sqrt(c.low_ns * ns);
  }
}

// Returns the part of a sample that counts: outliers are clipped until they become the rule.
double Damp(CostClass& c, double ns) {
  const double limit = kOutlier * c.low_ns;
  c.streak = ns > limit ? static_cast<uint8_t>(c.streak + 1) : 0;
  if (c.streak >= kStreakMax) {
    c.streak = 0;
    c.low_ns = ns / kOutlier;
    return ns;
  }
  MoveLow(c, std::min(ns, limit));
  return std::min(ns, limit);
}

}  // namespace

CostKey KeyOf(const Work& work) {
  uint8_t intensity = 0;
  if (const double operations = OperationsOf(work); operations > 0) {
    const double each = operations / static_cast<double>(std::max<uint64_t>(work.instances, 1));
    intensity = static_cast<uint8_t>(1 + BitsOf(static_cast<uint64_t>(std::min(std::ceil(each), 1e18))));
  }
  return {BitsOf(work.instances), intensity};
}

bool IsSound(const CostClass& c) {
  return c.size <= kBitsMax && c.intensity <= kBitsMax + 1 && c.samples > 0 && c.weight > 0 &&
         IsFigure(c.weight, kWindow) && IsFigure(c.instances, kFigureMax) && IsFigure(c.bytes, kFigureMax) &&
         IsFigure(c.operations, kFigureMax) && IsFigure(c.time_ns, kTimeMaxNs) && c.time_ns > 0 &&
         IsFigure(c.variance, kTimeMaxNs * kTimeMaxNs) && IsFigure(c.low_ns, kTimeMaxNs) && c.low_ns > 0 &&
         IsFigure(c.error, kErrorMax);
}

const CostClass* CostHistory::Find(const Work& work) const {
  const auto key = KeyOf(work);
  const auto it = std::lower_bound(classes_.begin(), classes_.end(), key,
                                   [](const CostClass& c, const auto& wanted) { return KeyOf(c) < wanted; });
  return it != classes_.end() && KeyOf(*it) == key ? &*it : nullptr;
}

CostClass& CostHistory::ClassOf(const Work& work) {
  const auto key = KeyOf(work);
  const auto place = [&] {
    return std::lower_bound(classes_.begin(), classes_.end(), key,
                            [](const CostClass& c, const auto& wanted) { return KeyOf(c) < wanted; });
  };
  auto it = place();
  if (it != classes_.end() && KeyOf(*it) == key) {
    return *it;
  }
  if (classes_.size() >= kCostClassesMax) {
    classes_.erase(std::min_element(classes_.begin(), classes_.end(),
                                    [](const CostClass& a, const CostClass& b) { return a.samples < b.samples; }));
    it = place();
  }
  CostClass c{.size = key.size, .intensity = key.intensity};
  c.instances = static_cast<double>(work.instances);
  c.bytes = static_cast<double>(work.bytes);
  c.operations = OperationsOf(work);
  return *classes_.insert(it, c);
}

bool CostHistory::Note(const Work& work) {
  if (Find(work) != nullptr) {
    return false;
  }
  ClassOf(work);
  return true;
}

void CostHistory::CountTry(const Work& work) {
  CostClass& c = ClassOf(work);
  c.tries = static_cast<uint8_t>(std::min(c.tries + 1, 255));
}

// An experiment can only be slower than the variant on which the device will settle.
void CostHistory::AddProvisional(CostClass& c, double ns) {
  if (c.is_settled) {
    return;
  }
  c.time_ns = c.low_ns = c.samples == 0 ? ns : std::min(c.time_ns, ns);
  c.weight = kFirstWeight;
  ++c.samples;
  ++samples_;
}

const CostClass& CostHistory::Add(const Work& work, double ns, double predicted_ns, bool is_settled) {
  CostClass& c = ClassOf(work);
  ns = std::clamp(ns, 1.0, kTimeMaxNs);
  if (!is_settled) {
    AddProvisional(c, ns);
    return c;
  }
  if (!c.is_settled) {
    c = {.size = c.size, .intensity = c.intensity, .tries = c.tries, .is_settled = true};
  }
  const double operations = OperationsOf(work);
  if (c.samples > 0) {
    const double error = std::min(std::abs(predicted_ns - ns) / ns, kErrorMax);
    Move(c.error, error, 1 / std::min(static_cast<double>(c.samples), kWindow));
  } else {
    c.low_ns = ns;
  }
  const double taken = Damp(c, ns);
  // Clips earlier samples that turn out to be far above the others.
  c.time_ns = std::min(c.time_ns, kOutlier * c.low_ns);
  const double weight = c.samples == 0 ? kFirstWeight : 1;
  c.weight = std::min(c.weight + weight, kWindow);
  const double gain = std::min(weight / c.weight, 1.0);
  const double apart = taken - c.time_ns;
  c.variance = c.samples == 0 ? 0 : (1 - gain) * (c.variance + gain * apart * apart);
  Move(c.time_ns, taken, gain);
  Move(c.instances, static_cast<double>(work.instances), gain);
  Move(c.bytes, static_cast<double>(work.bytes), gain);
  Move(c.operations, operations, gain);
  ++c.samples;
  ++samples_;
  return c;
}

size_t CostHistory::Restore(std::span<const CostClass> classes) {
  size_t taken = 0;
  for (const CostClass& c : classes) {
    if (!IsSound(c) || classes_.size() >= kCostClassesMax) {
      continue;
    }
    const auto it = std::lower_bound(classes_.begin(), classes_.end(), KeyOf(c),
                                     [](const CostClass& a, const auto& wanted) { return KeyOf(a) < wanted; });
    if (it != classes_.end() && KeyOf(*it) == KeyOf(c)) {
      if (it->is_settled || (it->samples > 0 && !c.is_settled)) {
        continue;
      }
      *it = c;
    } else {
      classes_.insert(it, c);
    }
    samples_ += c.samples > ~uint64_t{0} - samples_ ? 0 : c.samples;
    ++taken;
  }
  return taken;
}

uint32_t WantsSample(std::span<const SampleOption> options, const SamplePolicy& policy) {
  if (options.size() < 2) {
    return kNoSample;
  }
  const auto expected = [](const SampleOption& a, const SampleOption& b) { return a.expected_ns < b.expected_ns; };
  const size_t best = static_cast<size_t>(std::min_element(options.begin(), options.end(), expected) - options.begin());
  const double limit = policy.factor * options[best].expected_ns;
  uint32_t wanted = kNoSample;
  for (uint32_t i = 0; i < options.size(); ++i) {
    const SampleOption& option = options[i];
    if (i != best && option.samples < policy.samples_min && option.tries < policy.tries_max &&
        option.expected_ns <= limit && (wanted == kNoSample || expected(option, options[wanted]))) {
      wanted = i;
    }
  }
  return wanted;
}

}  // namespace hpvm::scheduler
