// SPDX-License-Identifier: Apache-2.0
#include "compiler/pass/call_order.h"

#include <algorithm>

#include "compiler/ir/walk.h"

namespace hpvm::pass {

CallOrder::CallOrder(const ir::Module& module) : callees_(module.functions.size()), state_(module.functions.size()) {
  for (size_t i = 0; i < module.functions.size(); ++i) {
    const ir::Function& function = module.functions[i];
    ir::ForEachOp(function, [&](ir::OpId id) {
      if (function.op(id).code == ir::Opcode::kCall) {
        callees_[i].push_back(static_cast<uint32_t>(function.op(id).imm));
      }
    });
  }
  for (uint32_t i = 0; i < callees_.size(); ++i) {
    if (state_[i].number == 0) {
      VisitFrom(i);
    }
  }
}

void CallOrder::VisitFrom(uint32_t root) {
  std::vector<uint32_t> path{root};
  Enter(root);
  while (!path.empty()) {
    const uint32_t at = path.back();
    if (state_[at].next < callees_[at].size()) {
      const uint32_t callee = callees_[at][state_[at].next++];
      state_[at].is_recursive |= callee == at;
      if (state_[callee].number == 0) {
        Enter(callee);
        path.push_back(callee);
      } else if (state_[callee].is_open) {
        state_[at].low = std::min(state_[at].low, state_[callee].number);
      }
      continue;
    }
    path.pop_back();
    if (!path.empty()) {
      state_[path.back()].low = std::min(state_[path.back()].low, state_[at].low);
    }
    if (state_[at].low == state_[at].number) {
      CloseComponent(at);
    }
  }
}

void CallOrder::Enter(uint32_t function) {
  state_[function].number = state_[function].low = ++count_;
  state_[function].is_open = true;
  open_.push_back(function);
}

void CallOrder::CloseComponent(uint32_t first) {
  const bool is_cycle = open_.back() != first;
  uint32_t member = 0;
  do {
    member = open_.back();
    open_.pop_back();
    state_[member].is_open = false;
    state_[member].is_recursive |= is_cycle;
    order_.push_back(member);
  } while (member != first);
}

}  // namespace hpvm::pass
