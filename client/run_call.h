// SPDX-License-Identifier: Apache-2.0
// One run on its way through a client: what is sent, what is sent again, and what is brought back.
#ifndef HPVMD_CLIENT_RUN_CALL_H_
#define HPVMD_CLIENT_RUN_CALL_H_

#include <map>
#include <string>
#include <vector>

#include "client/connection.h"
#include "client/local_run.h"

namespace hpvm {

// One thread at a time. Buffers that were made for the run are deleted when it ends.
class [[gnu::visibility("hidden")]] Client::RunCall {
 public:
  // Borrows everything.
  RunCall(Client & client, const std::string& handle, const std::map<std::string, Tensor>& inputs,
          const RunOptions& options);
  ~RunCall();
  RunCall(const RunCall&) = delete;
  RunCall& operator=(const RunCall&) = delete;

  // What is to be sent. Uploads what is too large for a message.
  StatusOr<v1::RunRequest> Bind();
  // Whether Finish makes no further call, and so does not block.
  bool IsComplete(const StatusOr<v1::RunResponse>& response) const;
  // Goes on from the first answer: sends the run again where the server was restarted since the graph was prepared, or
  // without local memory where that stood in the way, and brings the outputs. Once.
  StatusOr<RunOutcome> Finish(StatusOr<v1::RunResponse> response);

 private:
  StatusOr<v1::RunResponse> Send();
  // Whether a run that failed so should be sent again; then everything for that is done but Send. A status: preparing
  // the graph again failed.
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
