// SPDX-License-Identifier: Apache-2.0
#include "engine/run/crash_note.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>

namespace hpvm::engine {
namespace {

constexpr size_t kSlots = 16, kTextBytes = 240;

struct Slot {
  std::atomic<bool> taken{false};
  std::atomic<uint32_t> length{0};
  std::array<char, kTextBytes> text{};
};

std::array<Slot, kSlots> slots;

}  // namespace

CrashNote::CrashNote() : slot_(-1) {
  for (size_t i = 0; i < kSlots && slot_ < 0; ++i) {
    if (!slots[i].taken.exchange(true)) {
      slot_ = static_cast<int>(i);
      Clear();
    }
  }
}

CrashNote::~CrashNote() {
  if (slot_ >= 0) {
    Clear();
    slots[static_cast<size_t>(slot_)].taken.store(false);
  }
}

bool CrashNote::Add(std::string_view text) {
  if (slot_ < 0) {
    return true;
  }
  Slot& slot = slots[static_cast<size_t>(slot_)];
  size_t length = slot.length.load(std::memory_order_relaxed);
  bool is_whole = true;
  for (const std::string_view part : {std::string_view(length == 0 ? "" : "; "), text}) {
    const size_t fits = std::min(part.size(), kTextBytes - length);
    std::memcpy(slot.text.data() + length, part.data(), fits);
    length += fits;
    is_whole = is_whole && fits == part.size();
  }
  slot.length.store(static_cast<uint32_t>(length), std::memory_order_release);
  return is_whole;
}

void CrashNote::Clear() {
  if (slot_ >= 0) {
    slots[static_cast<size_t>(slot_)].length.store(0, std::memory_order_release);
  }
}

size_t ReadCrashNotes(char* text, size_t size) {
  size_t used = 0;
  for (const Slot& slot : slots) {
    const size_t length = std::min<size_t>(slot.length.load(std::memory_order_acquire), kTextBytes);
    if (length == 0 || used + length + 1 > size) {
      continue;
    }
    std::memcpy(text + used, slot.text.data(), length);
    text[used + length] = '\n';
    used += length + 1;
  }
  return used;
}

}  // namespace hpvm::engine
