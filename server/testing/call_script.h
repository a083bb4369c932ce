// SPDX-License-Identifier: Apache-2.0
// Scripts of what tenants, their executors, the disk and the administrator do to a daemon, step by step, as bytes:
// each string of bytes is a script.
#ifndef HPVMD_SERVER_TESTING_CALL_SCRIPT_H_
#define HPVMD_SERVER_TESTING_CALL_SCRIPT_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"

namespace hpvm::server::testing {

enum class ActionKind : uint8_t {
  // Calls of a tenant.
  kUpload,
  kUploadStart,
  kUploadPart,
  kUploadFinish,
  kUploadAbandon,
  kPrepareGraph,
  kCancelPrepare,
  kReleaseGraph,
  kListGraphs,
  kCreateBuffer,
  kWriteBuffer,
  kFinishWrite,
  kReadBuffer,
  kEndDownload,
  kDeleteBuffer,
  kListBuffers,
  kRun,
  kCancelRun,
  kOpenStream,
  kStreamItem,
  kCloseStream,
  kSubmit,
  kSubmitArray,
  kRetryJob,
  kCancelJob,
  kGetJob,
  kListJobs,
  kListJobsStep,
  kListJobsAbandon,
  kWatchJob,
  kReadEvents,
  kUnwatch,
  kFetchOutput,
  kListCosts,
  kServerInfo,
  kUsage,
  // Executors.
  kReady,
  kAnswerPrepare,
  kAnswerRun,
  kAnswerCosts,
  kAnswerReclaim,
  kReportUsage,
  kExecutorDies,
  kStartsFail,
  kProbe,
  // The machine and its administrator.
  kHoldStore,
  kStepStore,
  kDiskFull,
  kAdvance,
  kSetConfig,
  kSetPolicy,
  kStop,
  kCrash,
  // Calls of a tenant that were added later: the numbers of the others stay, because fuzzers' inputs contain them.
  kSetJobHold,
};
inline constexpr size_t kActionKinds = static_cast<size_t>(ActionKind::kSetJobHold) + 1;

std::string_view NameOf(ActionKind kind);

// One step. The kind determines the meaning of the numbers; each value is valid.
struct Action {
  ActionKind kind = ActionKind::kUpload;
  uint8_t tenant = 0;
  std::array<uint8_t, 3> numbers{};
};
using Script = std::vector<Action>;

inline constexpr size_t kActionBytes = 5, kActionsMax = 200;

// Bytes beyond the last whole action, or beyond kActionsMax, are ignored.
Script DecodeScript(std::span<const uint8_t> bytes);
std::vector<uint8_t> EncodeScript(const Script& script);
// Weighted so that most calls have something to work on.
Script RandomScript(Rng& rng, size_t actions);
// Formats "submit tenant=1 7 0 255"
std::string ToLine(const Action& action);

}  // namespace hpvm::server::testing

#endif  // HPVMD_SERVER_TESTING_CALL_SCRIPT_H_
