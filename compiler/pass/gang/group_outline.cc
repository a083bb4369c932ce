// SPDX-License-Identifier: Apache-2.0
#include "compiler/pass/gang/group_outline.h"

#include "compiler/ir/op_syntax.h"

namespace hpvm::pass {

namespace {

// Maximum number of jumps that lead to jumps; longer chains are not resolved.
constexpr int kChainMax = 64;

}  // namespace

GroupOutline::GroupOutline(const ir::Function& f)
    : f_(f), has_sync_(f.ops.size()), is_group_(f.ops.size()), is_level_(f.regions.size()), tails_(f.regions.size()) {
  for (const OpId id : nesting_.order()) {
    for (OpId at = id; IsSync(f_.op(id).code) && at.valid() && !has_sync_[at.index]; at = nesting_.OwnerOf(at)) {
      has_sync_[at.index] = true;
    }
  }
  VisitRegion(f.body);
}

GroupTarget GroupOutline::Resolve(GroupTarget target) const {
  for (int i = 0; i < kChainMax; ++i) {
    if (!target.op.valid() || target.is_continue || f_.op(target.op).result_count != 0) {
      break;
    }
    const Op& next = f_.op(nesting_.Behind(target.op));
    if (next.code == Opcode::kReturn) {
      return {};
    }
    if ((next.code != Opcode::kBr && next.code != Opcode::kContinue) || next.operand_count != 0) {
      break;
    }
    target = {f_.targets_of(next)[0].op, next.code == Opcode::kContinue};
  }
  return target;
}

std::vector<GroupTarget> GroupOutline::EscapesOf(OpId op) const {
  std::vector<GroupTarget> found;
  for (const OpId id : nesting_.OpsOf(op)) {
    const Op& inner = f_.op(id);
    if (inner.code == Opcode::kReturn) {
      found.push_back({});
    }
    for (const ir::Target& target : f_.targets_of(inner)) {
      if (!nesting_.IsIn(target.op, op)) {
        found.push_back({target.op, target.is_continue});
      }
    }
  }
  return found;
}

std::optional<GroupTarget> GroupOutline::TailFrom(const std::vector<OpId>& ops, size_t begin) const {
  std::optional<GroupTarget> common;
  for (size_t i = begin; i < ops.size(); ++i) {
    if (has_sync_[ops[i].index]) {
      return std::nullopt;
    }
    for (const GroupTarget& escape : EscapesOf(ops[i])) {
      const GroupTarget target = Resolve(escape);
      if (common.has_value() && *common != target) {
        return std::nullopt;
      }
      common = target;
    }
  }
  return common;
}

void GroupOutline::VisitRegion(RegionId region) {
  is_level_[region.index] = true;
  const std::vector<OpId>& ops = f_.region(region).ops;
  for (size_t i = 0; i < ops.size(); ++i) {
    const Op& op = f_.op(ops[i]);
    if (!ir::OwnsRegions(op.code)) {
      continue;
    }
    if (!has_sync_[ops[i].index]) {
      if (EscapesOf(ops[i]).empty()) {
        continue;
      }
      if (const std::optional<GroupTarget> target = TailFrom(ops, i); target.has_value()) {
        tails_[region.index] = Tail{i, *target};
        return;
      }
    }
    is_group_[ops[i].index] = true;
    VisitRegion(op.body);
    if (op.code == Opcode::kIf) {
      VisitRegion(op.otherwise);
    }
  }
}

std::vector<bool> FindGroupLevel(const ir::Function& entry) { return GroupOutline(entry).is_group(); }

}  // namespace hpvm::pass
