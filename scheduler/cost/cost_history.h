// SPDX-License-Identifier: Apache-2.0
// CostHistory holds the measurements of one kernel on one device and predicts launches of other sizes from them. Pure.
//
// Samples are grouped by class: launches whose number of instances, and whose counted operations per instance, lie
// between the same powers of two. A class keeps means under exponential forgetting (Welford's update with a gain that
// stops falling, so that drift is followed) and a running low mark, which rises slowly and falls fast: a sample far
// above it is considered noise of a busy machine and clipped, unless such samples persist.
//
// Between classes a line is fitted, time = a + b * x, where x is the roofline's time for the launch without its start.
// The slope is the weighted median of the slopes of all pairs (Theil 1950, Sen 1968; a pair's weight is the precision
// of its slope: the distance in x over the noise of both times), so that a class of bad samples does not move it.
//
// A prediction is the class's own mean, if there is one, moved along the line to the launch's x; otherwise an
// interpolation between the two nearest classes in x; otherwise an extrapolation along the line, never less than the
// roofline gives for the same distance. With only one class the line is the roofline through it. Predictions are finite
// and never negative.
#ifndef HPVMD_SCHEDULER_COST_COST_HISTORY_H_
#define HPVMD_SCHEDULER_COST_COST_HISTORY_H_

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "scheduler/cost/cost_model.h"

namespace hpvm::scheduler {

inline constexpr size_t kCostClassesMax = 48;  // Number of classes in one history; a new class replaces the least used.

struct CostClass {
  uint8_t size = 0;         // Launches of (2^(size-1), 2^size] instances; 0: one instance or none.
  uint8_t intensity = 0;    // Operations per instance, in the same way, plus one; 0: not counted.
  uint8_t tries = 0;        // Number of samples requested (WantsSample).
  uint8_t streak = 0;       // Number of samples in a row far above low_ns.
  bool is_settled = false;  // The samples are of launches in the form on which the device has settled.
  uint64_t samples = 0;     // 0: launches like this are known, but were never measured here.
  double weight = 0;        // Weight of the samples that are not forgotten.
  // Means.
  double instances = 0, bytes = 0, operations = 0, time_ns = 0;
  double variance = 0;  // Variance of the time, ns².
  double low_ns = 0;    // The low mark: few samples are below it.
  double error = 0;     // Mean of |predicted - measured| / measured over all samples but the first.
  friend bool operator==(const CostClass&, const CostClass&) = default;
};

// Identifies the class of a launch.
struct CostKey {
  uint8_t size = 0, intensity = 0;
  friend auto operator<=>(const CostKey&, const CostKey&) = default;
};
CostKey KeyOf(const Work& work);

class CostHistory {
 public:
  // Makes the launch's class known. Returns true when it is new.
  bool Note(const Work& work);
  // Records that a launch took `ns` when `predicted_ns` had been predicted; both are finite and not negative. Returns
  // the launch's class, valid until the next Note, Add or Restore. When `is_settled` is false, the device is still
  // experimenting with ways to run such launches; the minimum of these samples serves as a provisional time until a
  // settled sample restarts the class, after which experiments change nothing.
  const CostClass& Add(const Work& work, double ns, double predicted_ns, bool is_settled = true);
  // Records that one of the samples that WantsSample asks for was requested.
  void CountTry(const Work& work);

  // Sorted by size, then intensity.
  std::span<const CostClass> classes() const { return classes_; }
  // Returns null when unknown.
  const CostClass* Find(const Work& work) const;
  uint64_t samples() const { return samples_; }

  // Restores classes that another process has stored. Samples already present are kept, unless they are provisional and
  // the stored ones are not. Invalid classes (figures that are not finite or are negative, no samples) are skipped.
  // Returns the number of classes restored.
  size_t Restore(std::span<const CostClass> classes);

 private:
  CostClass& ClassOf(const Work& work);
  void AddProvisional(CostClass& c, double ns);

  std::vector<CostClass> classes_;  // Sorted; at most kCostClassesMax.
  uint64_t samples_ = 0;
};

// Returns a launch with the class's means.
Work MeanOf(const CostClass& c);
// Returns true when a history fed only with possible measurements could produce the class.
bool IsSound(const CostClass& c);

// CostCurve turns a history into a function for one device.
class CostCurve {
 public:
  CostCurve() = default;
  CostCurve(const CostHistory& history, const DeviceFacts& device);

  // The result is an estimate when the launch has no class of its own and no class has a roofline time near its own:
  // within a factor of 4; for launches of at least 20 launch overheads also down to a sixteenth.
  Cost At(const Work& work, const DeviceFacts& device) const;
  bool is_empty() const { return points_.empty(); }
  // Parameters of the line.
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

  std::vector<Point> points_;  // Sorted by x.
  double start_ns_ = 0, slope_ = 0;
};

// Model of transfers between two spaces: a start time plus bytes at a speed.
struct TransferLine {
  double start_ns = 0;
  double bytes_per_second = 0;
  bool is_estimate = true;
  double At(uint64_t bytes) const;
};

// Returns the estimate of StaticCosts for a link about which nothing is known.
TransferLine LinkEstimate();
// Returns the line of both transfers one after the other.
TransferLine Through(const TransferLine& first, const TransferLine& second);

// MeasuredCosts uses curves where they have data, otherwise StaticCosts. It is filled first and constant afterwards.
class MeasuredCosts final : public CostModel {
 public:
  // Several candidates may share a curve.
  uint32_t AddCurve(CostCurve curve);
  // Adds the next NodeId's candidates' curves, by choice; none for nodes that are not leaves.
  void AddLeaf(std::span<const uint32_t> curves);
  void SetTransfer(SpaceIndex from, SpaceIndex to, const TransferLine& line);
  // Sets a factor by which the times from the device's curves are multiplied.
  void SetFactor(DeviceIndex device, double factor);
  void SetHostCopies(double bytes_per_second) { host_copy_bytes_per_second_ = bytes_per_second; }

  Cost Run(const Work& work, DeviceIndex index, const DeviceFacts& device) const override;
  Duration Transfer(uint64_t bytes, SpaceIndex from, SpaceIndex to) const override;
  double HostCopyBytesPerSecond() const override { return host_copy_bytes_per_second_; }

 private:
  std::vector<CostCurve> curves_;
  std::vector<uint32_t> first_candidate_{0};          // Indexed by leaf, plus one entry: index in `candidates_`.
  std::vector<uint32_t> candidates_;                  // Curves, by choice.
  std::vector<double> factors_;                       // Indexed by device; 1 for devices beyond the end.
  std::vector<std::vector<TransferLine>> transfers_;  // Indexed by space; a speed of 0 means unknown.
  double host_copy_bytes_per_second_ = 0;
  StaticCosts estimates_;
};

// SamplePolicy decides when to run a launch by another candidate than the apparently best one, to measure its time.
//
// Roofline estimates are off by small factors, so a candidate within `factor` of the best may be the best; a candidate
// beyond it is ignored. Each (kernel, device, class) gets at most `tries_max` exploratory launches, one per plan, until
// it has `samples_min` samples (the first may have paid for cold caches and driver warm-up). Once measured, it is
// requested only while it stays within the factor. The cost of exploration for a class is therefore at most one launch
// of unknown length for each other candidate, and tries_max - 1 launches at `factor` times the best, whatever the true
// times are.
struct SamplePolicy {
  double factor = 3;
  uint64_t samples_min = 2;
  uint32_t tries_max = 3;
};

struct SampleOption {
  double expected_ns = 0;  // Includes the time of the data movements that it needs.
  uint64_t samples = 0;
  uint32_t tries = 0;
};

inline constexpr uint32_t kNoSample = 0xffffffffu;
// Returns the option to run next, or kNoSample. Never returns the best option, which runs anyway.
uint32_t WantsSample(std::span<const SampleOption> options, const SamplePolicy& policy = {});

}  // namespace hpvm::scheduler

#endif  // HPVMD_SCHEDULER_COST_COST_HISTORY_H_
