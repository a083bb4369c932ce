// SPDX-License-Identifier: Apache-2.0
// Module memory of one instance: mapped once, put back to its initial state between instances by rewriting only what
// was stored to.
#ifndef HPVMD_COMPILER_IR_PRIVATE_MEMORY_H_
#define HPVMD_COMPILER_IR_PRIVATE_MEMORY_H_

#include <cstdint>
#include <vector>

#include "base/status.h"
#include "compiler/ir/ir.h"

namespace hpvm::ir {

class PrivateMemory {
 public:
  PrivateMemory() = default;
  PrivateMemory(PrivateMemory&& other) noexcept;
  PrivateMemory& operator=(PrivateMemory&& other) = delete;
  ~PrivateMemory();

  // Borrows the module. Reserves memory_bytes_max of address space; pages are taken as they are touched.
  Status Map(const Module& module);
  void Restore();

  uint64_t bytes() const { return bytes_; }
  bool Holds(uint64_t address, uint64_t bytes) const { return bytes <= bytes_ && address <= bytes_ - bytes; }
  // Requires Holds(address, bytes).
  uint8_t* Read(uint64_t address) { return data_ + address; }
  uint8_t* Write(uint64_t address, uint64_t bytes) {
    if (bytes > 0) {
      for (uint64_t g = address / kGranuleBytes; g <= (address + bytes - 1) / kGranuleBytes; ++g) {
        if (!is_dirty_[g]) {
          MarkDirty(g);
        }
      }
    }
    return data_ + address;
  }
  // The old size in pages of 64 KiB, or false when it cannot grow so far.
  bool Grow(uint64_t pages, uint64_t* old_pages);

 private:
  static constexpr uint64_t kGranuleBytes = 4096;

  void MarkDirty(uint64_t granule);
  void RestoreGranule(uint64_t granule);

  const Module* module_ = nullptr;
  uint8_t* data_ = nullptr;
  uint64_t bytes_ = 0;
  std::vector<bool> is_dirty_;
  std::vector<uint32_t> dirty_;
};

}  // namespace hpvm::ir

#endif  // HPVMD_COMPILER_IR_PRIVATE_MEMORY_H_
