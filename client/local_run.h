// SPDX-License-Identifier: Apache-2.0
// What one Client::Run does with local memory: inputs go in through it, and outputs whose sizes are known come back in
// it.
#ifndef HPVMD_CLIENT_LOCAL_RUN_H_
#define HPVMD_CLIENT_LOCAL_RUN_H_

#include <map>
#include <string>

#include "client/connection.h"

namespace hpvm {

// One thread. When it ends, what it took goes back to the client's pool after a run that succeeded, and otherwise goes:
// a run that was cut off may write for a moment more.
class [[gnu::visibility("hidden")]] Client::LocalRun {
 public:
  // `run` says which runs have outputs of one size. Borrows the client.
  LocalRun(Client & client, std::string run, const CallOptions& call)
      : client_(client), run_(std::move(run)), call_(call) {}
  ~LocalRun();
  LocalRun(const LocalRun&) = delete;
  LocalRun& operator=(const LocalRun&) = delete;

  // Whether large tensors of this run go through local memory.
  bool Tries() const;
  // False: it cannot be had, and gRPC has to do; why is the pool's to say.
  bool BindInput(const Tensor& tensor, v1::InputBinding* binding);
  // But for those that are `bound` already.
  void BindOutputs(const std::map<std::string, std::string>& bound, v1::RunRequest* request);
  // Whether some of the run's tensors are in it.
  bool HasTaken() const { return !taken_.empty(); }

  // Whether a run that failed so did not begin and may do without local memory: the server let go of a buffer, or an
  // output is larger than last time. Then this run makes no more use of local memory.
  bool IsWorthAnother(const Status& status);

  // Null: the buffer is not one of these.
  const LocalMemory* Find(const std::string& id) const;
  // The run succeeded. For the next one like it.
  void Learn(const std::map<std::string, std::string>& bound, const v1::RunResponse& response);

 private:
  StatusOr<LocalMemory*> Take(uint64_t bytes);
  void LetGo();

  Client& client_;
  const std::string run_;
  const CallOptions& call_;
  bool is_over_ = false;  // Local memory has failed this run.
  bool has_ended_well_ = false;
  std::map<std::string, LocalMemory> taken_;  // By the buffer's id.
};

}  // namespace hpvm

#endif  // HPVMD_CLIENT_LOCAL_RUN_H_
