// SPDX-License-Identifier: Apache-2.0
// Definitions maps each value to the operation that defines it.
#ifndef HPVMD_COMPILER_ANALYSIS_DEFINITIONS_H_
#define HPVMD_COMPILER_ANALYSIS_DEFINITIONS_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "compiler/analysis/words.h"

namespace hpvm::analysis {

// Borrows the function, whose operations may be changed in place but not be added to. Immutable after construction.
class Definitions {
 public:
  explicit Definitions(const ir::Function& function);

  // Returns an invalid id for parameters of functions and regions, and for values of unreachable operations.
  ir::OpId Of(ir::ValueId value) const { return definitions_[value.index]; }
  // Returns the defining operation, or null.
  const ir::Op* OpOf(ir::ValueId value) const { return Of(value).valid() ? &function_.op(Of(value)) : nullptr; }
  // Returns the defining operation if it has this opcode, or null.
  const ir::Op* OpOf(ir::ValueId value, ir::Opcode code) const {
    const ir::Op* op = OpOf(value);
    return op != nullptr && op->code == code ? op : nullptr;
  }
  // Returns the bits of a constant, or nothing if the value is not a constant.
  std::optional<uint64_t> ConstantOf(ir::ValueId value) const {
    const ir::Op* op = OpOf(value, ir::Opcode::kConst);
    return op != nullptr ? std::optional(op->imm) : std::nullopt;
  }

 private:
  const ir::Function& function_;
  std::vector<ir::OpId> definitions_;  // Indexed by ValueId.
};

// Returns, by ValueId, the values that control flow passes to a parameter of a block or loop, or to a result of a
// block, loop or if.
std::vector<std::vector<ir::ValueId>> FindSources(const ir::Function& function);

// Returns the square root in 1 / sqrt(x) of f32s, for which devices have one operation; null if `divide` has another
// form.
const ir::Op* ReciprocalRootIn(const Definitions& definitions, const ir::Function& function, const ir::Op& divide);

}  // namespace hpvm::analysis

#endif  // HPVMD_COMPILER_ANALYSIS_DEFINITIONS_H_
