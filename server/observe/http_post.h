// SPDX-License-Identifier: Apache-2.0
// One HTTP POST, all of it within a deadline, and able to be broken off. libcurl behind it.
#ifndef HPVMD_SERVER_OBSERVE_HTTP_POST_H_
#define HPVMD_SERVER_OBSERVE_HTTP_POST_H_

#include <string_view>

#include "base/clock.h"
#include "base/io/fd.h"
#include "base/status.h"
#include "server/config/address.h"

namespace hpvm::server {

struct HttpAnswer {
  int code = 0;           // 200.
  int retry_after_s = 0;  // 0: none was given.
};

// Blocks until the answer is here, the deadline has passed, or `stop` (an eventfd; -1: none) is readable. No proxy, no
// redirect; an answer beyond 64 KiB is a failure. kUnavailable, kDeadlineExceeded, kCancelled.
StatusOr<HttpAnswer> HttpPost(const HttpTarget& target, std::string_view content_type, std::string_view body,
                              Time deadline, int stop);

}  // namespace hpvm::server

#endif  // HPVMD_SERVER_OBSERVE_HTTP_POST_H_
