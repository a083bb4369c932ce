// SPDX-License-Identifier: Apache-2.0
// Counters, histograms and tables of them by label: all threads count without a lock, and a reader runs now and then.
//
// A reader sees correct numbers, but not all of the same moment.
#ifndef HPVMD_SERVER_OBSERVE_METRICS_H_
#define HPVMD_SERVER_OBSERVE_METRICS_H_

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>

#include "base/clock.h"

namespace hpvm::server {

class AtomicCounter {
 public:
  void Add(uint64_t count = 1) { value_.fetch_add(count, std::memory_order_relaxed); }
  uint64_t value() const { return value_.load(std::memory_order_relaxed); }

 private:
  std::atomic<uint64_t> value_{0};
};

// Upper bounds of buckets, ascending, in whole units; `unit` converts one to the exported unit.
struct Buckets {
  static constexpr size_t kMax = 24;
  std::span<const uint64_t> bounds;
  double unit = 1;
};
// 10 µs to 100 s in steps of 2 to 2.5; exported in seconds, observed in nanoseconds.
extern const Buckets kSecondsBuckets;
// 1 to 4,096.
extern const Buckets kCountBuckets;

class Histogram {
 public:
  explicit Histogram(const Buckets& buckets) : buckets_(buckets) {}
  void Observe(uint64_t value) {
    const auto bound = std::lower_bound(buckets_.bounds.begin(), buckets_.bounds.end(), value);
    counts_[static_cast<size_t>(bound - buckets_.bounds.begin())].Add();
    sum_.Add(value);
  }
  void Observe(Duration took) { Observe(static_cast<uint64_t>(std::max<int64_t>(took.count(), 0))); }

  const Buckets& buckets() const { return buckets_; }
  // Returns the count of one bucket; the last one is beyond every bound.
  uint64_t count(size_t bucket) const { return counts_[bucket].value(); }
  double sum() const { return static_cast<double>(sum_.value()) * buckets_.unit; }

 private:
  const Buckets& buckets_;
  std::array<AtomicCounter, Buckets::kMax + 1> counts_;
  AtomicCounter sum_;  // Wraps after 584 years of nanoseconds.
};

// LabelTable holds one T for each of the first kMax names and one for all others together, so that its size is
// bounded even with hostile callers.
template <typename T, size_t kMax>
class LabelTable {
 public:
  struct Entry {
    std::string name;
    T value;
  };

  LabelTable() = default;
  ~LabelTable() {
    for (std::atomic<Entry*>& slot : slots_) {
      delete slot.load();
    }
  }
  LabelTable(const LabelTable&) = delete;
  LabelTable& operator=(const LabelTable&) = delete;

  // Returns the name's own entry, or the shared one. Lives as long as the table.
  Entry& Find(std::string_view name) {
    Entry* found = Look(name);
    return found != nullptr ? *found : count_.load(std::memory_order_acquire) >= kMax ? other_ : Insert(name);
  }

  // Visits each named entry, and the shared one once it is used.
  void ForEach(const std::function<void(const Entry&)>& each) const {
    for (const std::atomic<Entry*>& slot : slots_) {
      if (const Entry* entry = slot.load(std::memory_order_acquire); entry != nullptr) {
        each(*entry);
      }
    }
    if (count_.load(std::memory_order_acquire) >= kMax) {
      each(other_);
    }
  }

 private:
  static constexpr size_t kSlots = std::bit_ceil(4 * kMax);  // Sparse, so that an unsuccessful search ends soon.

  static size_t SlotOf(std::string_view name) { return std::hash<std::string_view>()(name) % kSlots; }
  Entry* Look(std::string_view name) const {
    for (size_t at = SlotOf(name);; at = (at + 1) % kSlots) {
      Entry* entry = slots_[at].load(std::memory_order_acquire);
      if (entry == nullptr || entry->name == name) {
        return entry;
      }
    }
  }
  Entry& Insert(std::string_view name) {
    std::lock_guard lock(mutex_);
    if (Entry* entry = Look(name); entry != nullptr) {
      return *entry;
    }
    if (count_.load(std::memory_order_relaxed) >= kMax) {
      return other_;
    }
    size_t at = SlotOf(name);
    while (slots_[at].load(std::memory_order_relaxed) != nullptr) {
      at = (at + 1) % kSlots;
    }
    auto* entry = new Entry{std::string(name), T()};  // Owned by the table; deleted by its destructor.
    slots_[at].store(entry, std::memory_order_release);
    count_.fetch_add(1, std::memory_order_release);
    return *entry;
  }

  std::array<std::atomic<Entry*>, kSlots> slots_{};
  std::atomic<size_t> count_{0};
  std::mutex mutex_;  // Guards insertion.
  Entry other_{"other", T()};
};

}  // namespace hpvm::server

#endif  // HPVMD_SERVER_OBSERVE_METRICS_H_
