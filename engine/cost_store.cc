// SPDX-License-Identifier: Apache-2.0
#include "engine/cost_store.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace hpvm::engine {
namespace {

// The factor of a device among equals: its limit, and the weight of one launch.
constexpr double kFactorMax = 8;
constexpr double kFactorGain = 0.125;
// A link's speed moves by this fraction towards the speed of a run's copies.
constexpr double kCopyGain = 0.25;

using scheduler::CostClass;

// Limit per device; it delays the first run with a plan.
constexpr Duration kProbeMax = std::chrono::milliseconds(4);
// On a busy machine a probe may fail; later plans probe again, up to this total.
constexpr int kProbesMax = 4;

// Curves are fitted again after an eighth more samples, and at the latest after this many, because a machine may
// change.
constexpr uint64_t kRefitMax = 64;

CostRecordClass Written(const CostClass& c) {
  return {.size = c.size,
          .intensity = c.intensity,
          .samples = c.samples,
          .weight = static_cast<float>(c.weight),
          .instances = static_cast<float>(c.instances),
          .bytes = static_cast<float>(c.bytes),
          .operations = static_cast<float>(c.operations),
          .time_ns = static_cast<float>(c.time_ns),
          .variance = static_cast<float>(c.variance),
          .low_ns = static_cast<float>(c.low_ns),
          .error = static_cast<float>(c.error),
          .is_settled = c.is_settled};
}

CostClass Read(const CostRecordClass& c) {
  CostClass read{.size = c.size, .intensity = c.intensity, .is_settled = c.is_settled, .samples = c.samples};
  read.weight = c.weight;
  read.instances = c.instances;
  read.bytes = c.bytes;
  read.operations = c.operations;
  read.time_ns = c.time_ns;
  read.variance = c.variance;
  read.low_ns = c.low_ns;
  read.error = c.error;
  return read;
}

}  // namespace

std::string DeviceKeyOf(const DeviceInfo& info) {
  return info.id.substr(0, info.id.find(':')) + ' ' + info.name + ' ' + std::to_string(info.compute_units);
}

CostStore::CostStore(std::span<Device* const> devices, bool measures_transfers, TuningStore& keeper, const Clock& clock)
    : devices_(devices.begin(), devices.end()),
      measures_transfers_(measures_transfers),
      keeper_(keeper),
      clock_(clock),
      links_(devices_.size()) {
  for (size_t i = 0; i < devices_.size(); ++i) {
    links_[i].transfers = EstimateTransfers(devices_[i]->info());
    const auto equals = std::ranges::count_if(
        devices_, [&](const Device* other) { return DeviceKeyOf(other->info()) == DeviceKeyOf(devices_[i]->info()); });
    factors_.push_back(equals > 1 ? 1 : 0);
  }
}

KernelCosts* CostStore::Acquire(const Artifact& artifact) {
  KernelCosts* kernel = nullptr;
  if (artifact.name == Sha256{}) {
    auto made = std::make_unique<KernelCosts>();
    kernel = made.get();
    unnamed_.emplace(kernel, std::move(made));
  } else {
    std::unique_ptr<KernelCosts>& named = named_[artifact.name];
    if (named == nullptr) {
      named = std::make_unique<KernelCosts>();
      named->name = artifact.name;
      Restore(artifact, *named);
    }
    kernel = named.get();
  }
  kernel->label = artifact.module_name + '/' + artifact.entry;
  ++kernel->users;
  return kernel;
}

void CostStore::Release(KernelCosts* kernel) {
  if (--kernel->users > 0) {
    return;
  }
  if (kernel->name == Sha256{}) {
    unnamed_.erase(kernel);
    return;
  }
  idle_.push_back(kernel->name);
  if (idle_.size() > kIdleKernelsMax) {
    ForgetIdle();
  }
}

// Forgets the half that has been unused longest, so that this is rare.
void CostStore::ForgetIdle() {
  const size_t forgotten = idle_.size() / 2;
  for (size_t i = 0; i < forgotten; ++i) {
    const auto kernel = named_.find(idle_[i]);
    if (kernel != named_.end() && kernel->second->users == 0) {
      named_.erase(kernel);
    }
  }
  idle_.erase(idle_.begin(), idle_.begin() + static_cast<ptrdiff_t>(forgotten));
}

void CostStore::Restore(const Artifact& artifact, KernelCosts& kernel) {
  const StatusOr<CostRecord> record = artifact.costs.empty() ? CostRecord() : DecodeCosts(artifact.costs);
  if (!record.ok()) {
    return;
  }
  for (const CostRecordDevice& device : record->devices) {
    std::vector<CostClass> classes;
    for (const CostRecordClass& c : device.classes) {
      classes.push_back(Read(c));
    }
    On(kernel, device.device)->history.Restore(classes);
  }
}

DeviceCosts* CostStore::On(KernelCosts& kernel, const std::string& device) {
  const auto found = std::find_if(kernel.devices.begin(), kernel.devices.end(),
                                  [&](const std::unique_ptr<DeviceCosts>& costs) { return costs->device == device; });
  if (found != kernel.devices.end()) {
    return found->get();
  }
  kernel.devices.push_back(std::make_unique<DeviceCosts>());
  kernel.devices.back()->device = device;
  return kernel.devices.back().get();
}

const scheduler::CostCurve& CostStore::CurveOf(DeviceCosts& costs, const scheduler::DeviceFacts& facts) {
  const uint64_t samples = costs.history.samples();
  if (samples > costs.fitted_samples + std::min(costs.fitted_samples / 8, kRefitMax)) {
    costs.curve = scheduler::CostCurve(costs.history, facts);
    costs.fitted_samples = samples;
  }
  return costs.curve;
}

// Keeps a record each time the samples have doubled: a kernel that runs for days is kept some dozens of times.
std::vector<uint8_t> CostStore::RecordOf(KernelCosts& kernel) {
  if (kernel.name == Sha256{} || kernel.samples < 2 * kernel.kept_samples + 1) {
    return {};
  }
  kernel.kept_samples = kernel.samples;
  CostRecord record;
  for (const std::unique_ptr<DeviceCosts>& costs : kernel.devices) {
    CostRecordDevice& device = record.devices.emplace_back();
    device.device = costs->device;
    for (const CostClass& c : costs->history.classes()) {
      if (c.samples > 0) {
        device.classes.push_back(Written(c));
      }
    }
  }
  return EncodeCosts(record);
}

size_t CostStore::IndexOf(const Device& device) const {
  return static_cast<size_t>(std::find(devices_.begin(), devices_.end(), &device) - devices_.begin());
}

double CostStore::FactorOf(const Device& device) const {
  const size_t index = IndexOf(device);
  return index < factors_.size() && factors_[index] != 0 ? factors_[index] : 1;
}

void CostStore::NoteRatio(const Device& device, double ratio) {
  const size_t index = IndexOf(device);
  if (index < factors_.size() && factors_[index] != 0 && ratio > 0) {
    const double now = std::clamp(ratio, 1 / kFactorMax, kFactorMax);
    factors_[index] *= std::pow(now / factors_[index], kFactorGain);
  }
}

void CostStore::MeasureTransfers(const Device& device) {
  const auto found = std::find(devices_.begin(), devices_.end(), &device);
  if (!measures_transfers_ || found == devices_.end() || device.info().host_visible) {
    return;
  }
  std::lock_guard lock(link_mutex_);
  Link& link = links_[static_cast<size_t>(found - devices_.begin())];
  const auto [up, down] = link.transfers;
  if ((!up.is_estimate && !down.is_estimate) || link.probes >= kProbesMax) {
    return;
  }
  ++link.probes;
  link.transfers = engine::MeasureTransfers(**found, clock_, kProbeMax, &remains_);
  link.transfers.up = up.is_estimate ? link.transfers.up : up;
  link.transfers.down = down.is_estimate ? link.transfers.down : down;
}

void CostStore::LearnTransfers() {
  for (size_t i = 0; i < devices_.size(); ++i) {
    const CopyMeter& meter = devices_[i]->copy_meter();
    const uint32_t copies = meter.copies();
    std::lock_guard lock(link_mutex_);
    Link& link = links_[i];
    if (copies == link.copies) {
      continue;
    }
    const CopySums now = meter.sums();
    link.copies = copies;
    // The first copies touch memory that has never been touched before.
    if (!std::exchange(link.is_warm, true)) {
      link.sums = now;
      continue;
    }
    // The first copy over a link replaces the assumed speed.
    const auto learn = [&](CopySums::Flow CopySums::*kind, bool is_known, double* bytes_per_second) {
      const uint64_t bytes = (now.*kind).bytes - (link.sums.*kind).bytes;
      const int64_t ns = (now.*kind).ns - (link.sums.*kind).ns;
      if (bytes == 0 || ns <= 0) {
        return is_known;
      }
      const double measured = static_cast<double>(bytes) / static_cast<double>(ns) * 1e9;
      *bytes_per_second += (measured - *bytes_per_second) * (is_known ? kCopyGain : 1);
      return true;
    };
    link.knows_up = learn(&CopySums::up, link.knows_up, &link.transfers.up.bytes_per_second);
    link.knows_down = learn(&CopySums::down, link.knows_down, &link.transfers.down.bytes_per_second);
    if (learn(&CopySums::together, host_copy_bytes_per_second_ > 0, &host_copy_bytes_per_second_)) {
      // Several copies together reach at least the speed of a single copy.
      host_copy_bytes_per_second_ =
          std::max({host_copy_bytes_per_second_, link.knows_up ? link.transfers.up.bytes_per_second : 0,
                    link.knows_down ? link.transfers.down.bytes_per_second : 0});
    }
    link.sums = now;
  }
}

double CostStore::HostCopyBytesPerSecond() const {
  std::lock_guard lock(link_mutex_);
  return host_copy_bytes_per_second_;
}

DeviceTransfers CostStore::TransfersOf(const Device& device) const {
  const auto found = std::find(devices_.begin(), devices_.end(), &device);
  if (found == devices_.end()) {
    return EstimateTransfers(device.info());
  }
  std::lock_guard lock(link_mutex_);
  return links_[static_cast<size_t>(found - devices_.begin())].transfers;
}

}  // namespace hpvm::engine
