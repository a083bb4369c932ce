// SPDX-License-Identifier: Apache-2.0
// Observes how the CPU device measures a kernel's variants: whether it has settled, and on which.
#ifndef HPVMD_BENCH_CPU_CPU_WATCH_H_
#define HPVMD_BENCH_CPU_CPU_WATCH_H_

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "backends/contract/device.h"
#include "compiler/api/tuning_record.h"

namespace hpvm::bench {

// VariantWatch remembers artifacts that are loaded through the device it wraps, and the device's measurements of
// them. Nothing is kept beyond the process, so that each run of the benchmark measures for itself.
class VariantWatch final : public TuningStore {
 public:
  // Returns a device that records the artifacts that `device` loads. The watch must outlive it.
  std::unique_ptr<Device> Wrap(std::unique_ptr<Device> device);
  void Keep(const Sha256& name, std::span<const uint8_t> record) override;

  // Returns the last loaded artifact.
  Sha256 last_loaded();
  bool HasSettled(const Sha256& name);
  // Returns "tile 16 x 2 x 4, unchecked", with the times of other variants.
  std::string Chosen(const Sha256& name);

 private:
  friend class WatchedDevice;
  struct Kernel {
    std::vector<CpuVariant> variants;
    TuningRecord tuning;
  };
  std::mutex mutex_;  // Guards the following members.
  std::map<Sha256, Kernel> kernels_;
  Sha256 last_loaded_{};
};

}  // namespace hpvm::bench

#endif  // HPVMD_BENCH_CPU_CPU_WATCH_H_
