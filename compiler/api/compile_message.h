// SPDX-License-Identifier: Apache-2.0
// Payloads of frame heads (builder/message.h) between the engine's compiler service, the zygote and its children:
// requests (compiler/api/wire.h), the messages of proto/internal/builder.proto, and the validating functions that read
// them.
#ifndef HPVMD_COMPILER_API_COMPILE_MESSAGE_H_
#define HPVMD_COMPILER_API_COMPILE_MESSAGE_H_

#include <cstdint>
#include <string>
#include <string_view>

#include "base/diagnostic.h"
#include "base/hash.h"
#include "base/io/frame_socket.h"
#include "base/limits.h"
#include "base/status.h"
#include "compiler/api/service.h"
#include "proto/internal/builder.pb.h"

namespace hpvm {

// Limits of answers and of the results of compile children.
inline constexpr FrameLimits kZygoteFrameLimits = {
    .head_bytes_max = 1024 * 1024,
    .body_bytes_max = static_cast<uint32_t>(limits::kArtifactBytesMax),
    .fds_max = 1,
};

struct ZygoteRequest {
  uint64_t remaining_ns = 0;  // Until the client's deadline, measured when sent; 0: no deadline.
  CompileRequest compile;     // `module` is empty here: its bytes travel as a memfd.
};
std::string PayloadOf(const ZygoteRequest& request);
StatusOr<ZygoteRequest> ReadCompileRequest(std::string_view payload);
StatusOr<internal::CompileAnswer> ReadCompileAnswer(std::string_view payload);
StatusOr<internal::CompileNote> ReadCompileNote(std::string_view payload);

// Sets at most limits::kDiagnosticsMax diagnostics and truncates long texts.
void SetDiagnostics(const Diagnostics& diagnostics, internal::CompileAnswer* answer);
Diagnostics GetDiagnostics(const internal::CompileAnswer& answer);

void SetHash(const Sha256& hash, std::string* bytes);
// Returns zeros unless `bytes` has 32 bytes.
Sha256 GetHash(std::string_view bytes);

}  // namespace hpvm

#endif  // HPVMD_COMPILER_API_COMPILE_MESSAGE_H_
