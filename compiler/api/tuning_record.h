// SPDX-License-Identifier: Apache-2.0
// TuningRecord holds a device's measurements of a kernel's variants, so that a restarted device need not measure
// again.
//
// The record is small and opaque in transit: the device writes it, the compiler's process stores it beside its
// artifacts under the artifact's name (compiler/driver/cache_key.h), and returns it with the next delivery of the
// artifact. It affects performance only; a reader trusts no index in it.
#ifndef HPVMD_COMPILER_API_TUNING_RECORD_H_
#define HPVMD_COMPILER_API_TUNING_RECORD_H_

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/hash.h"
#include "base/status.h"

namespace hpvm {

// Launches that are measured together: extents within a factor of four, and the same candidates.
struct TuningClass {
  // CPU: bit i is Artifact::variants[i]; the bit after the last variant's is one instance at a time. GPU: pairs of a
  // variant and a group shape (backends/gpu/launch.cc).
  uint32_t candidates = 0;
  std::array<uint8_t, 4> sizes{};  // (bits of the extent + 1) / 2 by dimension; the same of a group's instances.
  uint32_t winner = 0;             // Bit number of a candidate.
  std::vector<float> instance_ns;  // Smallest sample by candidate; 0: no samples.
  friend bool operator==(const TuningClass&, const TuningClass&) = default;
};

struct TuningRecord {
  std::string device;  // DeviceInfo::name without irrelevant parts; a record does not apply to another device.
  std::vector<TuningClass> classes;
  friend bool operator==(const TuningRecord&, const TuningRecord&) = default;
};

inline constexpr size_t kTuningBytesMax = 8 * 1024;
inline constexpr size_t kTuningClassesMax = 32;

// Returns at most kTuningBytesMax bytes; drops classes that do not fit.
std::vector<uint8_t> EncodeTuning(const TuningRecord& record);
// Returns kInvalidArgument when malformed. Every winner is among the candidates, every figure finite and not negative.
StatusOr<TuningRecord> DecodeTuning(std::span<const uint8_t> bytes);

// TuningStore accepts records to keep.
class TuningStore {
 public:
  virtual ~TuningStore() = default;
  // Keeps the record of the kernel that is called `name` (Artifact::name), or drops it if keeping it would block.
  // Thread-safe; never waits.
  virtual void Keep(const Sha256& name, std::span<const uint8_t> record) = 0;
  // Keeps a record of compiler/api/cost_record.h likewise; by default the record is dropped.
  virtual void KeepCosts(const Sha256& /*name*/, std::span<const uint8_t> /*record*/) {}
};

}  // namespace hpvm

#endif  // HPVMD_COMPILER_API_TUNING_RECORD_H_
