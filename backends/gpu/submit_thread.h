// SPDX-License-Identifier: Apache-2.0
// SubmitThread runs the two threads of a lane of a device behind a driver: one waits for submissions' wait points and
// passes their commands to the driver, the other waits for the driver and settles the signals. The next submission is
// thus enqueued while one runs.
//
// Order. Submissions whose wait points are reached go to the driver in the order of submission. A submission that still
// waits delays only later ones that signal higher values of a timeline that it also signals, as values are reached in
// order. Copies of a submission to host memory complete before a later submission does anything but copy to host
// memory. A wait point that a flight of the device will reach need not be reached yet: the submission is enqueued
// behind that flight and waits on the device, if that flight cannot fail because of a kernel, or if the submission only
// copies to host memory, which it does once its points are known to be reached.
//
// Failures. A submission whose wait point has failed, or whose stop word is set before its turn, is never enqueued: its
// signals fail with that status, or with kCancelled. While the device is not granted nothing is enqueued either.
// Commands that run on the device cannot be stopped, and when a kernel traps, later commands are already enqueued and
// run on its output; all of the submission's results are then undefined, and its signals fail.
//
// A timeline that fails also fails the points of all submissions that are to reach higher values of it, and a waiter
// that sees the failure may free everything that they name. It therefore fails when the last flight that signals it has
// ended, after the submissions that have not begun are dropped. A timeline belongs to one lane.
#ifndef HPVMD_BACKENDS_GPU_SUBMIT_THREAD_H_
#define HPVMD_BACKENDS_GPU_SUBMIT_THREAD_H_

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "backends/contract/device.h"
#include "backends/contract/grant_gate.h"
#include "backends/gpu/flight_board.h"
#include "backends/gpu/near_cpus.h"

namespace hpvm::gpu {

// A submission that was passed to the driver.
class Flight {
 public:
  virtual ~Flight() = default;
  // Waits until the device has finished every command of the submission that was enqueued, even if some could not be;
  // then fills in its timings and failure. Called once, on the completion thread.
  virtual Status Finish() = 0;
  // Call before Finish.
  virtual Behind behind() const { return {}; }
};

// The device-specific part: passes a submission's commands to the driver.
class Driver {
 public:
  virtual ~Driver() = default;
  // Enqueues the commands in order and makes sure that the device starts on them. Never returns null: a failure half
  // way is returned by the flight's Finish. Checks Submission::stop between commands. On the device nothing of it
  // starts before `behind` are reached. Called on the submit thread, one submission at a time, while the completion
  // thread may be in Finish of earlier ones.
  virtual std::unique_ptr<Flight> Enqueue(const Submission& submission, const Milestones& behind) = 0;
};

class SubmitThread {
 public:
  // All are borrowed for its life; without a gate the device is always granted. `board` is the device's. Declare it
  // last in its device, so that it stops first. Threads start with the first submission, and run on `near`.
  SubmitThread(Hub& hub, Driver& driver, FlightBoard& board, Lane lane, GrantGate* gate, NearCpus near = {});
  // Waits for enqueued submissions, and fails the others with kCancelled.
  ~SubmitThread();
  SubmitThread(const SubmitThread&) = delete;
  SubmitThread& operator=(const SubmitThread&) = delete;

  // Only queues. Returns kResourceExhausted, with unchanged signals, when no thread can be started.
  Status Submit(const Submission& submission);

 private:
  struct InFlight {
    Submission submission;
    std::unique_ptr<Flight> flight;  // Null when it was never enqueued,
    Status refusal;                  // for this reason.
    Milestones behind;               // The flights behind which it was enqueued.
    // Its own milestone, if other submissions may be enqueued behind it.
    std::shared_ptr<const Milestone> milestone;
    // None may, because it has work left to do on the host.
    bool ends_on_host = false;
  };
  // A timeline that will fail.
  struct FailingTimeline {
    Timeline* timeline = nullptr;
    Status why;
    // The submit thread may still read the wait points of submissions that were to signal it.
    bool is_watched = false;
  };
  enum class Turn : uint8_t { kReady, kNone, kClosing };
  // A submission whose turn it is, and the flights behind which it is enqueued.
  struct Next {
    Submission submission;
    Milestones behind;
  };

  Status StartThreads();
  void ServeSubmissions();
  void ServeFlights();
  Turn TakeTurn(Next* next, std::vector<TimelinePoint>* pending);
  bool IsReady(const Submission& submission, Next* next, std::vector<TimelinePoint>* pending) const;
  void Launch(const Next& next);
  void AwaitHostWork();
  void AddFlight(InFlight flight, bool is_taken);
  void Refuse(const Submission& submission, Status why, bool is_taken);
  Status FinishFlight(InFlight& flight);
  void Doom(const Submission& submission, const Status& status);
  bool IsBoundToFail(const Submission& submission, Status* why);
  bool IsLive(const Timeline* timeline) const;
  bool FailTimelines();
  void LookAway();
  bool AwaitGrant(const Submission& submission);
  bool FailStopped();

  Hub& hub_;
  Driver& driver_;
  FlightBoard& board_;
  const Lane lane_;
  GrantGate* const gate_;
  const NearCpus near_;

  std::mutex mutex_;
  std::deque<Submission> waiting_;     // Guarded by mutex_; in order of submission.
  bool closing_ = false;               // Guarded by mutex_.
  uint64_t changes_ = 0;               // Guarded by mutex_; the value last signalled on changed_.
  std::unique_ptr<Timeline> changed_;  // Wakes the submit thread for a new submission or the end.

  std::mutex flights_mutex_;
  std::condition_variable flights_changed_;
  // Guarded by flights_mutex_; the first one is being finished. They settle in order.
  std::deque<InFlight> flights_;
  // Guarded by flights_mutex_; the submission whose turn it is, until it becomes a flight.
  const Submission* taken_ = nullptr;
  std::vector<FailingTimeline> failing_timelines_;  // Guarded by flights_mutex_.
  bool is_watching_ = false;   // Guarded by flights_mutex_; the submit thread waits for a list of points.
  bool enqueued_all_ = false;  // Guarded by flights_mutex_; no further flight follows.

  std::thread submit_thread_;      // Guarded by mutex_ until the destructor.
  std::thread completion_thread_;  // Guarded by mutex_ until the destructor.
};

}  // namespace hpvm::gpu

#endif  // HPVMD_BACKENDS_GPU_SUBMIT_THREAD_H_
