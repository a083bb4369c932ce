// SPDX-License-Identifier: Apache-2.0
// GroupRunner runs whole groups, for kernels with barriers or group memory.
//
// With barriers, each instance of the group runs on its own fiber, with its own lane. A round resumes every instance
// until it waits or ends; when all wait, the next round begins. If some wait while others have ended or wait at another
// barrier, the first that waits traps with kBarrierDivergence. Without barriers the instances run one after the other
// on the calling stack. A variant that runs whole groups by itself needs none of this.
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

// One dispatch, with resolved arguments. Everything is borrowed while it runs.
struct CpuLaunch {
  std::span<const ir::CpuArgument> arguments;
  backends::Extent extent{}, group{};
  bool is_whole = true;
  Box part{};  // The part of the extent that runs, unless all of it does; whole groups.
  uint64_t group_base = 0;
  bool separate = false;                        // As ir::AddressSpace::separate.
  const std::atomic<uint32_t>* stop = nullptr;  // Never null.
  ir::PrintSink* print = nullptr;               // May be null.
};

// Returns the number of groups along each dimension.
backends::Extent GroupCounts(const CpuLaunch& launch);
// Returns the number of groups that run, numbered x fastest; and the number in the whole launch of one of them.
uint64_t GroupCount(const CpuLaunch& launch);
uint64_t GroupAt(const CpuLaunch& launch, uint64_t index);
// Returns the number of instances that run, which is less than 2^63.
inline uint64_t Instances(const CpuLaunch& launch) {
  return launch.is_whole ? launch.extent[0] * launch.extent[1] * launch.extent[2] : launch.part.instances();
}

// Sets up the lane's context for the launch.
void Bind(Lane& lane, const CpuLaunch& launch);
// Calls the image on the calling thread's stack, or on a separate one when that has not enough room. Returns false when
// an instance trapped.
StatusOr<bool> Call(Lane& lane, ir::CpuEntry entry, uint64_t begin, uint64_t end);
ir::TrapReport TrapOf(const ir::CpuContext& context);

class GroupRunner {
 public:
  static StatusOr<std::unique_ptr<GroupRunner>> Create(LaneCache& lanes, bool uses_barrier);
  ~GroupRunner();
  GroupRunner(const GroupRunner&) = delete;
  GroupRunner& operator=(const GroupRunner&) = delete;

  // Run the group with linear index `index`, x fastest. Return false, with `trap` filled, when an instance trapped. Run
  // goes instance by instance:
  StatusOr<bool> Run(const CpuLaunch& launch, const Variant& variant, uint64_t index, ir::TrapReport* trap);
  // RunWhole makes one call, by a variant whose unit is a group and whose GroupValueBytes are within the limit:
  StatusOr<bool> RunWhole(const CpuLaunch& launch, const Variant& variant, uint64_t index, ir::TrapReport* trap);

 private:
  struct Instance {
    Lane* lane = nullptr;                 // From lanes_, returned at the end.
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
  // For variants that run whole groups; sized for the largest group so far.
  Pages group_values_;
  uint64_t group_memory_used_ = 0;        // Used by the last group.
  std::vector<uint64_t> linear_;          // The group's instances.
  std::vector<Instance> instances_;       // Sized for the largest group so far.
};

}  // namespace hpvm::cpu

#endif  // HPVMD_BACKENDS_CPU_GROUP_H_
