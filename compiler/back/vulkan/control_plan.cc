// SPDX-License-Identifier: Apache-2.0
// What is to be known of the kernel's control before it is written.
#include <algorithm>

#include "compiler/back/vulkan/emitter.h"
#include "compiler/ir/walk.h"

namespace hpvm::vulkan {

using ir::Opcode;

namespace {

// Of group memory, where the driver cuts loops: for each instance, and for what else a kernel keeps there.
constexpr uint64_t kLeftLoopBytes = 4, kOtherGroupBytes = 16;

}  // namespace

void KernelEmitter::PlanControl() {
  cuts_loops_ = m_.target.is_processor;
  has_no_fences_ = m_.target.is_processor && plan_.needs_fences;
  const size_t count = f_.ops.size();
  is_left_inside_.assign(count, false);
  is_continued_.assign(count, false);
  ends_kernel_.assign(count, false);
  region_of_.assign(count, ir::RegionId{});
  place_in_region_.assign(count, 0);
  for (uint32_t r = 0; r < f_.regions.size(); ++r) {
    const ir::Region& region = f_.regions[r];
    for (uint32_t i = 0; i < region.ops.size(); ++i) {
      region_of_[region.ops[i].index] = ir::RegionId(r);
      place_in_region_[region.ops[i].index] = i;
    }
  }
  ir::ForEachOp(f_, [&](ir::OpId id) {
    const ir::Op& op = f_.op(id);
    for (const ir::Target& target : f_.targets_of(op)) {
      if (target.is_continue) {
        is_continued_[target.op.index] = true;
      } else if (!ends_kernel_[target.op.index] &&
                 (op.code == Opcode::kLeaveTable || f_.region(region_of_[id.index]).owner != target.op)) {
        is_left_inside_[target.op.index] = true;
      }
    }
    // Outer constructs come first, so that what they know is known here.
    if (op.code != Opcode::kBlock && op.code != Opcode::kLoop && op.code != Opcode::kIf) {
      return;
    }
    const ir::Region& around = f_.region(region_of_[id.index]);
    const ir::Op& next = f_.op(around.ops[place_in_region_[id.index] + 1]);
    if (next.code == Opcode::kReturn) {
      ends_kernel_[id.index] = true;
    } else if (next.code == Opcode::kLeave && next.operand_count == 0) {
      ends_kernel_[id.index] = ends_kernel_[f_.targets_of(next)[0].op.index];
    }
  });
  RefuseLoopsThatCannotBeWatched();
}

void KernelEmitter::RefuseLoopsThatCannotBeWatched() {
  const GpuTarget& target = m_.target;
  const uint64_t bytes = plan_.local_bytes + target.group_size_max * kLeftLoopBytes + kOtherGroupBytes;
  const bool has_loops = std::find(is_continued_.begin(), is_continued_.end(), true) != is_continued_.end();
  if (cuts_loops_ && has_loops && bytes > target.local_bytes_max) {
    Refuse("The device's driver ends loops after " + std::to_string(ir::kLlvmpipeLoopRounds) +
           " rounds; to notice it takes group memory, of which the kernel leaves too little (" + std::to_string(bytes) +
           " bytes in all, the device has " + std::to_string(target.local_bytes_max) + ").");
  }
}

// Whether it ends the instance in this variant, as far as is known before it is written.
bool KernelEmitter::CanTrap(ir::OpId id) const {
  const ir::Op& op = f_.op(id);
  if (cuts_loops_ && op.code == Opcode::kLoop) {
    return is_continued_[id.index];
  }
  if ((ir::Info(op.code).effects & ir::kTraps) == 0 || op.code == Opcode::kBarrier || op.code == Opcode::kLocalAlloc) {
    return false;
  }
  const bool is_plain = ir::Info(op.code).family == ir::Family::kMemory;
  const bool is_store_to_input = op.space == ir::Space::kParam && (ir::Info(op.code).effects & ir::kWrites) != 0 &&
                                 !module_.params[op.space_index].is_writable;
  return !(is_plain && OmitsCheck(id) && !is_store_to_input);
}

}  // namespace hpvm::vulkan
