// SPDX-License-Identifier: Apache-2.0
// Evaluator computes one instance of a kernel to see where its accesses lie.
//
// It shares no code with what it checks (compiler/ir/bounds.h, compiler/pass/find_bounds.h) nor with the interpreter:
// it uses only the data structures of the kernel IR. Memory has no contents: the oracle chooses the value of every
// load, because data and other instances may produce any value; the same holds for floats, calls and globals. For
// buffers that nobody writes, a range of the words at multiples of 4 may be given. Integers and control flow are
// exact.
#ifndef HPVMD_TESTS_BOUNDS_EVALUATE_H_
#define HPVMD_TESTS_BOUNDS_EVALUATE_H_

#include <array>
#include <cstdint>
#include <functional>
#include <vector>

#include "compiler/ir/ir.h"

namespace hpvm::bounds {

// The launch; buffers have a size, and optionally a range of words.
struct Words {
  bool is_known = false;
  int32_t lo = 0, hi = 0;
};
struct Situation {
  std::array<uint64_t, 3> extent{1, 1, 1}, group{1, 1, 1};
  std::vector<uint64_t> params;  // One per kernel parameter: a buffer's bytes, a scalar's bits.
  std::vector<Words> words{};    // One per kernel parameter, or none.
};

// An access to a parameter's buffer or to group memory.
struct Reached {
  ir::OpId op;
  uint64_t offset = 0;  // From the beginning of the buffer or of group memory, without the immediate offset; wrapped.
  uint64_t bytes = 0;   // Size of the buffer, or of the group memory allocated so far.
  bool is_inside = false;
};

enum class Ending : uint8_t { kEnded, kTrapped, kTooLong };

class Evaluator {
 public:
  using Oracle = std::function<uint64_t()>;
  using Visitor = std::function<void(const Reached&)>;

  // Borrows the module, which must have been verified.
  explicit Evaluator(const ir::Module& module) : module_(module), f_(module.function(module.entry)) {}

  // Runs one instance for at most `steps_max` operations. An access outside of its buffer ends it, after the visitor
  // was called.
  Ending Run(const Situation& situation, const std::array<uint64_t, 3>& instance, uint64_t steps_max,
             const Oracle& oracle, const Visitor& visitor);

 private:
  // The way a region was left: a jump to `target`, or the end of the instance.
  struct Exit {
    enum class Kind : uint8_t { kBr, kContinue, kReturn, kTrap, kTooLong } kind;
    ir::OpId target{};
    std::vector<uint64_t> values{};
  };
  Exit RunRegion(ir::RegionId region);
  Exit RunNested(ir::OpId id, const ir::Op& op);
  Exit Jump(const ir::Op& op);
  // Returns false when it trapped.
  bool RunPlain(ir::OpId id, const ir::Op& op);
  bool Integer(const ir::Op& op);
  bool Divide(const ir::Op& op, uint64_t a, uint64_t b);
  bool Access(ir::OpId id, const ir::Op& op);
  bool LocalAlloc(const ir::Op& op);
  void Query(const ir::Op& op);
  void SetAny(const ir::Op& op);
  void SetWord(const ir::Op& op, const Words& words);

  uint64_t Operand(const ir::Op& op, uint32_t index) const { return values_[f_.operands_of(op)[index].index]; }
  void Set(ir::ValueId id, uint64_t value) {
    values_[id.index] = f_.type_of(id) == ir::Type::kI32 ? static_cast<uint32_t>(value) : value;
  }
  void SetResult(const ir::Op& op, uint64_t value) { Set(op.first_result, value); }

  const ir::Module& module_;
  const ir::Function& f_;
  const Situation* situation_ = nullptr;
  const Oracle* oracle_ = nullptr;
  const Visitor* visitor_ = nullptr;
  std::array<uint64_t, 3> instance_{};
  std::vector<uint64_t> values_;
  uint64_t steps_left_ = 0, group_base_ = 0, group_used_ = 0;
};

}  // namespace hpvm::bounds

#endif  // HPVMD_TESTS_BOUNDS_EVALUATE_H_
