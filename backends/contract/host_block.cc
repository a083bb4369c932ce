// SPDX-License-Identifier: Apache-2.0
#include "backends/contract/host_block.h"

#include <unistd.h>

namespace hpvm {
namespace {

uint64_t PinnedBytesMax() {
  static const uint64_t most =
      static_cast<uint64_t>(sysconf(_SC_PHYS_PAGES)) * static_cast<uint64_t>(sysconf(_SC_PAGESIZE)) / 4;
  return most;
}

}  // namespace

bool HostBlock::TakeRoom() const {
  uint64_t pinned = pinned_bytes_.load(std::memory_order_relaxed);
  do {
    if (bytes_ > PinnedBytesMax() || pinned > PinnedBytesMax() - bytes_) {
      return false;
    }
  } while (!pinned_bytes_.compare_exchange_weak(pinned, pinned + bytes_, std::memory_order_relaxed));
  return true;
}

HostPin* HostBlock::PinFor(const Pinner& pinner, uint64_t bytes,
                           const std::function<std::unique_ptr<HostPin>()>& make) {
  if (bytes_ < kBytesMin) {
    return nullptr;
  }
  std::lock_guard lock(mutex_);
  if (is_closed_) {
    return nullptr;
  }
  Way& way = ways_[pinner.device];
  if (way.pin != nullptr || way.is_refused) {
    return way.is_refused ? nullptr : way.pin.get();
  }
  way.moved += bytes;
  if (way.moved / pinner.pays_after < bytes_ || !TakeRoom()) {
    return nullptr;
  }
  way.pin = make();
  if (way.pin == nullptr) {
    way.is_refused = true;
    pinned_bytes_.fetch_sub(bytes_, std::memory_order_relaxed);
  }
  return way.pin.get();
}

// The pin may still be in use by a copy, so it stays until Close.
void HostBlock::Refuse(uint64_t device) {
  std::lock_guard lock(mutex_);
  ways_[device].is_refused = true;
}

void HostBlock::Close() {
  std::lock_guard lock(mutex_);
  is_closed_ = true;
  for (auto& [device, way] : ways_) {
    if (way.pin != nullptr) {
      way.pin.reset();
      pinned_bytes_.fetch_sub(bytes_, std::memory_order_relaxed);
    }
  }
  ways_.clear();
}

}  // namespace hpvm
