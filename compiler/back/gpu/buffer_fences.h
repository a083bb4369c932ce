// SPDX-License-Identifier: Apache-2.0
// Finds the barriers that must also order the group's accesses to buffers.
//
// Every barrier orders group memory; a fence over buffers costs more, because it reaches beyond a processor's own
// cache. A barrier needs a buffer fence if an access since the preceding fences conflicts with an access up to the
// following ones: a write before it and any access after it, or a read before and a write after. Parameters may share
// bytes (docs/KERNELS.md, S72), so all buffers count as one memory. A load whose value has been stored to group memory
// on every path to the barrier has completed by then: the barrier orders that store, which needs the loaded value.
#ifndef HPVMD_COMPILER_BACK_GPU_BUFFER_FENCES_H_
#define HPVMD_COMPILER_BACK_GPU_BUFFER_FENCES_H_

#include <vector>

#include "compiler/ir/words.h"

namespace hpvm::gpu {

using namespace ir::words;

// Returns, by OpId of the entry, true for barriers that must order buffer accesses.
std::vector<bool> FindBufferFences(const ir::Module& module);

}  // namespace hpvm::gpu

#endif  // HPVMD_COMPILER_BACK_GPU_BUFFER_FENCES_H_
