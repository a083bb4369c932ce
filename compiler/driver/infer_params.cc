// SPDX-License-Identifier: Apache-2.0
// A backward data-flow analysis. The address operands of memory operations are marked as read or written through.
// Marks propagate from results to the operands of additions, bitwise operations, selects and merges, and to the first
// operand of subtractions, in sweeps over the operations in reverse order until nothing changes.
#include "compiler/driver/infer_params.h"

#include <algorithm>
#include <string>
#include <utility>

#include "compiler/ir/walk.h"
#include "compiler/pass/inline_calls.h"
#include "compiler/pass/memory/stack_values.h"
#include "compiler/pass/remove_dead.h"

namespace hpvm::compile {
namespace {

using ir::Opcode;
using ir::ValueId;

constexpr uint8_t kReadThrough = 1, kWrittenThrough = 2;
constexpr uint32_t kWebTrailing = 6;  // idx_x, idx_y, idx_z, dim_x, dim_y, dim_z.
// Limit on the nested loops through which addresses are followed; beyond it the guess stays as it is.
constexpr int kSweepsMax = 32;

// AddressUses follows addresses back to their origin.
class AddressUses {
 public:
  explicit AddressUses(const ir::Function& function) : f_(function), marks_(function.values.size()) {
    ir::ForEachOp(f_, [&](ir::OpId id) { order_.push_back(id); });
    for (int sweep = 0; sweep < kSweepsMax; ++sweep) {
      changed_ = false;
      for (size_t i = order_.size(); i-- > 0;) {
        Visit(f_.op(order_[i]));
      }
      if (!changed_) {
        return;
      }
    }
  }

  uint8_t MarksOf(ValueId value) const { return marks_[value.index]; }

  // Returns true if the value itself is multiplied, shifted, converted or ordered, which no address is.
  bool IsNumber(ValueId value) const {
    return std::ranges::any_of(order_, [&](ir::OpId id) {
      const ir::Op& op = f_.op(id);
      const std::span<const ValueId> operands = f_.operands_of(op);
      return IsNumeric(op) && std::ranges::find(operands, value) != operands.end();
    });
  }

 private:
  static bool IsNumeric(const ir::Op& op) {
    switch (op.code) {
      case Opcode::kAdd:
      case Opcode::kSub:
      case Opcode::kAnd:
      case Opcode::kOr:
      case Opcode::kEqz:
      case Opcode::kEq:
      case Opcode::kNe:
        return false;
      default:
        break;
    }
    switch (ir::Info(op.code).family) {
      case ir::Family::kIntUnary:
      case ir::Family::kIntBinary:
      case ir::Family::kIntCompare:
      case ir::Family::kConvert:
        return true;
      default:
        return false;
    }
  }

  void Mark(ValueId value, uint8_t marks) {
    uint8_t& known = marks_[value.index];
    changed_ = changed_ || (known | marks) != known;
    known |= marks;
  }

  void VisitAccess(const ir::Op& op) {
    const std::span<const ValueId> operands = f_.operands_of(op);
    if (operands.empty() || ir::IsState(op.space)) {
      return;
    }
    const uint8_t effects = ir::Info(op.code).effects;
    if (op.code == Opcode::kMemoryCopy) {
      Mark(operands[0], kWrittenThrough);
      Mark(operands[1], kReadThrough);
    } else if (op.code != Opcode::kMemoryGrow) {
      Mark(operands[0], static_cast<uint8_t>(((effects & ir::kReads) != 0 ? kReadThrough : 0) |
                                             ((effects & ir::kWrites) != 0 ? kWrittenThrough : 0)));
    }
  }

  void Visit(const ir::Op& op) {
    const std::span<const ValueId> operands = f_.operands_of(op);
    ir::ForEachBrought(f_, op, [&](ValueId slot, ValueId value) { Mark(value, MarksOf(slot)); });
    switch (op.code) {
      case Opcode::kAdd:
      case Opcode::kAnd:
      case Opcode::kOr:
        Mark(operands[0], MarksOf(op.first_result));
        Mark(operands[1], MarksOf(op.first_result));
        return;
      case Opcode::kSub:
        Mark(operands[0], MarksOf(op.first_result));
        return;
      case Opcode::kSelect:
        Mark(operands[1], MarksOf(op.first_result));
        Mark(operands[2], MarksOf(op.first_result));
        return;
      default:
        break;
    }
    const ir::Family family = ir::Info(op.code).family;
    if (family == ir::Family::kMemory || family == ir::Family::kAtomic) {
      VisitAccess(op);
    }
  }

  const ir::Function& f_;
  std::vector<ir::OpId> order_;
  std::vector<uint8_t> marks_;  // Indexed by ValueId.
  bool changed_ = false;
};

}  // namespace

StatusOr<std::vector<ParamSpec>> InferParams(ir::Module module, Abi abi) {
  HPVMD_RETURN_IF_ERROR(pass::InlineCalls(module));
  HPVMD_RETURN_IF_ERROR(pass::RemoveDead(module));
  // Without optimisation the parameters themselves are on the stack; assumes that nothing else reaches that memory.
  if (ir::Module values = module; !pass::AssumeStackValues(values).empty()) {
    HPVMD_RETURN_IF_ERROR(pass::RemoveDead(values));
    module = std::move(values);
  }
  const ir::Function& entry = module.function(module.entry);
  const AddressUses uses(entry);
  const ir::Region& body = entry.region(entry.body);
  const uint32_t trailing = abi == Abi::kHpvmWeb ? kWebTrailing : 0;
  if (body.param_count < trailing) {
    return InvalidArgument("The entry takes " + std::to_string(body.param_count) +
                           " parameters; the HPVM-web convention ends with " + std::to_string(kWebTrailing) + ".");
  }
  std::vector<ParamSpec> params;
  const uint32_t count = body.param_count - trailing;
  for (uint32_t i = 0; i < count; ++i) {
    const ValueId value(body.first_param.index + i);
    const ir::Type type = entry.type_of(value);
    const uint8_t marks = uses.MarksOf(value);
    ParamSpec& param = params.emplace_back();
    param.name = "p" + std::to_string(params.size() - 1);
    param.is_buffer = type == module.address_type() && marks != 0 && !uses.IsNumber(value);
    param.is_writable = param.is_buffer && (marks & kWrittenThrough) != 0;
    param.is_read = (marks & kReadThrough) != 0;
    param.scalar = type;
    if (param.is_buffer && abi == Abi::kHpvmWeb && i + 1 < count) {
      ++i;  // The buffer's size.
    }
  }
  return params;
}

}  // namespace hpvm::compile
