// SPDX-License-Identifier: Apache-2.0
// Finds the number of low zero bits of each value: the alignment of addresses, and where `or` equals addition.
//
// The method is forward data flow over the structured IR that starts from "all bits" and descends, as a known-bits
// analysis restricted to the low end.
#ifndef HPVMD_COMPILER_ANALYSIS_TRAILING_ZEROS_H_
#define HPVMD_COMPILER_ANALYSIS_TRAILING_ZEROS_H_

#include <cstdint>
#include <span>
#include <vector>

#include "compiler/analysis/value_ranges.h"
#include "compiler/analysis/words.h"

namespace hpvm::analysis {

struct KnownZeros {
  std::span<const uint8_t> params;                  // The parameters' zeros; nothing is known if empty.
  uint8_t id_x = 0;                                 // The zeros of the instance's id along x.
  const std::vector<ValueRange>* ranges = nullptr;  // Indexed by ValueId, to identify constants; may be null.
};

// Returns, by ValueId, a number of low bits that are zero in every instance: at most 64, and 0 for floats. Requires a
// verified function.
std::vector<uint8_t> FindTrailingZeros(const ir::Function& function, const KnownZeros& known);

// EntryNumbers computes ranges and zeros of the values of a module's entry on first use. Borrows the module, which
// must not change.
class EntryNumbers {
 public:
  EntryNumbers(const ir::Module& module, uint64_t id_max) : module_(module), id_max_(id_max) {}

  const ValueRange& RangeOf(ir::ValueId value);
  uint8_t ZerosOf(ir::ValueId value);
  // Returns true if the access's address, including its immediate, is a multiple of 2^log2.
  bool IsAligned(const ir::Op& access, uint8_t log2);

 private:
  const ir::Module& module_;
  const uint64_t id_max_;
  std::vector<ValueRange> ranges_;  // Indexed by ValueId.
  std::vector<uint8_t> zeros_;      // Indexed by ValueId.
};

// Returns the zeros of the entry's parameters: buffers begin at multiples of 64 KiB (ir::AssignAddresses). `scalars`
// has the zeros of the other parameters, and may be empty.
std::vector<uint8_t> ZerosOfParams(const ir::Module& module, std::span<const uint8_t> scalars = {});

}  // namespace hpvm::analysis

#endif  // HPVMD_COMPILER_ANALYSIS_TRAILING_ZEROS_H_
