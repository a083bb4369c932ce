// SPDX-License-Identifier: Apache-2.0
#include "graph/interner.h"

#include <algorithm>
#include <cstring>

#include "base/clock.h"

namespace hpvm::graph {
namespace {

uint64_t ProcessSeed() {
  static const uint64_t seed = SystemRng().Next() | 1;
  return seed;
}

// Multiplies and folds eight bytes at a time, as wyhash does.
uint64_t Mix(uint64_t a, uint64_t b) {
  const auto product = static_cast<unsigned __int128>(a) * b;
  return static_cast<uint64_t>(product) ^ static_cast<uint64_t>(product >> 64);
}

uint32_t HashOfText(std::string_view text, uint64_t seed) {
  uint64_t hash = seed ^ text.size();
  while (!text.empty()) {
    uint64_t word = 0;
    const size_t bytes = std::min<size_t>(text.size(), 8);
    std::memcpy(&word, text.data(), bytes);
    hash = Mix(hash ^ word ^ 0xa0761d6478bd642fu, seed ^ 0xe7037ed1a0b428dbu);
    text.remove_prefix(bytes);
  }
  return static_cast<uint32_t>(hash ^ (hash >> 32));
}

}  // namespace

Interner::Interner() : seed_(ProcessSeed()), slots_(1024, 0) {}

size_t Interner::SlotOf(std::string_view text, uint32_t hash) const {
  const size_t mask = slots_.size() - 1;
  size_t slot = hash & mask;
  while (true) {
    ++probes_;
    if (slots_[slot] == 0) {
      return slot;
    }
    const Entry& entry = entries_[slots_[slot] - 1];
    if (entry.hash == hash && Text(slots_[slot] - 1) == text) {
      return slot;
    }
    slot = (slot + 1) & mask;
  }
}

uint32_t Interner::Intern(std::string_view text) {
  const uint32_t hash = HashOfText(text, seed_);
  size_t slot = SlotOf(text, hash);
  if (slots_[slot] != 0) {
    return slots_[slot] - 1;
  }
  if (2 * (entries_.size() + 1) > slots_.size()) {
    Grow();
    slot = SlotOf(text, hash);
  }
  entries_.push_back({chars_.size(), static_cast<uint32_t>(text.size()), hash});
  chars_ += text;
  slots_[slot] = static_cast<uint32_t>(entries_.size());
  return static_cast<uint32_t>(entries_.size() - 1);
}

std::optional<uint32_t> Interner::Find(std::string_view text) const {
  const size_t slot = SlotOf(text, HashOfText(text, seed_));
  if (slots_[slot] == 0) {
    return std::nullopt;
  }
  return slots_[slot] - 1;
}

void Interner::Grow() {
  slots_.assign(slots_.size() * 2, 0);
  const size_t mask = slots_.size() - 1;
  for (size_t i = 0; i < entries_.size(); ++i) {
    size_t slot = entries_[i].hash & mask;
    while (slots_[slot] != 0) {
      ++probes_;
      slot = (slot + 1) & mask;
    }
    slots_[slot] = static_cast<uint32_t>(i + 1);
  }
}

}  // namespace hpvm::graph
