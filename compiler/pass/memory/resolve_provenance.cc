// SPDX-License-Identifier: Apache-2.0
#include "compiler/pass/memory/resolve_provenance.h"

#include <algorithm>
#include <unordered_map>
#include <vector>

#include "compiler/analysis/value_ranges.h"
#include "compiler/ir/walk.h"
#include "compiler/pass/memory/expand_bulk.h"

namespace hpvm {
namespace {

using ir::Opcode;

// What is known of a value, from nothing yet over one parameter (or group memory) to none or several.
struct Origin {
  static constexpr int32_t kUnknown = -2;
  static constexpr int32_t kNone = -1;
  static constexpr int32_t kGroup = -3;  // What local_alloc gave.
  int32_t param = kUnknown;
};

// Values flow through at most this many nested loops before the analysis gives up; each sweep is linear.
constexpr int kSweepsMax = 32;

bool IsBulk(const ir::Op& op) { return op.code == Opcode::kMemoryCopy || op.code == Opcode::kMemoryFill; }

class ProvenanceAnalysis {
 public:
  // `knows_stack`: asks which addresses are of the shadow stack.
  ProvenanceAnalysis(const ir::Module& module, bool knows_stack)
      : function_(module.function(module.entry)), origins_(function_.values.size()) {
    ir::ForEachOp(function_, [&](ir::OpId id) {
      const ir::Op& op = function_.op(id);
      if (op.code == Opcode::kConst) {
        constants_.emplace(op.first_result.index, op.imm);
      }
    });
    if (knows_stack) {
      ranges_ = FindValueRanges(module, ~uint64_t{0});
    }
    const ir::Region& body = function_.region(function_.body);
    for (uint32_t k = 0; k < body.param_count; ++k) {
      origins_[body.first_param.index + k].param = module.params[k].is_buffer ? static_cast<int32_t>(k) : Origin::kNone;
    }
  }

  // False when it did not settle; then nothing is known.
  bool Run() {
    for (int sweep = 0; sweep < kSweepsMax; ++sweep) {
      changed_ = false;
      ir::ForEachOp(function_, [&](ir::OpId id) { Visit(function_.op(id)); });
      if (!changed_) {
        return true;
      }
    }
    return false;
  }

  // The parameter that `value` comes from, or -1. Values made after the analysis come from none.
  int32_t ParamOf(ir::ValueId value) const {
    return value.index < origins_.size() ? std::max(Origin::kNone, origins_[value.index].param) : Origin::kNone;
  }
  bool IsGroup(ir::ValueId value) const {
    return value.index < origins_.size() && origins_[value.index].param == Origin::kGroup;
  }
  bool IsStack(ir::ValueId value) const {
    return value.index < ranges_.size() && ranges_[value.index].origin == ValueRange::Origin::kStack;
  }
  std::optional<uint64_t> ConstantOf(ir::ValueId value) const {
    const auto found = constants_.find(value.index);
    return found == constants_.end() ? std::nullopt : std::optional(found->second);
  }

 private:
  int32_t At(const ir::Op& op, uint32_t operand) const {
    return origins_[function_.operands_of(op)[operand].index].param;
  }

  void Join(ir::ValueId value, int32_t param) {
    int32_t& known = origins_[value.index].param;
    int32_t joined = known == Origin::kUnknown                     ? param
                     : param == Origin::kUnknown || param == known ? known
                                                                   : Origin::kNone;
    changed_ = changed_ || joined != known;
    known = joined;
  }

  // A pointer and an integer give a pointer; two pointers give neither.
  static int32_t Sum(int32_t a, int32_t b) {
    if (a == Origin::kUnknown || b == Origin::kUnknown) {
      return Origin::kUnknown;
    }
    return a == Origin::kNone ? b : b == Origin::kNone ? a : Origin::kNone;
  }

  // Whether an `and` rounds a pointer down: by a constant that keeps the highest bits. Others leave only a few low bits
  // of it, which point nowhere near the buffer.
  bool Aligns(const ir::Op& op) const {
    for (ir::ValueId operand : function_.operands_of(op)) {
      const auto found = constants_.find(operand.index);
      if (found != constants_.end()) {
        return (found->second >> (8 * ir::Bytes(op.type) - 1) & 1) != 0;
      }
    }
    return false;
  }

  void JoinAll(ir::ValueId first, uint32_t count, const ir::Op& op, uint32_t first_operand) {
    for (uint32_t i = 0; i < count; ++i) {
      Join(ir::ValueId(first.index + i), At(op, first_operand + i));
    }
  }

  void VisitJump(const ir::Op& op, uint32_t first_operand) {
    for (const ir::Target& target : function_.targets_of(op)) {
      const ir::Op& owner = function_.op(target.op);
      if (target.is_continue) {
        const ir::Region& body = function_.region(owner.body);
        JoinAll(body.first_param, body.param_count, op, first_operand);
      } else {
        JoinAll(owner.first_result, owner.result_count, op, first_operand);
      }
    }
  }

  void Visit(const ir::Op& op) {
    switch (op.code) {
      case Opcode::kBlock:
      case Opcode::kLoop: {
        const ir::Region& body = function_.region(op.body);
        JoinAll(body.first_param, body.param_count, op, 0);
        return;
      }
      case Opcode::kIf:
      case Opcode::kReturn:
      case Opcode::kTrap:
        return;
      case Opcode::kLeave:
      case Opcode::kContinue:
        VisitJump(op, 0);
        return;
      case Opcode::kLeaveTable:
        VisitJump(op, 1);
        return;
      case Opcode::kAdd:
        Join(op.first_result, Sum(At(op, 0), At(op, 1)));
        return;
      case Opcode::kAnd:
        Join(op.first_result, Aligns(op) ? Sum(At(op, 0), At(op, 1)) : Origin::kNone);
        return;
      case Opcode::kOr:  // Adds to an aligned pointer.
        Join(op.first_result, Sum(At(op, 0), At(op, 1)));
        return;
      case Opcode::kSub:
        Join(op.first_result, At(op, 1) == Origin::kNone      ? At(op, 0)
                              : At(op, 1) == Origin::kUnknown ? Origin::kUnknown
                                                              : Origin::kNone);
        return;
      case Opcode::kSelect:
        Join(op.first_result, At(op, 1));
        Join(op.first_result, At(op, 2));
        return;
      case Opcode::kLocalAlloc:
        Join(op.first_result, Origin::kGroup);
        return;
      default:
        for (uint32_t i = 0; i < op.result_count; ++i) {
          Join(ir::ValueId(op.first_result.index + i), Origin::kNone);
        }
    }
  }

  const ir::Function& function_;
  std::vector<Origin> origins_;
  std::unordered_map<uint32_t, uint64_t> constants_;  // By ValueId.
  std::vector<ValueRange> ranges_;                    // By ValueId; empty where nobody asks for them.
  bool changed_ = false;
};

bool IsFlatAccess(const ir::Op& op) {
  bool is_access = op.code == Opcode::kLoad || op.code == Opcode::kStore || op.code == Opcode::kLoad128 ||
                   op.code == Opcode::kStore128 || ir::Info(op.code).family == ir::Family::kAtomic;
  return is_access && op.space == ir::Space::kFlat;
}

// Makes `access` read the offset from parameter k; the subtraction's operation is returned, to stand before it.
ir::OpId Rewrite(ir::Module& module, ir::Function& function, ir::OpId access, uint32_t k) {
  const ir::Region& body = function.region(function.body);
  ir::Op subtract{.code = Opcode::kSub};
  subtract.type = module.address_type();
  subtract.source = function.op(access).source;
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

// A copy or fill whose addresses all lie in buffers, group memory or the stack becomes loads and stores; any other
// operation stays as it is. `bytes_left` falls by what is expanded: a module of many copies must not grow without end.
std::vector<ir::OpId> Expand(ir::Function& function, const ProvenanceAnalysis& analysis, ir::OpId id,
                             uint64_t* bytes_left) {
  const ir::Op& op = function.op(id);
  if (!IsBulk(op)) {
    return {id};
  }
  const std::span<const ir::ValueId> operands = function.operands_of(op);
  const auto is_known = [&](ir::ValueId value) {
    return analysis.ParamOf(value) >= 0 || analysis.IsGroup(value) || analysis.IsStack(value);
  };
  const std::optional<uint64_t> bytes = analysis.ConstantOf(operands[2]);
  if (!bytes || *bytes == 0 || *bytes > std::min(kExpandedBytesMax, *bytes_left) || !is_known(operands[0]) ||
      (op.code == Opcode::kMemoryCopy && !is_known(operands[1]))) {
    return {id};
  }
  *bytes_left -= *bytes;
  return ExpandBulk(function, id, *bytes);
}

// Appends the operations, which follow each other, to `out`, with the spaces of their addresses; offsets that they
// share are computed once.
void Resolve(ir::Module& module, ir::Function& function, const ProvenanceAnalysis& analysis,
             std::span<const ir::OpId> ids, std::vector<ir::OpId>& out) {
  std::unordered_map<uint32_t, ir::ValueId> offsets;  // By address.
  for (const ir::OpId id : ids) {
    ir::Op& op = function.op(id);
    const bool is_access = IsFlatAccess(op);
    const ir::ValueId address = is_access ? function.operands_of(op)[0] : ir::ValueId();
    const int32_t param = is_access ? analysis.ParamOf(address) : -1;
    if (is_access && analysis.IsGroup(address)) {
      op.space = ir::Space::kGroup;
    } else if (const auto found = offsets.find(address.index); param >= 0 && found != offsets.end()) {
      op.space = ir::Space::kParam;
      op.space_index = static_cast<uint32_t>(param);
      function.operands[op.first_operand] = found->second;
    } else if (param >= 0) {
      out.push_back(Rewrite(module, function, id, static_cast<uint32_t>(param)));
      offsets.emplace(address.index, function.op(out.back()).first_result);
    }
    out.push_back(id);
  }
}

// Whether no operation tells where the buffers lie: whatever comes from a buffer's address is an address of the same
// buffer again, the distance or the order of two such, or the place of an access.
class SeparationCheck {
 public:
  SeparationCheck(const ir::Function& function, const ProvenanceAnalysis& analysis)
      : function_(function), analysis_(analysis) {}

  bool Run() {
    bool holds = true;
    ir::ForEachOp(function_, [&](ir::OpId id) { holds = holds && Keeps(function_.op(id)); });
    return holds;
  }

 private:
  int32_t ParamAt(const ir::Op& op, uint32_t operand) const {
    return analysis_.ParamOf(function_.operands_of(op)[operand]);
  }

  bool KeepsAll(ir::ValueId first, uint32_t count, const ir::Op& op, uint32_t first_operand) const {
    for (uint32_t i = 0; i < count; ++i) {
      const int32_t param = ParamAt(op, first_operand + i);
      if (param >= 0 && analysis_.ParamOf(ir::ValueId(first.index + i)) != param) {
        return false;
      }
    }
    return true;
  }

  bool KeepsJump(const ir::Op& op, uint32_t first_operand) const {
    if (first_operand == 1 && ParamAt(op, 0) >= 0) {
      return false;
    }
    for (const ir::Target& target : function_.targets_of(op)) {
      const ir::Op& owner = function_.op(target.op);
      const ir::Region& body = function_.region(owner.body);
      if (!(target.is_continue ? KeepsAll(body.first_param, body.param_count, op, first_operand)
                               : KeepsAll(owner.first_result, owner.result_count, op, first_operand))) {
        return false;
      }
    }
    return true;
  }

  // Every operand that is an address gives a result that is one of the same buffer.
  bool KeepsResult(const ir::Op& op, uint32_t first_operand) const {
    const int32_t result = analysis_.ParamOf(op.first_result);
    for (uint32_t i = 0; i < op.operand_count; ++i) {
      const int32_t param = ParamAt(op, i);
      if (param >= 0 && (i < first_operand || param != result)) {
        return false;
      }
    }
    return true;
  }

  bool Keeps(const ir::Op& op) const {
    switch (op.code) {
      case Opcode::kBlock:
      case Opcode::kLoop: {
        const ir::Region& body = function_.region(op.body);
        return KeepsAll(body.first_param, body.param_count, op, 0);
      }
      case Opcode::kLeave:
      case Opcode::kContinue:
        return KeepsJump(op, 0);
      case Opcode::kLeaveTable:
        return KeepsJump(op, 1);
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
        for (uint32_t i = 0; i < op.operand_count; ++i) {
          if (ParamAt(op, i) >= 0) {
            return false;
          }
        }
        return true;
    }
  }

  const ir::Function& function_;
  const ProvenanceAnalysis& analysis_;
};

void Resolve(ir::Module& module, bool expands_stack) {
  ProvenanceAnalysis analysis(module, expands_stack);
  if (!analysis.Run()) {
    return;
  }
  ir::Function& function = module.function(module.entry);
  uint64_t bytes_left = kExpandedBytesOfKernelMax;
  for (ir::Region& region : function.regions) {
    std::vector<ir::OpId> ops;
    ops.reserve(region.ops.size());
    for (ir::OpId id : region.ops) {
      Resolve(module, function, analysis, Expand(function, analysis, id, &bytes_left), ops);
    }
    region.ops = std::move(ops);
  }
  module.has_separate_buffers = SeparationCheck(function, analysis).Run();
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

}  // namespace hpvm
