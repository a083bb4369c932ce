// SPDX-License-Identifier: Apache-2.0
// AsyncRuns manages a client's runs for which no thread waits. A ring's thread, or gRPC, calls back with a run's
// answer; the work that then remains, if any, is done by one thread for all runs.
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
#include <unordered_map>

#include "client/send_window.h"

#include "hpvm/client.h"

namespace hpvm {

// Thread-safe.
class [[gnu::visibility("hidden")]] Client::AsyncRuns {
 public:
  // Borrows the client.
  explicit AsyncRuns(Client & client) : client_(client) {}
  // Cancels all runs in progress and waits until they have ended.
  ~AsyncRuns();
  AsyncRuns(const AsyncRuns&) = delete;
  AsyncRuns& operator=(const AsyncRuns&) = delete;

  Pending<RunOutcome> Start(const std::string& handle, std::map<std::string, Tensor> inputs, const RunOptions& options,
                            OnOutcome on_outcome);

 private:
  class One;

  // Queues `work` for the thread.
  void Post(std::function<void()> work);
  void Loop();
  // Waits for the thread's next work and returns it. Returns null when the thread should end.
  std::function<void()> NextWork();
  // The caller holds mutex_.
  std::function<void()> DueWork(const SendWindow::Due& due);
  // Wakes the thread, and starts it when it does not run yet. The caller holds mutex_.
  void WakeThread();
  // Returns true when the run should be sent over gRPC now; otherwise the thread calls One::SendNow in its turn.
  bool Enter(uint64_t id, Time deadline);
  void Leave(uint64_t id);
  // Cancels the run's gRPC call, now or as soon as the window allows it, or drops the run when it has not been sent.
  void BreakOff(One & one);
  void Ended(uint64_t id);

  Client& client_;
  std::mutex mutex_;
  std::condition_variable changed_;
  // This and all following members are guarded by mutex_.
  std::unordered_map<uint64_t, std::shared_ptr<One>> runs_;  // Runs that have not ended.
  uint64_t next_id_ = 0;
  SendWindow window_;
  std::deque<std::function<void()>> work_;
  bool stops_ = false;
  std::thread thread_;  // Started by the first WakeThread.
};

}  // namespace hpvm

#endif  // HPVMD_CLIENT_ASYNC_RUNS_H_
