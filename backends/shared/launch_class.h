// SPDX-License-Identifier: Apache-2.0
// A class of launches of a kernel that are measured together: those of similar size with the same allowed variants.
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
#include "compiler/api/tuning_record.h"

namespace hpvm::backends {

using Extent = std::array<uint64_t, 3>;

struct LaunchClass {
  static constexpr uint32_t kUnsettled = ~0u;

  LaunchClass(VariantMask allowed, const std::array<uint8_t, 4>& size_class, const TunerPatience& patience = {});

  // Recent nanoseconds per instance; 0 when unknown. Thread-safe.
  float instance_ns() const { return lately_ns.load(std::memory_order_relaxed); }
  void Learn(double instance_ns_now);
  // Publishes the tuner's results so far; called by the holder of `mutex`. Returns true when that settled the class.
  bool Publish();

  const VariantMask mask;
  const std::array<uint8_t, 4> sizes;  // TuningClass::sizes.
  std::atomic<uint32_t> winner{kUnsettled};
  std::atomic<uint32_t> favourite{0};  // For launches that arrive while another one is being measured.
  std::atomic<float> lately_ns{0};     // Time of the winner.
  std::mutex mutex;                    // Held by the launch that is being measured.
  Tuner tuner;                         // Guarded by mutex.
  bool is_measured_whole = false;      // Guarded by mutex; samples are whole launches instead of slices of one.
  // For GPUs, which may share a class with equal devices; guarded by mutex. Only one device measures: of two equal
  // devices one may be slower, or shared with others, so that times on different devices are not comparable.
  const void* measurer = nullptr;
  // Number of launches on the measuring device since the start of one to be measured; 0: none.
  uint32_t in_flight = 0;
  uint32_t elsewhere = 0;  // Number of launches on other devices since the last one on the measuring device.
};

// The classes of one kernel. They do not move while the table lives.
class ClassTable {
 public:
  // `variant_count` includes one instance at a time. `device` identifies the device whose records are used.
  ClassTable(uint32_t variant_count, std::string device, const TunerPatience& patience = {})
      : variant_count_(variant_count), device_(std::move(device)), patience_(patience) {}

  // Thread-safe. Once the table is full, returns the nearest class that allows no more than `mask`.
  LaunchClass& ClassOf(VariantMask mask, const Extent& extent, const Extent& group);
  // Restores classes that an earlier process settled; ignores bytes that are malformed or of another device. Call
  // before any launch.
  void Restore(std::span<const uint8_t> tuning);
  // Returns a record of the settled classes.
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
