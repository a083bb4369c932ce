// SPDX-License-Identifier: Apache-2.0
#include "client/ctl/text/exit_code.h"

#include <stdio.h>

#include "client/ctl/text/terminal.h"
#include "client/ctl/text/text.h"
#include "client/status/status.h"

namespace hpvm::ctl {

ExitCode ExitCodeOf(const Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kOk:
      return kOk;
    case absl::StatusCode::kInvalidArgument:
    case absl::StatusCode::kNotFound:
    case absl::StatusCode::kAlreadyExists:
    case absl::StatusCode::kOutOfRange:
    case absl::StatusCode::kUnimplemented:
      return kUsage;
    case absl::StatusCode::kFailedPrecondition:
      return kCannotPlace;
    case absl::StatusCode::kUnauthenticated:
    case absl::StatusCode::kPermissionDenied:
      return kAuth;
    case absl::StatusCode::kCancelled:
      return kCancelled;
    case absl::StatusCode::kDeadlineExceeded:
      return kDeadline;
    case absl::StatusCode::kUnavailable:
      return kUnreachable;
    default:
      return kFailed;
  }
}

ExitCode Report(const Status& status) {
  if (!status.ok()) {
    std::string code = absl::StatusCodeToString(status.code());
    fprintf(stderr, "%s %s: %s\n", ErrorHead().c_str(), code.c_str(), Printable(Message(status)).c_str());
    if (const auto detail = DetailOf(status); detail.has_value() && detail->retry_after_ns() != 0) {
      fprintf(stderr, " -> Try again in %s.\n", DurationText(detail->retry_after_ns()).c_str());
    }
  }
  return ExitCodeOf(status);
}

}  // namespace hpvm::ctl
