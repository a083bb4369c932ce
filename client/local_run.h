// SPDX-License-Identifier: Apache-2.0
// Client::LocalRun handles the local memory of one Client::Run: inputs go in through it, and outputs of known size
// come back in it.
#ifndef HPVMD_CLIENT_LOCAL_RUN_H_
#define HPVMD_CLIENT_LOCAL_RUN_H_

#include <map>
#include <string>

#include "client/connection.h"

namespace hpvm {

// Not thread-safe. On destruction, its buffers return to the client's pool after a run that succeeded, and are freed
// otherwise, because an interrupted run may still write for a moment.
class [[gnu::visibility("hidden")]] Client::LocalRun {
 public:
  // `run` is the key of runs with equal output sizes. Borrows the client.
  LocalRun(Client & client, std::string run, const CallOptions& call)
      : client_(client), run_(std::move(run)), call_(call) {}
  ~LocalRun();
  LocalRun(const LocalRun&) = delete;
  LocalRun& operator=(const LocalRun&) = delete;

  // Returns true when large tensors of this run go through local memory.
  bool Tries() const;
  // Returns false when local memory is unavailable and gRPC has to be used; the pool holds the reason.
  bool BindInput(const Tensor& tensor, v1::InputBinding* binding);
  // Binds all outputs except those `bound` already.
  void BindOutputs(const std::map<std::string, std::string>& bound, v1::RunRequest* request);
  // Returns true when some of the run's tensors are in local memory.
  bool HasTaken() const { return !taken_.empty(); }

  // Returns true when a run with this failure did not begin and may succeed without local memory: the server dropped
  // a buffer, or an output is larger than last time. Afterwards this run no longer uses local memory.
  bool IsWorthAnother(const Status& status);

  // Returns null when the buffer is not one of this run's.
  const LocalMemory* Find(const std::string& id) const;
  // Called when the run succeeded: records the output sizes for the next similar run.
  void Learn(const std::map<std::string, std::string>& bound, const v1::RunResponse& response);

 private:
  StatusOr<LocalMemory*> Take(uint64_t bytes);
  void LetGo();

  Client& client_;
  const std::string run_;
  const CallOptions& call_;
  bool is_over_ = false;  // Local memory failed during this run.
  bool has_ended_well_ = false;
  std::map<std::string, LocalMemory> taken_;  // Keyed by buffer id.
};

}  // namespace hpvm

#endif  // HPVMD_CLIENT_LOCAL_RUN_H_
