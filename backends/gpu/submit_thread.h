// SPDX-License-Identifier: Apache-2.0
// The two threads of a lane of a device behind a driver: one waits for submissions' wait points and hands their
// commands to the driver, the other waits for the driver and settles their signals. So the next submission is being
// enqueued while one runs.
//
// Order. Submissions whose wait points are reached go to the driver in the order in which they were submitted. One that
// still waits holds up those behind it that signal higher values of a timeline that it signals, too, as values are
// reached in order; nobody else. What a submission copies to host memory is there before one behind it does anything
// but copy to host memory. A wait point that a flight of the device will reach need not be reached yet: the submission
// is enqueued behind that flight and waits on the device, if that flight cannot fail for what a kernel does or the
// submission only copies to host memory, which it does when its points are known to be reached.
//
// Failures. A submission whose wait point has failed, or whose stop word is set before its turn, is never enqueued: its
// signals fail with that status, or with kCancelled. While the device is not granted nothing is enqueued either.
// Commands that run on the device cannot be stopped, and when a kernel traps, the commands behind it have been enqueued
// already and run on what it left; all of the submission's results are undefined then, and its signals fail.
//
// A timeline that fails takes with it the points of all submissions that are to reach higher values of it, and whoever
// sees them failed frees what they name. So it fails when the last flight that signals it has ended, and those that
// have not begun are dropped before. A timeline is one lane's.
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

// A submission that the driver has got.
class Flight {
 public:
  virtual ~Flight() = default;
  // Waits until the device is done with everything of the submission that was enqueued, also when some of it could not
  // be; then fills in its timings and failure. Called once, on the completion thread.
  virtual Status Finish() = 0;
  // Before Finish.
  virtual Behind behind() const { return {}; }
};

// What differs between devices: how a submission's commands get into the driver.
class Driver {
 public:
  virtual ~Driver() = default;
  // Enqueues the commands in order and makes sure that the device starts on them. Never null: what goes wrong half way
  // is the flight's Finish to return. Looks at Submission::stop between commands. On the device nothing of it starts
  // before `behind` are reached. Called on the submit thread, one submission at a time, while the completion thread may
  // be in Finish of earlier ones.
  virtual std::unique_ptr<Flight> Enqueue(const Submission& submission, const Milestones& behind) = 0;
};

class SubmitThread {
 public:
  // All are borrowed for its life; without a gate the device is always granted. `board`: the device's. Declare it last
  // in its device, so that it stops first. Threads start with the first submission, and run on `near`.
  SubmitThread(Hub& hub, Driver& driver, FlightBoard& board, Lane lane, GrantGate* gate, NearCpus near = {});
  // Waits for what is enqueued, and fails the other submissions with kCancelled.
  ~SubmitThread();
  SubmitThread(const SubmitThread&) = delete;
  SubmitThread& operator=(const SubmitThread&) = delete;

  // Only queues. kResourceExhausted when no thread can be started; the signals do not change then.
  Status Submit(const Submission& submission);

 private:
  struct InFlight {
    Submission submission;
    std::unique_ptr<Flight> flight;              // Null: it was never enqueued,
    Status refusal;                              // for this reason.
    Milestones behind;                           // What it was enqueued behind.
    std::shared_ptr<const Milestone> milestone;  // Its own, if something may be enqueued behind it.
    bool ends_on_host = false;                   // Nothing may, as it has something to do there.
  };
  // A timeline that is to fail.
  struct Doomed {
    Timeline* timeline = nullptr;
    Status why;
    bool is_watched = false;  // The submit thread may still look at what those waited for that were to signal it.
  };
  enum class Turn : uint8_t { kReady, kNone, kClosing };
  // A submission whose turn it is, and what it is to be enqueued behind.
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
  bool IsDoomed(const Submission& submission, Status* why);
  bool IsLive(const Timeline* timeline) const;
  bool FailDoomed();
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
  std::deque<Submission> waiting_;     // Guarded by mutex_; in the order of submission.
  bool closing_ = false;               // Guarded by mutex_.
  uint64_t changes_ = 0;               // Guarded by mutex_; what changed_ was last signalled with.
  std::unique_ptr<Timeline> changed_;  // Wakes the submit thread for a new submission or the end.

  std::mutex flights_mutex_;
  std::condition_variable flights_changed_;
  std::deque<InFlight> flights_;  // Guarded by flights_mutex_; the first one is being finished. They settle in order.
  const Submission* taken_ = nullptr;  // Guarded by flights_mutex_; whose turn it is, until it is a flight.
  std::vector<Doomed> doomed_;         // Guarded by flights_mutex_.
  bool is_watching_ = false;           // Guarded by flights_mutex_; the submit thread waits for a list of points.
  bool enqueued_all_ = false;          // Guarded by flights_mutex_; nothing further comes.

  std::thread submit_thread_;      // Guarded by mutex_ until the destructor.
  std::thread completion_thread_;  // The same.
};

}  // namespace hpvm::gpu

#endif  // HPVMD_BACKENDS_GPU_SUBMIT_THREAD_H_
