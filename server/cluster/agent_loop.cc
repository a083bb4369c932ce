// SPDX-License-Identifier: Apache-2.0
#include "server/cluster/agent_loop.h"

#include <algorithm>
#include <utility>

namespace hpvm::server::cluster {
namespace {

// A sweep whose answer does not come is made again after so long.
constexpr Duration kSweepTimeout = std::chrono::seconds(10);

}  // namespace

// Makes the store's answers come on the loop's thread.
class AgentLoop::Store final : public AgentStore {
 public:
  Store(AgentStore& store, std::shared_ptr<Inbox> inbox) : store_(store), inbox_(std::move(inbox)) {}

  void Join(Worker worker, Done<Lease> done) override { store_.Join(std::move(worker), Posted(std::move(done))); }
  void Leave(std::string worker, uint64_t incarnation, Done<Nothing> done) override {
    store_.Leave(std::move(worker), incarnation, Posted(std::move(done)));
  }
  void Renew(RenewRequest request, Done<Renewal> done) override {
    store_.Renew(std::move(request), Posted(std::move(done)));
  }
  void Claim(ClaimRequest request, Done<Claims> done) override {
    store_.Claim(std::move(request), Posted(std::move(done)));
  }
  void Finish(FinishRequest request, Done<JobView> done) override {
    store_.Finish(std::move(request), Posted(std::move(done)));
  }
  void Sweep(uint32_t most, Done<SweepResult> done) override { store_.Sweep(most, Posted(std::move(done))); }

 private:
  template <typename T>
  Done<T> Posted(Done<T> done) {
    return [inbox = inbox_, done = std::move(done)](StatusOr<T> answer) {
      Post(inbox, [done, answer = std::move(answer)] { done(answer); });
    };
  }

  AgentStore& store_;
  const std::shared_ptr<Inbox> inbox_;
};

AgentLoop::AgentLoop(AgentLoopOptions options, AgentStore& store, AgentRuns& runs)
    : options_(std::move(options)),
      inbox_(std::make_shared<Inbox>()),
      store_(std::make_unique<Store>(store, inbox_)),
      agent_(options_.agent, *store_, runs, RealClock()),
      thread_([this] { Work(); }) {}

AgentLoop::~AgentLoop() {
  {
    const std::lock_guard lock(inbox_->mutex);
    inbox_->is_ending = true;
  }
  inbox_->changed.notify_all();
  thread_.join();
}

void AgentLoop::Post(const std::shared_ptr<Inbox>& inbox, std::function<void()> action) {
  {
    const std::lock_guard lock(inbox->mutex);
    if (inbox->is_ending) {
      return;
    }
    inbox->actions.push_back(std::move(action));
  }
  inbox->changed.notify_all();
}

void AgentLoop::Wake() {
  Post(inbox_, [this] { agent_.Wake(); });
}

void AgentLoop::OnRunEnded(const HeldJob& job, RunEnd end) {
  Post(inbox_, [this, job, end = std::move(end)] { agent_.OnRunEnded(job, end); });
}

void AgentLoop::SetPaused(bool is_paused) {
  Post(inbox_, [this, is_paused] { agent_.SetPaused(is_paused); });
}

void AgentLoop::SetWords(std::set<std::string> has) {
  Post(inbox_, [this, has = std::move(has)] { agent_.SetWords(has); });
}

void AgentLoop::Drain(bool gives_back) {
  Post(inbox_, [this, gives_back] { agent_.Drain(gives_back); });
}

bool AgentLoop::WaitUntilLeft(Duration timeout) {
  std::unique_lock lock(inbox_->mutex);
  return inbox_->changed.wait_for(lock, timeout, [this] { return inbox_->has_left; });
}

void AgentLoop::Sweep() {
  next_sweep_ = RealClock().Now() + kSweepTimeout;
  store_->Sweep(options_.sweep_steps, [this](const StatusOr<SweepResult>& swept) {
    const bool has_more = swept.ok() && swept->has_more;
    next_sweep_ = RealClock().Now() + (has_more ? Duration{0} : options_.sweep_every);
  });
}

void AgentLoop::Work() {
  while (true) {
    std::deque<std::function<void()>> actions;
    {
      const std::lock_guard lock(inbox_->mutex);
      if (inbox_->is_ending) {
        return;
      }
      actions.swap(inbox_->actions);
    }
    for (const std::function<void()>& action : actions) {
      action();
    }
    const Time now = RealClock().Now();
    if (now >= next_sweep_) {
      Sweep();
    }
    const Time next = std::min(agent_.Tick(), next_sweep_);
    std::unique_lock lock(inbox_->mutex);
    if (agent_.has_left() && !inbox_->has_left) {
      inbox_->has_left = true;
      inbox_->changed.notify_all();
    }
    if (next > now) {
      inbox_->changed.wait_for(lock, std::min<Duration>(next - now, std::chrono::seconds(1)),
                               [this] { return inbox_->is_ending || !inbox_->actions.empty(); });
    }
  }
}

}  // namespace hpvm::server::cluster
