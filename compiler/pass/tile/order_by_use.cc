// SPDX-License-Identifier: Apache-2.0
// Method: each maximal run of pure operations of a region is reordered: a depth-first walk places each result that
// the run itself does not use, after the operations it depends on. Pure operations on which no effect depends are
// left out.
// Invariants: waiting_ has an operation of the present run until it is placed, so each is placed once, after its
// operands. Operations with effects, and those that own regions, keep their order and stay between the same runs.
// The walk ends because operands within a run form no cycle.
#include <algorithm>

#include "compiler/ir/op_syntax.h"
#include "compiler/ir/walk.h"
#include "compiler/pass/tile/coarsener.h"

namespace hpvm::pass {
namespace {

class Orderer {
 public:
  explicit Orderer(ir::Function& function) : f_(function), is_used_(f_.values.size()), waiting_(f_.values.size()) {}

  void Run() {
    FindUsed();
    Order(f_.body);
  }

 private:
  static bool Computes(const Op& op) { return ir::Info(op.code).effects == ir::kPure; }

  // Finds values on which an operation with an effect depends.
  void FindUsed() {
    std::vector<OpId> order;
    ir::ForEachOp(f_, [&](OpId id) { order.push_back(id); });
    const auto use = [&](OpId id) {
      for (ValueId operand : f_.operands_of(f_.op(id))) {
        is_used_[operand.index] = true;
      }
    };
    for (OpId id : order) {
      if (!Computes(f_.op(id))) {
        use(id);
      }
    }
    // Pure operations precede their users.
    for (size_t i = order.size(); i-- > 0;) {
      if (Computes(f_.op(order[i])) && is_used_[f_.op(order[i]).first_result.index]) {
        use(order[i]);
      }
    }
  }

  void Order(RegionId id) {
    const std::vector<OpId> before = std::move(f_.region(id).ops);
    std::vector<OpId> after, run;
    for (OpId op_id : before) {
      const Op& op = f_.op(op_id);
      if (Computes(op)) {
        if (is_used_[op.first_result.index]) {
          waiting_[op.first_result.index] = op_id;
          run.push_back(op_id);
        }
        continue;
      }
      Place(run, &after);
      run.clear();
      after.push_back(op_id);
      if (ir::OwnsRegions(op.code)) {
        Order(op.body);
        if (op.code == Opcode::kIf) {
          Order(op.otherwise);
        }
      }
    }
    f_.region(id).ops = std::move(after);
  }

  // Places a run of pure operations: each result that no other operation of the run uses, after its operands.
  void Place(const std::vector<OpId>& run, std::vector<OpId>* after) {
    std::vector<ValueId> inner;
    for (OpId id : run) {
      const std::span<const ValueId> operands = f_.operands_of(f_.op(id));
      inner.insert(inner.end(), operands.begin(), operands.end());
    }
    std::ranges::sort(inner, [](ValueId a, ValueId b) { return a.index < b.index; });
    for (OpId id : run) {
      const ValueId result = f_.op(id).first_result;
      if (!std::binary_search(inner.begin(), inner.end(), result,
                              [](ValueId a, ValueId b) { return a.index < b.index; })) {
        Demand(result, after);
      }
    }
  }

  // Places the operations that the value depends on, and then its definition.
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
        open.pop_back();  // Placed in the meantime.
        continue;
      }
      for (ValueId operand : f_.operands_of(f_.op(top))) {
        want(operand);
      }
      if (open.size() == size) {
        after->push_back(top);
        waiting_[f_.op(top).first_result.index] = OpId();
        open.pop_back();
      }
    }
  }

  ir::Function& f_;
  std::vector<bool> is_used_;  // Indexed by ValueId.
  std::vector<OpId> waiting_;  // Indexed by ValueId: its definition, until that is placed.
};

}  // namespace

void OrderByUse(ir::Function& function) { Orderer(function).Run(); }

}  // namespace hpvm::pass
