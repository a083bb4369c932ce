// SPDX-License-Identifier: Apache-2.0
// CostRecord holds an engine's measurements of a kernel's launches (scheduler/cost/cost_history.h), so that they
// survive a restart.
//
// It travels as compiler/api/tuning_record.h does: the compiler's process stores it beside its artifacts under the
// artifact's name, and returns it with the next delivery of the artifact. It affects performance only; a reader checks
// every figure.
#ifndef HPVMD_COMPILER_API_COST_RECORD_H_
#define HPVMD_COMPILER_API_COST_RECORD_H_

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"

namespace hpvm {

// Launches of similar size: scheduler::CostClass.
struct CostRecordClass {
  uint8_t size = 0, intensity = 0;
  uint64_t samples = 0;
  float weight = 0, instances = 0, bytes = 0, operations = 0, time_ns = 0, variance = 0, low_ns = 0, error = 0;
  bool is_settled = false;
  friend bool operator==(const CostRecordClass&, const CostRecordClass&) = default;
};

struct CostRecordDevice {
  std::string device;  // Kind and name; the figures of one device do not apply to another.
  std::vector<CostRecordClass> classes;
  friend bool operator==(const CostRecordDevice&, const CostRecordDevice&) = default;
};

struct CostRecord {
  std::vector<CostRecordDevice> devices;
  friend bool operator==(const CostRecord&, const CostRecord&) = default;
};

inline constexpr size_t kCostRecordBytesMax = 16 * 1024;
inline constexpr size_t kCostRecordDevicesMax = 16;
inline constexpr size_t kCostRecordClassesMax = 64;  // Per device.

// Returns at most kCostRecordBytesMax bytes; drops the classes and devices at the end that do not fit.
std::vector<uint8_t> EncodeCosts(const CostRecord& record);
// Returns kInvalidArgument when malformed. Every decoded figure is finite and not negative.
StatusOr<CostRecord> DecodeCosts(std::span<const uint8_t> bytes);

}  // namespace hpvm

#endif  // HPVMD_COMPILER_API_COST_RECORD_H_
