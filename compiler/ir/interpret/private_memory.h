// SPDX-License-Identifier: Apache-2.0
// Module memory or state, private to one instance: mapped once, and restored between instances by rewriting only the
// bytes that were stored to. A memory borrowed from a caller is never restored.
#ifndef HPVMD_COMPILER_IR_INTERPRET_PRIVATE_MEMORY_H_
#define HPVMD_COMPILER_IR_INTERPRET_PRIVATE_MEMORY_H_

#include <cstdint>
#include <span>
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

  // Borrows the segments. Reserves bytes_max of address space; pages are committed when they are touched.
  Status Map(std::span<const DataSegment> initial, uint64_t bytes, uint64_t bytes_max);
  // Uses bytes_max bytes at `data`.
  void Borrow(uint8_t* data, uint64_t bytes, uint64_t bytes_max);
  // Only for mapped memory.
  void Restore();
  // Only for borrowed memory: sets the size after the owner has changed it.
  void SetBytes(uint64_t bytes) { bytes_ = bytes; }

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
  // Returns true with the old size in pages of 64 KiB, or false when the memory cannot grow that far.
  bool Grow(uint64_t pages, uint64_t* old_pages);

 private:
  static constexpr uint64_t kGranuleBytes = 4096;

  void MarkDirty(uint64_t granule);
  void RestoreGranule(uint64_t granule);

  std::span<const DataSegment> initial_;
  uint8_t* data_ = nullptr;  // Never null once mapped or borrowed, even for 0 bytes.
  uint64_t bytes_ = 0, bytes_initial_ = 0, bytes_max_ = 0;
  uint64_t mapped_bytes_ = 0;
  std::vector<bool> is_dirty_;  // All set when borrowed, so that no granule is listed.
  std::vector<uint32_t> dirty_;
};

}  // namespace hpvm::ir

#endif  // HPVMD_COMPILER_IR_INTERPRET_PRIVATE_MEMORY_H_
