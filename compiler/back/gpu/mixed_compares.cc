// SPDX-License-Identifier: Apache-2.0
#include "compiler/back/gpu/mixed_compares.h"

#include "compiler/analysis/definitions.h"
#include "compiler/ir/walk.h"

namespace hpvm::gpu {
namespace {

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
          if (const Counter counter = CounterOf(operand); counter.index != kNone) {
            is_signed_[counter.index] = true;
          }
        }
      }
    });
    ir::ForEachOp(f_, [&](ir::OpId id) {
      const Op& op = f_.op(id);
      if (!IsUnsigned(op.code) && !IsSigned(op.code)) {
        return;
      }
      const auto operands = f_.operands_of(op);
      for (uint8_t i = 0; i < 2; ++i) {
        const Counter counter = CounterOf(operands[i]);
        const bool is_mixed = counter.index != kNone && IsUnsigned(op.code) && is_signed_[counter.index];
        if (is_mixed || counter.is_turned) {
          hidden[op.first_result.index] = static_cast<uint8_t>(1 + i);
        }
      }
    });
    return hidden;
  }

 private:
  struct Counter {
    uint32_t index = kNone;  // The loop parameter.
    bool is_turned = false;  // An exclusive or can turn an unsigned compare into a signed one.
  };
  // Finds the loop parameter from which the value differs only by constant sums and operations that the compiler sees
  // through.
  Counter CounterOf(ValueId value) const {
    Counter counter;
    while (!is_counter_[value.index]) {
      const uint32_t by = definitions_.Of(value).index;
      const Op* op = by < f_.ops.size() ? &f_.ops[by] : nullptr;
      if (op == nullptr || ir::Info(op->code).family != ir::Family::kIntBinary) {
        return {};
      }
      const auto operands = f_.operands_of(*op);
      const Op* first = definitions_.OpOf(operands[0], Opcode::kConst);
      const Op* second = definitions_.OpOf(operands[1], Opcode::kConst);
      const Op* constant = first != nullptr ? first : second;
      if (constant == nullptr || !IsSeenThrough(*op, constant->imm)) {
        return {};
      }
      counter.is_turned = counter.is_turned || op->code == Opcode::kXor;
      value = operands[first != nullptr ? 1 : 0];
    }
    counter.index = value.index;
    return counter;
  }
  static bool IsSeenThrough(const Op& op, uint64_t constant) {
    switch (op.code) {
      case Opcode::kAdd:
      case Opcode::kSub:
      case Opcode::kXor:
        return true;
      case Opcode::kMul:
        return constant == 1;
      case Opcode::kAnd:
        return constant == (op.type == ir::Type::kI32 ? 0xffffffffu : ~uint64_t{0});
      default:
        return constant == 0;  // Shifts, or.
    }
  }

  const ir::Function& f_;
  const analysis::Definitions definitions_{f_};
  std::vector<bool> is_counter_, is_signed_;  // Indexed by ValueId.
};

}  // namespace

std::vector<uint8_t> FindMixedCompares(const ir::Function& function) { return Finder(function).Run(); }

}  // namespace hpvm::gpu
