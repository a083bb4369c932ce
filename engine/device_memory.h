// SPDX-License-Identifier: Apache-2.0
// Counts how much of each device's own memory the plans of this process hold, keeps it within the limits of the
// daemon's grant page, and takes memory back from graphs that do not run.
//
// Only buffers of plans (engine/plan.h) are counted. None of their content outlives a run (the daemon keeps results,
// in host memory), so memory is released by dropping plans: the next run with those sizes builds the plan again.
//
// Threads: thread-safe. A graph is examined under its own mutex, and left alone while it runs.
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

// The device memory that a plan holds; the destructor releases it.
class DeviceBytes {
 public:
  DeviceBytes() = default;
  DeviceBytes(const DeviceBytes&) = delete;
  DeviceBytes& operator=(const DeviceBytes&) = delete;
  ~DeviceBytes();
  uint64_t of(const Device* device) const;

 private:
  friend class DeviceMemory;
  std::shared_ptr<DeviceMemory> owner_;  // Shared, because a graph may outlive the engine.
  std::vector<uint64_t> bytes_;          // Indexed by device.
};

class DeviceMemory : public std::enable_shared_from_this<DeviceMemory> {
 public:
  // The grants' limits on one device; no limits when both are null.
  struct Limits {
    const GrantEntry* entry = nullptr;  // Both are borrowed and may be null.
    const GrantPage* page = nullptr;
  };
  // Devices are in the order of EngineOptions::devices and borrowed; `limits` may be shorter.
  DeviceMemory(std::span<Device* const> devices, std::vector<Limits> limits);

  // Registers a new graph: its plans may be dropped while it does not run.
  void Add(const std::shared_ptr<PreparedGraph>& graph);

  // Counts `bytes` more of `device` for `held`. When the limits do not allow it, graphs that do not run first release
  // memory; fails with kResourceExhausted and the sizes when that is not enough. Devices that work in host memory and
  // devices of other engines are not counted.
  Status Take(const Device& device, uint64_t bytes, DeviceBytes* held);
  // LimitOf returns the grants' limit for one device, LimitOfAll that for all together; the largest number means no
  // limit.
  uint64_t LimitOf(const Device& device);
  uint64_t LimitOfAll() const;
  // Returns true when the grants currently forbid starting anything on the device.
  bool IsClosed(const Device& device);
  // Drops plans of graphs that do not run until at most `bytes_max` of the device are held. Returns the number of
  // bytes freed.
  uint64_t Reclaim(const Device& device, uint64_t bytes_max);

  struct Usage {
    uint64_t bytes = 0;
    uint64_t idle_bytes = 0;  // Bytes held by graphs that do not run now.
  };
  std::vector<Usage> Measure();
  // Increases with every change of Measure's result, except changes of which graphs run.
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
  std::mutex take_mutex_;  // Serialises decisions.
  std::mutex mutex_;
  std::vector<std::weak_ptr<PreparedGraph>> graphs_;  // Guarded by mutex_.
  std::atomic<uint64_t> changes_{0};
};

}  // namespace hpvm::engine

#endif  // HPVMD_ENGINE_DEVICE_MEMORY_H_
