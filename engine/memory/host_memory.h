// SPDX-License-Identifier: Apache-2.0
// Host memory for plans: mapped, so that untouched pages cost nothing.
//
// First touches are slow (the system clears each page), so large mappings of dropped plans are pooled for the next
// plans, up to a limit; meanwhile the system may reclaim the pages (MADV_FREE). The content of pooled memory is
// arbitrary: all plans write before they read.
#ifndef HPVMD_ENGINE_MEMORY_HOST_MEMORY_H_
#define HPVMD_ENGINE_MEMORY_HOST_MEMORY_H_

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>

#include "backends/contract/device.h"
#include "backends/contract/host_block.h"
#include "base/status.h"

namespace hpvm::engine {

class HostPool;

// Aligned to a page, which has at least 4096 bytes.
class HostMemory {
 public:
  HostMemory() = default;
  // Without a pool, the memory is zero when first touched. Fails with kResourceExhausted when the system has no more.
  // `pool` may be null; it is shared, because plans may outlive the engine.
  static StatusOr<HostMemory> Map(uint64_t bytes, std::shared_ptr<HostPool> pool = nullptr);
  HostMemory(HostMemory&& other) noexcept;
  HostMemory& operator=(HostMemory&& other) noexcept;
  ~HostMemory();
  uint8_t* data() const { return data_; }
  // Returns a block of all the memory, for devices that pin it; null when it is empty.
  const std::shared_ptr<HostBlock>& block() const { return block_; }

 private:
  uint8_t* data_ = nullptr;
  uint64_t bytes_ = 0;  // Size of the mapping.
  std::shared_ptr<HostPool> pool_;
  std::shared_ptr<HostBlock> block_;
};

// Thread-safe.
class HostPool {
 public:
  // The pool keeps at most `bytes_max` bytes.
  explicit HostPool(uint64_t bytes_max) : bytes_max_(bytes_max) {}
  ~HostPool();
  HostPool(const HostPool&) = delete;
  HostPool& operator=(const HostPool&) = delete;
  uint64_t bytes() const;

 private:
  friend class HostMemory;
  // Returns a mapping of at least `bytes` and little more; null when there is none.
  uint8_t* Take(uint64_t bytes, uint64_t* mapped);
  // Takes ownership of the mapping.
  void GiveBack(uint8_t* data, uint64_t mapped);

  const uint64_t bytes_max_;
  mutable std::mutex mutex_;
  uint64_t bytes_ = 0;                      // Guarded by mutex_.
  std::multimap<uint64_t, uint8_t*> kept_;  // Keyed by size; guarded by mutex_.
};

// Wraps host memory as a buffer, the other side of copies for a device whose own buffers are not host memory. Borrows
// `data`, which lies in `block` unless that is null.
std::unique_ptr<Buffer> MakeHostView(uint8_t* data, uint64_t bytes, std::shared_ptr<HostBlock> block = nullptr);

}  // namespace hpvm::engine

#endif  // HPVMD_ENGINE_MEMORY_HOST_MEMORY_H_
