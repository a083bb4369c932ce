// SPDX-License-Identifier: Apache-2.0
#include "compiler/pass/gang/group_outline.h"

#include "compiler/ir/spelling.h"

namespace hpvm {

using ir::Op;
using ir::Opcode;
using ir::OpId;
using ir::RegionId;

namespace {

// Jumps that lead to jumps: longer chains are left as they are.
constexpr int kChainMax = 64;

}  // namespace

GroupOutline::GroupOutline(const ir::Function& f)
    : f_(f),
      first_(f.ops.size()),
      last_(f.ops.size()),
      behind_(f.ops.size()),
      region_(f.ops.size()),
      has_sync_(f.ops.size()),
      is_group_(f.ops.size()),
      is_level_(f.regions.size()),
      tails_(f.regions.size()) {
  Number(f.body);
  VisitRegion(f.body);
}

void GroupOutline::Number(RegionId region) {
  const std::vector<OpId>& ops = f_.region(region).ops;
  for (size_t i = 0; i < ops.size(); ++i) {
    const OpId id = ops[i];
    const Op& op = f_.op(id);
    first_[id.index] = static_cast<uint32_t>(order_.size());
    order_.push_back(id);
    region_[id.index] = region;
    behind_[id.index] = i + 1 < ops.size() ? ops[i + 1] : OpId();
    if (ir::OwnsRegions(op.code)) {
      Number(op.body);
      if (op.code == Opcode::kIf) {
        Number(op.otherwise);
      }
    }
    last_[id.index] = static_cast<uint32_t>(order_.size() - 1);
    bool has_sync = IsSync(op.code);
    for (uint32_t n = first_[id.index] + 1; n <= last_[id.index] && !has_sync; n = last_[order_[n].index] + 1) {
      has_sync = has_sync_[order_[n].index];
    }
    has_sync_[id.index] = has_sync;
  }
}

GroupTarget GroupOutline::Resolve(GroupTarget target) const {
  for (int i = 0; i < kChainMax; ++i) {
    if (!target.op.valid() || target.is_continue || f_.op(target.op).result_count != 0) {
      break;
    }
    const Op& next = f_.op(behind_[target.op.index]);
    if (next.code == Opcode::kReturn) {
      return {};
    }
    if ((next.code != Opcode::kLeave && next.code != Opcode::kContinue) || next.operand_count != 0) {
      break;
    }
    target = {f_.targets_of(next)[0].op, next.code == Opcode::kContinue};
  }
  return target;
}

std::vector<GroupTarget> GroupOutline::EscapesOf(OpId op) const {
  std::vector<GroupTarget> found;
  for (uint32_t n = first_[op.index]; n <= last_[op.index]; ++n) {
    const Op& inner = f_.op(order_[n]);
    if (inner.code == Opcode::kReturn) {
      found.push_back({});
    }
    for (const ir::Target& target : f_.targets_of(inner)) {
      if (!IsInside(target.op, op)) {
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

}  // namespace hpvm
