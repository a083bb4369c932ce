// SPDX-License-Identifier: Apache-2.0
#include "compiler/pass/cut_unreachable.h"

#include <vector>

#include "compiler/ir/op_syntax.h"

namespace hpvm::pass {
namespace {

// Walks in the order of the text, so that leaves in code that has been cut off do not count.
class Cut {
 public:
  explicit Cut(ir::Function& function) : f_(function), is_left_(function.ops.size()) {}

  void Region(RegionId id) {
    for (size_t i = 0; i < f_.region(id).ops.size(); ++i) {
      const OpId at = f_.region(id).ops[i];
      const Op op = f_.op(at);
      for (const ir::Target& target : f_.targets_of(op)) {
        is_left_[target.op.index] = is_left_[target.op.index] || !target.is_continue;
      }
      if (!ir::OwnsRegions(op.code)) {
        continue;
      }
      Region(op.body);
      if (op.code == ir::Opcode::kIf) {
        Region(op.otherwise);
      }
      if (!is_left_[at.index]) {
        End(id, i + 1, op);
        return;
      }
    }
  }

 private:
  // Ends the region after `count` operations, the last of which is `op`.
  void End(RegionId id, size_t count, const Op& op) {
    if (f_.op(f_.region(id).ops[count]).code == ir::Opcode::kTrap) {
      return;  // Front ends end such regions in the same way.
    }
    Op trap{.code = ir::Opcode::kTrap,
            .imm = static_cast<uint64_t>(ir::TrapCode::kUnreachable),
            .source = op.source,
            .origin = op.origin};
    f_.ops.push_back(trap);
    std::vector<OpId>& ops = f_.region(id).ops;
    ops.resize(count);
    ops.push_back(OpId(static_cast<uint32_t>(f_.ops.size() - 1)));
  }

  ir::Function& f_;
  std::vector<bool> is_left_;  // Indexed by OpId of a block, loop or if.
};

}  // namespace

void CutUnreachable(ir::Function& function) { Cut(function).Region(function.body); }

}  // namespace hpvm::pass
