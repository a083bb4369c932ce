// SPDX-License-Identifier: Apache-2.0
// How many low bits of each value are zero: the alignment of addresses, and where `or` is addition.
//
// Data flow over the structured IR, from "all bits" downwards, as in a known-bits analysis that keeps only the low end.
#ifndef HPVMD_COMPILER_PASS_TRAILING_ZEROS_H_
#define HPVMD_COMPILER_PASS_TRAILING_ZEROS_H_

#include <cstdint>
#include <span>
#include <vector>

#include "compiler/ir/ir.h"

namespace hpvm {

// By ValueId: a number of low bits that are zero in every instance. `params` has those of the function's parameters,
// and may be empty: nothing is known. `id_x`: of the instance's id along x. Requires a verified function.
std::vector<uint8_t> FindTrailingZeros(const ir::Function& function, std::span<const uint8_t> params, uint8_t id_x = 0);

}  // namespace hpvm

#endif  // HPVMD_COMPILER_PASS_TRAILING_ZEROS_H_
