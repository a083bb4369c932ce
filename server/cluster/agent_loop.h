// SPDX-License-Identifier: Apache-2.0
// AgentLoop gives an Agent a thread: its timer, the store's answers and the ends of runs all come there.
#ifndef HPVMD_SERVER_CLUSTER_AGENT_LOOP_H_
#define HPVMD_SERVER_CLUSTER_AGENT_LOOP_H_

#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "base/clock.h"
#include "server/cluster/agent.h"
#include "server/cluster/cluster_store.h"

namespace hpvm::server::cluster {

struct AgentLoopOptions {
  AgentOptions agent;
  Duration sweep_every = std::chrono::seconds(1);
  uint32_t sweep_steps = 256;  // AgentStore::Sweep's `most`.
};

// Thread-safe.
class AgentLoop {
 public:
  // Borrows the store, which is thread-safe, and the runs, whose methods are called by the loop's thread.
  AgentLoop(AgentLoopOptions options, AgentStore& store, AgentRuns& runs);
  // Stops at once, as if the process ended: without Drain, the store takes the host's jobs back when its lease ends.
  ~AgentLoop();
  AgentLoop(const AgentLoop&) = delete;

  // These do what the agent's methods do, a little later.
  void Wake();
  void OnRunEnded(const HeldJob& job, RunEnd end);
  void SetPaused(bool is_paused);
  void SetWords(std::set<std::string> has);
  void Drain(bool gives_back);
  // Returns false when the agent has not left after so long.
  bool WaitUntilLeft(Duration timeout);

 private:
  // Outlives the loop when the store still owes answers.
  struct Inbox {
    std::mutex mutex;
    std::condition_variable changed;
    std::deque<std::function<void()>> actions;
    bool is_ending = false, has_left = false;
  };
  class Store;

  static void Post(const std::shared_ptr<Inbox>& inbox, std::function<void()> action);
  void Work();
  void Sweep();

  const AgentLoopOptions options_;
  const std::shared_ptr<Inbox> inbox_;
  const std::unique_ptr<Store> store_;
  Agent agent_;  // Used by the thread only.
  Time next_sweep_{0};
  std::thread thread_;
};

}  // namespace hpvm::server::cluster

#endif  // HPVMD_SERVER_CLUSTER_AGENT_LOOP_H_
