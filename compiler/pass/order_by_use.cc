// SPDX-License-Identifier: Apache-2.0
#include "compiler/ir/walk.h"
#include "compiler/pass/coarsener.h"

namespace hpvm {
namespace {

using ir::Op;
using ir::Opcode;
using ir::OpId;
using ir::RegionId;
using ir::ValueId;

bool IsConstruct(Opcode code) { return code == Opcode::kBlock || code == Opcode::kLoop || code == Opcode::kIf; }

class Orderer {
 public:
  explicit Orderer(ir::Function& function) : f_(function), waiting_(f_.values.size()) {}

  void Order(RegionId id) {
    const std::vector<OpId> before = std::move(f_.region(id).ops);
    std::vector<OpId> after;
    for (OpId op_id : before) {
      const Op& op = f_.op(op_id);
      if (ir::Info(op.code).effects == ir::kPure) {
        for (uint32_t i = 0; i < op.result_count; ++i) {
          waiting_[op.first_result.index + i] = op_id;
        }
        continue;
      }
      DemandAll(op_id, &after);
      after.push_back(op_id);
      if (IsConstruct(op.code)) {  // Nothing that it uses waits out here.
        Order(op.body);
        if (op.code == Opcode::kIf) {
          Order(op.otherwise);
        }
      }
    }
    f_.region(id).ops = std::move(after);
  }

 private:
  // Whatever the operation uses, and those in its regions.
  void DemandAll(OpId id, std::vector<OpId>* after) {
    std::vector<OpId> open = {id};
    while (!open.empty()) {
      const Op& op = f_.op(open.back());
      open.pop_back();
      for (ValueId operand : f_.operands_of(op)) {
        Demand(operand, after);
      }
      for (size_t i = 0; IsConstruct(op.code) && i < (op.code == Opcode::kIf ? 2u : 1u); ++i) {
        const std::vector<OpId>& inner = f_.region(i == 0 ? op.body : op.otherwise).ops;
        open.insert(open.end(), inner.rbegin(), inner.rend());
      }
    }
  }

  // Places what the value needs, and then what defines it.
  void Demand(ValueId id, std::vector<OpId>* after) {
    std::vector<OpId> open;
    const auto want = [&](ValueId value) {
      if (waiting_[value.index].valid()) {
        open.push_back(waiting_[value.index]);
      }
    };
    want(id);
    while (!open.empty()) {
      const OpId top = open.back();
      const size_t size = open.size();
      if (!waiting_[f_.op(top).first_result.index].valid()) {
        open.pop_back();  // Placed meanwhile.
        continue;
      }
      for (ValueId operand : f_.operands_of(f_.op(top))) {
        want(operand);
      }
      if (open.size() == size) {
        after->push_back(top);
        for (uint32_t i = 0; i < f_.op(top).result_count; ++i) {
          waiting_[f_.op(top).first_result.index + i] = OpId();
        }
        open.pop_back();
      }
    }
  }

  ir::Function& f_;
  std::vector<OpId> waiting_;  // By ValueId: what defines it, while that is not placed.
};

}  // namespace

void OrderByUse(ir::Function& function) { Orderer(function).Order(function.body); }

}  // namespace hpvm
