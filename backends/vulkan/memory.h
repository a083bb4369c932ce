// SPDX-License-Identifier: Apache-2.0
// Memory of a device: VkBuffers, large ones with an allocation of their own, small ones in shared blocks, because
// drivers allow only some thousand allocations and take their time for each.
//
// Memory is counted against the device's heap, so that a process that wants more than there is hears so from here and
// not by the driver's paging or overcommitting.
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

// Where memory lies.
enum class Place : uint8_t {
  kDevice,  // The device's own; mapped where the host reads it as cheaply as its own (Memory::is_mapped).
  kHost,    // The host's, mapped and cached, that the device can copy from and to.
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
  uint8_t* mapped() const { return mapped_; }  // Or null.
  VkDeviceMemory memory() const;
  uint64_t memory_bytes() const { return bytes_; }  // Of the allocation, or of its part of a block.

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
  // Borrowed. `never_map`: treat the device's memory as out of the host's reach, for tests.
  Memory(Context& context, bool never_map);
  ~Memory();
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;

  // Room for `bytes` and what a view's rounding to binding_alignment() adds. The content is anything. Any thread.
  StatusOr<Storage> Allocate(uint64_t bytes, Place place, bool is_exported = false);
  bool is_mapped() const { return is_mapped_; }

 private:
  friend class Storage;
  struct Wish {
    uint64_t bytes = 0, alignment = 1;
    uint32_t type = 0;
    bool is_exported = false;
    bool is_mapped = false;
    VkBuffer dedicated = VK_NULL_HANDLE;
  };

  StatusOr<uint32_t> FindType(uint32_t type_bits, Place place) const;
  bool Matches(uint32_t type, Place place, bool exactly) const;
  StatusOr<Block*> NewBlock(const Wish& wish);
  StatusOr<Block*> FindRoom(const Wish& wish, uint64_t* offset);
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
