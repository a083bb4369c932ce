// SPDX-License-Identifier: Apache-2.0
// Which variant runs a kernel's launches of one class fastest, found out by measuring real launches.
//
// A tuner says whom to measure next and takes what came out; it has no clock and no threads. Candidates take turns, so
// that what disturbs the machine for a while disturbs all of them; the smallest time an instance counts. Who is far
// behind leaves early. After a bounded number of samples the tuner settles; launches then run the winner and are no
// longer looked at. Results never depend on it: all variants give the same.
#ifndef HPVMD_BACKENDS_SHARED_TUNER_H_
#define HPVMD_BACKENDS_SHARED_TUNER_H_

#include <cstdint>
#include <vector>

namespace hpvm::backends {

// Bit i: variant i, or whatever else is compared.
using VariantMask = uint32_t;

// How far behind the best a candidate may be and stay.
struct TunerPatience {
  // After its first sample, which may have met untouched memory and cold caches, and after later ones.
  double first = 8, later = 2;
  // The first sample of all says nothing: a device that was idle may have to raise its clocks, and its driver to load
  // the code. It is only a glimpse.
  bool skips_first = false;
};

class Tuner {
 public:
  // How short a sample may be to count for a whole one: far above a wake-up, a page fault and the clock's grain.
  static constexpr double kSampleNsMin = 50'000;
  // Whole samples of each candidate that stays; where launches are short, as many as kShortSamples.
  static constexpr uint32_t kSamples = 3;
  static constexpr uint32_t kShortSamples = 9;
  static constexpr uint32_t kGlimpses = 2;

  // `mask`, not 0, holds the candidates, the one the compiler thinks best first.
  explicit Tuner(VariantMask mask, const TunerPatience& patience = {});

  bool settled() const { return settled_; }
  // The winner; before that the best so far.
  uint32_t best() const { return best_; }
  // Whom to measure; only while not settled.
  uint32_t next() const { return next_; }
  // Whether next() is to be looked at in a small part before it may have a whole sample, which could take very long.
  // The first look meets cold code and untouched memory, so there are two.
  bool wants_glimpse() const {
    return !settled_ && candidates_[next_].glimpses < kGlimpses && candidates_[next_].samples == 0;
  }
  // Nanoseconds an instance; 0 while unknown. A rough figure of a small part until there is a sample.
  double estimate(uint32_t variant) const;
  // The best of the samples; 0 when there is none.
  double measured(uint32_t variant) const;

  // `variant` == next() took `ns` for so many instances of a small part, too few to count. More than are wanted may be
  // given, of a candidate that looks too slow for a sample: in the end it leaves.
  void AddGlimpse(uint32_t variant, double ns, uint64_t instances);
  void AddSample(uint32_t variant, double ns, uint64_t instances);
  // Samples from here on are of another kind, so that those before must not be compared with them: they only help to
  // guess.
  void StartOver();
  // As found earlier.
  void Settle(uint32_t variant, double instance_ns);

 private:
  struct Candidate {
    bool stays = false;
    double glimpse_ns = 0, sample_ns = 0;  // An instance; 0: none.
    uint32_t weight = 0;                   // In units of which a whole sample has kShortSamples / kSamples.
    uint32_t glimpses = 0, samples = 0;
  };
  void DropLaggards();
  void Advance();

  const TunerPatience patience_;
  std::vector<Candidate> candidates_;  // By variant.
  uint32_t best_ = 0, next_ = 0;
  bool settled_ = false;
  bool is_warm_ = false;
};

}  // namespace hpvm::backends

#endif  // HPVMD_BACKENDS_SHARED_TUNER_H_
