// SPDX-License-Identifier: Apache-2.0
#include "scheduler/cost/cost_history.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

namespace hpvm::scheduler {
namespace {

DeviceFacts Processor() {
  return {
      .id = "cpu:0", .compute_units = 4, .bytes_per_second = 20e9, .operations_per_second = 100e9, .launch_ns = 500};
}

Work WorkOf(uint64_t instances, double operations_each = 8) {
  return {.leaf = graph::NodeId(0u),
          .choice = 0,
          .instances = instances,
          .bytes = instances * 8,
          .operations = static_cast<double>(instances) * operations_each};
}

double Uniform(SeededRng& rng, double low, double high) {
  return low + (high - low) * static_cast<double>(rng.Next() >> 11) * 0x1p-53;
}

double NsOf(const Cost& cost) { return static_cast<double>(cost.time.count()); }

// Simulates a kernel's time: start + rate * instances, with noise and the pauses of a busy machine.
struct Machine {
  double start_ns = 1000, each_ns = 0.5;
  double noise = 0.1, pause = 0.05;
  double Time(uint64_t instances) const { return start_ns + each_ns * static_cast<double>(instances); }
  double Sample(uint64_t instances, SeededRng& rng) const {
    const double factor = Uniform(rng, 1 - noise, 1 + noise) * (Uniform(rng, 0, 1) < pause ? Uniform(rng, 5, 50) : 1);
    return Time(instances) * factor;
  }
};

Machine RandomMachine(SeededRng& rng) {
  return {.start_ns = std::exp(Uniform(rng, std::log(100), std::log(50'000))),
          .each_ns = std::exp(Uniform(rng, std::log(0.01), std::log(10)))};
}

uint64_t RandomSize(SeededRng& rng) { return static_cast<uint64_t>(std::exp2(Uniform(rng, 2, 24))); }

CostHistory Measure(const Machine& machine, size_t samples, SeededRng& rng) {
  CostHistory history;
  for (size_t i = 0; i < samples; ++i) {
    const uint64_t size = RandomSize(rng);
    history.Add(WorkOf(size), machine.Sample(size, rng), 0);
  }
  return history;
}

// While the device experiments, the minimum time is provisional; the first settled sample restarts the class, and later
// experiments change nothing.
TEST(CostHistoryTest, ExperimentsStandInUntilTheClassIsSettled) {
  CostHistory history;
  for (const double ns : {40'000.0, 20'000.0, 80'000.0}) {
    history.Add(WorkOf(4096), ns, 0, /*is_settled=*/false);
  }
  const CostClass* const known = history.Find(WorkOf(4096));
  ASSERT_NE(known, nullptr);
  EXPECT_FALSE(known->is_settled);
  EXPECT_EQ(known->time_ns, 20'000);
  EXPECT_EQ(history.Add(WorkOf(4096), 10'000, 0).samples, 1u);
  EXPECT_TRUE(history.Find(WorkOf(4096))->is_settled);
  EXPECT_EQ(history.Find(WorkOf(4096))->time_ns, 10'000);
  history.Add(WorkOf(4096), 90'000, 0, /*is_settled=*/false);
  EXPECT_EQ(history.Find(WorkOf(4096))->time_ns, 10'000);
  EXPECT_EQ(history.Find(WorkOf(4096))->samples, 1u);
  const CostCurve curve(history, Processor());
  EXPECT_NEAR(NsOf(curve.At(WorkOf(4096), Processor())), 10'000, 100);
}

// The machine's line is recovered from noisy samples with outliers, whatever it is.
TEST(CostCurveTest, RecoversTheLine) {
  for (uint64_t seed = 0; seed < 200; ++seed) {
    SeededRng rng(seed);
    const Machine machine = RandomMachine(rng);
    const CostHistory history = Measure(machine, 600, rng);
    const DeviceFacts device = Processor();
    const CostCurve curve(history, device);
    // The slope is relative to the roofline's time of an instance: 8 bytes at 20 GB/s.
    const double each_ns = curve.slope() * 8 / 20;
    EXPECT_NEAR(each_ns / machine.each_ns, 1, 0.25) << "seed " << seed;
    if (machine.start_ns > 64 * machine.each_ns) {  // Otherwise no class shows it.
      EXPECT_NEAR(curve.start_ns() / machine.start_ns, 1, 0.35) << "seed " << seed;
    }
    std::vector<double> errors;
    for (int i = 0; i < 50; ++i) {
      const uint64_t size = RandomSize(rng);
      const Cost cost = curve.At(WorkOf(size), device);
      EXPECT_FALSE(cost.is_estimate) << "seed " << seed << ", size " << size;
      errors.push_back(std::abs(NsOf(cost) / machine.Time(size) - 1));
    }
    std::sort(errors.begin(), errors.end());
    EXPECT_LT(errors[25], 0.25) << "seed " << seed;
    EXPECT_LT(errors[49], 1) << "seed " << seed;
  }
}

// Two sizes suffice for all sizes in between, and for one far beyond, which is marked as an estimate.
TEST(CostCurveTest, InterpolatesAndExtrapolates) {
  const Machine machine{.start_ns = 2000, .each_ns = 1};
  CostHistory history;
  for (int i = 0; i < 20; ++i) {
    history.Add(WorkOf(1 << 12), machine.Time(1 << 12), 0);
    history.Add(WorkOf(1 << 16), machine.Time(1 << 16), 0);
  }
  const CostCurve curve(history, Processor());
  for (const uint64_t size : {uint64_t{1} << 11, uint64_t{1} << 13, uint64_t{50'000}, uint64_t{1} << 20}) {
    EXPECT_NEAR(NsOf(curve.At(WorkOf(size), Processor())) / machine.Time(size), 1, 0.02) << size;
  }
  EXPECT_FALSE(curve.At(WorkOf(1 << 15), Processor()).is_estimate);
  EXPECT_TRUE(curve.At(WorkOf(1 << 20), Processor()).is_estimate);
  EXPECT_FALSE(curve.At(WorkOf(1 << 16), Processor()).is_estimate);
}

// Pieces of a launch that keeps the device busy are known with it; pieces of a short launch are not.
TEST(CostCurveTest, PiecesOfLongLaunchesAreKnown) {
  const Roofline roof = RooflineOf(WorkOf(1 << 22), Processor());
  for (const double launches : {1'000.0, 100.0}) {
    CostHistory history;
    for (int i = 0; i < 5; ++i) {
      history.Add(WorkOf(1 << 22), launches * roof.launch_ns, 0);
    }
    const CostCurve curve(history, Processor());
    EXPECT_EQ(curve.At(WorkOf(1 << 19), Processor()).is_estimate, launches < 1'000.0);
    EXPECT_TRUE(curve.At(WorkOf(1 << 16), Processor()).is_estimate);
    EXPECT_TRUE(curve.At(WorkOf(1 << 25), Processor()).is_estimate);
  }
}

// With only one size, the roofline goes through it.
TEST(CostCurveTest, ScalesTheRoofline) {
  CostHistory history;
  const Roofline roof = RooflineOf(WorkOf(1 << 20), Processor());
  for (int i = 0; i < 5; ++i) {
    history.Add(WorkOf(1 << 20), 10 * (roof.launch_ns + roof.body_ns), 0);
  }
  const CostCurve curve(history, Processor());
  const double there = NsOf(curve.At(WorkOf(1 << 20), Processor()));
  EXPECT_NEAR(there / (10 * (roof.launch_ns + roof.body_ns)), 1, 0.01);
  const Cost bigger = curve.At(WorkOf(1 << 23), Processor());
  EXPECT_TRUE(bigger.is_estimate);
  EXPECT_NEAR(NsOf(bigger) / there, 8, 0.5);
  EXPECT_NEAR(there / NsOf(curve.At(WorkOf(1 << 17), Processor())), 8, 1);
}

// Beyond the measurements a prediction grows at least as the roofline does: noise gives no kernel infinite speed.
TEST(CostCurveTest, StaysAboveTheRoofline) {
  CostHistory history;
  for (int i = 0; i < 10; ++i) {
    history.Add(WorkOf(1 << 18), 60'000, 0);
    history.Add(WorkOf(1 << 20), 50'000, 0);  // Falls with the size, so the line is flat.
  }
  const CostCurve curve(history, Processor());
  EXPECT_EQ(curve.slope(), 0);
  const Roofline here = RooflineOf(WorkOf(1 << 20), Processor()), there = RooflineOf(WorkOf(1 << 26), Processor());
  const double least = 50'000 * (there.launch_ns + there.body_ns) / (here.launch_ns + here.body_ns);
  EXPECT_GE(NsOf(curve.At(WorkOf(1 << 26), Processor())), 0.99 * least);
}

// Launches of one size with a hundred times the work form a class of their own.
TEST(CostCurveTest, TellsWorkApart) {
  CostHistory history;
  for (int i = 0; i < 20; ++i) {
    history.Add(WorkOf(4096, 10), 5'000, 0);
    history.Add(WorkOf(4096, 1000), 400'000, 0);
  }
  const CostCurve curve(history, Processor());
  EXPECT_NEAR(NsOf(curve.At(WorkOf(4096, 10), Processor())), 5'000, 100);
  EXPECT_NEAR(NsOf(curve.At(WorkOf(4096, 1000), Processor())), 400'000, 5'000);
  const double between = NsOf(curve.At(WorkOf(4096, 100), Processor()));
  EXPECT_GT(between, 20'000);
  EXPECT_LT(between, 100'000);
}

// Predictions are finite, not negative, and at most a day, whatever was measured.
TEST(CostCurveTest, IsNeverNegative) {
  for (uint64_t seed = 0; seed < 500; ++seed) {
    SeededRng rng(seed);
    const auto wild = [&] {
      return Work{.leaf = graph::NodeId(0u),
                  .choice = 0,
                  .instances = rng.Next() >> rng.Below(64),
                  .bytes = rng.Next() >> rng.Below(64),
                  .operations = rng.Below(3) == 0 ? 0 : std::exp(Uniform(rng, -5, 300))};
    };
    DeviceFacts device{.id = "a", .compute_units = static_cast<uint32_t>(rng.Below(100)), .is_gpu = rng.Below(2) == 0};
    device.bytes_per_second = rng.Below(2) == 0 ? 0 : std::exp(Uniform(rng, -20, 40));
    device.operations_per_second = rng.Below(2) == 0 ? 0 : std::exp(Uniform(rng, -20, 40));
    device.launch_ns = rng.Below(2) == 0 ? 0 : std::exp(Uniform(rng, -5, 40));
    CostHistory history;
    const uint64_t samples = rng.Below(200);
    for (uint64_t i = 0; i < samples; ++i) {
      history.Add(wild(), rng.Below(10) == 0 ? 0 : std::exp(Uniform(rng, -3, 60)), Uniform(rng, 0, 1e9));
    }
    EXPECT_LE(history.classes().size(), kCostClassesMax);
    const CostCurve curve(history, device);
    for (int i = 0; i < 50; ++i) {
      const Cost cost = curve.At(wild(), device);
      EXPECT_GE(cost.time.count(), 0) << "seed " << seed;
      EXPECT_LE(cost.time.count(), int64_t{86'400} * 1'000'000'000) << "seed " << seed;
    }
    for (const CostClass& c : history.classes()) {
      EXPECT_TRUE(c.samples == 0 || IsSound(c)) << "seed " << seed;
    }
  }
}

// Pauses of the machine move a mean only slightly.
TEST(CostHistoryTest, DampsOutliers) {
  CostHistory history;
  for (int i = 0; i < 100; ++i) {
    history.Add(WorkOf(1000), i % 10 == 9 ? 100'000 : 1000, 1000);
  }
  EXPECT_LT(history.classes()[0].time_ns, 1400);
  EXPECT_GE(history.classes()[0].time_ns, 1000);
}

// A first launch that takes a hundred times as long is soon forgotten.
TEST(CostHistoryTest, ForgetsTheFirstLaunch) {
  CostHistory history;
  history.Add(WorkOf(1000), 100'000, 0);
  for (int i = 0; i < 12; ++i) {
    history.Add(WorkOf(1000), 1000, 0);
  }
  EXPECT_LT(history.classes()[0].time_ns, 1300);
}

// A lasting change of the machine's speed is followed.
TEST(CostHistoryTest, FollowsDrift) {
  for (const double factor : {10.0, 2.0, 0.5, 0.1}) {
    CostHistory history;
    for (int i = 0; i < 200; ++i) {
      history.Add(WorkOf(1000), 10'000, 0);
    }
    for (int i = 0; i < 150; ++i) {
      history.Add(WorkOf(1000), 10'000 * factor, 0);
    }
    EXPECT_NEAR(history.classes()[0].time_ns / (10'000 * factor), 1, 0.05) << factor;
  }
}

// The error is that of predictions, from the second sample on.
TEST(CostHistoryTest, MeasuresItsError) {
  CostHistory history;
  EXPECT_EQ(history.Add(WorkOf(1000), 1000, 5000).error, 0);
  EXPECT_DOUBLE_EQ(history.Add(WorkOf(1000), 1000, 1500).error, 0.5);
  EXPECT_DOUBLE_EQ(history.Add(WorkOf(1000), 1000, 900).error, 0.3);
}

// Launches that were never measured are known once noted, and do not change predictions.
TEST(CostHistoryTest, NotesWithoutSamples) {
  CostHistory history;
  EXPECT_TRUE(history.Note(WorkOf(1000)));
  EXPECT_FALSE(history.Note(WorkOf(1001)));
  history.CountTry(WorkOf(1000));
  ASSERT_EQ(history.classes().size(), 1u);
  EXPECT_EQ(history.Find(WorkOf(1024))->tries, 1);
  EXPECT_EQ(history.Find(WorkOf(1025)), nullptr);
  EXPECT_EQ(history.samples(), 0u);
  const CostCurve curve(history, Processor());
  EXPECT_TRUE(curve.is_empty());
  EXPECT_EQ(curve.At(WorkOf(1000), Processor()), StaticCosts().Run(WorkOf(1000), 0, Processor()));
}

// Provisional classes are also stored, as provisional.
TEST(CostHistoryTest, RestoresWhatStandsIn) {
  CostHistory kept, history, settled;
  kept.Add(WorkOf(4096), 50'000, 0, /*is_settled=*/false);
  EXPECT_EQ(history.Restore(kept.classes()), 1u);
  EXPECT_EQ(*history.Find(WorkOf(4096)), *kept.Find(WorkOf(4096)));
  settled.Add(WorkOf(4096), 10'000, 0);
  EXPECT_EQ(settled.Restore(kept.classes()), 0u);
  EXPECT_EQ(kept.Restore(settled.classes()), 1u);
  EXPECT_TRUE(kept.Find(WorkOf(4096))->is_settled);
}

// A history stored by another process is restored unchanged; an impossible one is not.
TEST(CostHistoryTest, RestoresWhatIsSound) {
  SeededRng rng(1);
  const CostHistory kept = Measure(RandomMachine(rng), 300, rng);
  CostHistory history;
  EXPECT_EQ(history.Restore(kept.classes()), kept.classes().size());
  EXPECT_TRUE(
      std::equal(kept.classes().begin(), kept.classes().end(), history.classes().begin(), history.classes().end()));
  EXPECT_EQ(history.samples(), kept.samples());
  EXPECT_EQ(history.Restore(kept.classes()), 0u);

  const CostClass sound = kept.classes()[3];
  ASSERT_TRUE(IsSound(sound));
  constexpr double kNan = std::numeric_limits<double>::quiet_NaN(), kInf = std::numeric_limits<double>::infinity();
  double CostClass::*const kFigures[] = {&CostClass::weight,     &CostClass::instances, &CostClass::bytes,
                                         &CostClass::operations, &CostClass::time_ns,   &CostClass::variance,
                                         &CostClass::low_ns,     &CostClass::error};
  for (double CostClass::*const figure : kFigures) {
    for (const double bad : {kNan, kInf, -kInf, -1.0, 1e300}) {
      CostClass c = sound;
      c.*figure = bad;
      EXPECT_FALSE(IsSound(c)) << bad;
      CostHistory fresh;
      EXPECT_EQ(fresh.Restore({&c, 1}), 0u);
    }
  }
  for (uint8_t CostClass::*const key : {&CostClass::size, &CostClass::intensity}) {
    CostClass c = sound;
    c.*key = 66;
    EXPECT_FALSE(IsSound(c));
  }
  CostClass c = sound;
  c.samples = 0;
  EXPECT_FALSE(IsSound(c));
}

// Only candidates that may be the best are sampled, each a few times.
TEST(WantsSampleTest, AsksForWhatMayBeBest) {
  EXPECT_EQ(WantsSample({}), kNoSample);
  EXPECT_EQ(WantsSample({{{.expected_ns = 5}}}), kNoSample);
  EXPECT_EQ(WantsSample({{{.expected_ns = 100}, {.expected_ns = 299}}}), 1u);
  EXPECT_EQ(WantsSample({{{.expected_ns = 100}, {.expected_ns = 301}}}), kNoSample);
  EXPECT_EQ(WantsSample({{{.expected_ns = 250}, {.expected_ns = 100}, {.expected_ns = 200}}}), 2u);
  EXPECT_EQ(WantsSample({{{.expected_ns = 100}, {.expected_ns = 200, .samples = 2}}}), kNoSample);
  EXPECT_EQ(WantsSample({{{.expected_ns = 100}, {.expected_ns = 200, .samples = 1}}}), 1u);
  EXPECT_EQ(WantsSample({{{.expected_ns = 100}, {.expected_ns = 200, .tries = 3}}}), kNoSample);
}

// Exploration ends whatever candidates really take, costs no more than its bound, and finds the best of those
// candidates whose estimates were within the factor.
TEST(WantsSampleTest, LosesABoundedTime) {
  for (uint64_t seed = 0; seed < 300; ++seed) {
    SeededRng rng(seed);
    const size_t count = 2 + rng.Below(4);
    std::vector<double> truth(count);
    std::vector<SampleOption> options(count);
    for (size_t i = 0; i < count; ++i) {
      truth[i] = std::exp(Uniform(rng, 0, 5));
      options[i].expected_ns = truth[i] * std::exp(Uniform(rng, -0.5, 0.5));
    }
    const double best = *std::min_element(truth.begin(), truth.end());
    // The real time of the first choice by estimates; later best choices take no longer.
    const auto chosen_first =
        std::min_element(options.begin(), options.end(),
                         [](const SampleOption& a, const SampleOption& b) { return a.expected_ns < b.expected_ns; });
    const double first_best = truth[static_cast<size_t>(chosen_first - options.begin())];
    double bound = 0;
    for (const double one : truth) {
      bound += one + 2 * 3 * first_best;
    }
    double lost = 0;
    size_t asked = 0;
    for (int run = 0; run < 100; ++run) {
      const uint32_t wanted = WantsSample(options);
      const auto chosen = wanted != kNoSample ? options.begin() + wanted
                                              : std::min_element(options.begin(), options.end(),
                                                                 [](const SampleOption& a, const SampleOption& b) {
                                                                   return a.expected_ns < b.expected_ns;
                                                                 });
      const size_t index = static_cast<size_t>(chosen - options.begin());
      if (wanted != kNoSample) {
        ++asked;
        ++chosen->tries;
        lost += truth[index] - best;
      }
      ++chosen->samples;
      chosen->expected_ns = truth[index];
    }
    EXPECT_LE(asked, 3 * (count - 1)) << "seed " << seed;
    EXPECT_LE(lost, bound) << "seed " << seed;
    EXPECT_EQ(WantsSample(options), kNoSample);
    const auto found =
        std::min_element(options.begin(), options.end(),
                         [](const SampleOption& a, const SampleOption& b) { return a.expected_ns < b.expected_ns; });
    EXPECT_EQ(truth[static_cast<size_t>(found - options.begin())], best) << "seed " << seed;
  }
}

// Curves answer where they have data, by the candidates' numbers; transfers are looked up by spaces.
TEST(MeasuredCostsTest, FallsBackToEstimates) {
  CostHistory history;
  history.Add(WorkOf(1000), 123'456, 0);
  MeasuredCosts costs;
  const uint32_t known = costs.AddCurve(CostCurve(history, Processor())), unknown = costs.AddCurve({});
  costs.AddLeaf({});
  costs.AddLeaf({});
  costs.AddLeaf({{unknown, known}});
  Work work = WorkOf(1000);
  work.leaf = graph::NodeId(2u);
  work.choice = 1;
  EXPECT_EQ(costs.Run(work, 0, Processor()), (Cost{.time = Duration(123'456), .is_estimate = false}));
  const Cost estimate = StaticCosts().Run(work, 0, Processor());
  constexpr std::pair<uint32_t, uint32_t> kUnknown[] = {{2, 0}, {2, 7}, {1, 0}, {9, 0}};
  for (const auto& [leaf, choice] : kUnknown) {
    work.leaf = graph::NodeId(leaf);
    work.choice = choice;
    EXPECT_EQ(costs.Run(work, 0, Processor()), estimate);
  }

  costs.SetTransfer(0, 2, {.start_ns = 1000, .bytes_per_second = 1e9, .is_estimate = false});
  EXPECT_EQ(costs.Transfer(5000, 0, 2), Duration(6000));
  EXPECT_EQ(costs.Transfer(5000, 2, 0), StaticCosts().Transfer(5000, 2, 0));
  EXPECT_EQ(costs.Transfer(5000, 0, 9), StaticCosts().Transfer(5000, 0, 9));
}

// Two links in a row take the sum of both.
TEST(TransferLineTest, AddsUp) {
  const TransferLine up{.start_ns = 10, .bytes_per_second = 2e9, .is_estimate = false};
  const TransferLine down{.start_ns = 30, .bytes_per_second = 5e9, .is_estimate = false};
  EXPECT_NEAR(Through(up, down).At(1'000'000), up.At(1'000'000) + down.At(1'000'000), 1e-6);
  EXPECT_TRUE(Through(up, {.bytes_per_second = 1}).is_estimate);
}

// The maximum of bytes' and operations' time, after the start; defaults replace missing facts.
TEST(StaticCostsTest, IsARoofline) {
  const DeviceFacts device{.id = "a", .bytes_per_second = 1e9, .operations_per_second = 2e9, .launch_ns = 100};
  const StaticCosts costs;
  const auto time = [&](uint64_t bytes, double operations) {
    const Work work{.leaf = {}, .choice = 0, .instances = 100, .bytes = bytes, .operations = operations};
    return costs.Run(work, 0, device).time;
  };
  EXPECT_EQ(time(5000, 4000), Duration(5100));
  EXPECT_EQ(time(1000, 4000), Duration(2100));
  EXPECT_EQ(time(1000, 0), Duration(5100));  // 50 ns per instance.
  EXPECT_TRUE(costs.Run({}, 0, device).is_estimate);
  EXPECT_GT(costs.Run({}, 0, {.id = "a", .is_gpu = true}).time, costs.Run({}, 0, {}).time);
}

}  // namespace
}  // namespace hpvm::scheduler
