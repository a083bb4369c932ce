// SPDX-License-Identifier: Apache-2.0
#include "compiler/analysis/index_loads.h"

#include "compiler/analysis/definitions.h"
#include "compiler/ir/op_syntax.h"
#include "compiler/ir/walk.h"

namespace hpvm::analysis {
namespace {

using ir::Family;

class Search {
 public:
  Search(const ir::Function& function, bool is_entry)
      : f_(function), is_entry_(is_entry), definitions_(f_), sources_(FindSources(f_)) {}

  std::vector<bool> Run() && {
    reached_.resize(f_.values.size());
    ir::ForEachOp(f_, [&](OpId id) { NeedAddresses(f_.op(id)); });
    Follow();
    // No bound rests on a comparison of floats. Values that reach addresses have been followed completely by now.
    stops_at_floats_ = true;
    ir::ForEachOp(f_, [&](OpId id) {
      if (f_.op(id).code == Opcode::kIf) {
        Need(f_.operands_of(f_.op(id))[0]);
      }
    });
    Follow();
    std::vector<bool> loads(f_.values.size());
    ir::ForEachOp(f_, [&](OpId id) {
      const Op& op = f_.op(id);
      const bool is_load = op.code == Opcode::kLoad || op.code == Opcode::kLoad128;
      for (uint32_t i = 0; is_load && i < op.result_count; ++i) {
        loads[op.first_result.index + i] = reached_[op.first_result.index + i];
      }
    });
    return loads;
  }

 private:
  void NeedAddresses(const Op& op) {
    switch (op.code) {
      case Opcode::kLoad:
      case Opcode::kStore:
      case Opcode::kLoad128:
      case Opcode::kStore128:
      case Opcode::kBrTable:
        return Need(f_.operands_of(op)[0]);
      case Opcode::kReturn:
        return is_entry_ ? void() : NeedAll(op);
      case Opcode::kPrint:
        return;
      case Opcode::kDivS:
      case Opcode::kDivU:
      case Opcode::kRemS:
      case Opcode::kRemU:
        return IsPlainDivisor(f_.operands_of(op)[1]) ? void() : NeedAll(op);
      default:
        break;
    }
    const Family family = ir::Info(op.code).family;
    if (family == Family::kAtomic) {
      Need(f_.operands_of(op)[0]);
    } else if ((family != Family::kControl && (ir::Info(op.code).effects & ~ir::kReads) != 0) ||
               family == Family::kQuery) {
      NeedAll(op);
    }
  }
  // Returns true for a constant divisor for which no division traps.
  bool IsPlainDivisor(ValueId value) const {
    const Op* op = definitions_.OpOf(value, Opcode::kConst);
    const auto number = op == nullptr                ? 0
                        : op->type == ir::Type::kI32 ? static_cast<int32_t>(op->imm)
                                                     : static_cast<int64_t>(op->imm);
    return number != 0 && number != -1;
  }
  void NeedAll(const Op& op) {
    for (const ValueId operand : f_.operands_of(op)) {
      Need(operand);
    }
  }
  void Need(ValueId value) {
    if (!reached_[value.index]) {
      reached_[value.index] = true;
      work_.push_back(value);
    }
  }
  void Follow() {
    while (!work_.empty()) {
      const ValueId value = work_.back();
      work_.pop_back();
      for (const ValueId source : sources_[value.index]) {
        Need(source);
      }
      const Op* op = definitions_.OpOf(value);
      if (op != nullptr && !ir::OwnsRegions(op->code) && (ir::Info(op->code).effects & ir::kReads) == 0 &&
          !(stops_at_floats_ && ir::Info(op->code).family == Family::kFloatCompare)) {
        NeedAll(*op);
      }
    }
  }

  const ir::Function& f_;
  const bool is_entry_;
  const Definitions definitions_;
  const std::vector<std::vector<ValueId>> sources_;
  std::vector<bool> reached_;  // Indexed by ValueId.
  std::vector<ValueId> work_;
  bool stops_at_floats_ = false;
};

}  // namespace

std::vector<bool> FindIndexLoads(const ir::Module& module, ir::FunctionId function) {
  return Search(module.function(function), function == module.entry).Run();
}

}  // namespace hpvm::analysis
