// SPDX-License-Identifier: Apache-2.0
// What messages hold (builder/message.h) between a runner, the supervisor of its driver builders, and the builders
// themselves: these structs, and code and binaries as the frames' bodies. Each end checks the other's.
#ifndef HPVMD_EXECUTOR_DRIVER_WIRE_H_
#define HPVMD_EXECUTOR_DRIVER_WIRE_H_

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "backends/contract/driver_builder.h"
#include "base/io/frame_socket.h"
#include "base/limits.h"
#include "base/status.h"
#include "compiler/api/artifact.h"

namespace hpvm {

inline constexpr FrameLimits kDriverFrameLimits = {
    .head_bytes_max = 4 * 1024 * 1024,  // Variants with all their arguments.
    .body_bytes_max = static_cast<uint32_t>(limits::kArtifactBytesMax),
    .fds_max = 0,
};
// Of a driver's log: what a person reads of it.
inline constexpr size_t kDriverLogBytesMax = 64 * 1024;

struct DriverRequest {
  std::string identity;  // Of the driver; empty: the result is not kept.
  DriverBuild build;     // `code` is the frame's body.
};

struct DriverAnswer {
  Status status;    // A builder's first answer: it has loaded its driver, or not.
  std::string log;  // The binary is the frame's body.
};

std::vector<uint8_t> EncodeDriverRequest(const DriverRequest& request);
// Borrows `code`, the frame's body.
StatusOr<DriverRequest> DecodeDriverRequest(std::span<const uint8_t> payload, std::span<const uint8_t> code);
std::vector<uint8_t> EncodeDriverAnswer(const DriverAnswer& answer);
StatusOr<DriverAnswer> DecodeDriverAnswer(std::span<const uint8_t> payload, std::span<const uint8_t> binary);

}  // namespace hpvm

#endif  // HPVMD_EXECUTOR_DRIVER_WIRE_H_
