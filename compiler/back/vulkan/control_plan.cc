// SPDX-License-Identifier: Apache-2.0
// Analyses the kernel's control flow before code is emitted.
#include <algorithm>

#include "compiler/back/vulkan/control.h"
#include "compiler/ir/walk.h"

namespace hpvm::vulkan {

namespace {

// Group memory used where the driver cuts loops: bytes for each instance, and for the kernel's other needs.
constexpr uint64_t kLeftLoopBytes = 4, kOtherGroupBytes = 16;

}  // namespace

ControlPlan::ControlPlan(Variant& variant) : v_(variant) {
  const size_t count = v_.f.ops.size();
  is_left_inside_.assign(count, false);
  is_continued_.assign(count, false);
  ends_kernel_.assign(count, false);
  region_of_.assign(count, ir::RegionId{});
  place_in_region_.assign(count, 0);
  for (uint32_t r = 0; r < v_.f.regions.size(); ++r) {
    const ir::Region& region = v_.f.regions[r];
    for (uint32_t i = 0; i < region.ops.size(); ++i) {
      region_of_[region.ops[i].index] = ir::RegionId(r);
      place_in_region_[region.ops[i].index] = i;
    }
  }
  ir::ForEachOp(v_.f, [&](ir::OpId id) {
    const ir::Op& op = v_.f.op(id);
    for (const ir::Target& target : v_.f.targets_of(op)) {
      if (target.is_continue) {
        is_continued_[target.op.index] = true;
      } else if (!ends_kernel_[target.op.index] &&
                 (op.code == Opcode::kBrTable || v_.f.region(region_of_[id.index]).owner != target.op)) {
        is_left_inside_[target.op.index] = true;
      }
    }
    // Outer constructs come first, so their results are known here.
    if (op.code != Opcode::kBlock && op.code != Opcode::kLoop && op.code != Opcode::kIf) {
      return;
    }
    const ir::Region& around = v_.f.region(region_of_[id.index]);
    const ir::Op& next = v_.f.op(around.ops[place_in_region_[id.index] + 1]);
    if (next.code == Opcode::kReturn) {
      ends_kernel_[id.index] = true;
    } else if (next.code == Opcode::kBr && next.operand_count == 0) {
      ends_kernel_[id.index] = ends_kernel_[v_.f.targets_of(next)[0].op.index];
    }
  });
  RefuseLoopsThatCannotBeWatched();
}

bool ControlPlan::HasLoops() const { return std::ranges::find(is_continued_, true) != is_continued_.end(); }

void ControlPlan::RefuseLoopsThatCannotBeWatched() {
  const GpuTarget& target = v_.m.target;
  const uint64_t bytes = v_.plan.local_bytes + target.group_size_max * kLeftLoopBytes + kOtherGroupBytes;
  if (v_.cuts_loops && HasLoops() && bytes > target.local_bytes_max) {
    v_.Refuse("The device's driver ends loops after " + std::to_string(ir::kLlvmpipeLoopRounds) +
              " iterations; detecting this takes group memory, of which the kernel leaves too little (" +
              std::to_string(bytes) + " bytes are needed in all, the device has " +
              std::to_string(target.local_bytes_max) + ").");
  }
}

}  // namespace hpvm::vulkan
