// SPDX-License-Identifier: Apache-2.0
// A kernel's image, its initial state and its idle lanes.
#ifndef HPVMD_BACKENDS_CPU_EXECUTABLE_H_
#define HPVMD_BACKENDS_CPU_EXECUTABLE_H_

#include <atomic>
#include <memory>
#include <mutex>
#include <vector>

#include "backends/cpu/group.h"
#include "backends/cpu/image.h"
#include "backends/cpu/lane.h"
#include "backends/device.h"

namespace hpvm::cpu {

// The parts of the module that an artifact still tells: parameters, memory sizes and function names.
ir::Module OutlineOf(const Artifact& artifact);

class CpuExecutable final : public Executable {
 public:
  // The artifact's code is dropped once it is mapped.
  static StatusOr<std::unique_ptr<CpuExecutable>> Load(Artifact artifact);
  CpuExecutable(const CpuExecutable&) = delete;
  CpuExecutable& operator=(const CpuExecutable&) = delete;

  const Artifact& artifact() const override { return artifact_; }
  ir::CpuEntry entry() const { return image_.entry(); }
  LaneCache& lanes() { return lanes_; }
  // Whether instances see each other: groups are then run one by one.
  bool has_groups() const { return artifact_.uses_barrier || artifact_.uses_group_memory; }
  // Parameters, memory sizes and function names, for addresses and messages; no code.
  const ir::Module& outline() const { return outline_; }

  StatusOr<std::unique_ptr<GroupRunner>> TakeGroupRunner();
  void GiveGroupRunner(std::unique_ptr<GroupRunner> runner);

  // What an instance took lately; 0 when unknown. Any thread.
  float instance_ns() const { return instance_ns_.load(std::memory_order_relaxed); }
  void Learn(double ns, uint64_t instances);

 private:
  CpuExecutable(Artifact artifact, InitialState initial, Image image);

  const Artifact artifact_;
  const ir::Module outline_;
  const InitialState initial_;
  const Image image_;
  LaneCache lanes_;
  std::atomic<float> instance_ns_{0};
  std::mutex mutex_;
  std::vector<std::unique_ptr<GroupRunner>> group_runners_;  // Guarded by mutex_; idle.
};

}  // namespace hpvm::cpu

#endif  // HPVMD_BACKENDS_CPU_EXECUTABLE_H_
