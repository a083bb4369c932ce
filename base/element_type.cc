// SPDX-License-Identifier: Apache-2.0
#include "hpvm/element_type.h"

#include <algorithm>

namespace hpvm {

std::optional<uint64_t> TensorBytes(ElementType type, std::span<const uint64_t> shape) {
  if (std::find(shape.begin(), shape.end(), 0u) != shape.end()) {
    return 0;
  }
  uint64_t bytes = ElementBytes(type);
  for (const uint64_t extent : shape) {
    if (__builtin_mul_overflow(bytes, extent, &bytes) || bytes > static_cast<uint64_t>(INT64_MAX)) {
      return std::nullopt;
    }
  }
  return bytes;
}

}  // namespace hpvm
