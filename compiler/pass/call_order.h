// SPDX-License-Identifier: Apache-2.0
// CallOrder lists a module's functions, callees before callers.
#ifndef HPVMD_COMPILER_PASS_CALL_ORDER_H_
#define HPVMD_COMPILER_PASS_CALL_ORDER_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "compiler/pass/rewrite/words.h"

namespace hpvm::pass {

// Considers direct calls only. Tarjan's algorithm for strongly connected components (SIAM J. Comput. 1, 1972) without
// recursion.
class CallOrder {
 public:
  explicit CallOrder(const ir::Module& module);

  const std::vector<uint32_t>& order() const { return order_; }
  // Returns true if the function lies on a cycle of calls.
  bool IsRecursive(uint32_t function) const { return state_[function].is_recursive; }
  const std::vector<uint32_t>& CalleesOf(uint32_t function) const { return callees_[function]; }

 private:
  struct State {
    uint32_t number = 0, low = 0;
    size_t next = 0;  // Index in callees_.
    bool is_open = false, is_recursive = false;
  };
  void VisitFrom(uint32_t root);
  void Enter(uint32_t function);
  void CloseComponent(uint32_t first);

  std::vector<std::vector<uint32_t>> callees_;
  std::vector<State> state_;
  std::vector<uint32_t> open_, order_;
  uint32_t count_ = 0;
};

}  // namespace hpvm::pass

#endif  // HPVMD_COMPILER_PASS_CALL_ORDER_H_
