// SPDX-License-Identifier: Apache-2.0
#include "backends/vulkan/staging.h"

namespace hpvm::vulkan {

StatusOr<uint8_t*> Staging::Grow(size_t index, uint64_t bytes) {
  HPVMD_ASSIGN_OR_RETURN(slots_[index].memory, memory_.Allocate(bytes, MemoryClass::kHost));
  return slots_[index].memory.mapped();
}

}  // namespace hpvm::vulkan
