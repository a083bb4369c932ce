// SPDX-License-Identifier: Apache-2.0
#include "compiler/pass/memory/resolve_provenance.h"

#include <algorithm>
#include <unordered_map>
#include <vector>

#include "compiler/analysis/value_ranges.h"
#include "compiler/ir/op_syntax.h"
#include "compiler/ir/walk.h"
#include "compiler/pass/memory/expand_bulk.h"

namespace hpvm::pass {
namespace {

using Base = analysis::ValueRange::Base;

// Addresses holds the facts about the entry's addresses before any is changed. Values made afterwards have no origin.
class Addresses {
 public:
  explicit Addresses(const ir::Module& module) : ranges_(analysis::FindValueRanges(module, ~uint64_t{0})) {
    const ir::Region& body = module.function(module.entry).region(module.function(module.entry).body);
    for (uint32_t k = 0; k < body.param_count; ++k) {
      is_settled_ = is_settled_ && (!module.params[k].is_buffer || ParamOf(ir::ParamsOf(body)[k]) == k);
    }
  }

  // If false, nothing is known.
  bool is_settled() const { return is_settled_; }
  bool Is(ir::ValueId value, Base base) const { return value.index < ranges_.size() && ranges_[value.index].Is(base); }
  // Returns the parameter whose buffer contains the address.
  std::optional<uint32_t> ParamOf(ir::ValueId value) const {
    return Is(value, Base::kParam) ? std::optional(ranges_[value.index].origin.param) : std::nullopt;
  }
  std::optional<uint64_t> ConstantOf(ir::ValueId value) const {
    const analysis::ValueRange& range = ranges_[value.index];
    return range.is_constant() ? std::optional(range.lo) : std::nullopt;
  }

 private:
  const std::vector<analysis::ValueRange> ranges_;  // Indexed by ValueId.
  bool is_settled_ = true;
};

// Makes `access` use the offset from parameter k; returns the subtraction, which belongs before the access.
ir::OpId Rewrite(ir::Module& module, ir::Function& function, ir::OpId access, uint32_t k) {
  const ir::Region& body = function.region(function.body);
  ir::Op subtract{.code = Opcode::kSub, .type = module.address_type(), .source = function.op(access).source};
  subtract.first_operand = static_cast<uint32_t>(function.operands.size());
  subtract.operand_count = 2;
  subtract.first_result = ir::ValueId(function.values.size());
  subtract.result_count = 1;
  function.operands.push_back(function.operands[function.op(access).first_operand]);
  function.operands.push_back(ir::ValueId(body.first_param.index + k));
  function.values.push_back({module.address_type()});
  ir::Op& op = function.op(access);
  op.space = ir::Space::kParam;
  op.space_index = k;
  function.operands[op.first_operand] = subtract.first_result;
  function.ops.push_back(subtract);
  return ir::OpId(function.ops.size() - 1);
}

// Expands a copy or fill whose addresses all lie in buffers, group memory or, if `expands_stack`, the stack, into
// loads and stores; any other operation remains. `bytes_left` falls by the expanded bytes: a module with many copies
// must not grow without limit.
std::vector<ir::OpId> Expand(ir::Function& function, const Addresses& addresses, bool expands_stack, ir::OpId id,
                             uint64_t* bytes_left) {
  const ir::Op& op = function.op(id);
  if (op.code != Opcode::kMemoryCopy && op.code != Opcode::kMemoryFill) {
    return {id};
  }
  const std::span<const ir::ValueId> operands = function.operands_of(op);
  const auto is_known = [&](ir::ValueId value) {
    return addresses.Is(value, Base::kParam) || addresses.Is(value, Base::kGroup) ||
           (expands_stack && addresses.Is(value, Base::kStack));
  };
  const std::optional<uint64_t> bytes = addresses.ConstantOf(operands[2]);
  if (!bytes || *bytes == 0 || *bytes > std::min(kExpandedBytesMax, *bytes_left) || !is_known(operands[0]) ||
      (op.code == Opcode::kMemoryCopy && !is_known(operands[1]))) {
    return {id};
  }
  *bytes_left -= *bytes;
  return ExpandBulk(function, id, *bytes);
}

// Appends the consecutive operations to `out`, with the spaces of their addresses; offsets that they share are
// computed once.
void Resolve(ir::Module& module, ir::Function& function, const Addresses& addresses, std::span<const ir::OpId> ids,
             std::vector<ir::OpId>& out) {
  std::unordered_map<uint32_t, ir::ValueId> offsets;  // Keyed by address.
  for (const ir::OpId id : ids) {
    ir::Op& op = function.op(id);
    const bool is_access = ir::HasSpace(op.code) && op.space == ir::Space::kFlat;
    const ir::ValueId address = is_access ? function.operands_of(op)[0] : ir::ValueId();
    const std::optional<uint32_t> param = addresses.ParamOf(address);
    if (addresses.Is(address, Base::kGroup)) {
      op.space = ir::Space::kGroup;
    } else if (const auto found = offsets.find(address.index); param && found != offsets.end()) {
      op.space = ir::Space::kParam;
      op.space_index = *param;
      function.operands[op.first_operand] = found->second;
    } else if (param) {
      out.push_back(Rewrite(module, function, id, *param));
      offsets.emplace(address.index, function.op(out.back()).first_result);
    }
    out.push_back(id);
  }
}

// SeparationCheck verifies that no operation reveals the locations of the buffers: a result derived from a buffer's
// address is an address of the same buffer, or the distance or order of two such addresses, or the address is that of
// an access.
class SeparationCheck {
 public:
  SeparationCheck(const ir::Function& function, const Addresses& addresses)
      : function_(function), addresses_(addresses) {}

  bool Run() {
    bool holds = true;
    ir::ForEachOp(function_, [&](ir::OpId id) { holds = holds && Keeps(function_.op(id)); });
    return holds;
  }

 private:
  std::optional<uint32_t> ParamAt(const ir::Op& op, uint32_t operand) const {
    return addresses_.ParamOf(function_.operands_of(op)[operand]);
  }
  // Returns true if every operand from first_operand on that is an address yields a result that is an address of the
  // same buffer, and no operand before is an address.
  bool KeepsResult(const ir::Op& op, uint32_t first_operand) const {
    const std::optional<uint32_t> result = addresses_.ParamOf(op.first_result);
    for (uint32_t i = 0; i < op.operand_count; ++i) {
      const std::optional<uint32_t> param = ParamAt(op, i);
      if (param && (i < first_operand || param != result)) {
        return false;
      }
    }
    return true;
  }
  bool HasNone(const ir::Op& op, uint32_t operands) const {
    const std::span<const ir::ValueId> asked = function_.operands_of(op).first(operands);
    return std::ranges::none_of(asked, [&](ir::ValueId id) { return addresses_.Is(id, Base::kParam); });
  }

  bool Keeps(const ir::Op& op) const {
    switch (op.code) {
      case Opcode::kBlock:
      case Opcode::kLoop:
      case Opcode::kBr:
      case Opcode::kContinue:
      case Opcode::kBrTable: {
        bool keeps = HasNone(op, ir::FirstBrought(op.code));
        ir::ForEachBrought(function_, op, [&](ir::ValueId slot, ir::ValueId value) {
          const std::optional<uint32_t> param = addresses_.ParamOf(value);
          keeps = keeps && (!param || addresses_.ParamOf(slot) == param);
        });
        return keeps;
      }
      case Opcode::kAdd:
        return KeepsResult(op, 0);
      case Opcode::kSelect:
        return KeepsResult(op, 1);
      case Opcode::kSub:
      case Opcode::kEq:
      case Opcode::kNe:
      case Opcode::kLtU:
      case Opcode::kGtU:
      case Opcode::kLeU:
      case Opcode::kGeU:
        return ParamAt(op, 0) == ParamAt(op, 1) || (op.code == Opcode::kSub && KeepsResult(op, 0));
      default:
        return HasNone(op, op.operand_count);
    }
  }

  const ir::Function& function_;
  const Addresses& addresses_;
};

void Resolve(ir::Module& module, bool expands_stack) {
  const Addresses addresses(module);
  if (!addresses.is_settled()) {
    return;
  }
  ir::Function& function = module.function(module.entry);
  uint64_t bytes_left = kExpandedBytesOfKernelMax;
  for (ir::Region& region : function.regions) {
    std::vector<ir::OpId> ops;
    ops.reserve(region.ops.size());
    for (ir::OpId id : region.ops) {
      Resolve(module, function, addresses, Expand(function, addresses, expands_stack, id, &bytes_left), ops);
    }
    region.ops = std::move(ops);
  }
  module.has_separate_buffers = SeparationCheck(function, addresses).Run();
}

}  // namespace

Status ResolveProvenance(ir::Module& module) {
  Resolve(module, /*expands_stack=*/false);
  return absl::OkStatus();
}

bool ExpandStackCopies(ir::Module& module) {
  const ir::Function& entry = module.function(module.entry);
  const size_t ops = entry.ops.size();
  Resolve(module, /*expands_stack=*/true);
  return entry.ops.size() > ops;
}

}  // namespace hpvm::pass
