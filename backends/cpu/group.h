// SPDX-License-Identifier: Apache-2.0
// Runs whole groups: for kernels with barriers or group memory.
//
// With barriers, each instance of the group runs on a fiber of its own, with its own lane. A round resumes every
// instance until it waits or ends; when all wait, the next round begins. If some wait while others have ended or wait
// at another barrier, the first that waits traps with kBarrierDivergence. Without barriers the instances run one after
// the other on the calling stack. A variant that runs whole groups by itself needs none of that.
#ifndef HPVMD_BACKENDS_CPU_GROUP_H_
#define HPVMD_BACKENDS_CPU_GROUP_H_

#include <array>
#include <memory>
#include <span>
#include <vector>

#include "backends/cpu/fiber.h"
#include "backends/cpu/lane.h"
#include "backends/cpu/variants.h"
#include "compiler/ir/launch.h"

namespace hpvm::cpu {

// One dispatch, resolved. Everything is borrowed while it runs.
struct CpuLaunch {
  std::span<const ir::CpuArgument> arguments;
  backends::Extent extent{}, group{};
  bool is_whole = true;
  Box part{};                                   // What of the extent runs, unless all of it; whole groups.
  uint64_t group_base = 0;
  bool separate = false;                        // ir::AddressSpace's.
  const std::atomic<uint32_t>* stop = nullptr;  // Never null.
  ir::PrintSink* print = nullptr;               // May be null.
};

// Groups along each dimension.
backends::Extent GroupCounts(const CpuLaunch& launch);
// Groups that run, numbered x fastest; and which group of the whole launch one of them is.
uint64_t GroupCount(const CpuLaunch& launch);
uint64_t GroupAt(const CpuLaunch& launch, uint64_t index);
// Instances that run; fewer than 2^63.
inline uint64_t Instances(const CpuLaunch& launch) {
  return launch.is_whole ? launch.extent[0] * launch.extent[1] * launch.extent[2] : launch.part.instances();
}

// Points the lane's context at the launch.
void Bind(Lane& lane, const CpuLaunch& launch);
// Calls the image on the calling thread's stack, or on one of our own where that has not enough left. False when an
// instance trapped.
StatusOr<bool> Call(Lane& lane, ir::CpuEntry entry, uint64_t begin, uint64_t end);
ir::TrapReport TrapOf(const ir::CpuContext& context);

class GroupRunner {
 public:
  static StatusOr<std::unique_ptr<GroupRunner>> Create(LaneCache& lanes, bool uses_barrier);
  ~GroupRunner();
  GroupRunner(const GroupRunner&) = delete;
  GroupRunner& operator=(const GroupRunner&) = delete;

  // Run the group with linear index `index`, x fastest. False, with `trap` filled, when an instance trapped.
  // Instance by instance:
  StatusOr<bool> Run(const CpuLaunch& launch, const Variant& variant, uint64_t index, ir::TrapReport* trap);
  // In one call, by a variant whose unit is a group and whose GroupValueBytes are within the limit:
  StatusOr<bool> RunWhole(const CpuLaunch& launch, const Variant& variant, uint64_t index, ir::TrapReport* trap);

 private:
  struct Instance {
    Lane* lane = nullptr;                 // From lanes_, given back at the end.
    std::unique_ptr<Fiber> fiber;
    ir::CpuEntry entry = nullptr;
    uint64_t linear = 0;
    uint32_t outcome = 0;
    bool ended = false;
  };

  GroupRunner(LaneCache& lanes, bool uses_barrier) : lanes_(lanes), uses_barrier_(uses_barrier) {}
  void ListInstances(const CpuLaunch& launch, uint64_t index);
  Status Grow(size_t instances);
  void Prepare(Lane& lane, const CpuLaunch& launch);
  void EndInstance(Lane& lane);
  void ClearGroupMemory();
  StatusOr<bool> RunInOrder(const CpuLaunch& launch, ir::CpuEntry entry, ir::TrapReport* trap);
  StatusOr<bool> RunOnFibers(const CpuLaunch& launch, ir::CpuEntry entry, ir::TrapReport* trap);
  bool Diverge(Instance& waiting, ir::TrapReport* trap);
  static uint32_t Wait(ir::CpuContext* context, uint64_t site);
  static void RunInstance(void* instance);

  LaneCache& lanes_;
  const bool uses_barrier_;
  Pages group_memory_;
  Pages group_values_;                    // Of variants that run whole groups; grown to the largest group seen.
  uint64_t group_memory_used_ = 0;        // By the last group.
  std::vector<uint64_t> linear_;          // The group's instances.
  std::vector<Instance> instances_;       // Grown to the largest group seen.
};

}  // namespace hpvm::cpu

#endif  // HPVMD_BACKENDS_CPU_GROUP_H_
