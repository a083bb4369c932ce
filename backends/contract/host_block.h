// SPDX-License-Identifier: Apache-2.0
// HostBlock is host memory at a fixed address, and the devices' ways to access it: a device copies from and to memory
// that is pinned for it by itself, at the full speed of its bus, without staging memory.
//
// Pinning costs about as much as is saved by copying the same bytes eight times without staging memory (H200, Vulkan:
// 90 us per MiB to pin and unpin, 12 us saved by each copy), four times through OpenCL. A block is therefore pinned for
// a device once its copies with that device have moved that much: the total cost is then at most twice the optimum (ski
// rental).
#ifndef HPVMD_BACKENDS_CONTRACT_HOST_BLOCK_H_
#define HPVMD_BACKENDS_CONTRACT_HOST_BLOCK_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>

#include "base/limits.h"

namespace hpvm {

// One device's own access to the memory of a block. May outlive the device, but not the driver.
class HostPin {
 public:
  virtual ~HostPin() = default;
};

// Thread-safe.
class HostBlock {
 public:
  static constexpr uint64_t kBytesMin = limits::kMiB;  // Smaller blocks are never pinned.
  // The device that copies, and the number of copies of the whole block after which a pin has paid for itself.
  struct Pinner {
    uint64_t device = 0;  // From NewDevice.
    uint64_t pays_after = 8;
  };

  // Whole pages that stay mapped until Close; borrowed. `is_writable`: this process may write them.
  HostBlock(uint8_t* data, uint64_t bytes, bool is_writable = true)
      : data_(data), bytes_(bytes), is_writable_(is_writable) {}
  ~HostBlock() { Close(); }
  HostBlock(const HostBlock&) = delete;
  HostBlock& operator=(const HostBlock&) = delete;

  uint8_t* data() const { return data_; }
  uint64_t bytes() const { return bytes_; }
  bool is_writable() const { return is_writable_; }

  // Returns the device's pin for a copy of `bytes` of the block, or null. May call `make`, which takes time; if it
  // returns null, the device cannot pin this memory, permanently.
  HostPin* PinFor(const Pinner& pinner, uint64_t bytes, const std::function<std::unique_ptr<HostPin>()>& make);

  // The device's pin turned out not to help; it is not returned any more.
  void Refuse(uint64_t device);

  // Call before the memory is freed, when no copy is in progress. Nothing is pinned afterwards.
  void Close();

  // Bytes pinned by all blocks of the process, for all devices: at most a quarter of the machine's memory.
  static uint64_t PinnedBytes() { return pinned_bytes_.load(std::memory_order_relaxed); }
  // Returns a unique number for a device.
  static uint64_t NewDevice() { return devices_.fetch_add(1, std::memory_order_relaxed); }

 private:
  struct Way {
    uint64_t moved = 0;
    bool is_refused = false;
    std::unique_ptr<HostPin> pin;
  };
  bool TakeRoom() const;

  static inline std::atomic<uint64_t> pinned_bytes_{0}, devices_{1};

  uint8_t* const data_;
  const uint64_t bytes_;
  const bool is_writable_;
  std::mutex mutex_;
  bool is_closed_ = false;        // Guarded by mutex_.
  std::map<uint64_t, Way> ways_;  // Guarded by mutex_; keyed by device.
};

}  // namespace hpvm

#endif  // HPVMD_BACKENDS_CONTRACT_HOST_BLOCK_H_
