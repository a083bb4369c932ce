// SPDX-License-Identifier: Apache-2.0
// Decides how one dispatch of a GPU artifact runs: which variants, in which boxes of instances, with which groups.
// Shared by the OpenCL and Vulkan devices; independent of both APIs.
//
// A launch whose extent is not a multiple of the variant's tile (and group) is cut into boxes: the bulk, and the
// remainders at the far side of each dimension, which run one instance per work item. Kernels that run by groups are
// cut so that a partial last group of a dimension becomes a launch with smaller groups (docs/KERNELS.md S25). Most
// launches are one part, because groups are chosen to divide them.
//
// A dispatch may be any box of a launch (DispatchCommand::first, count): ids, counts and proofs refer to the whole
// launch, parts and measurements to the box.
//
// Modules that a tenant wrote for the device always run as one part and as the whole launch, because their code counts
// from 0 (RunsParts).
#ifndef HPVMD_BACKENDS_GPU_LAUNCH_H_
#define HPVMD_BACKENDS_GPU_LAUNCH_H_

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "backends/contract/device.h"
#include "backends/gpu/forced_variant.h"
#include "compiler/api/tuning_record.h"

namespace hpvm::gpu {

// One enqueue.
struct Part {
  uint32_t variant = 0;              // In GpuCode::variants.
  std::array<uint32_t, 3> first{};   // The first instance.
  std::array<uint32_t, 3> groups{};  // Number of work groups.
  std::array<uint32_t, 3> group{};   // Number of work items in a group.
};

// The properties of a dispatch on which choices depend.
struct LaunchFacts {
  std::array<uint64_t, 3> extent{1, 1, 1}, group{1, 1, 1};  // Those of the whole launch.
  // The instances that run, within the extent.
  std::array<uint64_t, 3> first{0, 0, 0}, count{1, 1, 1};
  struct Param {
    uint64_t value = 0;  // Buffers: size of the view; scalars: the bits.
    // Buffers: first byte of the view in its memory, or, when the device binds memory from an offset on, relative to
    // that offset (a multiple of 16).
    uint64_t start = 0;
    // Buffers that the launch does not write, when ir::ProveByWords needs their words.
    ir::WordRange words{};
    friend bool operator==(const Param&, const Param&) = default;
  };
  std::vector<Param> params;  // One per kernel parameter.
};

// The way in which a launch runs.
struct Chosen {
  std::vector<Part> parts;  // Empty when no instance runs.
  // True if the launch's time would still change later choices (Took).
  bool is_measured = false;
};

// Chooses for one executable; stores proofs and measurements. Thread-safe.
class Chooser {
 public:
  virtual ~Chooser() = default;
  // Fills `chosen`, whose storage is reused: a launch like one of the last few, wherever its buffers begin, allocates
  // nothing. Returns kFailedPrecondition, with the limit, for launches beyond the device's limits (extents, group
  // sizes, buffers), and for parts of launches of a tenant's module; kInvalidArgument for a group that does not fit a
  // tenant's module.
  virtual Status Choose(const LaunchFacts& facts, Chosen* chosen) = 0;
  // The driver has built a variant so that its groups may have at most `group_size_max` work items (because of its
  // registers). Call before the first launch.
  virtual void Limit(uint32_t variant, uint32_t group_size_max) = 0;
  // Records the time that the dispatch of `parts` took on the device, for later choices.
  virtual void Took(const LaunchFacts& facts, std::span<const Part> parts, int64_t device_ns) = 0;
};

// `artifact` and `target` are borrowed for the chooser's life. `forced` (DeviceOptions::gpu_forced) and `tuning` may be
// null.
std::unique_ptr<Chooser> CreateChooser(const Artifact& artifact, const GpuTarget& target, ForcedVariant* forced,
                                       TuningStore* tuning);

// Returns the bits of a value argument (not kBuffer, kTrapRecord) for one part of a launch. `base` and `group_base` are
// addresses in the virtual space, needed only for kBufferBase and kGroupBase.
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
