// SPDX-License-Identifier: Apache-2.0
#include "compiler/api/gpu_target.h"

#include "compiler/api/wire.h"

namespace hpvm {

bool IsWellFormed(const GpuTarget& target) {
  constexpr size_t kArchBytesMax = 16;
  return target.kernel_il <= GpuFormat::kSpirBitcode && target.kernel_il != GpuFormat::kOpenClC &&
         target.ptx_arch.size() <= kArchBytesMax;
}

std::string BytesOf(const GpuTarget& target) { return std::string(TextOf(WireBytes(target))); }

StatusOr<GpuTarget> ParseGpuTarget(std::string_view bytes) {
  GpuTarget target;
  if (!ReadWire(BytesOf(bytes), target) || !IsWellFormed(target)) {
    return InvalidArgument("The description of a GPU is malformed.");
  }
  return target;
}

}  // namespace hpvm
