// SPDX-License-Identifier: Apache-2.0
// What a device has measured of a kernel's variants, so that the next start need not measure again.
//
// Small and opaque on its way: the device writes it, the compiler's process keeps it beside its artifacts under the
// artifact's name (compiler/driver/cache_key.h), the next delivery of the artifact brings it back. It only says what
// is fast; a reader believes no index in it.
#ifndef HPVMD_COMPILER_API_LEARNT_H_
#define HPVMD_COMPILER_API_LEARNT_H_

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/hash.h"
#include "base/status.h"

namespace hpvm {

// Launches that are measured together: extents within a factor of four, and the same candidates.
struct LearntClass {
  // CPU: bit i is Artifact::variants[i]; the bit after the last: one instance at a time. GPU: pairs of a variant and a
  // shape of groups (backends/gpu/launch.cc).
  uint32_t candidates = 0;
  std::array<uint8_t, 4> sizes{};  // (bits of the extent + 1) / 2 by dimension; the same of a group's instances.
  uint32_t winner = 0;             // As the bits count.
  std::vector<float> instance_ns;  // By variant, the least of the samples; 0: none.
  friend bool operator==(const LearntClass&, const LearntClass&) = default;
};

struct LearntRecord {
  std::string device;  // DeviceInfo::name without what does not matter; another device's record is no use.
  std::vector<LearntClass> classes;
  friend bool operator==(const LearntRecord&, const LearntRecord&) = default;
};

inline constexpr size_t kLearntBytesMax = 8 * 1024;
inline constexpr size_t kLearntClassesMax = 32;

// At most kLearntBytesMax: classes that do not fit are left out.
std::vector<uint8_t> EncodeLearnt(const LearntRecord& record);
// kInvalidArgument when malformed. Every winner is among the candidates, every figure finite and not negative.
StatusOr<LearntRecord> DecodeLearnt(std::span<const uint8_t> bytes);

// Where records go.
class LearntStore {
 public:
  virtual ~LearntStore() = default;
  // Keeps the record of the kernel that Artifact::name says, if that is possible at once. Any thread; never waits.
  virtual void Keep(const Sha256& name, std::span<const uint8_t> record) = 0;
  // The same for a record of compiler/api/cost_record.h; a store that keeps none drops it.
  virtual void KeepCosts(const Sha256& /*name*/, std::span<const uint8_t> /*record*/) {}
};

}  // namespace hpvm

#endif  // HPVMD_COMPILER_API_LEARNT_H_
