// SPDX-License-Identifier: Apache-2.0
// Visits operations in the order of the text form, and the values that control flow passes to parameters and results.
#ifndef HPVMD_COMPILER_IR_WALK_H_
#define HPVMD_COMPILER_IR_WALK_H_

#include <utility>
#include <vector>

#include "compiler/ir/ir.h"

namespace hpvm::ir {

// Calls visit(OpId) for every operation of the region and of nested regions; an operation precedes those in its
// regions. Not recursive. The callback must not add or remove operations.
template <typename Visit>
void ForEachOpIn(const Function& function, RegionId root, Visit&& visit) {
  std::vector<std::pair<RegionId, size_t>> open;
  if (root.valid()) {
    open.push_back({root, 0});
  }
  while (!open.empty()) {
    auto& [region_id, next] = open.back();
    const Region& region = function.region(region_id);
    if (next == region.ops.size()) {
      open.pop_back();
      continue;
    }
    const OpId id = region.ops[next++];
    visit(id);
    const Op& op = function.op(id);
    if (op.code == Opcode::kIf) {
      open.push_back({op.otherwise, 0});
    }
    if (op.code == Opcode::kIf || op.code == Opcode::kBlock || op.code == Opcode::kLoop) {
      open.push_back({op.body, 0});
    }
  }
}

// Does the same for all operations reachable from the body.
template <typename Visit>
void ForEachOp(const Function& function, Visit&& visit) {
  ForEachOpIn(function, function.body, visit);
}

// Does the same for one operation and those nested in it.
template <typename Visit>
void ForEachOpOf(const Function& function, OpId id, Visit&& visit) {
  visit(id);
  const Op& op = function.op(id);
  if (op.code == Opcode::kIf || op.code == Opcode::kBlock || op.code == Opcode::kLoop) {
    ForEachOpIn(function, op.body, visit);
  }
  if (op.code == Opcode::kIf) {
    ForEachOpIn(function, op.otherwise, visit);
  }
}

// Consecutive values: parameters of a region, or results of an operation.
struct Slots {
  ValueId first;
  uint32_t count = 0;
  ValueId operator[](uint32_t i) const { return ValueId(first.index + i); }
  struct Iterator {
    ValueId at;
    ValueId operator*() const { return at; }
    Iterator& operator++() { return ++at.index, *this; }
    bool operator==(const Iterator&) const = default;
  };
  Iterator begin() const { return {first}; }
  Iterator end() const { return {(*this)[count]}; }
};
inline Slots ParamsOf(const Region& region) { return {region.first_param, region.param_count}; }
inline Slots ResultsOf(const Op& op) { return {op.first_result, op.result_count}; }
// Returns the values that a jump to the target assigns.
inline Slots SlotsOf(const Function& function, const Target& target) {
  const Op& owner = function.op(target.op);
  return target.is_continue ? ParamsOf(function.region(owner.body)) : ResultsOf(owner);
}
// Returns the index of the first operand of a jump that is passed to the target.
constexpr uint32_t FirstBrought(Opcode code) { return code == Opcode::kBrTable ? 1 : 0; }

// Calls bring(slot, value) for each value that the operation passes: at the start of a block or loop, or by a jump.
template <typename Bring>
void ForEachBrought(const Function& function, const Op& op, Bring&& bring) {
  const auto bring_all = [&](const Slots& slots) {
    const auto values = function.operands_of(op).subspan(FirstBrought(op.code));
    for (uint32_t i = 0; i < slots.count; ++i) {
      bring(slots[i], values[i]);
    }
  };
  if (op.code == Opcode::kBlock || op.code == Opcode::kLoop) {
    bring_all(ParamsOf(function.region(op.body)));
  }
  for (const Target& target : function.targets_of(op)) {
    bring_all(SlotsOf(function, target));
  }
}

}  // namespace hpvm::ir

#endif  // HPVMD_COMPILER_IR_WALK_H_
