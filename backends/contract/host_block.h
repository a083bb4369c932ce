// SPDX-License-Identifier: Apache-2.0
// Host memory that stays where it is, and the ways to it that devices keep: what is pinned for a device it copies from
// and to by itself, at the full speed of its bus, without staging memory.
//
// Pinning costs about as much as is saved by copying the same bytes eight times without staging memory (H200, Vulkan:
// 90 us a MiB to pin and let go, 12 us saved with each copy), four times through OpenCL. So a block is pinned for a
// device once its copies with that device have moved so much: what was never pinned would then have cost no more than
// half (ski rental).
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

// One device's own way to the memory of a block. May outlive the device, not the driver.
class HostPin {
 public:
  virtual ~HostPin() = default;
};

// Any thread.
class HostBlock {
 public:
  static constexpr uint64_t kBytesMin = limits::kMiB;  // Smaller ones are never pinned.
  // The device that copies, and the number of copies of all of the block after which a pin has paid for itself.
  struct Pinner {
    uint64_t device = 0;  // NewDevice
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

  // For a copy of `bytes` of it by the device: its pin, or null. `make` may be called now, and takes its time; null
  // from it means that the device cannot pin this memory, and is final.
  HostPin* PinFor(const Pinner& pinner, uint64_t bytes, const std::function<std::unique_ptr<HostPin>()>& make);

  // The device's pin has turned out to be no help: it is not handed out any more.
  void Refuse(uint64_t device);

  // Before the memory goes, when no copy is under way. From then on nothing is pinned.
  void Close();

  // Bytes pinned by all blocks of the process, for all devices: at most a quarter of the machine's memory.
  static uint64_t PinnedBytes() { return pinned_bytes_.load(std::memory_order_relaxed); }
  // A number for a device, never given twice.
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
  std::map<uint64_t, Way> ways_;  // Guarded by mutex_: by device.
};

}  // namespace hpvm

#endif  // HPVMD_BACKENDS_CONTRACT_HOST_BLOCK_H_
