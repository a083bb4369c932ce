// SPDX-License-Identifier: Apache-2.0
// LinearForm expresses an integer as a constant plus a sum of other values with constant factors; two integers with
// the same terms differ by a constant.
#ifndef HPVMD_COMPILER_ANALYSIS_LINEAR_FORM_H_
#define HPVMD_COMPILER_ANALYSIS_LINEAR_FORM_H_

#include <cstdint>
#include <utility>
#include <vector>

#include "compiler/analysis/definitions.h"
#include "compiler/analysis/words.h"

namespace hpvm::analysis {

// Arithmetic is modulo 2^64, for an i32 modulo 2^32.
struct LinearForm {
  std::vector<std::pair<uint32_t, uint64_t>> terms;  // ValueId and nonzero factor, sorted by ValueId.
  uint64_t constant = 0;
};

class LinearForms {
 public:
  // Borrows the function, whose operations must not change.
  explicit LinearForms(const ir::Function& function) : f_(function) {}
  // Expands sums, differences, and products and shifts by constants, up to a fixed depth.
  LinearForm Of(ir::ValueId value) const;

 private:
  void Add(ir::ValueId value, uint64_t factor, int depth, LinearForm& form) const;

  const ir::Function& f_;
  const Definitions definitions_{f_};
};

}  // namespace hpvm::analysis

#endif  // HPVMD_COMPILER_ANALYSIS_LINEAR_FORM_H_
