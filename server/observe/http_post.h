// SPDX-License-Identifier: Apache-2.0
// One HTTP/1.1 POST over TCP, all of it within a deadline, and able to be broken off.
#ifndef HPVMD_SERVER_OBSERVE_HTTP_POST_H_
#define HPVMD_SERVER_OBSERVE_HTTP_POST_H_

#include <string_view>

#include "base/clock.h"
#include "base/fd.h"
#include "base/status.h"
#include "server/address.h"

namespace hpvm {

struct HttpAnswer {
  int code = 0;           // 200.
  int retry_after_s = 0;  // 0: none was given.
};

// Blocks until the answer's header is here, the deadline has passed, or `stop` (an eventfd) is readable. Only
// resolving a name may take longer; addresses need none. kUnavailable, kDeadlineExceeded, kCancelled.
StatusOr<HttpAnswer> HttpPost(const HttpTarget& target, std::string_view content_type, std::string_view body,
                              Time deadline, int stop);

}  // namespace hpvm

#endif  // HPVMD_SERVER_OBSERVE_HTTP_POST_H_
