// SPDX-License-Identifier: Apache-2.0
// Integer operations whose results grow by a constant from one instance to the next, except at the edges of an extent:
// clamped, mirrored and periodic indices, and coordinates extracted from a linear index.
#ifndef HPVMD_COMPILER_ANALYSIS_EDGE_FORMS_H_
#define HPVMD_COMPILER_ANALYSIS_EDGE_FORMS_H_

#include <cstdint>

#include "compiler/analysis/definitions.h"
#include "compiler/analysis/words.h"

namespace hpvm::analysis {

struct EdgeForm {
  enum class Kind : uint8_t {
    kNone,
    kChoice,     // A select.
    kRemainder,  // Operand 0 modulo operand 1, or modulo 2^n where the operation is an `and` with 2^n - 1.
    kQuotient,   // Operand 0 divided by operand 1, or by 2^n where the operation is a shift to the right by n.
  };
  Kind kind = Kind::kNone;
  // For kRemainder and kQuotient: the divisor if it is constant; 0 if it is operand 1, known at run time only.
  uint64_t divisor = 0;
  // True if the operation rounds down regardless of signs: an `and` or a shift.
  bool is_of_bits = false;
};

EdgeForm FindEdgeForm(const ir::Function& function, const Definitions& definitions, const ir::Op& op);

// Returns the operand of a select, 1 or 2, that instances away from the edges most likely choose. The two operands
// grow by these steps from one instance to the next; the steps are bits of the select's type.
uint32_t UsualOperand(const ir::Function& function, const Definitions& definitions, const ir::Op& select,
                      uint64_t first_step, uint64_t second_step);

}  // namespace hpvm::analysis

#endif  // HPVMD_COMPILER_ANALYSIS_EDGE_FORMS_H_
