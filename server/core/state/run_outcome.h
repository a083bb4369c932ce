// SPDX-License-Identifier: Apache-2.0
// RunOutcome is the result of a run with its outputs.
#ifndef HPVMD_SERVER_CORE_STATE_RUN_OUTCOME_H_
#define HPVMD_SERVER_CORE_STATE_RUN_OUTCOME_H_

#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "hpvm/v1/job.pb.h"
#include "server/core/state/outcome.h"
#include "server/executors/executor_spawner.h"
#include "server/memory/segment_pool.h"

namespace hpvm::server {

// RunOutput is one output after a run.
struct RunOutput {
  std::string name;
  ElementType type = ElementType::kF32;
  std::vector<uint64_t> shape;
  uint64_t bytes = 0;
  std::span<const uint8_t> data;  // Inline data, which lies inside RunOutcome::reply's body.
  SegmentRef segment;             // Kept for a job, or the new contents of the buffer.
  std::string buffer_id;          // The buffer in which the output was published.
  uint64_t generation = 0;
  bool in_new_buffer = false;  // The request asks for a new buffer.
};

struct RunOutcome {
  RunOutcome() = default;
  RunOutcome(Outcome o) : outcome(std::move(o)) {}  // Implicit on purpose, as in Outcome.
  RunOutcome(Status s) : outcome(std::move(s)) {}
  Outcome outcome;
  std::vector<RunOutput> outputs;  // Does not include discarded outputs.
  supervisor::RunReply reply;      // The executor's answer, with the daemon's part of the timing, and inline outputs.
  // Sets the time spent waiting, in the daemon and in the executor, and the total time since receipt.
  void SetTotals(Duration queue, Duration total) {
    reply.done.mutable_timing()->set_queue_ns(static_cast<uint64_t>(queue.count()));
    reply.done.mutable_timing()->set_total_ns(static_cast<uint64_t>(total.count()));
  }
  const v1::RunTiming& timing() const { return reply.done.timing(); }
  uint64_t input_bytes = 0;  // Bytes of all inputs, inline and from buffers.
  bool was_sent = false;     // An executor had the run, or may have had it.
};

}  // namespace hpvm::server

#endif  // HPVMD_SERVER_CORE_STATE_RUN_OUTCOME_H_
