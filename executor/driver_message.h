// SPDX-License-Identifier: Apache-2.0
// Payloads of frame heads (builder/message.h) between a runner, the supervisor of its driver builders, and the
// builders: requests (compiler/api/wire.h), and DriverAnswer of proto/internal/builder.proto. Code and binaries are the
// frames' bodies. Each end checks the other's messages.
#ifndef HPVMD_EXECUTOR_DRIVER_MESSAGE_H_
#define HPVMD_EXECUTOR_DRIVER_MESSAGE_H_

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "backends/contract/driver_builder.h"
#include "base/io/frame_socket.h"
#include "base/limits.h"
#include "base/status.h"
#include "proto/internal/builder.pb.h"

namespace hpvm::executor {

inline constexpr FrameLimits kDriverFrameLimits = {
    .head_bytes_max = 4 * 1024 * 1024,  // Variants with all their arguments.
    .body_bytes_max = static_cast<uint32_t>(limits::kArtifactBytesMax),
    .fds_max = 0,
};
// Limit for a driver's log, enough for a reader.
inline constexpr size_t kDriverLogBytesMax = 64 * 1024;

struct DriverRequest {
  std::string identity;  // The driver's identity; empty: the result is not cached.
  DriverBuild build;     // `code` is the frame's body.
};
std::string PayloadOf(const DriverRequest& request);
// Borrows `code`, the frame's body.
StatusOr<DriverRequest> ReadDriverRequest(std::string_view payload, std::span<const uint8_t> code);

internal::DriverAnswer AnswerOf(const Status& status, std::string_view log = {});
StatusOr<internal::DriverAnswer> ReadDriverAnswer(std::string_view payload, std::span<const uint8_t> binary);
Status StatusOf(const internal::DriverAnswer& answer);

// Encodes a log and a binary for the cache.
std::vector<uint8_t> KeptOf(const std::string& log, std::span<const uint8_t> binary);
StatusOr<DriverBinary> ReadKept(std::span<const uint8_t> bytes);

}  // namespace hpvm::executor

#endif  // HPVMD_EXECUTOR_DRIVER_MESSAGE_H_
