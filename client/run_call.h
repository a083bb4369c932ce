// SPDX-License-Identifier: Apache-2.0
// Client::RunCall makes one run: sends it, retries it where that is allowed, and fetches its outputs.
#ifndef HPVMD_CLIENT_RUN_CALL_H_
#define HPVMD_CLIENT_RUN_CALL_H_

#include <map>
#include <string>
#include <vector>

#include "client/connection.h"
#include "client/local_run.h"

namespace hpvm {

// Used by one thread at a time. Buffers that were made for the run are deleted when it ends.
class [[gnu::visibility("hidden")]] Client::RunCall {
 public:
  // Borrows everything.
  RunCall(Client & client, const std::string& handle, const std::map<std::string, Tensor>& inputs,
          const RunOptions& options);
  ~RunCall();
  RunCall(const RunCall&) = delete;
  RunCall& operator=(const RunCall&) = delete;

  // Makes the request. Uploads inputs that are too large for a message.
  StatusOr<v1::RunRequest> Bind();
  // Returns true when Finish makes no further call, and so does not block.
  bool IsComplete(const StatusOr<v1::RunResponse>& response) const;
  // Handles the first response: sends the run again if the server has restarted since the graph was prepared, or
  // without local memory if that was the obstacle, and fetches the outputs. Called once.
  StatusOr<RunOutcome> Finish(StatusOr<v1::RunResponse> response);

 private:
  StatusOr<v1::RunResponse> Send();
  // Returns true when a run with this failure should be sent again; everything for that is then done except Send. A
  // status when preparing the graph again failed.
  StatusOr<bool> IsWorthAnother(const Status& failure);

  Client& client_;
  const std::string& handle_;
  const std::map<std::string, Tensor>& inputs_;
  const RunOptions& options_;
  std::string used_;  // The server's own handle.
  LocalRun local_;
  std::vector<std::string> buffers_;
  bool prepared_again_ = false;
};

}  // namespace hpvm

#endif  // HPVMD_CLIENT_RUN_CALL_H_
