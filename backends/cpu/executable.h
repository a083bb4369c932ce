// SPDX-License-Identifier: Apache-2.0
// A kernel's image, its initial state and its idle lanes.
#ifndef HPVMD_BACKENDS_CPU_EXECUTABLE_H_
#define HPVMD_BACKENDS_CPU_EXECUTABLE_H_

#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "backends/contract/device.h"
#include "backends/cpu/group.h"
#include "backends/cpu/image.h"
#include "backends/cpu/lane.h"
#include "backends/cpu/variants.h"
#include "backends/shared/launch_class.h"
#include "backends/shared/proof_cache.h"

namespace hpvm::cpu {

// Returns the part of an argument that bounds programs use.
inline uint64_t FactOf(const ir::KernelParam& param, const ir::CpuArgument& argument) {
  return param.is_buffer ? argument.bytes : argument.base;
}
using CpuProofs = backends::ProofCache<ir::CpuArgument, FactOf, backends::LaunchClass>;

// Returns the parts of the module that an artifact retains: parameters, memory sizes and function names.
ir::Module OutlineOf(const Artifact& artifact);

// Properties of the executable's device.
struct ExecutableOptions {
  std::string device;             // The device whose measurements are used; identifies its processor.
  TuningStore* tuning = nullptr;  // Optional; borrowed for the executable's life.
  uint32_t threads = 1;           // Number of threads of its pool.
  // If set, the only variant to be used when a launch allows it, by number (device.h).
  uint32_t variant = kAutoVariant;
};

class CpuExecutable final : public Executable {
 public:
  // The artifact's code is dropped once it is mapped.
  static StatusOr<std::unique_ptr<CpuExecutable>> Load(Artifact artifact, ExecutableOptions options = {});
  CpuExecutable(const CpuExecutable&) = delete;
  CpuExecutable& operator=(const CpuExecutable&) = delete;

  const Artifact& artifact() const override { return artifact_; }
  std::span<const Variant> variants() const { return variants_; }
  // Returns the class of a launch: which variants it allows and what is known about them. Thread-safe; allocates
  // nothing for a launch similar to one of the last few.
  backends::LaunchClass& ClassOf(const CpuLaunch& launch) {
    return variants_.size() == 1 ? *only_class_ : ClassOfOneOfMany(launch);
  }
  // Stores what was learnt, after a class has settled.
  void KeepTuning();
  LaneCache& lanes() { return lanes_; }
  // Returns true when instances interact; groups are then run one by one.
  bool has_groups() const { return artifact_.uses_barrier || artifact_.uses_group_memory; }
  // Parameters, memory sizes and function names, for addresses and messages; no code.
  const ir::Module& outline() const { return outline_; }

  StatusOr<std::unique_ptr<GroupRunner>> TakeGroupRunner();
  void GiveGroupRunner(std::unique_ptr<GroupRunner> runner);

 private:
  CpuExecutable(Artifact artifact, InitialState initial, Image image, ExecutableOptions options);
  backends::LaunchClass& ClassOfOneOfMany(const CpuLaunch& launch);
  backends::VariantMask ForcedVariant(const backends::Extent& group, bool is_proven) const;

  const Artifact artifact_;
  const ir::Module outline_;
  const InitialState initial_;
  const Image image_;
  const ExecutableOptions options_;
  const std::vector<Variant> variants_;  // The last variant runs one instance at a time.
  LaneCache lanes_;
  backends::ClassTable classes_;
  CpuProofs proofs_;
  backends::LaunchClass* only_class_ = nullptr;  // Set for kernels with one variant.
  std::mutex mutex_;
  std::vector<std::unique_ptr<GroupRunner>> group_runners_;  // Idle runners. Guarded by mutex_.
};

}  // namespace hpvm::cpu

#endif  // HPVMD_BACKENDS_CPU_EXECUTABLE_H_
