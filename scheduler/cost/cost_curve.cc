// SPDX-License-Identifier: Apache-2.0
// Turns histories into functions of a launch's size, and builds the cost model from them.
// Method: Theil-Sen regression over all pairs of classes, with weights: the weighted median of the slopes, then the
// weighted median of the starts at that slope. A negative start is replaced by 0 and the median rate.
// Invariants: points_ is sorted by x, and x is positive. Start and slope are not negative. A prediction from a
// class's own mean stays within a factor of four of that mean; an extrapolation to larger launches is at least the
// roofline there, or the measured time scaled by the roofline, whichever is less. Results are capped at a day.
// Quadratic in the classes, of which a history has at most 48.
// Source: cost_history.h (Theil 1950, Sen 1968; roofline: cost_model.h).
#include <algorithm>
#include <cmath>

#include "scheduler/cost/cost_history.h"

namespace hpvm::scheduler {
namespace {

// A launch within this factor in x counts as similar to a measured one.
constexpr double kNear = 4;
// A smaller launch, down to this share, also counts as similar to a launch that keeps the device busy, if it still runs
// for many times the launch overhead: eight pieces of a launch take an eighth each.
constexpr double kNearShare = 1.0 / 16, kLaunchesBusy = 20;
// Inside a class a launch is at most twice the class's mean in each of two dimensions.
constexpr double kWithinClass = 4;
// Relative noise of one sample; more samples reduce it.
constexpr double kNoise = 0.2;
constexpr double kSamplesMax = 16;
constexpr double kLongestNs = 86'400e9;

Duration FromNs(double ns) { return Duration(static_cast<int64_t>(std::clamp(ns, 0.0, kLongestNs))); }

struct Weighted {
  double value = 0, weight = 0;
};

double WeightedMedian(std::vector<Weighted>& values) {
  std::sort(values.begin(), values.end(), [](const Weighted& a, const Weighted& b) { return a.value < b.value; });
  double all = 0;
  for (const Weighted& one : values) {
    all += one.weight;
  }
  double below = 0;
  for (const Weighted& one : values) {
    below += one.weight;
    if (below * 2 >= all) {
      return one.value;
    }
  }
  return values.empty() ? 0 : values.back().value;
}

}  // namespace

Work MeanOf(const CostClass& c) {
  return {.leaf = {},
          .choice = 0,
          .instances = static_cast<uint64_t>(std::min(c.instances, 1e18)),
          .bytes = static_cast<uint64_t>(std::min(c.bytes, 1e18)),
          .operations = c.operations};
}

CostCurve::CostCurve(const CostHistory& history, const DeviceFacts& device) {
  double launch_ns = 0;
  for (const CostClass& c : history.classes()) {
    const Roofline roof = RooflineOf(MeanOf(c), device);
    launch_ns = roof.launch_ns;
    if (c.samples > 0) {
      points_.push_back({.x = std::max(roof.body_ns, 1e-3),
                         .time_ns = c.time_ns,
                         .sigma = kNoise * c.time_ns / std::sqrt(std::clamp(c.weight, 0.25, kSamplesMax)),
                         .size = c.size,
                         .intensity = c.intensity});
    }
  }
  std::sort(points_.begin(), points_.end(), [](const Point& a, const Point& b) { return a.x < b.x; });
  if (!points_.empty()) {
    FitLine(launch_ns);
  }
}

void CostCurve::FitLine(double launch_ns) {
  std::vector<Weighted> slopes, starts, rates;
  for (size_t j = 0; j < points_.size(); ++j) {
    for (size_t i = 0; i < j; ++i) {
      const double distance = points_[j].x - points_[i].x;
      if (distance > 0) {
        slopes.push_back({.value = (points_[j].time_ns - points_[i].time_ns) / distance,
                          .weight = distance / std::hypot(points_[i].sigma, points_[j].sigma)});
      }
    }
  }
  const auto rate_alone = [&] {
    for (const Point& point : points_) {
      rates.push_back({.value = point.time_ns / point.x, .weight = point.x / point.sigma});
    }
    return WeightedMedian(rates);
  };
  if (slopes.empty()) {
    // The roofline's start, and the rest of the time for the work itself.
    start_ns_ = std::min(launch_ns, points_.front().time_ns / 2);
    slope_ = std::max(points_.front().time_ns - start_ns_, 0.0) / points_.front().x;
    return;
  }
  slope_ = std::max(WeightedMedian(slopes), 0.0);
  for (const Point& point : points_) {
    starts.push_back({.value = point.time_ns - slope_ * point.x, .weight = 1 / point.sigma});
  }
  start_ns_ = WeightedMedian(starts);
  if (start_ns_ < 0) {
    start_ns_ = 0;
    slope_ = rate_alone();
  }
}

// Moves the point's time along the line to x.
double CostCurve::Along(const Point& from, double x) const {
  const double there = start_ns_ + slope_ * from.x;
  return there > 0 ? from.time_ns * (start_ns_ + slope_ * x) / there : from.time_ns;
}

double CostCurve::Between(double x, double launch_ns) const {
  const auto high = std::lower_bound(points_.begin(), points_.end(), x,
                                     [](const Point& point, double wanted) { return point.x < wanted; });
  if (high == points_.begin()) {
    return Along(*high, x);
  }
  const Point& low = *(high - 1);
  if (high == points_.end()) {
    const double roof = (launch_ns + x) / (launch_ns + low.x);
    return std::max(Along(low, x), std::min(launch_ns + low.x, low.time_ns) * roof);
  }
  const double part = (x - low.x) / (high->x - low.x);
  return low.time_ns + part * (high->time_ns - low.time_ns);
}

bool CostCurve::IsNear(double x, double time_ns, double launch_ns) const {
  const double share = time_ns >= kLaunchesBusy * launch_ns ? kNearShare : 1 / kNear;
  return std::any_of(points_.begin(), points_.end(), [&](const Point& point) {
    const double ratio = (launch_ns + x) / (launch_ns + point.x);
    return ratio <= kNear && ratio >= share;
  });
}

Cost CostCurve::At(const Work& work, const DeviceFacts& device) const {
  const Roofline roof = RooflineOf(work, device);
  if (points_.empty()) {
    return {.time = FromNs(roof.launch_ns + roof.body_ns), .is_estimate = true, .is_guess = true};
  }
  const double x = std::max(roof.body_ns, 1e-3);
  const CostKey key = KeyOf(work);
  for (const Point& point : points_) {
    if (point.size == key.size && point.intensity == key.intensity) {
      const double moved = Along(point, x);
      return {.time = FromNs(std::clamp(moved, point.time_ns / kWithinClass, point.time_ns * kWithinClass)),
              .is_estimate = false};
    }
  }
  const double time_ns = Between(x, roof.launch_ns);
  return {.time = FromNs(time_ns), .is_estimate = !IsNear(x, time_ns, roof.launch_ns)};
}

double TransferLine::At(uint64_t bytes) const {
  return std::min(start_ns + static_cast<double>(bytes) / std::max(bytes_per_second, 1.0) * 1e9, kLongestNs);
}

TransferLine Through(const TransferLine& first, const TransferLine& second) {
  return {
      .start_ns = first.start_ns + second.start_ns,
      .bytes_per_second = 1 / (1 / std::max(first.bytes_per_second, 1.0) + 1 / std::max(second.bytes_per_second, 1.0)),
      .is_estimate = first.is_estimate || second.is_estimate};
}

uint32_t MeasuredCosts::AddCurve(CostCurve curve) {
  curves_.push_back(std::move(curve));
  return static_cast<uint32_t>(curves_.size() - 1);
}

void MeasuredCosts::AddLeaf(std::span<const uint32_t> curves) {
  candidates_.insert(candidates_.end(), curves.begin(), curves.end());
  first_candidate_.push_back(static_cast<uint32_t>(candidates_.size()));
}

void MeasuredCosts::SetTransfer(SpaceIndex from, SpaceIndex to, const TransferLine& line) {
  const size_t spaces = std::max<size_t>(transfers_.size(), std::max(from, to) + size_t{1});
  transfers_.resize(spaces);
  for (std::vector<TransferLine>& row : transfers_) {
    row.resize(spaces);
  }
  transfers_[from][to] = line;
}

void MeasuredCosts::SetFactor(DeviceIndex device, double factor) {
  factors_.resize(std::max<size_t>(factors_.size(), device + size_t{1}), 1);
  factors_[device] = factor;
}

Cost MeasuredCosts::Run(const Work& work, DeviceIndex index, const DeviceFacts& device) const {
  if (work.leaf.index + size_t{1} < first_candidate_.size()) {
    const uint32_t first = first_candidate_[work.leaf.index], end = first_candidate_[work.leaf.index + 1];
    if (work.choice < end - first && !curves_[candidates_[first + work.choice]].is_empty()) {
      Cost cost = curves_[candidates_[first + work.choice]].At(work, device);
      if (index < factors_.size() && factors_[index] != 1) {
        cost.time = FromNs(static_cast<double>(cost.time.count()) * factors_[index]);
      }
      return cost;
    }
  }
  return estimates_.Run(work, index, device);
}

Duration MeasuredCosts::Transfer(uint64_t bytes, SpaceIndex from, SpaceIndex to) const {
  if (from < transfers_.size() && to < transfers_.size() && transfers_[from][to].bytes_per_second > 0) {
    return FromNs(transfers_[from][to].At(bytes));
  }
  return estimates_.Transfer(bytes, from, to);
}

}  // namespace hpvm::scheduler
