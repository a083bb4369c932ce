// SPDX-License-Identifier: Apache-2.0
// What an engine has measured of a kernel's launches (scheduler/cost/cost_history.h), so that the next start knows it.
//
// It travels as compiler/api/learnt.h does: the compiler's process keeps it beside its artifacts under the artifact's
// name, the next delivery of the artifact brings it back. It only says what is fast; a reader checks every figure.
#ifndef HPVMD_COMPILER_API_COST_RECORD_H_
#define HPVMD_COMPILER_API_COST_RECORD_H_

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"

namespace hpvm {

// Launches of about one size: scheduler::CostClass.
struct CostRecordClass {
  uint8_t size = 0, intensity = 0;
  uint64_t samples = 0;
  float weight = 0, instances = 0, bytes = 0, operations = 0, time_ns = 0, variance = 0, low_ns = 0, error = 0;
  bool is_settled = false;
  friend bool operator==(const CostRecordClass&, const CostRecordClass&) = default;
};

struct CostRecordDevice {
  std::string device;  // Kind and name: another device's figures are no use.
  std::vector<CostRecordClass> classes;
  friend bool operator==(const CostRecordDevice&, const CostRecordDevice&) = default;
};

struct CostRecord {
  std::vector<CostRecordDevice> devices;
  friend bool operator==(const CostRecord&, const CostRecord&) = default;
};

inline constexpr size_t kCostRecordBytesMax = 16 * 1024;
inline constexpr size_t kCostRecordDevicesMax = 16;
inline constexpr size_t kCostRecordClassesMax = 64;  // Of one device.

// At most kCostRecordBytesMax: what does not fit is left out, the last devices first.
std::vector<uint8_t> EncodeCosts(const CostRecord& record);
// kInvalidArgument when malformed. Every figure is finite and not negative.
StatusOr<CostRecord> DecodeCosts(std::span<const uint8_t> bytes);

}  // namespace hpvm

#endif  // HPVMD_COMPILER_API_COST_RECORD_H_
