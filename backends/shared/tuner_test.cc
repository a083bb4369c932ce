// SPDX-License-Identifier: Apache-2.0
#include "backends/shared/tuner.h"

#include <functional>
#include <string>

#include "gtest/gtest.h"

#include "base/clock.h"

namespace hpvm::backends {
namespace {

// Kernels whose variants have the given nanoseconds per instance, on a machine with a simulated clock.
struct Simulation {
  std::vector<double> instance_ns;
  uint64_t instances = 1'000'000;  // Number of instances in a sample.
  std::function<double(uint32_t sample)> disturbance = [](uint32_t) { return 1.0; };
  uint32_t samples = 0, glimpses = 0;
  double total_ns = 0;

  // Drives the tuner like a dispatch until it settles; at most 1,000 steps.
  void Drive(Tuner& tuner) {
    for (int step = 0; step < 1'000 && !tuner.settled(); ++step) {
      const uint32_t variant = tuner.next();
      const bool is_glimpse = tuner.wants_glimpse();
      const uint64_t count = is_glimpse ? std::max<uint64_t>(instances / 100, 1) : instances;
      const double ns = instance_ns[variant] * static_cast<double>(count) * disturbance(samples + glimpses);
      total_ns += ns;
      if (is_glimpse) {
        ++glimpses;
        tuner.AddGlimpse(variant, ns, count);
      } else {
        ++samples;
        tuner.AddSample(variant, ns, count);
      }
    }
  }
};

// The first launch on an idle GPU takes several times as long; the candidate that meets it is not penalised.
TEST(TunerTest, TheFirstSampleIsNobodysFault) {
  for (const bool skips_first : {false, true}) {
    Simulation simulation{.instance_ns = {1, 1.4, 8, 1.5}, .disturbance = [](uint32_t sample) {
                            return sample == 0 ? 4.3 : 1.0;
                          }};
    Tuner tuner(0b1111, {2, 1.25, skips_first});
    while (!tuner.settled() && simulation.samples < 100) {
      const uint32_t variant = tuner.next();
      const double ns = simulation.instance_ns[variant] * 1e6 * simulation.disturbance(simulation.samples);
      tuner.AddSample(variant, ns, 1'000'000);
      ++simulation.samples;
    }
    EXPECT_EQ(tuner.best() == 0, skips_first);
    EXPECT_LE(simulation.samples, 12u);
  }
}

// The fastest candidate wins, whatever its neighbours; equals keep the compiler's order; the number of samples is
// bounded.
TEST(TunerTest, SettlesOnTheFastest) {
  struct Case {
    const char* name;
    VariantMask mask;
    std::vector<double> instance_ns;
    uint32_t want;
    uint32_t samples_max;
  };
  const Case kCases[] = {
      {"OnlyOne", 0b100, {1, 1, 5}, 2, 0},
      {"First", 0b111, {1, 2, 3}, 0, 8},
      {"Last", 0b111, {3, 2, 1}, 2, 8},
      {"Middle", 0b1111, {3, 1, 1.2, 9}, 1, 10},
      {"NotAllowed", 0b1110, {0.1, 5, 4, 6}, 2, 9},
      {"Equal", 0b111, {1, 1, 1}, 0, 9},
      {"NearlyEqual", 0b11, {1, 0.99}, 0, 6},
      {"ABitBetter", 0b11, {1, 0.95}, 1, 6},
      {"FarBehind", 0b11, {1, 1000}, 0, 1},
      {"FirstFarBehind", 0b11, {1000, 1}, 1, 4},
      {"Many", (1u << 17) - 1, {9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 2}, 16, 51},
  };
  for (const Case& c : kCases) {
    SCOPED_TRACE(c.name);
    Tuner tuner(c.mask);
    Simulation simulation{.instance_ns = c.instance_ns};
    simulation.Drive(tuner);
    ASSERT_TRUE(tuner.settled());
    EXPECT_EQ(tuner.best(), c.want);
    EXPECT_LE(simulation.samples, c.samples_max);
    if (simulation.samples != 0) {
      EXPECT_NEAR(tuner.measured(c.want), c.instance_ns[c.want], c.instance_ns[c.want] * 1e-9);
    }
  }
}

// A machine that is slow for a while, or at random, does not change the winner, because the candidates alternate.
TEST(TunerTest, StandsDisturbances) {
  struct Case {
    const char* name;
    std::function<double(uint32_t)> disturbance;
  };
  SeededRng rng(11);
  const Case kCases[] = {
      {"FirstSampleIsCold", [](uint32_t i) { return i == 0 ? 6.0 : 1.0; }},
      {"FirstRoundIsCold", [](uint32_t i) { return i < 8 ? 5.0 : 1.0; }},
      {"SlowForAWhile", [](uint32_t i) { return i >= 5 && i < 9 ? 2.0 : 1.0; }},
      {"OneInFive", [&](uint32_t) { return rng.Below(5) == 0 ? 1.8 : 1.0; }},
  };
  for (const Case& c : kCases) {
    SCOPED_TRACE(c.name);
    Tuner tuner(0b1111);
    Simulation simulation{.instance_ns = {2, 1.5, 1, 40}, .disturbance = c.disturbance};
    simulation.Drive(tuner);
    ASSERT_TRUE(tuner.settled());
    EXPECT_EQ(tuner.best(), 2u);
  }
}

// Short samples are taken more often, but no more than the limit.
TEST(TunerTest, TakesMoreOfShortSamples) {
  Tuner tuner(0b11);
  Simulation simulation{.instance_ns = {1.1, 1.0}, .instances = 1'000};
  simulation.Drive(tuner);
  EXPECT_EQ(tuner.best(), 1u);
  EXPECT_EQ(simulation.samples, 2 * Tuner::kShortSamples);
  Tuner whole(0b11);
  simulation = {.instance_ns = {1.1, 1.0}};
  simulation.Drive(whole);
  EXPECT_EQ(simulation.samples, 2 * Tuner::kSamples);
}

// A hopeless candidate costs a glimpse, not a sample.
TEST(TunerTest, DropsTheHopelessAtAGlimpse) {
  Tuner tuner(0b11);
  Simulation simulation{.instance_ns = {1, 100}, .instances = 5'000'000};
  simulation.Drive(tuner);
  EXPECT_EQ(tuner.best(), 0u);
  EXPECT_EQ(simulation.glimpses, 2 * Tuner::kGlimpses);
  EXPECT_EQ(tuner.measured(1), 0);
}

// A candidate whose first glimpse was cold gets another one, and may win; one that stays slow leaves eventually,
// however small the part was.
TEST(TunerTest, LooksTwice) {
  Tuner tuner(0b11);
  tuner.AddGlimpse(0, 400'000, 64);
  ASSERT_EQ(tuner.next(), 0u);
  tuner.AddGlimpse(0, 64, 64);
  EXPECT_EQ(tuner.estimate(0), 1);
  ASSERT_EQ(tuner.next(), 1u);
  int looks = 0;
  for (int i = 0; i < 20 && !tuner.settled(); ++i) {
    if (tuner.next() == 0) {
      tuner.AddSample(0, 1e6, 1'000'000);
    } else {
      ++looks;
      tuner.AddGlimpse(1, 6400, 64);
    }
  }
  EXPECT_EQ(looks, 5);
  EXPECT_TRUE(tuner.settled());
  EXPECT_EQ(tuner.best(), 0u);
}

// Samples of another kind do not count against later ones.
TEST(TunerTest, StartsOver) {
  Tuner tuner(0b11);
  for (int i = 0; i < 4; ++i) {
    tuner.AddGlimpse(tuner.next(), 100, 100);
  }
  ASSERT_EQ(tuner.next(), 0u);
  tuner.AddSample(0, 1e5, 1'000'000);  // A slice in the caches.
  tuner.StartOver();
  EXPECT_EQ(tuner.measured(0), 0);
  Simulation simulation{.instance_ns = {1.2, 1.0}};
  simulation.Drive(tuner);
  EXPECT_EQ(tuner.best(), 1u);
  EXPECT_EQ(simulation.glimpses, 0u);
}

// A record settles a tuner at once, unless it names no candidate. A sample taken on a busy machine may make a candidate
// seem too slow for another one; its glimpses end, whatever they measure.
TEST(TunerTest, LooksAtTheUnluckyEnd) {
  Tuner tuner(0b11);
  uint32_t looks = 0;
  for (int step = 0; step < 200 && !tuner.settled(); ++step) {
    const uint32_t variant = tuner.next();
    const bool is_unbearable = tuner.estimate(variant) > 50;
    if (tuner.wants_glimpse() || is_unbearable) {
      looks += is_unbearable ? 1 : 0;
      tuner.AddGlimpse(variant, 12'000, 1'000);
    } else {
      tuner.AddSample(variant, variant == 0 ? 10'000'000 : 60'000'000, 1'000'000);
    }
  }
  EXPECT_TRUE(tuner.settled());
  EXPECT_EQ(tuner.best(), 0u);
  EXPECT_GT(looks, 0u);
  EXPECT_LT(looks, 50u);
}

TEST(TunerTest, SettlesAsFoundEarlier) {
  Tuner tuner(0b101);
  tuner.Settle(1, 3.5);
  EXPECT_FALSE(tuner.settled());
  tuner.Settle(9, 3.5);
  EXPECT_FALSE(tuner.settled());
  tuner.Settle(2, 3.5);
  EXPECT_TRUE(tuner.settled());
  EXPECT_EQ(tuner.best(), 2u);
  EXPECT_EQ(tuner.measured(2), 3.5);
}

// Results that were not requested, or are empty, change nothing.
TEST(TunerTest, IgnoresWhatItDidNotAskFor) {
  Tuner tuner(0b11);
  tuner.AddSample(1, 5, 1);
  tuner.AddGlimpse(1, 5, 1);
  tuner.AddSample(0, 5, 0);
  EXPECT_EQ(tuner.estimate(0), 0);
  EXPECT_EQ(tuner.estimate(1), 0);
  EXPECT_EQ(tuner.next(), 0u);
}

}  // namespace
}  // namespace hpvm::backends
