// SPDX-License-Identifier: Apache-2.0
// Memory manages a device's memory: VkBuffers, large ones with their own allocation, small ones in shared blocks,
// because drivers allow only some thousand allocations and each takes time.
//
// Memory is counted against the device's heap, so that a process that requests more than there is gets an error from
// here instead of paging or overcommitment by the driver.
#ifndef HPVMD_BACKENDS_VULKAN_MEMORY_H_
#define HPVMD_BACKENDS_VULKAN_MEMORY_H_

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "backends/vulkan/context.h"

namespace hpvm::vulkan {

class Memory;

// Location of memory.
enum class MemoryClass : uint8_t {
  // The device's own; mapped when the host reads it as cheaply as its own (Memory::is_mapped).
  kDevice,
  // The host's, mapped and cached, from and to which the device can copy.
  kHost,
};

struct Block;  // memory.cc.

// A VkBuffer and its memory.
class Storage {
 public:
  Storage() = default;
  Storage(Storage&& other) noexcept { *this = std::move(other); }
  Storage& operator=(Storage&& other) noexcept;
  ~Storage();

  VkBuffer buffer() const { return buffer_.get(); }
  uint8_t* mapped() const { return mapped_; }  // May be null.
  VkDeviceMemory memory() const;
  // Size of the allocation, or of its part of a block.
  uint64_t memory_bytes() const { return bytes_; }

 private:
  friend class Memory;
  Memory* owner_ = nullptr;
  Block* block_ = nullptr;  // Held.
  uint64_t offset_ = 0, bytes_ = 0;
  uint8_t* mapped_ = nullptr;
  Owned<VkBuffer> buffer_;
};

class Memory {
 public:
  // Borrows `context`. `never_map`, for tests: treats the device's memory as inaccessible to the host.
  Memory(Context& context, bool never_map);
  ~Memory();
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;

  // Allocates `bytes` plus the rounding of a view to binding_alignment(). The content is undefined. Thread-safe.
  StatusOr<Storage> Allocate(uint64_t bytes, MemoryClass place, bool is_exported = false);
  bool is_mapped() const { return is_mapped_; }

 private:
  friend class Storage;
  struct Request {
    uint64_t bytes = 0, alignment = 1;
    uint32_t type = 0;
    bool is_exported = false;
    bool is_mapped = false;
    VkBuffer dedicated = VK_NULL_HANDLE;
  };

  StatusOr<uint32_t> FindType(uint32_t type_bits, MemoryClass place) const;
  bool Matches(uint32_t type, MemoryClass place, bool exactly) const;
  StatusOr<Block*> NewBlock(const Request& request);
  StatusOr<Block*> FindRoom(const Request& request, uint64_t* offset);
  Status Charge(uint64_t bytes, uint32_t type);
  void Release(Block* block, uint64_t offset, uint64_t bytes);

  Context& context_;
  bool is_mapped_ = false;
  std::mutex mutex_;
  std::vector<std::unique_ptr<Block>> blocks_;  // Guarded by mutex_.
  uint64_t device_bytes_ = 0;                   // Guarded by mutex_.
};

}  // namespace hpvm::vulkan

#endif  // HPVMD_BACKENDS_VULKAN_MEMORY_H_
