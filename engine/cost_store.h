// SPDX-License-Identifier: Apache-2.0
// The histories of an engine's kernels, and its transfers: the data behind engine/costs.h.
//
// Threads: callers hold mutex() where a method says so. Transfers have a mutex of their own, because measuring them
// takes milliseconds.
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
#include "compiler/api/tuning_record.h"
#include "engine/transfer_probe.h"
#include "scheduler/cost/cost_history.h"

namespace hpvm::engine {

// One kernel on one kind of device.
struct DeviceCosts {
  std::string device;  // DeviceKeyOf.
  scheduler::CostHistory history;
  scheduler::CostCurve curve;
  uint64_t fitted_samples = 0;  // Number of samples when `curve` was fitted.
};

// One kernel.
struct KernelCosts {
  Sha256 name;  // The artifact's name; zeros when the kernel is neither kept on disk nor shared with other graphs.
  std::string label;  // "module/entry".
  std::vector<std::unique_ptr<DeviceCosts>> devices;
  uint32_t users = 0;
  uint64_t samples = 0;       // Number of samples that this process added.
  uint64_t kept_samples = 0;  // Value of `samples` when the kernel was last kept on disk.
};

// Returns the key of a device; devices with equal keys are equally quick, except for CostStore::FactorOf.
std::string DeviceKeyOf(const DeviceInfo& info);

// Limit on named kernels that no graph uses; those unused for longest are forgotten first.
inline constexpr size_t kIdleKernelsMax = 1024;

class CostStore {
 public:
  CostStore(std::span<Device* const> devices, bool measures_transfers, TuningStore& keeper, const Clock& clock);

  std::mutex& mutex() const { return mutex_; }

  // The caller holds mutex(). The kernel lives until it is released as many times as acquired. Restores its kept
  // history.
  KernelCosts* Acquire(const Artifact& artifact);
  void Release(KernelCosts* kernel);
  static DeviceCosts* On(KernelCosts& kernel, const std::string& device);
  // Returns the curve for the device with those facts, fitted again when enough samples were added.
  static const scheduler::CostCurve& CurveOf(DeviceCosts& costs, const scheduler::DeviceFacts& facts);
  // Returns the record of a kernel to keep now; empty when there is nothing new or the kernel is not kept.
  static std::vector<uint8_t> RecordOf(KernelCosts& kernel);

  // Returns the factor by which a device has recently been slower than its equals for all kernels, because another
  // tenant uses it or its clock is lower. 1 when it has no equals: then its own histories contain the slowdown. The
  // caller holds mutex().
  double FactorOf(const Device& device) const;
  // Notes that a launch there took `ratio` times as long as expected for its equals. The caller holds mutex().
  void NoteRatio(const Device& device, double ratio);

  // The caller does not hold mutex().
  void Keep(const Sha256& name, std::span<const uint8_t> record) { keeper_.KeepCosts(name, record); }
  // Measures once per device, if transfers are measured at all; concurrent callers wait for the measurement.
  void MeasureTransfers(const Device& device);
  // Updates the transfers with the large copies that devices have measured since the last call.
  void LearnTransfers();
  DeviceTransfers TransfersOf(const Device& device) const;
  // Returns the speed of all concurrent transfers together; 0 when unknown.
  double HostCopyBytesPerSecond() const;
  std::span<Device* const> devices() const { return devices_; }

 private:
  struct Link {
    int probes = 0;
    DeviceTransfers transfers;
    // State of the CopyMeter when it was last read.
    uint32_t copies = 0;
    CopySums sums;
    bool is_warm = false;                       // Its first copies are done.
    bool knows_up = false, knows_down = false;  // Learnt from copies.
  };
  static void Restore(const Artifact& artifact, KernelCosts& kernel);
  size_t IndexOf(const Device& device) const;
  void ForgetIdle();

  const std::vector<Device*> devices_;  // Borrowed.
  const bool measures_transfers_;
  TuningStore& keeper_;
  const Clock& clock_;
  mutable std::mutex mutex_;
  std::map<Sha256, std::unique_ptr<KernelCosts>> named_;  // This and all following members up to idle_ are guarded by
                                                          // mutex_.
  std::map<KernelCosts*, std::unique_ptr<KernelCosts>> unnamed_;
  std::vector<double> factors_;  // Indexed by device; 0 when the device has no equals.
  std::vector<Sha256> idle_;     // Keys of named_, in the order in which their last users left; may include kernels in
                                 // use again.
  mutable std::mutex link_mutex_;
  std::vector<Link> links_;                             // Indexed by device; guarded by link_mutex_.
  std::vector<std::unique_ptr<ProbeRemains>> remains_;  // Guarded by link_mutex_.
  double host_copy_bytes_per_second_ = 0;               // Guarded by link_mutex_.
};

}  // namespace hpvm::engine

#endif  // HPVMD_ENGINE_COST_STORE_H_
