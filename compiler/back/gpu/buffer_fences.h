// SPDX-License-Identifier: Apache-2.0
// Finds the barriers that must order accesses to buffers for their group.
//
// Group memory is ordered by all of them; a fence over buffers costs more, as it reaches past a processor's own cache.
// A barrier needs one if what may happen since the fences before it conflicts with what may happen up to those behind
// it: a write in front of it and any access behind, or a read in front and a write behind. Parameters may share bytes
// (docs/KERNELS.md, S72), so all buffers are one memory. A load whose value was stored to group memory on every way to
// the barrier is done by then: the barrier orders that store, which could not be made without the value.
#ifndef HPVMD_COMPILER_BACK_GPU_BUFFER_FENCES_H_
#define HPVMD_COMPILER_BACK_GPU_BUFFER_FENCES_H_

#include <vector>

#include "compiler/ir/words.h"

namespace hpvm::gpu {

using namespace ir::words;

// By OpId of the entry: true of barriers that must order buffers.
std::vector<bool> FindBufferFences(const ir::Module& module);

}  // namespace hpvm::gpu

#endif  // HPVMD_COMPILER_BACK_GPU_BUFFER_FENCES_H_
