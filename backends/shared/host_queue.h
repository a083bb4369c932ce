// SPDX-License-Identifier: Apache-2.0
// HostQueue handles submissions of a device whose commands run on the host: waits, deferral, signals. The target runs
// the commands.
//
// A submission whose waits are reached runs on the thread that calls Submit. Any other is deferred: it starts on the
// queue's own thread (started at the first deferral), never on the thread that reaches the last point, because that may
// be a socket's or a driver's thread and a kernel may run for seconds. Deferred submissions run one at a time, in the
// order in which they become ready, concurrently with submissions that run inline; CommandTarget's methods must
// therefore be thread-safe.
#ifndef HPVMD_BACKENDS_SHARED_HOST_QUEUE_H_
#define HPVMD_BACKENDS_SHARED_HOST_QUEUE_H_

#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "backends/contract/device.h"
#include "backends/shared/command_walk.h"

namespace hpvm::backends {

class HostQueue {
 public:
  // Both are borrowed for the queue's life. Declare the queue last in its device, so that it stops first.
  HostQueue(Hub& hub, CommandTarget& target);
  // Finishes the deferred submission that is running, if any, and fails the others with kCancelled.
  ~HostQueue();
  HostQueue(const HostQueue&) = delete;
  HostQueue& operator=(const HostQueue&) = delete;

  // Never fails and never waits for a point. Thread-safe.
  void Submit(const Submission& submission);

 private:
  void Start(const Submission& submission);
  void Defer(const Submission& submission);
  void ServeDeferred();
  bool TakeReady(std::vector<Submission>& ready, std::vector<TimelinePoint>& pending_points);

  Hub& hub_;
  CommandTarget& target_;

  std::mutex mutex_;
  std::vector<Submission> deferred_;       // Guarded by mutex_.
  bool closing_ = false;                   // Guarded by mutex_.
  uint64_t changes_ = 0;                   // Guarded by mutex_; the value last signalled on changed_.
  std::unique_ptr<Timeline> changed_;      // Wakes the thread for a new submission or the end.
  std::thread thread_;                     // Guarded by mutex_ until the destructor.
};

// Returns the bytes of a view, checked against its buffer; kInternal when it does not fit, because callers have
// validated it.
StatusOr<uint8_t*> HostRange(const Submission& submission, SlotIndex slot, uint64_t offset, uint64_t bytes);
// Checks a dispatch's arguments against its executable's parameters: count, kinds, slots and views. Returns kInternal
// on a mismatch.
Status CheckDispatch(const DispatchCommand& dispatch, const Submission& submission);
Status RunCopy(const CopyCommand& copy, const Submission& submission);
Status RunFill(const FillCommand& fill, const Submission& submission);

// Returns the status of a launch that ended early: kCancelled for kStopped, otherwise kAborted with `what`. Ends the
// process for kWrongProof, which only code that audits proofs reports.
Status TrapStatus(const ir::TrapReport& trap, std::string_view what);

}  // namespace hpvm::backends

#endif  // HPVMD_BACKENDS_SHARED_HOST_QUEUE_H_
