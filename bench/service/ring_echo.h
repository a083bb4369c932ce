// SPDX-License-Identifier: Apache-2.0
// RingEcho is the peer "ring_echo": the cost of calls by ring that do no work. Three processes like a client, the
// daemon and an executor: the caller (client/ring_caller.h), a middle that forwards frames, woken by bells, and a
// worker that sends each frame back, woken by futex.
#ifndef HPVMD_BENCH_SERVICE_RING_ECHO_H_
#define HPVMD_BENCH_SERVICE_RING_ECHO_H_

#include <memory>
#include <string>
#include <vector>

#include "client/ring_caller.h"

#include "base/status.h"
#include "bench/processes.h"

namespace hpvm::bench {

// Both processes live as long as this object.
class RingEcho {
 public:
  // Each of the three polls for `spin` before it sleeps.
  static StatusOr<std::unique_ptr<RingEcho>> Start(Duration spin = Duration(0));
  RingCaller& caller() { return *caller_; }
  const std::vector<Process>& processes() const { return processes_; }

 private:
  UniqueFd worker_memory_, worker_bell_;
  std::unique_ptr<RingCaller> caller_;
  std::vector<Process> processes_;
};

// The main functions of the two processes: `words` holds the microseconds to spin, then the numbers of the inherited
// descriptors. They run until SIGTERM and return the exit code.
int ServeRingMiddle(const std::vector<int>& words);  // The caller's memory and bell, the worker's memory and bell.
int ServeRingWorker(const std::vector<int>& words);  // Its memory and bell.

}  // namespace hpvm::bench

#endif  // HPVMD_BENCH_SERVICE_RING_ECHO_H_
