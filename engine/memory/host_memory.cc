// SPDX-License-Identifier: Apache-2.0
#include "engine/memory/host_memory.h"

#include <sys/mman.h>

#include <string>
#include <utility>

namespace hpvm::engine {
namespace {

// Below this size, clearing the pages is faster than finding a mapping.
constexpr uint64_t kPooledBytesMin = 1 << 20;

class HostView final : public Buffer {
 public:
  HostView(uint8_t* data, uint64_t bytes, std::shared_ptr<HostBlock> block)
      : data_(data), bytes_(bytes), block_(std::move(block)) {}
  uint64_t bytes() const override { return bytes_; }
  uint8_t* host() override { return data_; }
  HostBlock* block() const override { return block_.get(); }

 private:
  uint8_t* data_;  // Borrowed.
  uint64_t bytes_;
  std::shared_ptr<HostBlock> block_;
};

}  // namespace

std::unique_ptr<Buffer> MakeHostView(uint8_t* data, uint64_t bytes, std::shared_ptr<HostBlock> block) {
  return std::make_unique<HostView>(data, bytes, std::move(block));
}

StatusOr<HostMemory> HostMemory::Map(uint64_t bytes, std::shared_ptr<HostPool> pool) {
  HostMemory memory;
  if (bytes == 0) {
    return memory;
  }
  if (pool != nullptr && bytes >= kPooledBytesMin) {
    memory.pool_ = std::move(pool);
    memory.data_ = memory.pool_->Take(bytes, &memory.bytes_);
    if (memory.data_ != nullptr) {
      memory.block_ = std::make_shared<HostBlock>(memory.data_, memory.bytes_);
      return memory;
    }
  }
  void* data = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (data == MAP_FAILED) {
    return ResourceExhausted("The host has no memory for the graph's temporary buffers (" + std::to_string(bytes) +
                             " bytes).");
  }
  memory.data_ = static_cast<uint8_t*>(data);
  memory.bytes_ = bytes;
  memory.block_ = std::make_shared<HostBlock>(memory.data_, memory.bytes_);
  return memory;
}

HostMemory::HostMemory(HostMemory&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)),
      bytes_(std::exchange(other.bytes_, 0)),
      pool_(std::move(other.pool_)),
      block_(std::move(other.block_)) {}

HostMemory& HostMemory::operator=(HostMemory&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  std::swap(pool_, other.pool_);
  std::swap(block_, other.block_);
  return *this;
}

HostMemory::~HostMemory() {
  if (block_ != nullptr) {
    block_->Close();
  }
  if (data_ != nullptr && pool_ != nullptr) {
    pool_->GiveBack(data_, bytes_);
  } else if (data_ != nullptr) {
    munmap(data_, bytes_);
  }
}

HostPool::~HostPool() {
  for (const auto& [mapped, data] : kept_) {
    munmap(data, mapped);
  }
}

uint64_t HostPool::bytes() const {
  std::lock_guard lock(mutex_);
  return bytes_;
}

uint8_t* HostPool::Take(uint64_t bytes, uint64_t* mapped) {
  std::lock_guard lock(mutex_);
  const auto it = kept_.lower_bound(bytes);
  if (it == kept_.end() || it->first / 2 > bytes) {
    return nullptr;
  }
  uint8_t* data = it->second;
  *mapped = it->first;
  bytes_ -= it->first;
  kept_.erase(it);
  return data;
}

void HostPool::GiveBack(uint8_t* data, uint64_t mapped) {
  // Only a hint; without it the pages stay, within the pool's limit.
  madvise(data, mapped, MADV_FREE);
  std::unique_lock lock(mutex_);
  if (mapped <= bytes_max_ && bytes_ <= bytes_max_ - mapped) {
    bytes_ += mapped;
    kept_.emplace(mapped, data);
    return;
  }
  lock.unlock();
  munmap(data, mapped);
}

}  // namespace hpvm::engine
