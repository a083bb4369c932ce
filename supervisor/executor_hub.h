// SPDX-License-Identifier: Apache-2.0
// ExecutorHub serves all executors: one thread for their messages, and a separate thread that starts processes, which
// takes milliseconds and would delay everyone's answers.
#ifndef HPVMD_SUPERVISOR_EXECUTOR_HUB_H_
#define HPVMD_SUPERVISOR_EXECUTOR_HUB_H_

#include <functional>
#include <memory>

#include "base/fair_queue.h"
#include "base/io/event_hub.h"

namespace hpvm::supervisor {

// Outlives its links.
class ExecutorHub {
 public:
  static StatusOr<std::unique_ptr<ExecutorHub>> Create();

  // Other components may have sources there, too.
  EventHub& events() { return *events_; }
  // Runs `work` on the thread that starts processes, which lives as long as this object, and waits. Call on any thread
  // but that one, and on the hub's thread only if nothing else uses the hub.
  void SpawnAndWait(const std::function<void()>& work);

 private:
  explicit ExecutorHub(std::unique_ptr<EventHub> events) : events_(std::move(events)) {}

  FairQueue spawns_{"spawns", "process", 1};
  std::unique_ptr<EventHub> events_;
};

}  // namespace hpvm::supervisor

#endif  // HPVMD_SUPERVISOR_EXECUTOR_HUB_H_
