// SPDX-License-Identifier: Apache-2.0
// Cancellation of calls that are in progress.
#ifndef HPVMD_CLIENT_INCLUDE_HPVM_CANCELLATION_H_
#define HPVMD_CLIENT_INCLUDE_HPVM_CANCELLATION_H_

#include <stop_token>

namespace hpvm {

// Cancellation ends calls with kCancelled, and the server stops the work that they asked for. Copies share one state.
// Thread-safe. It serves any number of calls, including calls that begin after Cancel. It also ends the call's
// retries. Submitted jobs continue; CancelJob ends those.
class Cancellation {
 public:
  void Cancel() { source_.request_stop(); }
  bool IsCancelled() const { return source_.stop_requested(); }
  // For the caller's own waits that are to end together with the calls.
  std::stop_token token() const { return source_.get_token(); }

 private:
  std::stop_source source_;
};

}  // namespace hpvm

#endif  // HPVMD_CLIENT_INCLUDE_HPVM_CANCELLATION_H_
