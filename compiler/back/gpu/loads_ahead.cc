// SPDX-License-Identifier: Apache-2.0
#include "compiler/back/gpu/loads_ahead.h"

#include <algorithm>
#include <span>
#include <vector>

#include "compiler/ir/spelling.h"

namespace hpvm::gpu {
namespace {

using ir::Op;
using ir::Opcode;

// Limits of iterations that are written out together: loads (as many as hide a trip to memory behind each
// other), and operations.
constexpr uint32_t kLoadsMax = 16, kOpsMax = 256;

class Counter {
 public:
  Counter(const ir::Function& function, ir::OpId loop, const std::function<bool(ir::OpId)>& omits_check)
      : f_(function), omits_check_(omits_check), open_{loop} {}

  // False if the loop stays as it is.
  bool Count(ir::RegionId region) {
    for (ir::OpId id : f_.region(region).ops) {
      const Op& op = f_.op(id);
      if (++ops_ > kOpsMax || op.code == Opcode::kLoop || ir::Info(op.code).family == ir::Family::kAtomic ||
          ir::Info(op.code).family == ir::Family::kSync) {
        return false;
      }
      if (ir::HasSpace(op.code)) {
        if (op.space != ir::Space::kParam || !omits_check_(id)) {
          return false;
        }
        loads_ += (ir::Info(op.code).effects & ir::kReads) != 0 ? 1 : 0;
      }
      if (ir::IsTerminator(op.code) && Leaves(op) && ++exits_ > 1) {
        return false;
      }
      if (ir::OwnsRegions(op.code)) {
        open_.push_back(id);
        const bool counts = Count(op.body) && (op.code != Opcode::kIf || Count(op.otherwise));
        open_.pop_back();
        if (!counts) {
          return false;
        }
      }
    }
    return true;
  }
  uint32_t ops() const { return ops_; }
  uint32_t loads() const { return loads_; }

 private:
  // Whether any way of the jump leads out of the loop.
  bool Leaves(const Op& op) const {
    const std::span<const ir::Target> targets = f_.targets_of(op);
    return targets.empty() || std::any_of(targets.begin(), targets.end(), [&](const ir::Target& target) {
             return !(target.op == open_.front() && target.is_continue) &&
                    std::find(open_.begin() + 1, open_.end(), target.op) == open_.end();
           });
  }

  const ir::Function& f_;
  const std::function<bool(ir::OpId)>& omits_check_;
  std::vector<ir::OpId> open_;  // The loop, and the constructs around the place.
  uint32_t ops_ = 0, loads_ = 0, exits_ = 0;
};

}  // namespace

uint32_t IterationsTogether(const ir::Function& function, ir::OpId loop,
                            const std::function<bool(ir::OpId)>& omits_check) {
  Counter counter(function, loop, omits_check);
  if (!counter.Count(function.op(loop).body) || counter.loads() == 0) {
    return 1;
  }
  uint32_t together = 4;
  while (together > 1 && (together * counter.loads() > kLoadsMax || together * counter.ops() > kOpsMax)) {
    together /= 2;
  }
  return together;
}

}  // namespace hpvm::gpu
