// SPDX-License-Identifier: Apache-2.0
// Agent claims jobs from an AgentStore for one host and runs them: a state machine without threads, clock or sockets.
//
// Its safety rests on one rule. A lease of length L that was asked for at local time t holds at least until t + L,
// because the store counted it from a later moment. The agent stops all of its runs at t + L - stop_margin, so that
// they have ended when the store may give their jobs to another host. The margin covers the time to kill a process and
// the drift of the two clocks over one lease. A process that was paused beyond its lease cannot keep the rule; the
// fences of the store keep its results out.
//
// Method: one timer. Tick compares the time with what is due: the end of the lease, a renewal, a claim, an answer that
// is overdue. A call whose answer is overdue is unknown: renewals and claims are made anew under new numbers, ends are
// repeated until the store has answered. Late answers of former calls are ignored.
#ifndef HPVMD_SERVER_CLUSTER_AGENT_H_
#define HPVMD_SERVER_CLUSTER_AGENT_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>

#include "base/clock.h"
#include "server/cluster/cluster_store.h"

namespace hpvm::server::cluster {

struct AgentOptions {
  Worker worker;
  uint32_t runs_max = 4;
  Duration renew_every = std::chrono::seconds(1);
  Duration claim_every = std::chrono::milliseconds(200);  // While the queue had nothing; Wake claims at once.
  Duration stop_margin = std::chrono::seconds(3);
  Duration call_timeout = std::chrono::seconds(2);
  // Called with the answer to each Join; null: not called.
  std::function<void(const Status&)> on_join;
};

// The runs of the host.
class AgentRuns {
 public:
  virtual ~AgentRuns() = default;
  enum class StopReason : uint8_t {
    kCancelled,
    kExpired,    // Its deadline has passed.
    kLost,       // The claim is another host's, or will be: its end will not be recorded.
    kGivenBack,  // The host drains; the job goes back to the queue, uncounted.
  };
  // Starts a run; Agent::OnRunEnded is called once when it has ended, never before Start returns.
  virtual void Start(const Claim& claim) = 0;
  // Ends it within the stop margin; OnRunEnded follows. Called again when the reason becomes kLost.
  virtual void Stop(const HeldJob& job, StopReason why) = 0;
  // Called once after OnRunEnded: the store has recorded the end and has the job as it is returned, or never will
  // (kFailedPrecondition: the claim was lost; kNotFound: the job is forgotten).
  virtual void OnRecorded(const HeldJob& job, const StatusOr<JobView>& recorded) = 0;
};

// RunEnd is the end of a run.
struct RunEnd {
  JobState state = JobState::kSucceeded;  // kSucceeded, kFailed or kCancelled; kWaiting: it did not end by itself.
  std::string result, record;             // FinishRequest's; a record that the store refuses is left out.
  Duration device_time{0};
  bool is_lost = true;  // With kWaiting: the attempt was lost with what ran it, and counts.
};

// The agent's methods are called by one thread at a time, and so are the store's callbacks.
class Agent {
 public:
  // Borrows all of them.
  Agent(AgentOptions options, AgentStore& store, AgentRuns& runs, const Clock& clock);
  ~Agent();
  Agent(const Agent&) = delete;
  Agent& operator=(const Agent&) = delete;

  // Does what is due, and returns when to call it again at the latest.
  Time Tick();
  // New jobs may be claimable (a notification of the store).
  void Wake();
  void OnRunEnded(const HeldJob& job, RunEnd end);
  // While paused, claims nothing; runs go on.
  void SetPaused(bool is_paused) { is_paused_ = is_paused; }
  // Replaces the words of the host, with the next renewal.
  void SetWords(std::set<std::string> has);
  // Claims nothing more; runs go on. With `gives_back`, runs are stopped and put back, uncounted, and the agent leaves.
  void Drain(bool gives_back);

  bool is_joined() const { return incarnation_ != 0; }
  bool has_left() const { return has_left_; }
  uint64_t incarnation() const { return incarnation_; }
  size_t held() const { return held_.size(); }

 private:
  struct Held {
    bool is_running = true;
    // Why the run was stopped by the agent; it decides how the job ends, whatever the run says.
    std::optional<AgentRuns::StopReason> stopped;
    // The end, once the run has ended; repeated until the store has answered.
    std::optional<FinishRequest> finish;
    Time finish_sent = kNever;  // kNever: no call is out.
  };
  // A call of which only the answer to the last one counts.
  struct Call {
    uint64_t number = 0;
    Time sent = kNever;  // kNever: none is out.
    bool is_out() const { return sent != kNever; }
  };

  bool IsOverdue(const Call& call, Time now) const { return call.is_out() && now - call.sent >= options_.call_timeout; }
  Time stop_at() const { return valid_until_ - options_.stop_margin; }
  bool MayClaim() const {
    return is_joined() && !is_draining_ && !is_paused_ && !claim_.is_out() && held_.size() < options_.runs_max;
  }
  void Join(Time now);
  void Renew(Time now);
  void Claim(Time now);
  void OnClaims(uint64_t incarnation, const Claims& claims);
  void OnRenewal(Time sent, uint64_t number, const Renewal& renewal);
  void LoseLease();
  void StopRun(const HeldJob& job, AgentRuns::StopReason why);
  void StopAll(AgentRuns::StopReason why);
  void Finish(const HeldJob& job, Held& held, Time now);
  void OnFinished(const HeldJob& job, const StatusOr<JobView>& view);
  void Leave(Time now);

  const AgentOptions options_;
  AgentStore& store_;
  AgentRuns& runs_;
  const Clock& clock_;
  std::shared_ptr<Agent*> self_;  // Callbacks hold it weakly: the store may answer after the agent is gone.
  uint64_t incarnation_ = 0;      // 0: not joined.
  Time valid_until_{0};           // Local time.
  Time next_renew_{0}, next_claim_{0}, next_join_{0};
  Call join_, renew_, claim_, leave_;
  uint64_t settled_claims_ = 0;  // RenewRequest::claims_settled.
  uint64_t renewal_heard_ = 0;   // The newest renewal that was answered.
  bool is_draining_ = false, gives_back_ = false, has_left_ = false, is_paused_ = false;
  std::set<std::string> words_;  // As the host has them now.
  uint64_t words_number_ = 0;    // Number of the newest words.
  uint64_t words_told_ = 0;      // Number of those that the store has.
  std::map<HeldJob, Held> held_;
};

}  // namespace hpvm::server::cluster

#endif  // HPVMD_SERVER_CLUSTER_AGENT_H_
