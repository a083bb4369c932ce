// SPDX-License-Identifier: Apache-2.0
#include "compiler/back/gpu/loads_ahead.h"

#include "compiler/ir/spelling.h"

namespace hpvm::gpu {
namespace {

using ir::Op;
using ir::Opcode;

// What iterations that are written out together have at most: loads (as many as hide a trip to memory behind each
// other), and operations.
constexpr uint32_t kLoadsMax = 16, kOpsMax = 256;

struct Content {
  uint32_t ops = 0, loads = 0;
};

// False if the loop stays as it is.
bool Count(const ir::Function& f, ir::RegionId region, const std::function<bool(ir::OpId)>& omits_check,
           Content* content) {
  for (ir::OpId id : f.region(region).ops) {
    const Op& op = f.op(id);
    if (++content->ops > kOpsMax || op.code == Opcode::kLoop || ir::Info(op.code).family == ir::Family::kAtomic ||
        ir::Info(op.code).family == ir::Family::kSync) {
      return false;
    }
    if (ir::HasSpace(op.code)) {
      if (op.space != ir::Space::kParam || !omits_check(id)) {
        return false;
      }
      content->loads += (ir::Info(op.code).effects & ir::kReads) != 0 ? 1 : 0;
    }
    if (ir::OwnsRegions(op.code) && (!Count(f, op.body, omits_check, content) ||
                                     (op.code == Opcode::kIf && !Count(f, op.otherwise, omits_check, content)))) {
      return false;
    }
  }
  return true;
}

}  // namespace

uint32_t IterationsTogether(const ir::Function& function, ir::OpId loop,
                            const std::function<bool(ir::OpId)>& omits_check) {
  Content content;
  if (!Count(function, function.op(loop).body, omits_check, &content) || content.loads == 0) {
    return 1;
  }
  uint32_t together = 4;
  while (together > 1 && (together * content.loads > kLoadsMax || together * content.ops > kOpsMax)) {
    together /= 2;
  }
  return together;
}

}  // namespace hpvm::gpu
