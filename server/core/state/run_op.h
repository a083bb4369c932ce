// SPDX-License-Identifier: Apache-2.0
// One run on its way through the daemon: what it binds, where it stands, and how it ended.
#ifndef HPVMD_SERVER_CORE_STATE_RUN_OP_H_
#define HPVMD_SERVER_CORE_STATE_RUN_OP_H_

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "hpvm/v1/job.pb.h"
#include "server/core/state/outcome.h"
#include "server/core/state/tenant.h"
#include "server/executors/executor_spawner.h"

namespace hpvm {

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
  Outcome outcome;
  std::vector<RunOutput> outputs;  // Discarded ones are left out.
  RunReply reply;                  // The executor's answer, with the daemon's part of the timing; inline outputs.
  // Waited in the daemon and in the executor, and took from receipt.
  void SetTotals(Duration queue, Duration total) {
    reply.done.mutable_timing()->set_queue_ns(static_cast<uint64_t>(queue.count()));
    reply.done.mutable_timing()->set_total_ns(static_cast<uint64_t>(total.count()));
  }
  const v1::RunTiming& timing() const { return reply.done.timing(); }
  uint64_t input_bytes = 0;  // All inputs, inline and from buffers.
  bool was_sent = false;     // An executor had it, or may have had it.
};

// Where an output goes.
struct OutputPlan {
  enum class Kind : uint8_t { kAuto, kBuffer, kNewBuffer, kDiscard } kind = Kind::kAuto;
  std::string buffer_id;  // kBuffer.
  uint64_t buffer_bytes = 0;
  // Memory that travels with the run; kAuto and kNewBuffer get it when the output's size is known.
  SegmentRef segment;
  uint64_t segment_bytes = 0;
};

// Guarded by the core's mutex, except `input` and `plans` while the run is being sent, when nobody else touches them.
struct RunOp {
  enum class State : uint8_t { kPreparing, kQueued, kSent, kDone } state = State::kPreparing;
  uint64_t id = 0;
  std::shared_ptr<Tenant> tenant;
  PreparationRef preparation;
  RunInput input;                           // Spans borrow the caller's request, or the job's.
  std::vector<SegmentRef> pins;             // Memory of the inputs.
  scheduler::Lease host_bytes;              // Of inline inputs.
  scheduler::Lease running;                 // From its turn to its end; a job's attempt is the job's.
  std::map<std::string, OutputPlan> plans;  // Outputs that are not here are kAuto.
  std::vector<TensorShape> input_shapes;
  // A job's attempt: its outputs are published and kept when the job's end is on disk, and its turn ends then too.
  std::string job_id;
  std::string traceparent;
  int32_t priority = 0;
  uint64_t devices = 0;  // Of the fair share, by bit; 0: not known yet.
  Time received{0}, deadline = kNever, sent{0};
  std::shared_ptr<ExecutorProcess> port;  // While sent.
  uint64_t epoch = 0;
  // Each sending's request, 0 until known, for Cancel: written by the sender without the mutex, as `stop` is read by
  // it.
  static constexpr uint32_t kSendsMax = 3;
  std::array<std::atomic<RequestId>, kSendsMax> requests{};
  uint32_t sends = 0;
  bool asked_for_memory = false;  // Of a device, of other tenants. Once.
  std::atomic<bool> stop{false};
  Status stop_reason;  // When `stop`: what the run ends with unless it succeeds first.
  std::vector<std::pair<Time, uint64_t>> timers;
  std::function<void(RunOutcome)> done;  // Without the mutex.
};

}  // namespace hpvm

#endif  // HPVMD_SERVER_CORE_STATE_RUN_OP_H_
