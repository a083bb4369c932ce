// SPDX-License-Identifier: Apache-2.0
// Tuner finds the variant that runs a kernel's launches of one class fastest, by measuring real launches.
//
// A tuner says which variant to measure next and receives the result; it has no clock and no threads. Candidates
// alternate, so that a temporary disturbance of the machine affects all of them; the smallest time per instance counts.
// A candidate that is far behind leaves early. After a bounded number of samples the tuner settles; launches then run
// the winner and are no longer measured. Results never depend on it, because all variants compute the same.
#ifndef HPVMD_BACKENDS_SHARED_TUNER_H_
#define HPVMD_BACKENDS_SHARED_TUNER_H_

#include <cstdint>
#include <vector>

namespace hpvm::backends {

// Bit i stands for variant i, or for whatever else is compared.
using VariantMask = uint32_t;

// Largest ratio to the best time at which a candidate stays.
struct TunerPatience {
  // After its first sample, which may include page faults and cold caches, and after later ones.
  double first = 8, later = 2;
  // The very first sample is meaningless and counts only as a glimpse: an idle device may have to raise its clocks, and
  // its driver to load the code.
  bool skips_first = false;
};

class Tuner {
 public:
  // Minimum time for a sample to count as a whole one: far above a wake-up, a page fault and the clock's resolution.
  static constexpr double kSampleNsMin = 50'000;
  // Number of whole samples of each remaining candidate; for short launches, kShortSamples.
  static constexpr uint32_t kSamples = 3;
  static constexpr uint32_t kShortSamples = 9;
  static constexpr uint32_t kGlimpses = 2;

  // `mask`, not 0, holds the candidates, the compiler's first choice first.
  explicit Tuner(VariantMask mask, const TunerPatience& patience = {});

  bool settled() const { return settled_; }
  // The winner; before settling, the best so far.
  uint32_t best() const { return best_; }
  // The variant to measure; only while not settled.
  uint32_t next() const { return next_; }
  // Returns true when a small part should be run by next() before it may have a whole sample, which could take very
  // long. There are two glimpses, because the first one meets cold code and untouched memory.
  bool wants_glimpse() const {
    return !settled_ && candidates_[next_].glimpses < kGlimpses && candidates_[next_].samples == 0;
  }
  // Nanoseconds per instance; 0 while unknown. A rough value from a glimpse until there is a sample.
  double estimate(uint32_t variant) const;
  // The best sample; 0 when there is none.
  double measured(uint32_t variant) const;

  // `variant` == next() took `ns` for this many instances of a small part, too few to count as a sample. More glimpses
  // than requested may be added for a candidate that seems too slow for a sample: eventually it leaves.
  void AddGlimpse(uint32_t variant, double ns, uint64_t instances);
  void AddSample(uint32_t variant, double ns, uint64_t instances);
  // Later samples are of another kind and must not be compared with earlier ones, which then serve only as estimates.
  void StartOver();
  // Settles with a result found earlier.
  void Settle(uint32_t variant, double instance_ns);

 private:
  struct Candidate {
    bool stays = false;
    double glimpse_ns = 0, sample_ns = 0;  // Time per instance; 0: none.
    uint32_t weight = 0;                   // In units of which a whole sample has kShortSamples / kSamples.
    uint32_t glimpses = 0, samples = 0;
  };
  void DropLaggards();
  void Advance();

  const TunerPatience patience_;
  std::vector<Candidate> candidates_;  // Indexed by variant.
  uint32_t best_ = 0, next_ = 0;
  bool settled_ = false;
  bool is_warm_ = false;
};

}  // namespace hpvm::backends

#endif  // HPVMD_BACKENDS_SHARED_TUNER_H_
