// SPDX-License-Identifier: Apache-2.0
// Launches of a kernel that are measured together: those of about the same size for which the same variants may run.
#ifndef HPVMD_BACKENDS_SHARED_LAUNCH_CLASS_H_
#define HPVMD_BACKENDS_SHARED_LAUNCH_CLASS_H_

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "backends/shared/tuner.h"
#include "compiler/api/learnt.h"

namespace hpvm::backends {

using Extent = std::array<uint64_t, 3>;

struct LaunchClass {
  static constexpr uint32_t kUnsettled = ~0u;

  LaunchClass(VariantMask allowed, const std::array<uint8_t, 4>& size_class, const TunerPatience& patience = {});

  // Nanoseconds that an instance took lately; 0 when unknown. Any thread.
  float instance_ns() const { return lately_ns.load(std::memory_order_relaxed); }
  void Learn(double instance_ns_now);
  // Publishes what the tuner found so far; by the holder of `mutex`. True when that settled the class.
  bool Publish();

  const VariantMask mask;
  const std::array<uint8_t, 4> sizes;  // LearntClass::sizes.
  std::atomic<uint32_t> winner{kUnsettled};
  std::atomic<uint32_t> favourite{0};  // For launches that come while another one is being measured.
  std::atomic<float> lately_ns{0};     // Of the winner.
  std::mutex mutex;                    // Held by the launch that is being measured.
  Tuner tuner;                         // Guarded by mutex.
  bool is_measured_whole = false;      // Guarded by mutex; samples are whole launches, no longer slices of one.
  // GPUs, which may share a class with their equals; guarded by mutex. One device measures: of two that look equal one
  // may be slower, or shared with others, and what the code takes on one says nothing against what it takes there.
  const void* measurer = nullptr;
  uint32_t in_flight = 0;  // Launches there since one began that is to be measured; 0: none.
  uint32_t elsewhere = 0;  // Launches on the others since the last one there.
};

// The classes of one kernel. They stay where they are while the table lives.
class ClassTable {
 public:
  // `variant_count` counts one instance at a time. `device` tells whose records are believed.
  ClassTable(uint32_t variant_count, std::string device, const TunerPatience& patience = {})
      : variant_count_(variant_count), device_(std::move(device)), patience_(patience) {}

  // Any thread. Once the table is full, the nearest class that allows no more than `mask`.
  LaunchClass& ClassOf(VariantMask mask, const Extent& extent, const Extent& group);
  // Classes as settled by an earlier process; nothing when the bytes are malformed, or of another device. Before any
  // launch.
  void Restore(std::span<const uint8_t> learnt);
  // Of the classes that are settled.
  std::vector<uint8_t> Record();

 private:
  LaunchClass* Find(VariantMask mask, const std::array<uint8_t, 4>& sizes);
  LaunchClass& Add(VariantMask mask, const std::array<uint8_t, 4>& sizes);

  const uint32_t variant_count_;
  const std::string device_;
  const TunerPatience patience_;
  std::mutex mutex_;
  std::vector<std::unique_ptr<LaunchClass>> classes_;  // Guarded by mutex_.
};

}  // namespace hpvm::backends

#endif  // HPVMD_BACKENDS_SHARED_LAUNCH_CLASS_H_
