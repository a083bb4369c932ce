// SPDX-License-Identifier: Apache-2.0
// The runs of a client that no thread waits for: a ring's thread, or gRPC, calls back with their answers, and what is
// left to do then, where that is anything, is done by one thread for all of them.
#ifndef HPVMD_CLIENT_ASYNC_RUNS_H_
#define HPVMD_CLIENT_ASYNC_RUNS_H_

#include <condition_variable>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <unordered_set>

#include "hpvm/client.h"

namespace hpvm {

// Any thread.
class [[gnu::visibility("hidden")]] Client::AsyncRuns {
 public:
  // Borrows the client.
  explicit AsyncRuns(Client & client) : client_(client) {}
  // Cancels what is in progress, and waits until it has ended.
  ~AsyncRuns();
  AsyncRuns(const AsyncRuns&) = delete;
  AsyncRuns& operator=(const AsyncRuns&) = delete;

  Pending<RunOutcome> Start(const std::string& handle, std::map<std::string, Tensor> inputs, const RunOptions& options,
                            OnOutcome on_outcome);

 private:
  class One;

  // On the thread that does what is left.
  void Post(std::function<void()> work);
  void Loop();
  void Ended(const std::shared_ptr<One>& one);

  Client& client_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::unordered_set<std::shared_ptr<One>> runs_;  // Guarded by mutex_, as below. In progress.
  std::deque<std::function<void()>> work_;
  bool stops_ = false;
  std::thread thread_;  // Started by the first Post.
};

}  // namespace hpvm

#endif  // HPVMD_CLIENT_ASYNC_RUNS_H_
