// SPDX-License-Identifier: Apache-2.0
// Handles a run to which a driver refused memory: the run waits for other tenants to give some back.
#include <atomic>
#include <utility>

#include "server/core/rooms/runs.h"

namespace hpvm::server {
namespace {

// Maximum time that a run waits for others to give memory back.
constexpr Duration kReclaimWithin = std::chrono::milliseconds(500);
// Minimum time between two requests of one tenant, which disturb the others.
constexpr Duration kAskPause = std::chrono::seconds(1);

// WaitingRun is a run that waits until all tenants that were asked have answered, or for kReclaimWithin.
struct WaitingRun {
  std::atomic<int> answers{0};
  std::atomic<bool> has_gone{false};
};

}  // namespace

bool Runs::RunAgainWithMemory(const ExecutionRef& run, const supervisor::RunReply& reply) {
  Sending& sending = *run->sending;
  const uint32_t entry_plus_1 = reply.done.short_entry_plus_1();
  if (entry_plus_1 == 0 || sending.count >= Sending::kRequestsMax || sending.stop.load()) {
    return false;
  }
  CoreScope scope(monitor_);
  ExecutorSlot& slot = run->tenant->executor;
  const Time now = options_.clock->Now();
  if (sending.asked_for_memory || slot.epoch != sending.epoch || entry_plus_1 > slot.profile.size() ||
      (slot.memory_asked != Time{0} && now - slot.memory_asked < kAskPause)) {
    return false;
  }
  const std::string device = slot.profile[entry_plus_1 - 1];
  sending.asked_for_memory = true;
  slot.memory_asked = now;
  const auto waiting = std::make_shared<WaitingRun>();
  const auto go_on = [this, run, waiting] {
    if (waiting->has_gone.exchange(true)) {
      return;
    }
    if (run->sending->stop.load()) {
      OnRunReply(run, Cancelled("The run was stopped while it waited for device memory."));
    } else {
      Transmit(run);
    }
  };
  // The extra count keeps the run from being sent before all tenants have been asked.
  waiting->answers.store(1);
  const auto answered = [waiting, go_on] {
    if (waiting->answers.fetch_sub(1) == 1) {
      go_on();
    }
  };
  const uint64_t asked = executors_.Ask(scope, *run->tenant, device, reply.done.short_bytes(), answered);
  if (asked == 0) {
    return false;
  }
  waiting->answers.fetch_add(static_cast<int>(asked));
  scope.Defer(answered);
  sending.timers.push_back(
      monitor_.AddTimer(scope, now + kReclaimWithin, [go_on](CoreScope& inner) { inner.Defer(go_on); }));
  return true;
}

}  // namespace hpvm::server
