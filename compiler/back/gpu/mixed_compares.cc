// SPDX-License-Identifier: Apache-2.0
#include "compiler/back/gpu/mixed_compares.h"

#include "compiler/analysis/definitions.h"
#include "compiler/ir/walk.h"

namespace hpvm::gpu {
namespace {

using ir::Op;
using ir::Opcode;
using ir::ValueId;

constexpr uint32_t kNone = ~uint32_t{0};

bool IsSigned(Opcode code) {
  return code == Opcode::kLtS || code == Opcode::kLeS || code == Opcode::kGtS || code == Opcode::kGeS;
}
bool IsUnsigned(Opcode code) {
  return code == Opcode::kLtU || code == Opcode::kLeU || code == Opcode::kGtU || code == Opcode::kGeU;
}

class Finder {
 public:
  explicit Finder(const ir::Function& f) : f_(f), is_counter_(f.values.size()), is_signed_(f.values.size()) {}

  std::vector<uint8_t> Run() {
    std::vector<uint8_t> hidden(f_.values.size());
    ir::ForEachOp(f_, [&](ir::OpId id) {
      const Op& op = f_.op(id);
      if (op.code == Opcode::kLoop) {
        const ir::Region& body = f_.region(op.body);
        for (uint32_t i = 0; i < body.param_count; ++i) {
          is_counter_[body.first_param.index + i] = true;
        }
      }
    });
    ir::ForEachOp(f_, [&](ir::OpId id) {
      if (IsSigned(f_.op(id).code)) {
        for (const ValueId operand : f_.operands_of(f_.op(id))) {
          if (const uint32_t counter = CounterOf(operand); counter != kNone) {
            is_signed_[counter] = true;
          }
        }
      }
    });
    ir::ForEachOp(f_, [&](ir::OpId id) {
      const Op& op = f_.op(id);
      if (!IsUnsigned(op.code)) {
        return;
      }
      const auto operands = f_.operands_of(op);
      for (uint8_t i = 0; i < 2; ++i) {
        const uint32_t counter = CounterOf(operands[i]);
        if (counter != kNone && is_signed_[counter]) {
          hidden[op.first_result.index] = static_cast<uint8_t>(1 + i);
        }
      }
    });
    return hidden;
  }

 private:
  // The loop's parameter that the value is, or differs from by a constant.
  uint32_t CounterOf(ValueId value) const {
    for (;;) {
      if (is_counter_[value.index]) {
        return value.index;
      }
      const Op* op = definitions_.OpOf(value, Opcode::kAdd);
      op = op != nullptr ? op : definitions_.OpOf(value, Opcode::kSub);
      if (op == nullptr) {
        return kNone;
      }
      const auto operands = f_.operands_of(*op);
      const bool is_second = op->code == Opcode::kAdd && definitions_.OpOf(operands[0], Opcode::kConst) != nullptr;
      if (!is_second && definitions_.OpOf(operands[1], Opcode::kConst) == nullptr) {
        return kNone;
      }
      value = operands[is_second ? 1 : 0];
    }
  }

  const ir::Function& f_;
  const analysis::Definitions definitions_{f_};
  std::vector<bool> is_counter_, is_signed_;  // By ValueId.
};

}  // namespace

std::vector<uint8_t> FindMixedCompares(const ir::Function& function) { return Finder(function).Run(); }

}  // namespace hpvm::gpu
