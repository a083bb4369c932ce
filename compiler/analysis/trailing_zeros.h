// SPDX-License-Identifier: Apache-2.0
// How many low bits of each value are zero: the alignment of addresses, and where `or` is addition.
//
// Data flow over the structured IR, from "all bits" downwards, as in a known-bits analysis that keeps only the low end.
#ifndef HPVMD_COMPILER_ANALYSIS_TRAILING_ZEROS_H_
#define HPVMD_COMPILER_ANALYSIS_TRAILING_ZEROS_H_

#include <cstdint>
#include <span>
#include <vector>

#include "compiler/analysis/value_ranges.h"
#include "compiler/analysis/words.h"

namespace hpvm::analysis {

struct KnownZeros {
  std::span<const uint8_t> params;                  // The parameters' zeros; empty: nothing is known.
  uint8_t id_x = 0;                                 // The zeros of the instance's id along x.
  const std::vector<ValueRange>* ranges = nullptr;  // May be null. By ValueId; tells constants.
};

// The result, by ValueId, is a number of low bits that are zero in every instance; 64 or fewer, 0 for floats. Requires
// a verified function.
std::vector<uint8_t> FindTrailingZeros(const ir::Function& function, const KnownZeros& known);

// Ranges and zeros of the values of a module's entry, found when first asked for. Borrows the module, which must stay
// as it is.
class EntryNumbers {
 public:
  EntryNumbers(const ir::Module& module, uint64_t id_max) : module_(module), id_max_(id_max) {}

  const ValueRange& RangeOf(ir::ValueId value);
  uint8_t ZerosOf(ir::ValueId value);
  // True if the access's place, its immediate included, is a multiple of 2^log2.
  bool IsAligned(const ir::Op& access, uint8_t log2);

 private:
  const ir::Module& module_;
  const uint64_t id_max_;
  std::vector<ValueRange> ranges_;  // By ValueId.
  std::vector<uint8_t> zeros_;      // By ValueId.
};

// The zeros of the entry's parameters: buffers begin at multiples of 64 KiB (ir::AssignAddresses). `scalars` has those
// of the other parameters, and may be empty.
std::vector<uint8_t> ZerosOfParams(const ir::Module& module, std::span<const uint8_t> scalars = {});

}  // namespace hpvm::analysis

#endif  // HPVMD_COMPILER_ANALYSIS_TRAILING_ZEROS_H_
