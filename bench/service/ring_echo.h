// SPDX-License-Identifier: Apache-2.0
// The peer "ring_echo": what calls by ring cost when nobody does anything with them. Three processes, as a client, the
// daemon and an executor are: the caller (client/ring_caller.h), a middle that hands frames on, woken by bells, and a
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

// Both processes live as long as this.
class RingEcho {
 public:
  // Each of the three looks for `spin` before it sleeps.
  static StatusOr<std::unique_ptr<RingEcho>> Start(Duration spin = Duration(0));
  RingCaller& caller() { return *caller_; }
  const std::vector<Process>& processes() const { return processes_; }

 private:
  UniqueFd worker_memory_, worker_bell_;
  std::unique_ptr<RingCaller> caller_;
  std::vector<Process> processes_;
};

// The mains of the two processes: microseconds to spin, then the numbers of the descriptors that they inherit. Until
// SIGTERM. The exit code.
int ServeRingMiddle(const std::vector<int>& words);  // The caller's memory and bell, the worker's memory and bell.
int ServeRingWorker(const std::vector<int>& words);  // Its memory and bell.

}  // namespace hpvm::bench

#endif  // HPVMD_BENCH_SERVICE_RING_ECHO_H_
