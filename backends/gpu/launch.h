// SPDX-License-Identifier: Apache-2.0
// How one dispatch of a GPU artifact is run: which variants, in which boxes of instances, with which groups. Shared by
// the OpenCL and Vulkan devices; free of both APIs.
//
// A launch whose extent is no multiple of the variant's tile (and group) is cut into boxes: the bulk, and what is left
// at the far side of each dimension, which runs one instance a work item. Kernels that run by groups are cut so that a
// partial last group of a dimension becomes a launch with smaller groups (docs/KERNELS.md S25). Most launches are one
// part: groups are chosen to divide them.
//
// A dispatch may be any box of a launch (DispatchCommand::first, count): ids, counts and what a proof speaks of are the
// whole launch's, parts and what is measured are the box's.
//
// Modules that a tenant wrote for the device are always one part and the whole launch, as their code counts from 0
// (RunsParts).
#ifndef HPVMD_BACKENDS_GPU_LAUNCH_H_
#define HPVMD_BACKENDS_GPU_LAUNCH_H_

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "backends/contract/device.h"
#include "backends/gpu/forced_variant.h"
#include "compiler/api/learnt.h"

namespace hpvm::gpu {

// One enqueue.
struct Part {
  uint32_t variant = 0;              // In GpuCode::variants.
  std::array<uint32_t, 3> first{};   // Instance.
  std::array<uint32_t, 3> groups{};  // Work groups.
  std::array<uint32_t, 3> group{};   // Work items of a group.
};

// What a dispatch brings, as choices depend on it.
struct LaunchFacts {
  std::array<uint64_t, 3> extent{1, 1, 1}, group{1, 1, 1};  // Of the whole launch.
  // The instances that run, inside of the extent.
  std::array<uint64_t, 3> first{0, 0, 0}, count{1, 1, 1};
  struct Param {
    uint64_t value = 0;  // Buffers: bytes of the view; scalars: the bits.
    // Buffers: first byte of the view in its memory, or, where the device binds memory from elsewhere on, counted from
    // there (a multiple of 16).
    uint64_t start = 0;
    // Buffers that the launch does not write, where ir::ProveByWords asks for them.
    ir::WordRange words{};
    friend bool operator==(const Param&, const Param&) = default;
  };
  std::vector<Param> params;  // One a kernel parameter.
};

// The way a launch runs.
struct Chosen {
  std::vector<Part> parts;  // None when no instance runs.
  // True if the launch's time would still change later choices (Took).
  bool is_measured = false;
};

// Chooses for one executable; keeps proofs and measurements. Any thread.
class Chooser {
 public:
  virtual ~Chooser() = default;
  // Fills `chosen`, whose storage is used again: a launch like one of the last few, wherever its buffers begin,
  // allocates nothing. kFailedPrecondition for launches beyond the device's limits (extents, group sizes, buffers),
  // with the limit, and for parts of launches of a tenant's module. kInvalidArgument for a group that does not fit a
  // module of the tenant's.
  virtual Status Choose(const LaunchFacts& facts, Chosen* chosen) = 0;
  // The driver has built a variant so that its groups may have no more than so many work items (its registers). Before
  // the first launch.
  virtual void Limit(uint32_t variant, uint32_t group_size_max) = 0;
  // Notes the time that the dispatch of `parts` took on the device, for later choices.
  virtual void Took(const LaunchFacts& facts, std::span<const Part> parts, int64_t device_ns) = 0;
};

// `artifact` and `target` are borrowed for the chooser's life. `forced` (DeviceOptions::gpu_forced) and
// `learnt` may be null.
std::unique_ptr<Chooser> CreateChooser(const Artifact& artifact, const GpuTarget& target, ForcedVariant* forced,
                                       LearntStore* learnt);

// The bits of a value argument (not kBuffer, kTrapRecord) for one part of a launch. `base` and `group_base`: addresses
// in the virtual space, needed for kBufferBase and kGroupBase only.
struct ValueSource {
  const LaunchFacts* facts = nullptr;
  const Part* part = nullptr;
  std::span<const uint64_t> base;
  uint64_t group_base = 0;
  uint32_t trap_index = 0;
};
uint64_t ValueOf(const GpuArgument& argument, const ValueSource& source);

}  // namespace hpvm::gpu

#endif  // HPVMD_BACKENDS_GPU_LAUNCH_H_
