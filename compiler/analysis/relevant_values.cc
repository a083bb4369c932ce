// SPDX-License-Identifier: Apache-2.0
#include "compiler/analysis/relevant_values.h"

#include <algorithm>

#include "compiler/ir/op_syntax.h"
#include "compiler/ir/walk.h"

namespace hpvm::analysis {

bool MayReachBuffers(const Op& op) {
  switch (op.code) {
    case Opcode::kMemoryCopy:
    case Opcode::kMemoryFill:
    case Opcode::kMemoryInit:
      return true;
    default:
      return ir::HasSpace(op.code) &&
             (op.space == ir::Space::kFlat || op.space == ir::Space::kParam || op.space == ir::Space::kGroup);
  }
}

RelevantValues::RelevantValues(const ir::Function& function)
    : f_(function),
      is_relevant_(function.values.size()),
      is_quiet_(function.ops.size()),
      definitions_(function),
      sources_(FindSources(function)) {
  Look(f_.body);
  Collect(f_.body);
  while (!open_.empty()) {
    const ValueId value = open_.back();
    open_.pop_back();
    Follow(value);
  }
}

// Finds quiet constructs, innermost first.
RelevantValues::Found RelevantValues::Look(RegionId region) {
  Found found;
  for (const OpId id : f_.region(region).ops) {
    const Op& op = f_.op(id);
    found.is_loud |= MayReachBuffers(op) || op.code == Opcode::kLocalAlloc || op.code == Opcode::kReturn;
    for (const ir::Target& target : f_.targets_of(op)) {
      found.goals.push_back(target.op);
    }
    if (!ir::OwnsRegions(op.code)) {
      continue;
    }
    Found inner = Look(op.body);
    if (op.code == Opcode::kIf) {
      const Found otherwise = Look(op.otherwise);
      inner.is_loud |= otherwise.is_loud;
      inner.goals.insert(inner.goals.end(), otherwise.goals.begin(), otherwise.goals.end());
    }
    std::ranges::sort(inner.goals, [](OpId a, OpId b) { return a.index < b.index; });
    inner.goals.erase(std::unique(inner.goals.begin(), inner.goals.end()), inner.goals.end());
    std::erase(inner.goals, id);
    is_quiet_[id.index] = !inner.is_loud && inner.goals.empty();
    found.is_loud |= inner.is_loud;
    found.goals.insert(found.goals.end(), inner.goals.begin(), inner.goals.end());
  }
  return found;
}

// Marks the values that operations use directly: addresses, conditions and sizes.
void RelevantValues::Collect(RegionId region) {
  for (const OpId id : f_.region(region).ops) {
    const Op& op = f_.op(id);
    if (is_quiet_[id.index]) {
      continue;
    }
    if (op.code == Opcode::kIf) {
      Mark(f_.operands_of(op)[0]);
      Collect(op.body);
      Collect(op.otherwise);
    } else if (ir::OwnsRegions(op.code)) {
      Collect(op.body);
    } else if (op.code == Opcode::kBrTable || op.code == Opcode::kLocalAlloc ||
               (MayReachBuffers(op) && op.operand_count > 0)) {
      Mark(f_.operands_of(op)[0]);
    }
  }
}

void RelevantValues::Mark(ValueId value) {
  if (!is_relevant_[value.index]) {
    is_relevant_[value.index] = true;
    open_.push_back(value);
  }
}

void RelevantValues::MarkOperands(const Op& op) {
  for (const ValueId operand : f_.operands_of(op)) {
    Mark(operand);
  }
}

void RelevantValues::Follow(ValueId value) {
  const OpId id = definitions_.Of(value);
  if (id.valid() && !ir::OwnsRegions(f_.op(id).code)) {
    return MarkOperands(f_.op(id));
  }
  if (!id.valid() || !is_quiet_[id.index]) {
    std::ranges::for_each(sources_[value.index], [&](ValueId source) { Mark(source); });
  }
}

}  // namespace hpvm::analysis
