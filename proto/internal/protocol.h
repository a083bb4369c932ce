// SPDX-License-Identifier: Apache-2.0
// The rules of executor.proto as code shared by both ends: limits, and checks of every message before it is used.
#ifndef HPVMD_PROTO_INTERNAL_PROTOCOL_H_
#define HPVMD_PROTO_INTERNAL_PROTOCOL_H_

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/clean_text.h"
#include "base/diagnostic.h"
#include "base/io/frame_socket.h"
#include "base/limits.h"
#include "base/status.h"
#include "base/unchecked.h"
#include "hpvm/element_type.h"
#include "proto/internal/executor.pb.h"

namespace hpvm {

inline constexpr uint32_t kExecutorProtocolVersion = 4;

// An Envelope with 1,000 node records of ordinary length is about 80 KiB; long names and reports of faults need more.
inline constexpr uint32_t kHeadBytesMax = 384 * 1024;
inline constexpr uint32_t kBodyBytesMax = 8 * 1024 * 1024;
inline constexpr FrameLimits kToExecutorLimits{kHeadBytesMax, kBodyBytesMax, 4};
inline constexpr FrameLimits kFromExecutorLimits{kHeadBytesMax, kBodyBytesMax, 0};

// Ports of a graph, and symbols.
inline constexpr uint32_t kPortsMax = 1024;
inline constexpr uint32_t kModulesMax = 512;
inline constexpr uint64_t kModulesBytesMax = 256 * limits::kMiB;
// Mappings of one executor: far below the kernel's limit of 65,530, and more than a large run binds.
inline constexpr uint32_t kMemoriesMax = 1024;
inline constexpr uint32_t kHandlesMax = 1024;
// Requests that await an answer on one socket.
inline constexpr uint32_t kRequestsMax = 4096;
inline constexpr uint32_t kDevicesMax = 8;
inline constexpr uint32_t kDeviceIdBytesMax = 64;
// Size of the largest family of subsets of 8 devices in which no subset contains another: C(8, 4).
inline constexpr uint32_t kNeedsMax = 70;
// No machine has as much memory, and sums over devices and tenants do not overflow.
inline constexpr uint64_t kDeviceBytesMax = uint64_t{1} << 50;
// The device name of nodes of checked graphs, and that of host memory as an end of a transfer. Ready lists neither.
inline constexpr char kCheckerName[] = "checker";
inline constexpr char kHostName[] = "host";
inline constexpr uint32_t kNodeRecordsMax = 10'000;
inline constexpr size_t kVariantBytesMax = 128;
inline constexpr uint32_t kFastNodesMax = 100;
inline constexpr uint32_t kDefectsMax = 32;
// Kernels in one cost message; with long names a message holds fewer (kCostsHeadBytesMax).
inline constexpr uint32_t kCostsMax = 1000;
inline constexpr uint32_t kTransferCostsMax = 64;
inline constexpr uint32_t kCostsHeadBytesMax = kHeadBytesMax / 2;
// Largest accepted figure in nanoseconds, bytes per second or shares; a larger one cannot be a measurement.
inline constexpr double kCostFigureMax = 1e30;
inline constexpr uint32_t kInlineBytesMax = kBodyBytesMax / 2;
// Limit of a log in RunDone, its texts and the nodes' names together: it must fit in the head beside node records and
// a status.
inline constexpr uint32_t kLogHeadBytesMax = 144 * 1024;
static_assert(kLogHeadBytesMax > limits::kLogBytesMax + 64 * limits::kLogLinesMax &&
              kLogHeadBytesMax < kHeadBytesMax / 2);
inline constexpr uint32_t kNameBytesMax = 256;
inline constexpr uint32_t kTextBytesMax = 1024;         // Places, expressions, paths of nodes.
inline constexpr uint32_t kMessageTextBytesMax = 4096;  // One diagnostic.
inline constexpr uint32_t kStatusTextBytesMax = 16 * 1024;
// Alignment of ranges in bodies and memories: suffices for every element type and for 16-byte vectors.
inline constexpr uint32_t kRangeAlignment = 16;

// Returns kInvalidArgument when the bytes are not an Envelope.
StatusOr<Unchecked<internal::Envelope>> ParseHead(std::string_view head);
// Returns the message if it obeys the rules of executor.proto: counts, lengths, enum ranges, text, ranges inside
// `body_bytes`, number of descriptors. Otherwise returns kInvalidArgument, which names the offending field. Rules that
// depend on the state of a connection (ids, handles) are checked by the caller, which keeps that state.
StatusOr<internal::Envelope> CheckToExecutor(Unchecked<internal::Envelope> said, size_t body_bytes, size_t fds);
// `devices` are the ids in Ready that answers may name; empty before Ready.
StatusOr<internal::Envelope> CheckFromExecutor(Unchecked<internal::Envelope> said, size_t body_bytes, size_t fds,
                                               std::span<const std::string> devices);

// The same checks for single requests, for code that creates them.
Status CheckPrepare(const internal::PrepareGraph& prepare, size_t body_bytes, size_t fds);
Status CheckRun(const internal::Run& run, size_t body_bytes);
// Returns the message that answers `request`, or MESSAGE_NOT_SET when it is not answered.
internal::Envelope::MessageCase AnswerTo(internal::Envelope::MessageCase request);

void SetStatus(const Status& status, internal::Status* message);
Status GetStatus(const internal::Status& message);
// Returns the findings that the message lists.
Diagnostics GetDiagnostics(const v1::Diagnostics& message);

}  // namespace hpvm

#endif  // HPVMD_PROTO_INTERNAL_PROTOCOL_H_
