// SPDX-License-Identifier: Apache-2.0
// Looks on while the CPU device measures a kernel's variants: says when it has settled, and on which.
#ifndef HPVMD_BENCH_CPU_CPU_WATCH_H_
#define HPVMD_BENCH_CPU_CPU_WATCH_H_

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "backends/contract/device.h"
#include "compiler/api/learnt.h"

namespace hpvm::bench {

// Remembers artifacts that are loaded through the device it wraps, and what that device tells of them. Nothing is
// kept beyond the process, so that each run of the benchmark measures for itself.
class VariantWatch final : public LearntStore {
 public:
  // Records the artifacts that `device` loads. The watch outlives what is returned.
  std::unique_ptr<Device> Wrap(std::unique_ptr<Device> device);
  void Keep(const Sha256& name, std::span<const uint8_t> record) override;

  // The artifact loaded last.
  Sha256 last_loaded();
  bool HasSettled(const Sha256& name);
  // "tile 16 x 2 x 4, unchecked", with what others took beside it.
  std::string Chosen(const Sha256& name);

 private:
  friend class WatchedDevice;
  struct Kernel {
    std::vector<CpuVariant> variants;
    LearntRecord learnt;
  };
  std::mutex mutex_;  // Guards what follows.
  std::map<Sha256, Kernel> kernels_;
  Sha256 last_loaded_{};
};

}  // namespace hpvm::bench

#endif  // HPVMD_BENCH_CPU_CPU_WATCH_H_
