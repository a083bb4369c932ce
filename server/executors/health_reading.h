// SPDX-License-Identifier: Apache-2.0
// Parses a reading of a GPU maker's management library, in the form in which the process that queries it writes it: a
// line of JSON. The library may report anything, so the line is not trusted: impossible values are treated as missing.
#ifndef HPVMD_SERVER_EXECUTORS_HEALTH_READING_H_
#define HPVMD_SERVER_EXECUTORS_HEALTH_READING_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "hpvm/v1/record.pb.h"

namespace hpvm::server {

inline constexpr size_t kHealthDevicesMax = 64;
inline constexpr size_t kHealthLineBytesMax = 64 << 10;
inline constexpr size_t kXidsMax = 100;  // Limit per device and reading.

struct DeviceReading {
  // Without fence and last_xid; uuid and bus are normalized by UuidOf and BusOf, and never both empty.
  v1::DeviceHealth health;
  bool is_lost = false;        // The library has lost access to the device.
  bool awaits_reset = false;   // Bad rows of memory are replaced only by a reset.
  std::vector<uint64_t> xids;  // NVIDIA's fault numbers since the previous reading, in order.
};

// Returns kUnavailable with the library's own reason; kInvalidArgument when the line is malformed.
StatusOr<std::vector<DeviceReading>> ParseHealthReading(std::string_view line);

}  // namespace hpvm::server

#endif  // HPVMD_SERVER_EXECUTORS_HEALTH_READING_H_
