// SPDX-License-Identifier: Apache-2.0
// What was measured of one kernel on one device, and what follows from it for launches of other sizes. Pure.
//
// Samples are kept by class: launches whose instances, and whose counted operations an instance, lie between the same
// powers of two. A class keeps means under exponential forgetting (Welford's update with a gain that stops falling, so
// that drift is followed) and a running low mark, which rises slowly and falls fast: what is far above it is taken for
// the noise of a busy machine and cut, unless it goes on.
//
// Between classes a line is fitted, time = a + b * x, where x is what the roofline says of a launch without its start.
// The slope is the weighted median of the slopes of all pairs (Theil 1950, Sen 1968; a pair's weight is what its slope
// is known by: the distance in x over the noise of both times), so that a class of bad samples moves nothing.
//
// A prediction is the class's own mean where there is one, moved along the line to the launch's x; else between the two
// nearest in x, in proportion; else beyond them along the line, never less than the roofline says of the same
// distance. With one class alone the line is the roofline through it. Predictions are finite and never negative.
#ifndef HPVMD_SCHEDULER_COST_COST_HISTORY_H_
#define HPVMD_SCHEDULER_COST_COST_HISTORY_H_

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "scheduler/cost/cost_model.h"

namespace hpvm::scheduler {

inline constexpr size_t kCostClassesMax = 48;  // Of one history; a new one takes the place of the least used.

struct CostClass {
  uint8_t size = 0;         // Launches of (2^(size-1), 2^size] instances; 0: of one, or none.
  uint8_t intensity = 0;    // Operations an instance, in the same way, plus one; 0: not counted.
  uint8_t tries = 0;        // Samples that were asked for (WantsSample).
  uint8_t streak = 0;       // How many samples in a row were far above low_ns.
  bool is_settled = false;  // The samples are of launches as the device goes on running them.
  uint64_t samples = 0;     // 0: launches like this are known, but were never measured here.
  double weight = 0;        // Of the samples that are not forgotten.
  // Means.
  double instances = 0, bytes = 0, operations = 0, time_ns = 0;
  double variance = 0;  // Of the time, ns².
  double low_ns = 0;    // The low mark: few samples lie below.
  double error = 0;     // Mean of |predicted - measured| / measured, of all samples but the first.
  friend bool operator==(const CostClass&, const CostClass&) = default;
};

// Which class a launch belongs to.
struct CostKey {
  uint8_t size = 0, intensity = 0;
  friend auto operator<=>(const CostKey&, const CostKey&) = default;
};
CostKey KeyOf(const Work& work);

class CostHistory {
 public:
  // Makes the launch's class known. True when it is new.
  bool Note(const Work& work);
  // A launch took `ns` when `predicted_ns` had been expected; both finite and not negative. The class it went to, valid
  // until the next Note, Add or Restore. Not `is_settled`: the device still tries out how to run launches like it. Then
  // the least of them stands in, until one that is settled begins the class anew; after that they change nothing.
  const CostClass& Add(const Work& work, double ns, double predicted_ns, bool is_settled = true);
  // One of the samples that WantsSample asks for was asked for.
  void CountTry(const Work& work);

  // By size, then intensity.
  std::span<const CostClass> classes() const { return classes_; }
  // Null: unknown.
  const CostClass* Find(const Work& work) const;
  uint64_t samples() const { return samples_; }

  // Takes over what another process has kept; samples that are here already stay as they are, unless they are of
  // launches that were tried out and the kept ones are not. Classes that cannot be (figures that are not finite,
  // negative, no samples) are left out; how many were taken.
  size_t Restore(std::span<const CostClass> classes);

 private:
  CostClass& ClassOf(const Work& work);
  void AddProvisional(CostClass& c, double ns);

  std::vector<CostClass> classes_;  // Sorted; at most kCostClassesMax.
  uint64_t samples_ = 0;
};

// A launch like those of the class.
Work MeanOf(const CostClass& c);
// Whether a class could come from a history that was only fed with what a machine can measure.
bool IsSound(const CostClass& c);

// A history turned into a function, for one device.
class CostCurve {
 public:
  CostCurve() = default;
  CostCurve(const CostHistory& history, const DeviceFacts& device);

  // Nothing like it was measured where the launch has no class of its own, nor one beside it of which the roofline says
  // a time within a factor of 4.
  Cost At(const Work& work, const DeviceFacts& device) const;
  bool is_empty() const { return points_.empty(); }
  // Of the line.
  double start_ns() const { return start_ns_; }
  double slope() const { return slope_; }

 private:
  struct Point {
    double x = 0, time_ns = 0, sigma = 0;
    uint8_t size = 0, intensity = 0;
  };
  void FitLine(double launch_ns);
  double Along(const Point& from, double x) const;
  double Between(double x, double launch_ns) const;
  bool IsNear(double x, double time_ns, double launch_ns) const;

  std::vector<Point> points_;  // By rising x.
  double start_ns_ = 0, slope_ = 0;
};

// From one space to another: a start, and bytes at a speed.
struct TransferLine {
  double start_ns = 0;
  double bytes_per_second = 0;
  bool is_estimate = true;
  double At(uint64_t bytes) const;
};

// Of a link of which nothing is known: what StaticCosts says of it.
TransferLine LinkEstimate();
// One after the other.
TransferLine Through(const TransferLine& first, const TransferLine& second);

// From curves where they know something, else from StaticCosts. Filled before it is asked, constant from then on.
class MeasuredCosts final : public CostModel {
 public:
  // The same curve may be that of several candidates.
  uint32_t AddCurve(CostCurve curve);
  // For the next NodeId: the curves of its candidates, by choice; none for nodes that are no leaves.
  void AddLeaf(std::span<const uint32_t> curves);
  void SetTransfer(SpaceIndex from, SpaceIndex to, const TransferLine& line);
  // What the device's curves say is to be multiplied by it.
  void SetFactor(DeviceIndex device, double factor);
  void SetHostCopies(double bytes_per_second) { host_copy_bytes_per_second_ = bytes_per_second; }

  Cost Run(const Work& work, DeviceIndex index, const DeviceFacts& device) const override;
  Duration Transfer(uint64_t bytes, SpaceIndex from, SpaceIndex to) const override;
  double HostCopyBytesPerSecond() const override { return host_copy_bytes_per_second_; }

 private:
  std::vector<CostCurve> curves_;
  std::vector<uint32_t> first_candidate_{0};          // By leaf, and one more: in `candidates_`.
  std::vector<uint32_t> candidates_;                  // Curves, by choice.
  std::vector<double> factors_;                       // By device; those beyond: 1.
  std::vector<std::vector<TransferLine>> transfers_;  // By space; a speed of 0: unknown.
  double host_copy_bytes_per_second_ = 0;
  StaticCosts estimates_;
};

// When to run a launch by another candidate than the one that looks best, to learn what it takes there.
//
// Roofline estimates are off by small factors, so a candidate within `factor` of the best may be the best; one beyond
// is left alone. Each (kernel, device, class) gets at most `tries_max` launches this way, one in a plan, until it has
// `samples_min` samples (the first one may have paid for caches and drivers that warm up). Once measured, it is only
// asked for while it stays within the factor. So what a class loses to the search, whatever the truth is, is at most
// one launch of unknown length for each other candidate, and tries_max - 1 launches at `factor` times the best.
struct SamplePolicy {
  double factor = 3;
  uint64_t samples_min = 2;
  uint32_t tries_max = 3;
};

struct SampleOption {
  double expected_ns = 0;  // With what must be moved for it.
  uint64_t samples = 0;
  uint32_t tries = 0;
};

inline constexpr uint32_t kNoSample = 0xffffffffu;
// The option to run next, or kNoSample. The best is never asked for: it runs anyway.
uint32_t WantsSample(std::span<const SampleOption> options, const SamplePolicy& policy = {});

}  // namespace hpvm::scheduler

#endif  // HPVMD_SCHEDULER_COST_COST_HISTORY_H_
