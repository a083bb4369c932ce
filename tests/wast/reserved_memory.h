// SPDX-License-Identifier: Apache-2.0
// ReservedMemory is address space whose pages are allocated, zeroed, on first access.
#ifndef HPVMD_TESTS_WAST_RESERVED_MEMORY_H_
#define HPVMD_TESTS_WAST_RESERVED_MEMORY_H_

#include <cstdint>
#include <utility>

#include "base/status.h"

namespace hpvm::wast {

class ReservedMemory {
 public:
  // Returns kResourceExhausted when the address space is insufficient.
  static StatusOr<ReservedMemory> Reserve(uint64_t bytes);
  ReservedMemory() = default;
  ReservedMemory(ReservedMemory&& other) noexcept { *this = std::move(other); }
  ReservedMemory& operator=(ReservedMemory&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  ~ReservedMemory();

  uint8_t* data() const { return data_; }
  uint64_t bytes() const { return bytes_; }

 private:
  uint8_t* data_ = nullptr;
  uint64_t bytes_ = 0;
};

}  // namespace hpvm::wast

#endif  // HPVMD_TESTS_WAST_RESERVED_MEMORY_H_
