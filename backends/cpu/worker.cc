// SPDX-License-Identifier: Apache-2.0
#include "backends/cpu/worker.h"

namespace hpvm::cpu {

StatusOr<bool> GroupWorker::Run(const Variant& variant, uint64_t begin, uint64_t end, ir::TrapReport* trap) {
  const bool is_whole = variant.shape.unit == CpuVariant::Unit::kGroup;
  for (uint64_t index = begin; index < end; ++index) {
    const uint64_t group = GroupAt(launch_, index);
    StatusOr<bool> done =
        is_whole ? runner_->RunWhole(launch_, variant, group, trap) : runner_->Run(launch_, variant, group, trap);
    if (!done.ok() || !*done) {
      return done;
    }
  }
  return true;
}

Work::Work(CpuExecutable& executable, const CpuLaunch& launch, const Box& box, backends::VariantMask mask)
    : has_groups_(executable.has_groups()),
      groups_(GroupCount(launch)),
      group_instances_(launch.group[0] * launch.group[1] * launch.group[2]),
      instances_(has_groups_ ? Instances(launch) : box.instances()),
      extent_(launch.extent),
      slices_(box, executable.variants(), has_groups_ ? 0 : mask) {}

uint64_t Work::SliceInstances(uint64_t begin, uint64_t end) const {
  // Groups at the launch's edge may have fewer, which does not matter where they are compared with each other.
  return has_groups_ ? (end - begin) * group_instances_ : slices_.BoxOf(begin, end).instances();
}

StatusOr<bool> Work::RunSlices(Worker& worker, const Variant& variant, uint64_t begin, uint64_t end,
                               ir::TrapReport* trap) const {
  return has_groups_ ? worker.Run(variant, begin, end, trap) : RunBox(worker, variant, slices_.BoxOf(begin, end), trap);
}

uint64_t Work::CornerInstances(uint64_t slice) const {
  return has_groups_ ? group_instances_ : slices_.CornerOf(slice).corner.instances();
}

StatusOr<bool> Work::RunCorner(Worker& worker, const Variant& variant, uint64_t slice, ir::TrapReport* trap) const {
  return has_groups_ ? worker.Run(variant, slice, slice + 1, trap)
                     : RunBox(worker, variant, slices_.CornerOf(slice).corner, trap);
}

StatusOr<bool> Work::RunRest(Worker& worker, const Variant& variant, uint64_t slice, ir::TrapReport* trap) const {
  if (has_groups_) {
    return true;
  }
  for (const Box& box : slices_.CornerOf(slice).rest) {
    StatusOr<bool> done = box.instances() != 0 ? RunBox(worker, variant, box, trap) : true;
    if (!done.ok() || !*done) {
      return done;
    }
  }
  return true;
}

StatusOr<bool> Work::RunBox(Worker& worker, const Variant& variant, const Box& box, ir::TrapReport* trap) const {
  StatusOr<bool> done = true;
  ForEachRange(variant, extent_, box, [&](uint64_t begin, uint64_t end) {
    done = worker.Run(variant, begin, end, trap);
    return done.ok() && *done;
  });
  return done;
}

}  // namespace hpvm::cpu
