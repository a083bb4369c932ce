// SPDX-License-Identifier: Apache-2.0
// One HTTP POST, completed within a deadline, and cancellable. Based on libcurl.
#ifndef HPVMD_SERVER_OBSERVE_HTTP_POST_H_
#define HPVMD_SERVER_OBSERVE_HTTP_POST_H_

#include <string_view>

#include "base/clock.h"
#include "base/io/fd.h"
#include "base/status.h"
#include "server/config/address.h"

namespace hpvm::server {

struct HttpAnswer {
  int code = 0;           // Such as 200.
  int retry_after_s = 0;  // 0 when missing.
};

// Blocks until the response is complete, the deadline has passed, or `stop` (an eventfd; -1 for none) is readable.
// Uses no proxy and follows no redirect; a response beyond 64 KiB is a failure. kUnavailable, kDeadlineExceeded,
// kCancelled.
StatusOr<HttpAnswer> HttpPost(const HttpTarget& target, std::string_view content_type, std::string_view body,
                              Time deadline, int stop);

}  // namespace hpvm::server

#endif  // HPVMD_SERVER_OBSERVE_HTTP_POST_H_
