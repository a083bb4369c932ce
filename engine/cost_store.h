// SPDX-License-Identifier: Apache-2.0
// The histories of an engine's kernels, and its transfers: what engine/costs.h is made of.
//
// Threads: everything but the constructor takes mutex(), which callers hold where a method says so; transfers have a
// mutex of their own, because measuring them takes milliseconds.
#ifndef HPVMD_ENGINE_COST_STORE_H_
#define HPVMD_ENGINE_COST_STORE_H_

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "backends/contract/device.h"
#include "base/clock.h"
#include "base/hash.h"
#include "compiler/api/cost_record.h"
#include "compiler/api/learnt.h"
#include "engine/transfer_probe.h"
#include "scheduler/cost/cost_history.h"

namespace hpvm::engine {

// One kernel on one kind of device.
struct DeviceCosts {
  std::string device;  // DeviceKeyOf.
  scheduler::CostHistory history;
  scheduler::CostCurve curve;
  uint64_t fitted_samples = 0;  // When `curve` was made.
};

// One kernel.
struct KernelCosts {
  Sha256 name;        // Of the artifact; zeros: it is kept nowhere, and no other graph's.
  std::string label;  // "module/entry".
  std::vector<std::unique_ptr<DeviceCosts>> devices;
  uint32_t users = 0;
  uint64_t samples = 0;       // Added by this process.
  uint64_t kept_samples = 0;  // Of them, when it was last kept.
};

// Devices with equal keys are as quick as each other, but for what CostStore::FactorOf says.
std::string DeviceKeyOf(const DeviceInfo& info);

// Named kernels that no graph uses any more; those longest unused are forgotten first.
inline constexpr size_t kIdleKernelsMax = 1024;

class CostStore {
 public:
  CostStore(std::span<Device* const> devices, bool measures_transfers, LearntStore& keeper, const Clock& clock);

  std::mutex& mutex() const { return mutex_; }

  // The caller holds mutex(). The kernel stays until it is released as often; what was kept of it is restored.
  KernelCosts* Acquire(const Artifact& artifact);
  void Release(KernelCosts* kernel);
  static DeviceCosts* On(KernelCosts& kernel, const std::string& device);
  // The curve for the device that the facts are of, made anew when enough has been added.
  static const scheduler::CostCurve& CurveOf(DeviceCosts& costs, const scheduler::DeviceFacts& facts);
  // What is to be kept of a kernel now; empty: nothing new, or nothing is kept of it.
  static std::vector<uint8_t> RecordOf(KernelCosts& kernel);

  // How many times as long as its equals a device takes lately for whatever it runs, as another tenant may use it, or
  // its clock be lower. 1 where it has no equals: then its histories say it. The caller holds mutex().
  double FactorOf(const Device& device) const;
  // A launch there took so many times as long as its equals are expected to. Likewise.
  void NoteRatio(const Device& device, double ratio);

  // The caller does not hold mutex().
  void Keep(const Sha256& name, std::span<const uint8_t> record) { keeper_.KeepCosts(name, record); }
  // Once for each device, if transfers are measured at all; the others wait for it.
  void MeasureTransfers(const Device& device);
  // Takes in what devices have measured of their large copies since.
  void LearnTransfers();
  DeviceTransfers TransfersOf(const Device& device) const;
  // Of all transfers that flow at the same time; 0: not known.
  double HostCopyBytesPerSecond() const;
  std::span<Device* const> devices() const { return devices_; }

 private:
  struct Link {
    int probes = 0;
    DeviceTransfers transfers;
    // CopyMeter's, as they were last taken in.
    uint32_t copies = 0;
    CopySums sums;
    bool is_warm = false;                       // Its first copies are over.
    bool knows_up = false, knows_down = false;  // By copies.
  };
  static void Restore(const Artifact& artifact, KernelCosts& kernel);
  size_t IndexOf(const Device& device) const;
  void ForgetIdle();

  const std::vector<Device*> devices_;  // Borrowed.
  const bool measures_transfers_;
  LearntStore& keeper_;
  const Clock& clock_;
  mutable std::mutex mutex_;
  std::map<Sha256, std::unique_ptr<KernelCosts>> named_;  // Guarded by mutex_, as all below.
  std::map<KernelCosts*, std::unique_ptr<KernelCosts>> unnamed_;
  std::vector<double> factors_;  // By device; 0: it has no equals.
  std::vector<Sha256> idle_;     // Of named_, in the order in which their last users left; may name used ones again.
  mutable std::mutex link_mutex_;
  std::vector<Link> links_;                             // By device; guarded by link_mutex_.
  std::vector<std::unique_ptr<ProbeRemains>> remains_;  // Likewise.
  double host_copy_bytes_per_second_ = 0;               // Likewise.
};

}  // namespace hpvm::engine

#endif  // HPVMD_ENGINE_COST_STORE_H_
