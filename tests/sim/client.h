// SPDX-License-Identifier: Apache-2.0
// SimClient is a client of the simulation: it performs random actions, knows only what it was told, and sends
// unanswered requests again under the same key.
#ifndef HPVMD_TESTS_SIM_CLIENT_H_
#define HPVMD_TESTS_SIM_CLIENT_H_

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "tests/sim/frontend.h"

namespace hpvm::server::sim {

// Knowledge that the clients of a world share: ids travel between programs.
struct Board {
  struct Known {
    std::string tenant, id;  // Id of a job or an array.
  };
  std::vector<Known> known;
  std::vector<Submission*> acknowledged;
  uint64_t next_token = 1, next_run = kVolatileTokens, next_key = 1;
  uint64_t unanswered = 0;  // Submissions that are still being sent.
};

class SimClient {
 public:
  SimClient(Context& context, Network& network, Frontend& frontend, History& history, Board& board, std::string tenant,
            uint32_t number);
  void Begin();
  const std::string& tenant() const { return tenant_; }
  // Returns true when all its actions are done, or given up.
  bool is_done() const { return actions_left_ == 0 && pending_ == 0; }
  // The daemon was restarted: its buffers and handles are gone.
  void OnRestart() {
    buffers_.clear();
    handles_.clear();
  }

 private:
  struct Buffer {
    std::string id, bytes;
    bool in_use = false;  // Used by an unfinished job.
  };
  // One submission in progress.
  struct Sending {
    Submission* submission = nullptr;
    uint32_t tries = 0, refused = 0;  // Number of the last refused try.
    bool began = false, over = false;
    uint64_t timer = 0;
  };
  using SendingRef = std::shared_ptr<Sending>;

  void Act();
  void ScheduleNext();
  // Actions.
  void SubmitSomething();
  void SubmitArray();
  void SubmitAfter();
  void SubmitWithBuffer();
  void RetrySomething();
  void ReuseKey();
  void CancelSomething();
  void ReadSomething();
  void ListSomething();
  void WatchSomething();
  void FetchSomething();
  void RunSomething();

  Submission& MakeSubmission(bool with_index);
  void SetOptions(Submission& submission, bool needs_key);
  void AddAfter(Submission& submission);
  void Send(const SendingRef& sending);
  void OnReply(const SendingRef& sending, uint32_t tried, const Outcome& outcome, const v1::SubmitResponse& response);
  void SendLater(const SendingRef& sending);
  void Finish(const SendingRef& sending);
  void PutGraph(const GraphSpec& graph, std::function<void()> then);
  void WatchBuffer(const std::string& buffer, const Submission& submission);
  void CheckBuffer(SimDaemon& daemon, const std::string& buffer, const Submission& submission, v1::JobState state);
  void AskCancel(const std::string& id, uint32_t tries);
  const Board::Known* AnyKnown(bool own);
  GraphSpec DrawGraph(bool with_index, bool with_buffer);

  Context& context_;
  Network& network_;
  Frontend& frontend_;
  History& history_;
  Board& board_;
  const std::string tenant_, name_;
  SeededRng rng_;
  uint32_t actions_left_;
  uint64_t pending_ = 0;
  std::map<std::string, Buffer> buffers_;
  std::map<uint64_t, std::string> handles_;  // Keyed by the graph's number.
};

}  // namespace hpvm::server::sim

#endif  // HPVMD_TESTS_SIM_CLIENT_H_
