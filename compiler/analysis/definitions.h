// SPDX-License-Identifier: Apache-2.0
// Finds the operation that defines a value.
#ifndef HPVMD_COMPILER_ANALYSIS_DEFINITIONS_H_
#define HPVMD_COMPILER_ANALYSIS_DEFINITIONS_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "compiler/analysis/words.h"

namespace hpvm::analysis {

// Borrows the function, whose operations may be changed in place but not be added to. Plain data after construction.
class Definitions {
 public:
  explicit Definitions(const ir::Function& function);

  // Invalid for parameters of functions and regions, and for what nothing reaches.
  ir::OpId Of(ir::ValueId value) const { return definitions_[value.index]; }
  // The same operation, or null.
  const ir::Op* OpOf(ir::ValueId value) const { return Of(value).valid() ? &function_.op(Of(value)) : nullptr; }
  // The operation if it has that code, or null.
  const ir::Op* OpOf(ir::ValueId value, ir::Opcode code) const {
    const ir::Op* op = OpOf(value);
    return op != nullptr && op->code == code ? op : nullptr;
  }
  // The bits of a constant, or nothing.
  std::optional<uint64_t> ConstantOf(ir::ValueId value) const {
    const ir::Op* op = OpOf(value, ir::Opcode::kConst);
    return op != nullptr ? std::optional(op->imm) : std::nullopt;
  }

 private:
  const ir::Function& function_;
  std::vector<ir::OpId> definitions_;  // By ValueId.
};

// By ValueId: the values that control brings to a parameter of a block or loop, or to a result of a block, loop or if.
std::vector<std::vector<ir::ValueId>> FindSources(const ir::Function& function);

// The square root in 1 / sqrt(x), of f32: devices have one operation for both. Null if `divide` is no such quotient.
const ir::Op* ReciprocalRootIn(const Definitions& definitions, const ir::Function& function, const ir::Op& divide);

}  // namespace hpvm::analysis

#endif  // HPVMD_COMPILER_ANALYSIS_DEFINITIONS_H_
