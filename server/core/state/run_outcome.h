// SPDX-License-Identifier: Apache-2.0
// How a run ended, and what it brought.
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

// One output after a run.
struct RunOutput {
  std::string name;
  ElementType type = ElementType::kF32;
  std::vector<uint64_t> shape;
  uint64_t bytes = 0;
  std::span<const uint8_t> data;  // Inline: inside RunOutcome::reply's body.
  SegmentRef segment;             // Kept for a job, or what the buffer holds now.
  std::string buffer_id;          // Published there.
  uint64_t generation = 0;
  bool in_new_buffer = false;  // The request asks for one.
};

struct RunOutcome {
  RunOutcome() = default;
  RunOutcome(Outcome o) : outcome(std::move(o)) {}  // Implicit on purpose, as Outcome is.
  RunOutcome(Status s) : outcome(std::move(s)) {}
  Outcome outcome;
  std::vector<RunOutput> outputs;  // Discarded ones are left out.
  supervisor::RunReply reply;      // The executor's answer, with the daemon's part of the timing; inline outputs.
  // Waited in the daemon and in the executor, and took from receipt.
  void SetTotals(Duration queue, Duration total) {
    reply.done.mutable_timing()->set_queue_ns(static_cast<uint64_t>(queue.count()));
    reply.done.mutable_timing()->set_total_ns(static_cast<uint64_t>(total.count()));
  }
  const v1::RunTiming& timing() const { return reply.done.timing(); }
  uint64_t input_bytes = 0;  // All inputs, inline and from buffers.
  bool was_sent = false;     // An executor had it, or may have had it.
};

}  // namespace hpvm::server

#endif  // HPVMD_SERVER_CORE_STATE_RUN_OUTCOME_H_
