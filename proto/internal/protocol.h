// SPDX-License-Identifier: Apache-2.0
// The rules of executor.proto as code, one copy for both ends: limits, and checks of every message before it is used.
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
// Mappings of one executor: below the kernel's 65,530 by far, above what a large run binds.
inline constexpr uint32_t kMemoriesMax = 1024;
inline constexpr uint32_t kHandlesMax = 1024;
// Requests that wait for an answer on one socket.
inline constexpr uint32_t kRequestsMax = 4096;
inline constexpr uint32_t kDevicesMax = 8;
// No machine has as much; sums over devices and tenants do not overflow.
inline constexpr uint64_t kDeviceBytesMax = uint64_t{1} << 50;
// The device of nodes of checked graphs, which Ready does not list; and of transfers from and to host memory.
inline constexpr char kCheckerName[] = "checker";
inline constexpr char kHostName[] = "host";
inline constexpr uint32_t kNodeRecordsMax = 10'000;
inline constexpr size_t kVariantBytesMax = 64;
inline constexpr uint32_t kFastNodesMax = 100;
inline constexpr uint32_t kDefectsMax = 32;
// What one message tells of costs; with long names it holds fewer (kCostsHeadBytesMax).
inline constexpr uint32_t kCostsMax = 1000;
inline constexpr uint32_t kTransferCostsMax = 64;
inline constexpr uint32_t kCostsHeadBytesMax = kHeadBytesMax / 2;
// Nanoseconds, bytes a second, shares: what is beyond was not measured.
inline constexpr double kCostFigureMax = 1e30;
inline constexpr uint32_t kInlineBytesMax = kBodyBytesMax / 2;
// A log in RunDone, its texts together with the nodes' names: beside node records and a status it must fit in the head.
inline constexpr uint32_t kLogHeadBytesMax = 144 * 1024;
static_assert(kLogHeadBytesMax > limits::kLogBytesMax + 64 * limits::kLogLinesMax &&
              kLogHeadBytesMax < kHeadBytesMax / 2);
inline constexpr uint32_t kNameBytesMax = 256;
inline constexpr uint32_t kTextBytesMax = 1024;         // Places, expressions, paths of nodes.
inline constexpr uint32_t kMessageTextBytesMax = 4096;  // One diagnostic.
inline constexpr uint32_t kStatusTextBytesMax = 16 * 1024;
// Alignment of ranges in bodies and memories: every element type and 16-byte vectors.
inline constexpr uint32_t kRangeAlignment = 16;

// kInvalidArgument when the bytes are no Envelope.
StatusOr<Unchecked<internal::Envelope>> ParseHead(std::string_view head);
// The message, if it follows the rules of executor.proto: counts, lengths, enum ranges, text, ranges inside
// `body_bytes`, number of descriptors. kInvalidArgument names the field that does not. The caller checks what depends
// on the state of a connection (ids, handles) where it keeps that.
StatusOr<internal::Envelope> CheckToExecutor(Unchecked<internal::Envelope> said, size_t body_bytes, size_t fds);
// `devices`: the ids in Ready, which the answers name. Empty before Ready.
StatusOr<internal::Envelope> CheckFromExecutor(Unchecked<internal::Envelope> said, size_t body_bytes, size_t fds,
                                               std::span<const std::string> devices);

// The same of single requests, for whoever writes them.
Status CheckPrepare(const internal::PrepareGraph& prepare, size_t body_bytes, size_t fds);
Status CheckRun(const internal::Run& run, size_t body_bytes);
// The message that answers a request; MESSAGE_NOT_SET for what is not answered.
internal::Envelope::MessageCase AnswerTo(internal::Envelope::MessageCase request);

void SetStatus(const Status& status, internal::Status* message);
Status GetStatus(const internal::Status& message);
// The findings that the message lists.
Diagnostics GetDiagnostics(const v1::Diagnostics& message);

}  // namespace hpvm

#endif  // HPVMD_PROTO_INTERNAL_PROTOCOL_H_
