// SPDX-License-Identifier: Apache-2.0
// How much of each device's own memory the plans of this process hold: counted, kept within what the daemon's grant
// page allows, and given back by graphs that do not run.
//
// What is counted are the buffers of plans (engine/plan.h). Nothing in them outlives a run (results that stay anywhere
// are the daemon's, in host memory), so giving one back is dropping the plan: the next run with those sizes builds it
// again.
//
// Threads: any. A graph whose memory is wanted is looked at under its own mutex, and left alone while it runs.
#ifndef HPVMD_ENGINE_DEVICE_MEMORY_H_
#define HPVMD_ENGINE_DEVICE_MEMORY_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "backends/contract/device.h"
#include "backends/contract/grant.h"

namespace hpvm::engine {

class PreparedGraph;

class DeviceMemory;

// What a plan holds of devices' memory; gives it back when it goes.
class DeviceBytes {
 public:
  DeviceBytes() = default;
  DeviceBytes(const DeviceBytes&) = delete;
  DeviceBytes& operator=(const DeviceBytes&) = delete;
  ~DeviceBytes();
  uint64_t of(const Device* device) const;

 private:
  friend class DeviceMemory;
  std::shared_ptr<DeviceMemory> owner_;  // Shared: a graph that somebody holds may outlive the engine.
  std::vector<uint64_t> bytes_;  // By device.
};

class DeviceMemory : public std::enable_shared_from_this<DeviceMemory> {
 public:
  // What the grants say of one device; all zeros: no limits.
  struct Limits {
    const GrantEntry* entry = nullptr;  // Borrowed; may be null, as `page`.
    const GrantPage* page = nullptr;
  };
  // In the order of EngineOptions::devices, which are borrowed; `limits` may be shorter.
  DeviceMemory(std::span<Device* const> devices, std::vector<Limits> limits);

  // A new graph: its plans may be dropped while it does not run.
  void Add(const std::shared_ptr<PreparedGraph>& graph);

  // Counts `bytes` more of `device` for `held`. When the limits do not allow it, graphs that do not run give memory
  // back first; kResourceExhausted with the sizes when that is not enough. Devices that work in host memory, and such
  // as are not the engine's, are not counted.
  Status Take(const Device& device, uint64_t bytes, DeviceBytes* held);
  // What the grants allow of one device, and of all together; the largest number: no limit.
  uint64_t LimitOf(const Device& device);
  uint64_t LimitOfAll() const;
  // Graphs that do not run give back until at most `bytes_max` of the device are held. What that freed.
  uint64_t Reclaim(const Device& device, uint64_t bytes_max);

  struct Usage {
    uint64_t bytes = 0;
    uint64_t idle_bytes = 0;  // Of graphs that do not run now.
  };
  std::vector<Usage> Measure();
  // Grows with every change of what Measure says, but for which graphs run.
  uint64_t changes() const { return changes_.load(std::memory_order_relaxed); }

 private:
  friend class DeviceBytes;
  struct Account {
    const Device* device = nullptr;
    Limits limits;
    std::atomic<uint64_t> bytes{0};
  };

  Account* Find(const Device& device);
  bool TryTake(Account& account, uint64_t bytes);
  uint64_t Total() const;
  std::vector<std::shared_ptr<PreparedGraph>> Graphs();

  std::vector<std::unique_ptr<Account>> accounts_;
  std::mutex take_mutex_;  // One decision at a time.
  std::mutex mutex_;
  std::vector<std::weak_ptr<PreparedGraph>> graphs_;  // Guarded by mutex_.
  std::atomic<uint64_t> changes_{0};
};

}  // namespace hpvm::engine

#endif  // HPVMD_ENGINE_DEVICE_MEMORY_H_
