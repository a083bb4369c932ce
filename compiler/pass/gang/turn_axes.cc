// SPDX-License-Identifier: Apache-2.0
// Method: one walk finds whether anything but instance_id of a constant dimension tells an instance its position; a
// copy of the module then gives each query of x or y a new constant with the other dimension.
// Invariants: operations and values keep their numbers, because new ones are appended; only the order lists of
// regions change. Queries of z stay, and so do extents.
// Both walks are linear in the operations.
#include "compiler/pass/gang/turn_axes.h"

#include <utility>
#include <vector>

#include "compiler/analysis/definitions.h"
#include "compiler/ir/walk.h"

namespace hpvm::pass {
namespace {

bool TellsPlace(Opcode code) {
  return code == Opcode::kInstanceId || code == Opcode::kGroupId || code == Opcode::kLocalId;
}

// Returns true if any function except the entry queries an instance's position; functions that are no longer called
// count, too.
bool OthersTellPlace(const ir::Module& module) {
  bool tell = false;
  for (uint32_t i = 0; i < module.functions.size(); ++i) {
    const ir::Function& f = module.functions[i];
    ir::ForEachOp(f, [&](OpId id) { tell = tell || (i != module.entry.index && TellsPlace(f.op(id).code)); });
  }
  return tell;
}

}  // namespace

std::optional<ir::Module> TurnAxes(const ir::Module& module) {
  const ir::Function& entry = module.function(module.entry);
  const analysis::Definitions definitions(entry);
  bool uses_y = false, is_known = true, calls = false;
  ir::ForEachOp(entry, [&](OpId id) {
    const Op& op = entry.op(id);
    calls = calls || op.code == Opcode::kCall || op.code == Opcode::kCallRef;
    if (!TellsPlace(op.code)) {
      return;
    }
    const std::optional<uint64_t> dimension = definitions.ConstantOf(entry.operands_of(op)[0]);
    is_known = is_known && op.code == Opcode::kInstanceId && dimension.has_value();
    uses_y = uses_y || dimension == uint64_t{1};
  });
  if (!uses_y || !is_known || !module.formats.empty() || (calls && OthersTellPlace(module))) {
    return std::nullopt;
  }
  ir::Module turned = module;
  ir::Function& f = turned.function(turned.entry);
  for (ir::Region& region : f.regions) {
    std::vector<OpId> ops;
    for (OpId id : region.ops) {
      const Op& op = f.op(id);
      const uint64_t dimension =
          op.code == Opcode::kInstanceId ? definitions.ConstantOf(f.operands_of(op)[0]).value_or(2) : 2;
      if (dimension < 2) {
        Op other{.code = Opcode::kConst, .imm = 1 - dimension, .source = op.source, .origin = op.origin};
        other.first_result = ir::ValueId(f.values.size());
        other.result_count = 1;
        f.operands[op.first_operand] = other.first_result;
        f.values.push_back({ir::Type::kI32});
        ops.push_back(OpId(f.ops.size()));
        f.ops.push_back(other);
      }
      ops.push_back(id);
    }
    region.ops = std::move(ops);
  }
  return turned;
}

}  // namespace hpvm::pass
