// SPDX-License-Identifier: Apache-2.0
// Memory of the host's for plans: mapped, so that what is never touched costs nothing.
//
// First touches are slow (the system clears each page), so large mappings of plans that are dropped are kept for the
// next ones, in bounds; the system may have the pages meanwhile (MADV_FREE). What comes from a pool holds anything: all
// plans write before they read.
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

// Pages are 4096 bytes at least, and so it is aligned.
class HostMemory {
 public:
  HostMemory() = default;
  // Zero when first touched, without a pool. kResourceExhausted when the system has no more. `pool` may be null; it is
  // shared, as plans may outlive the engine.
  static StatusOr<HostMemory> Map(uint64_t bytes, std::shared_ptr<HostPool> pool = nullptr);
  HostMemory(HostMemory&& other) noexcept;
  HostMemory& operator=(HostMemory&& other) noexcept;
  ~HostMemory();
  uint8_t* data() const { return data_; }
  // All of it, for devices that pin it; null when it is empty.
  const std::shared_ptr<HostBlock>& block() const { return block_; }

 private:
  uint8_t* data_ = nullptr;
  uint64_t bytes_ = 0;  // Mapped.
  std::shared_ptr<HostPool> pool_;
  std::shared_ptr<HostBlock> block_;
};

// Any thread.
class HostPool {
 public:
  // Keeps at most so many bytes.
  explicit HostPool(uint64_t bytes_max) : bytes_max_(bytes_max) {}
  ~HostPool();
  HostPool(const HostPool&) = delete;
  HostPool& operator=(const HostPool&) = delete;
  uint64_t bytes() const;

 private:
  friend class HostMemory;
  // A mapping of at least `bytes`, and not many more; null: none.
  uint8_t* Take(uint64_t bytes, uint64_t* mapped);
  // Owns the mapping from now on.
  void GiveBack(uint8_t* data, uint64_t mapped);

  const uint64_t bytes_max_;
  mutable std::mutex mutex_;
  uint64_t bytes_ = 0;                      // Guarded by mutex_.
  std::multimap<uint64_t, uint8_t*> kept_;  // Guarded by mutex_: by size.
};

// Host memory as a buffer for a device whose own buffers are not host memory: the other side of its copies. Borrows
// `data`, which lies in `block` where that is not null.
std::unique_ptr<Buffer> MakeHostView(uint8_t* data, uint64_t bytes, std::shared_ptr<HostBlock> block = nullptr);

}  // namespace hpvm::engine

#endif  // HPVMD_ENGINE_MEMORY_HOST_MEMORY_H_
