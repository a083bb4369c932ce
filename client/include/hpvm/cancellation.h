// SPDX-License-Identifier: Apache-2.0
// Ends calls that are in progress.
#ifndef HPVMD_CLIENT_INCLUDE_HPVM_CANCELLATION_H_
#define HPVMD_CLIENT_INCLUDE_HPVM_CANCELLATION_H_

#include <stop_token>

namespace hpvm {

// Copies are one and the same. Any thread; for any number of calls, those included that begin after it was triggered.
// They end with kCancelled, and the server stops what they asked for. It ends the call, whatever its tries; jobs that
// were submitted go on, as CancelJob ends those.
class Cancellation {
 public:
  void Cancel() { source_.request_stop(); }
  bool IsCancelled() const { return source_.stop_requested(); }
  // For waits of one's own that are to end with the calls.
  std::stop_token token() const { return source_.get_token(); }

 private:
  std::stop_source source_;
};

}  // namespace hpvm

#endif  // HPVMD_CLIENT_INCLUDE_HPVM_CANCELLATION_H_
