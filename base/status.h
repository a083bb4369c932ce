// SPDX-License-Identifier: Apache-2.0
// Errors, one type everywhere: absl::Status and absl::StatusOr.
//
// When to use each code:
//   kInvalidArgument     the tenant's graph, kernel or arguments are wrong; sending them again cannot help.
//   kNotFound            the id, file or name does not exist, or belongs to another tenant (alike on purpose).
//   kAlreadyExists       the same key was used with other contents.
//   kFailedPrecondition  nothing here can run it (no device satisfies the node); do not retry unchanged.
//   kResourceExhausted   a quota, limit or memory; the message gives the value and the limit.
//   kAborted             a kernel trapped; the message gives node, instance and reason.
//   kDeadlineExceeded    the job's own deadline passed.
//   kCancelled           the request was cancelled.
//   kUnavailable         an executor or device was lost; a retry may succeed.
//   kDataLoss            the only copy of a buffer was lost with its device.
//   kUnimplemented       reserved for a later release.
//   kInternal            a bug in this program.
// Messages are full sentences in the present tense: what is wrong, the value in parentheses, the limit, the place.
#ifndef HPVMD_BASE_STATUS_H_
#define HPVMD_BASE_STATUS_H_

#include <string>
#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "hpvm/types.h"

namespace hpvm {

// Builds a status from std types. Debian's Abseil has its own string_view, and this is the only place that converts.
Status MakeStatus(absl::StatusCode code, std::string_view message);
Status InvalidArgument(std::string_view message);
Status NotFound(std::string_view message);
Status AlreadyExists(std::string_view message);
Status FailedPrecondition(std::string_view message);
Status ResourceExhausted(std::string_view message);
Status Aborted(std::string_view message);
Status DeadlineExceeded(std::string_view message);
Status Cancelled(std::string_view message);
Status Unavailable(std::string_view message);
Status DataLoss(std::string_view message);
Status Unimplemented(std::string_view message);
Status Internal(std::string_view message);
// `action` names the system call or file, for example `Opening "/x"`; the text of `error_number` is appended.
Status FromErrno(int error_number, std::string_view action);

// The message as a std::string (Abseil's accessor returns its own view type).
std::string Message(const Status& status);

// Adds one line of context: "\n - While loading kernel \"blur\"". OK stays OK.
Status While(Status status, std::string_view doing);
// Like the overload above, for a StatusOr.
template <typename T>
StatusOr<T> While(StatusOr<T> result, std::string_view doing) {
  return result.ok() ? std::move(result) : StatusOr<T>(While(result.status(), doing));
}

// Prints file, line and condition to stderr and aborts. On in every build.
[[noreturn]] void CheckFailed(const char* file, int line, const char* condition);

}  // namespace hpvm

// Checks for bugs of this program. A failure costs at most the process of one executor, never the daemon, so the
// daemon's code on tenants' paths must not rely on it.
#define HPVMD_CHECK(condition) ((condition) ? (void)0 : ::hpvm::CheckFailed(__FILE__, __LINE__, #condition))

#define HPVMD_RETURN_IF_ERROR(expression)                                 \
  do {                                                                    \
    if (::hpvm::Status hpvmd_status = (expression); !hpvmd_status.ok()) { \
      return hpvmd_status;                                                \
    }                                                                     \
  } while (false)

#define HPVMD_CONCAT_INNER(a, b) a##b
#define HPVMD_CONCAT(a, b) HPVMD_CONCAT_INNER(a, b)
#define HPVMD_ASSIGN_OR_RETURN(target, expression) \
  HPVMD_ASSIGN_OR_RETURN_INNER(HPVMD_CONCAT(hpvmd_result_, __LINE__), target, expression)
#define HPVMD_ASSIGN_OR_RETURN_INNER(result, target, expression) \
  auto result = (expression);                                    \
  if (!result.ok()) {                                            \
    return result.status();                                      \
  }                                                              \
  target = *std::move(result)

#endif  // HPVMD_BASE_STATUS_H_
