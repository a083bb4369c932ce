// SPDX-License-Identifier: Apache-2.0
// Messages between a runner, the supervisor of its driver builders, and the builders themselves: frames whose heads are
// these structs and whose bodies are code and binaries. Each end checks the other's.
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
  uint64_t id = 0;       // Not 0.
  std::string identity;  // Of the driver; empty: the result is not kept.
  DriverBuild build;     // `code` is the frame's body.
};

struct DriverAnswer {
  uint64_t id = 0;  // 0: a builder has loaded its driver, or says why it cannot.
  Status status;
  std::string log;  // The binary is the frame's body.
};

// Nobody wants the answer to a request any more: there will be none.
struct DriverCancel {
  uint64_t id = 0;
};

// The first message to the supervisor: the key that tags what is kept.
std::vector<uint8_t> EncodeDriverHello(const ArtifactKey& key);
StatusOr<ArtifactKey> DecodeDriverHello(const Frame& frame);
std::vector<uint8_t> EncodeDriverRequest(const DriverRequest& request);
// Borrows the frame's body.
StatusOr<DriverRequest> DecodeDriverRequest(const Frame& frame);
std::vector<uint8_t> EncodeDriverCancel(const DriverCancel& cancel);
bool IsDriverCancel(const Frame& frame);
StatusOr<DriverCancel> DecodeDriverCancel(const Frame& frame);
std::vector<uint8_t> EncodeDriverAnswer(const DriverAnswer& answer);
StatusOr<DriverAnswer> DecodeDriverAnswer(const Frame& frame);

}  // namespace hpvm

#endif  // HPVMD_EXECUTOR_DRIVER_WIRE_H_
