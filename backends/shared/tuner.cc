// SPDX-License-Identifier: Apache-2.0
// Method: elimination. The staying candidate with the least weight of samples is measured next; the least time of
// each counts. One that is slower than the best by more than the patience's ratio leaves, after a first sample only
// when all others have one.
// Invariants: best_ stays and is beaten only by a factor of 0.98, so that equals keep the compiler's order. Samples
// below kSampleNsMin weigh a third of a whole one. A glimpse decides only if it is long enough, or the fifth, and
// never against the best.
// A candidate has at most nine samples, and one that has samples leaves at its 16th glimpse. The tuner settles with
// one candidate left that has a sample, or when all have their weight.
#include "backends/shared/tuner.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "base/status.h"

namespace hpvm::backends {
namespace {

constexpr uint32_t kWholeWeight = Tuner::kShortSamples / Tuner::kSamples;
// Largest ratio to the best time at which a candidate stays after a glimpse.
constexpr double kGlimpseRatio = 4;
// A shorter glimpse may measure the call, or the clearing of a large page, more than the code.
constexpr double kGlimpseNsMin = 500'000;
// After this many glimpses even short ones count.
constexpr uint32_t kGlimpsesMax = 5;
// Limit for a candidate that has samples, and is still denied more of them.
constexpr uint32_t kGlimpsesEnough = 16;
// A later candidate must be better by this factor: equals keep the compiler's order.
constexpr double kMargin = 0.98;

void Lower(double* ns, double now) { *ns = *ns == 0 ? now : std::min(*ns, now); }

}  // namespace

Tuner::Tuner(VariantMask mask, const TunerPatience& patience) : patience_(patience) {
  HPVMD_CHECK(mask != 0);
  candidates_.resize(static_cast<size_t>(std::bit_width(mask)));
  for (size_t i = 0; i < candidates_.size(); ++i) {
    candidates_[i].stays = (mask >> i & 1) != 0;
  }
  best_ = next_ = static_cast<uint32_t>(std::countr_zero(mask));
  settled_ = std::has_single_bit(mask);
  is_warm_ = !patience.skips_first;
}

double Tuner::estimate(uint32_t variant) const {
  const Candidate& candidate = candidates_[variant];
  return candidate.sample_ns != 0 ? candidate.sample_ns : candidate.glimpse_ns;
}

double Tuner::measured(uint32_t variant) const {
  return variant < candidates_.size() ? candidates_[variant].sample_ns : 0;
}

void Tuner::AddGlimpse(uint32_t variant, double ns, uint64_t instances) {
  if (settled_ || variant != next_ || instances == 0) {
    return;
  }
  Candidate& candidate = candidates_[variant];
  Lower(&candidate.glimpse_ns, std::max(ns / static_cast<double>(instances), 1e-3));
  ++candidate.glimpses;
  const double best = estimate(best_);
  const bool is_sure = (candidate.glimpses >= kGlimpses && ns >= kGlimpseNsMin) || candidate.glimpses >= kGlimpsesMax;
  // The caller may judge a candidate too slow by its sample, which may have been an unlucky one: contradicting glimpses
  // must also end.
  const bool is_enough = candidate.samples != 0 && candidate.glimpses >= kGlimpsesEnough;
  if (variant != best_ && best != 0 &&
      ((is_sure && candidate.glimpse_ns > best * kGlimpseRatio) || is_enough)) {
    candidate.stays = false;
  } else if (candidate.glimpse_ns < best * kMargin && candidates_[best_].sample_ns == 0) {
    best_ = variant;
  }
  Advance();
}

void Tuner::AddSample(uint32_t variant, double ns, uint64_t instances) {
  if (settled_ || variant != next_ || instances == 0) {
    return;
  }
  Candidate& candidate = candidates_[variant];
  if (!std::exchange(is_warm_, true)) {
    Lower(&candidate.glimpse_ns, std::max(ns / static_cast<double>(instances), 1e-3));
    return;
  }
  Lower(&candidate.sample_ns, std::max(ns / static_cast<double>(instances), 1e-3));
  candidate.weight += ns >= kSampleNsMin ? kWholeWeight : 1;
  ++candidate.samples;
  DropLaggards();
  Advance();
}

void Tuner::StartOver() {
  if (settled_) {
    return;
  }
  is_warm_ = !patience_.skips_first;
  for (Candidate& candidate : candidates_) {
    if (candidate.samples != 0) {
      candidate.glimpse_ns = candidate.sample_ns;
      candidate.glimpses = std::max(candidate.glimpses, kGlimpses);
    }
    candidate.sample_ns = 0;
    candidate.weight = candidate.samples = 0;
  }
  Advance();
}

void Tuner::Settle(uint32_t variant, double instance_ns) {
  if (variant >= candidates_.size() || !candidates_[variant].stays) {
    return;
  }
  candidates_[variant].sample_ns = instance_ns;
  best_ = next_ = variant;
  settled_ = true;
}

void Tuner::DropLaggards() {
  double least = 0;
  for (uint32_t i = 0; i < candidates_.size(); ++i) {
    const Candidate& candidate = candidates_[i];
    if (candidate.stays && candidate.samples != 0 && (least == 0 || candidate.sample_ns < least * kMargin)) {
      least = candidate.sample_ns;
      best_ = i;
    }
  }
  for (uint32_t i = 0; i < candidates_.size(); ++i) {
    Candidate& candidate = candidates_[i];
    const double ratio = candidate.samples > 1 ? patience_.later : patience_.first;
    // A candidate measured once keeps its place until the others have been measured too: its sample may be the cold
    // one.
    const bool is_judged = std::all_of(candidates_.begin(), candidates_.end(), [&](const Candidate& other) {
      return !other.stays || other.samples + 1 >= candidate.samples + (candidate.samples == 1 ? 1 : 0);
    });
    if (i != best_ && candidate.samples != 0 && is_judged && candidate.sample_ns > least * ratio) {
      candidate.stays = false;
    }
  }
}

// Moves to the next candidate that needs a glimpse, then to the one with the fewest samples.
void Tuner::Advance() {
  const Candidate* fewest = nullptr;
  size_t staying = 0;
  for (const Candidate& candidate : candidates_) {
    if (!candidate.stays) {
      continue;
    }
    ++staying;
    if (candidate.glimpses < kGlimpses && candidate.samples == 0) {
      next_ = static_cast<uint32_t>(&candidate - candidates_.data());
      return;
    }
    if (candidate.weight < kShortSamples && (fewest == nullptr || candidate.weight < fewest->weight)) {
      fewest = &candidate;
    }
  }
  settled_ = fewest == nullptr || (staying == 1 && candidates_[best_].samples != 0);
  next_ = settled_ ? best_ : static_cast<uint32_t>(fewest - candidates_.data());
}

}  // namespace hpvm::backends
