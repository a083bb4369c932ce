// SPDX-License-Identifier: Apache-2.0
#include "backends/vulkan/memory.h"

#include <algorithm>

#include "base/limits.h"

namespace hpvm::vulkan {

// One VkDeviceMemory. Free parts by offset, never adjacent.
struct Block {
  Owned<VkDeviceMemory> memory;
  uint64_t bytes = 0;
  uint32_t type = 0;
  bool is_shared = false;  // Holds many buffers.
  uint8_t* mapped = nullptr;
  std::map<uint64_t, uint64_t> free;  // Offset, bytes.
};

namespace {

// Larger buffers have their own allocation.
constexpr uint64_t kSharedBytesMax = limits::kMiB;
constexpr uint64_t kBlockBytes = 16 * limits::kMiB;

constexpr VkBufferUsageFlags kUsage =
    VK_BUFFER_USAGE_STORAGE_BUFFER_BIT | VK_BUFFER_USAGE_TRANSFER_SRC_BIT | VK_BUFFER_USAGE_TRANSFER_DST_BIT;

uint64_t RoundUp(uint64_t value, uint64_t multiple) { return (value + multiple - 1) / multiple * multiple; }

// Takes the first free part in which `bytes` fit.
bool TakeRoom(Block& block, uint64_t bytes, uint64_t alignment, uint64_t* offset) {
  for (auto it = block.free.begin(); it != block.free.end(); ++it) {
    const auto [begin, size] = *it;
    const uint64_t at = RoundUp(begin, alignment);
    if (at - begin > size || size - (at - begin) < bytes) {
      continue;
    }
    block.free.erase(it);
    if (at != begin) {
      block.free[begin] = at - begin;
    }
    if (at + bytes != begin + size) {
      block.free[at + bytes] = begin + size - (at + bytes);
    }
    *offset = at;
    return true;
  }
  return false;
}

void GiveRoom(Block& block, uint64_t offset, uint64_t bytes) {
  auto next = block.free.lower_bound(offset);
  if (next != block.free.end() && next->first == offset + bytes) {
    bytes += next->second;
    next = block.free.erase(next);
  }
  if (next != block.free.begin()) {
    const auto before = std::prev(next);
    if (before->first + before->second == offset) {
      before->second += bytes;
      return;
    }
  }
  block.free[offset] = bytes;
}

}  // namespace

Storage& Storage::operator=(Storage&& other) noexcept {
  std::swap(owner_, other.owner_);
  std::swap(block_, other.block_);
  std::swap(offset_, other.offset_);
  std::swap(bytes_, other.bytes_);
  std::swap(mapped_, other.mapped_);
  buffer_ = std::move(other.buffer_);
  return *this;
}

Storage::~Storage() {
  buffer_.reset();  // Before its memory.
  if (block_ != nullptr) {
    owner_->Release(block_, offset_, bytes_);
  }
}

VkDeviceMemory Storage::memory() const { return block_ == nullptr ? VK_NULL_HANDLE : block_->memory.get(); }

Memory::Memory(Context& context, bool never_map) : context_(context) {
  is_mapped_ = context.physical().maps_memory && !never_map;
}

Memory::~Memory() = default;

// With `exactly`, matches only types with all wished properties; these are tried first.
bool Memory::Matches(uint32_t type, MemoryClass place, bool exactly) const {
  const VkMemoryPropertyFlags flags = context_.physical().memory.memoryTypes[type].propertyFlags;
  constexpr VkMemoryPropertyFlags kByHost = VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT | VK_MEMORY_PROPERTY_HOST_COHERENT_BIT;
  const bool is_local = (flags & VK_MEMORY_PROPERTY_DEVICE_LOCAL_BIT) != 0;
  const bool is_by_host = (flags & kByHost) == kByHost;
  const bool is_cached = (flags & VK_MEMORY_PROPERTY_HOST_CACHED_BIT) != 0;
  if (place == MemoryClass::kHost) {
    return is_by_host && (!exactly || is_cached);
  }
  return is_mapped_ ? is_local && is_by_host && is_cached : is_local || !exactly;
}

StatusOr<uint32_t> Memory::FindType(uint32_t type_bits, MemoryClass place) const {
  for (const bool exactly : {true, false}) {
    for (uint32_t type = 0; type < context_.physical().memory.memoryTypeCount; ++type) {
      if ((type_bits >> type & 1) != 0 && Matches(type, place, exactly)) {
        return type;
      }
    }
  }
  return Unavailable("Device " + context_.name() + " has no type of memory for buffers.");
}

Status Memory::Charge(uint64_t bytes, uint32_t type) {
  const VkPhysicalDeviceMemoryProperties& memory = context_.physical().memory;
  if ((memory.memoryTypes[type].propertyFlags & VK_MEMORY_PROPERTY_DEVICE_LOCAL_BIT) == 0) {
    return absl::OkStatus();
  }
  const uint64_t total = context_.physical().info.memory_bytes;
  if (bytes > total || device_bytes_ > total - bytes) {
    return ResourceExhausted("Memory of " + std::to_string(bytes) + " bytes is not available on " + context_.name() +
                             ": " + std::to_string(device_bytes_) + " of its " + std::to_string(total) +
                             " bytes are in use.");
  }
  return absl::OkStatus();
}

// The caller holds mutex_.
StatusOr<Block*> Memory::NewBlock(const Request& request) {
  HPVMD_RETURN_IF_ERROR(Charge(request.bytes, request.type));
  auto export_info = Typed<VkExportMemoryAllocateInfo>(VK_STRUCTURE_TYPE_EXPORT_MEMORY_ALLOCATE_INFO);
  export_info.handleTypes = VK_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD_BIT;
  auto dedicated = Typed<VkMemoryDedicatedAllocateInfo>(VK_STRUCTURE_TYPE_MEMORY_DEDICATED_ALLOCATE_INFO);
  dedicated.buffer = request.dedicated;
  auto info = Typed<VkMemoryAllocateInfo>(VK_STRUCTURE_TYPE_MEMORY_ALLOCATE_INFO);
  info.allocationSize = request.bytes;
  info.memoryTypeIndex = request.type;
  if (request.is_exported) {
    info.pNext = &export_info;
    export_info.pNext = request.dedicated == VK_NULL_HANDLE ? nullptr : &dedicated;
  }
  auto block = std::make_unique<Block>();
  VkDeviceMemory memory = VK_NULL_HANDLE;
  HPVMD_RETURN_IF_ERROR(context_.Check(context_.vk().AllocateMemory(context_.device(), &info, nullptr, &memory),
                                       "Allocating memory of " + std::to_string(request.bytes) + " bytes"));
  block->memory = {context_.device(), memory, context_.vk().FreeMemory};
  block->bytes = request.bytes;
  block->type = request.type;
  const VkMemoryPropertyFlags flags = context_.physical().memory.memoryTypes[request.type].propertyFlags;
  const bool is_local = (flags & VK_MEMORY_PROPERTY_DEVICE_LOCAL_BIT) != 0;
  if (request.is_mapped) {
    void* data = nullptr;
    HPVMD_RETURN_IF_ERROR(context_.Check(context_.vk().MapMemory(context_.device(), memory, 0, VK_WHOLE_SIZE, 0, &data),
                                         "Mapping memory"));
    block->mapped = static_cast<uint8_t*>(data);
  }
  device_bytes_ += is_local ? request.bytes : 0;
  blocks_.push_back(std::move(block));
  return blocks_.back().get();
}

// The caller holds mutex_.
StatusOr<Block*> Memory::FindRoom(const Request& request, uint64_t* offset) {
  *offset = 0;
  if (request.is_exported || request.bytes > kSharedBytesMax) {
    return NewBlock(request);
  }
  for (const std::unique_ptr<Block>& block : blocks_) {
    if (block->is_shared && block->type == request.type && (block->mapped != nullptr) == request.is_mapped &&
        TakeRoom(*block, request.bytes, request.alignment, offset)) {
      return block.get();
    }
  }
  Request large = request;
  large.bytes = kBlockBytes;
  StatusOr<Block*> block = NewBlock(large);
  if (!block.ok()) {
    return NewBlock(request);  // Memory is short: allocate as little as needed.
  }
  (*block)->is_shared = true;
  (*block)->free[0] = kBlockBytes;
  HPVMD_CHECK(TakeRoom(**block, request.bytes, request.alignment, offset));
  return block;
}

StatusOr<Storage> Memory::Allocate(uint64_t bytes, MemoryClass place, bool is_exported) {
  const uint64_t most = context_.physical().info.allocation_bytes_max;
  const uint64_t alignment = context_.binding_alignment();
  if (bytes > most) {
    return ResourceExhausted("Buffer size (" + std::to_string(bytes) + " bytes) is larger than the limit of " +
                             context_.name() + " (" + std::to_string(most) + " bytes).");
  }
  auto external = Typed<VkExternalMemoryBufferCreateInfo>(VK_STRUCTURE_TYPE_EXTERNAL_MEMORY_BUFFER_CREATE_INFO);
  external.handleTypes = VK_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD_BIT;
  auto info = Typed<VkBufferCreateInfo>(VK_STRUCTURE_TYPE_BUFFER_CREATE_INFO);
  info.pNext = is_exported ? &external : nullptr;
  info.size = RoundUp(bytes, alignment) + alignment;
  info.usage = kUsage;
  const std::vector<uint32_t>& families = context_.families();
  info.sharingMode = families.size() > 1 ? VK_SHARING_MODE_CONCURRENT : VK_SHARING_MODE_EXCLUSIVE;
  info.queueFamilyIndexCount = static_cast<uint32_t>(families.size());
  info.pQueueFamilyIndices = families.data();
  VkBuffer buffer = VK_NULL_HANDLE;
  HPVMD_RETURN_IF_ERROR(context_.Check(context_.vk().CreateBuffer(context_.device(), &info, nullptr, &buffer),
                                       "Creating a buffer of " + std::to_string(bytes) + " bytes"));
  Storage storage;
  storage.buffer_ = {context_.device(), buffer, context_.vk().DestroyBuffer};
  VkMemoryRequirements needs{};
  context_.vk().GetBufferMemoryRequirements(context_.device(), buffer, &needs);
  Request request{needs.size,    needs.alignment, 0, is_exported, place == MemoryClass::kHost || is_mapped_,
                  VK_NULL_HANDLE};
  HPVMD_ASSIGN_OR_RETURN(request.type, FindType(needs.memoryTypeBits, place));
  if (is_exported && context_.physical().enabled.dedicated_export) {
    request.dedicated = buffer;
  }
  std::unique_lock lock(mutex_);
  HPVMD_ASSIGN_OR_RETURN(Block * block, FindRoom(request, &storage.offset_));
  lock.unlock();
  storage.owner_ = this;
  storage.block_ = block;
  storage.bytes_ = needs.size;
  storage.mapped_ = block->mapped == nullptr ? nullptr : block->mapped + storage.offset_;
  const Status bound =
      context_.Check(context_.vk().BindBufferMemory(context_.device(), buffer, block->memory.get(), storage.offset_),
                     "Binding memory");
  return bound.ok() ? StatusOr<Storage>(std::move(storage)) : bound;
}

void Memory::Release(Block* block, uint64_t offset, uint64_t bytes) {
  std::lock_guard lock(mutex_);
  GiveRoom(*block, offset, bytes);
  if (block->is_shared) {
    const bool is_empty = block->free.size() == 1 && block->free.begin()->second == block->bytes;
    const auto is_like = [&](const auto& other) { return other->is_shared && other->type == block->type; };
    // The last one is kept, because small buffers are often allocated and freed repeatedly.
    if (!is_empty || std::count_if(blocks_.begin(), blocks_.end(), is_like) == 1) {
      return;
    }
  }
  const VkMemoryPropertyFlags flags = context_.physical().memory.memoryTypes[block->type].propertyFlags;
  device_bytes_ -= (flags & VK_MEMORY_PROPERTY_DEVICE_LOCAL_BIT) != 0 ? block->bytes : 0;
  blocks_.erase(std::find_if(blocks_.begin(), blocks_.end(), [&](const auto& other) { return other.get() == block; }));
}

}  // namespace hpvm::vulkan
