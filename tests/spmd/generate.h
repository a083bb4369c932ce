// SPDX-License-Identifier: Apache-2.0
// Makes random kernels to test vectorisation.
#ifndef HPVMD_TESTS_SPMD_GENERATE_H_
#define HPVMD_TESTS_SPMD_GENERATE_H_

#include <cstdint>

#include "tests/spmd/kernel.h"

namespace hpvm::spmd {

// A verified module and its launch. The same seed gives the same kernel everywhere.
Kernel Generate(uint64_t seed);
// The same for kernels on records, whose addresses wrap around in intermediate results.
Kernel GenerateRecords(uint64_t seed);
// The same for kernels with counted loops over rows and over positions that a buffer holds, inside their buffers or
// not.
Kernel GenerateRows(uint64_t seed);
// Makes kernels that only count.
Kernel GenerateLoops(uint64_t seed);

}  // namespace hpvm::spmd

#endif  // HPVMD_TESTS_SPMD_GENERATE_H_
