// SPDX-License-Identifier: Apache-2.0
#include "base/status.h"

#include <stdio.h>
#include <string.h>

#include <cstdlib>

#include "absl/strings/cord.h"

namespace hpvm {

Status MakeStatus(absl::StatusCode code, std::string_view message) {
  return Status(code, absl::string_view(message.data(), message.size()));
}
Status InvalidArgument(std::string_view m) { return MakeStatus(absl::StatusCode::kInvalidArgument, m); }
Status NotFound(std::string_view m) { return MakeStatus(absl::StatusCode::kNotFound, m); }
Status AlreadyExists(std::string_view m) { return MakeStatus(absl::StatusCode::kAlreadyExists, m); }
Status FailedPrecondition(std::string_view m) { return MakeStatus(absl::StatusCode::kFailedPrecondition, m); }
Status ResourceExhausted(std::string_view m) { return MakeStatus(absl::StatusCode::kResourceExhausted, m); }
Status Aborted(std::string_view m) { return MakeStatus(absl::StatusCode::kAborted, m); }
Status DeadlineExceeded(std::string_view m) { return MakeStatus(absl::StatusCode::kDeadlineExceeded, m); }
Status Cancelled(std::string_view m) { return MakeStatus(absl::StatusCode::kCancelled, m); }
Status Unavailable(std::string_view m) { return MakeStatus(absl::StatusCode::kUnavailable, m); }
Status DataLoss(std::string_view m) { return MakeStatus(absl::StatusCode::kDataLoss, m); }
Status Unimplemented(std::string_view m) { return MakeStatus(absl::StatusCode::kUnimplemented, m); }
Status Internal(std::string_view m) { return MakeStatus(absl::StatusCode::kInternal, m); }

Status FromErrno(int error_number, std::string_view action) {
  char text[128];
  const char* reason = strerror_r(error_number, text, sizeof(text));
  absl::StatusCode code = absl::StatusCode::kUnknown;
  switch (error_number) {
    case ENOENT:
      code = absl::StatusCode::kNotFound;
      break;
    case EACCES:
    case EPERM:
      code = absl::StatusCode::kPermissionDenied;
      break;
    case ENOSPC:
    case EDQUOT:
    case ENOMEM:
    case EMFILE:
    case ENFILE:
      code = absl::StatusCode::kResourceExhausted;
      break;
    case EPIPE:
    case ECONNRESET:
    case ECONNREFUSED:
      code = absl::StatusCode::kUnavailable;
      break;
    default:
      break;
  }
  return MakeStatus(code, std::string(action) + " failed: " + reason + ".");
}

std::string Message(const Status& status) { return std::string(status.message().data(), status.message().size()); }

Status While(Status status, std::string_view doing) {
  if (status.ok()) {
    return status;
  }
  Status made = MakeStatus(status.code(), Message(status) + "\n - While " + std::string(doing));
  status.ForEachPayload([&](absl::string_view url, const absl::Cord& payload) { made.SetPayload(url, payload); });
  return made;
}

void CheckFailed(const char* file, int line, const char* condition) {
  fprintf(stderr, "%s:%d: check failed: %s\n", file, line, condition);
  abort();
}

}  // namespace hpvm
