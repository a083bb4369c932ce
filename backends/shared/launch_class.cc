// SPDX-License-Identifier: Apache-2.0
#include "backends/shared/launch_class.h"

#include <bit>
#include <cstdlib>

namespace hpvm::backends {
namespace {

// Two bits of size per step: within a factor of four the caches and the pool behave alike.
uint8_t SizeClass(uint64_t size) { return static_cast<uint8_t>((std::bit_width(size) + 1) / 2); }

uint32_t Distance(const std::array<uint8_t, 4>& a, const std::array<uint8_t, 4>& b) {
  uint32_t sum = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    sum += static_cast<uint32_t>(std::abs(int{a[i]} - int{b[i]}));
  }
  return sum;
}

}  // namespace

LaunchClass::LaunchClass(VariantMask allowed, const std::array<uint8_t, 4>& size_class, const TunerPatience& patience)
    : mask(allowed), sizes(size_class), tuner(allowed, patience) {
  Publish();
}

bool LaunchClass::Publish() {
  favourite.store(tuner.best(), std::memory_order_relaxed);
  if (!tuner.settled() || winner.load(std::memory_order_relaxed) != kUnsettled) {
    return false;
  }
  lately_ns.store(static_cast<float>(tuner.measured(tuner.best())), std::memory_order_relaxed);
  winner.store(tuner.best(), std::memory_order_release);
  return true;
}

void LaunchClass::Learn(double instance_ns_now) {
  const auto now = static_cast<float>(instance_ns_now);
  const float before = instance_ns();
  // Avoids unnecessary contention for the cache line between threads that run launches of one class.
  if (now < before * 0.75f || now > before * 1.5f) {
    lately_ns.store(before == 0 ? now : (before + now) / 2, std::memory_order_relaxed);
  }
}

LaunchClass* ClassTable::Find(VariantMask mask, const std::array<uint8_t, 4>& sizes) {
  for (const std::unique_ptr<LaunchClass>& known : classes_) {
    if (known->mask == mask && known->sizes == sizes) {
      return known.get();
    }
  }
  return nullptr;
}

LaunchClass& ClassTable::Add(VariantMask mask, const std::array<uint8_t, 4>& sizes) {
  classes_.push_back(std::make_unique<LaunchClass>(mask, sizes, patience_));
  return *classes_.back();
}

LaunchClass& ClassTable::ClassOf(VariantMask mask, const Extent& extent, const Extent& group) {
  const std::array<uint8_t, 4> sizes = {SizeClass(extent[0]), SizeClass(extent[1]), SizeClass(extent[2]),
                                        SizeClass(group[0] * group[1] * group[2])};
  std::lock_guard lock(mutex_);
  if (LaunchClass* known = Find(mask, sizes)) {
    return *known;
  }
  LaunchClass* nearest = nullptr;
  for (const std::unique_ptr<LaunchClass>& known : classes_) {
    if (known->mask == mask &&
        (nearest == nullptr || Distance(known->sizes, sizes) < Distance(nearest->sizes, sizes))) {
      nearest = known.get();
    }
  }
  // There are few sets of candidates: with and without a proof, and with groups that are too large for a variant.
  return nearest != nullptr && classes_.size() >= kTuningClassesMax ? *nearest : Add(mask, sizes);
}

void ClassTable::Restore(std::span<const uint8_t> tuning) {
  const StatusOr<TuningRecord> record = DecodeTuning(tuning);
  if (!record.ok() || record->device != device_) {
    return;
  }
  const VariantMask known = static_cast<VariantMask>((uint64_t{1} << variant_count_) - 1);
  std::lock_guard lock(mutex_);
  for (const TuningClass& c : record->classes) {
    if ((c.candidates & ~known) != 0 || Find(c.candidates, c.sizes) != nullptr) {
      continue;
    }
    LaunchClass& added = Add(c.candidates, c.sizes);
    const float ns = c.winner < c.instance_ns.size() ? c.instance_ns[c.winner] : 0;
    added.tuner.Settle(c.winner, ns);
    added.Publish();
  }
}

std::vector<uint8_t> ClassTable::Record() {
  TuningRecord record;
  record.device = device_;
  std::lock_guard lock(mutex_);
  for (const std::unique_ptr<LaunchClass>& known : classes_) {
    const uint32_t winner = known->winner.load(std::memory_order_acquire);
    if (winner == LaunchClass::kUnsettled) {
      continue;
    }
    // The class is settled: its tuner does not change any more.
    TuningClass c{known->mask, known->sizes, winner, std::vector<float>(variant_count_)};
    for (uint32_t i = 0; i < variant_count_; ++i) {
      c.instance_ns[i] = static_cast<float>(known->tuner.measured(i));
    }
    record.classes.push_back(std::move(c));
  }
  return EncodeTuning(record);
}

}  // namespace hpvm::backends
