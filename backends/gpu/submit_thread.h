// SPDX-License-Identifier: Apache-2.0
// The two threads of a device behind a driver: one waits for submissions' wait points and hands their commands to the
// driver, the other waits for the driver and settles their signals. So the next submission is being enqueued while one
// runs.
//
// Submissions whose wait points are reached go to the driver in the order in which they were submitted; one that still
// waits holds up nobody. A submission whose wait point has failed, or whose stop word is set before its turn, is never
// enqueued: its signals fail with that status, or with kCancelled. While the device is not granted nothing is enqueued
// either. Commands that run on the device cannot be stopped,
// and when a kernel traps, the commands behind it have been enqueued already and run on what it left; all of the
// submission's results are undefined then, and its signals fail.
#ifndef HPVMD_BACKENDS_GPU_SUBMIT_THREAD_H_
#define HPVMD_BACKENDS_GPU_SUBMIT_THREAD_H_

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "backends/device.h"
#include "backends/grant_gate.h"

namespace hpvm::gpu {

// A submission that the driver has got.
class Flight {
 public:
  virtual ~Flight() = default;
  // Waits until the device is done with everything of the submission that was enqueued, also when some of it could not
  // be; then fills in its timings and failure. Called once, on the completion thread.
  virtual Status Finish() = 0;
};

// What differs between devices: how a submission's commands get into the driver.
class Driver {
 public:
  virtual ~Driver() = default;
  // Enqueues the commands in order and makes sure that the device starts on them. Never null: what goes wrong half way
  // is the flight's Finish to return. Looks at Submission::stop between commands. Called on the submit thread, one
  // submission at a time, while the completion thread may be in Finish of earlier ones.
  virtual std::unique_ptr<Flight> Enqueue(const Submission& submission) = 0;
};

class SubmitThread {
 public:
  // Flights that are enqueued at once: one runs, one is behind it, and one is being enqueued.
  static constexpr uint32_t kFlightsMax = 3;

  // All are borrowed for its life; without a gate the device is always granted. Declare it last in its device, so that
  // it stops first. Threads start with the first submission.
  SubmitThread(Hub& hub, Driver& driver, GrantGate* gate = nullptr);
  // Waits for what is enqueued, and fails the other submissions with kCancelled.
  ~SubmitThread();
  SubmitThread(const SubmitThread&) = delete;
  SubmitThread& operator=(const SubmitThread&) = delete;

  // Only queues. kResourceExhausted when no thread can be started; the signals do not change then.
  Status Submit(const Submission& submission);

 private:
  struct InFlight {
    Submission submission;
    std::unique_ptr<Flight> flight;
  };
  enum class Turn : uint8_t { kReady, kNone, kClosing };

  Status StartThreads();
  void ServeSubmissions();
  void ServeFlights();
  Turn TakeTurn(Submission* submission, std::vector<TimelinePoint>* pending);
  void Launch(const Submission& submission);
  bool AwaitGrant(const Submission& submission);
  bool FailStopped();

  Hub& hub_;
  Driver& driver_;
  GrantGate* const gate_;

  std::mutex mutex_;
  std::deque<Submission> waiting_;     // Guarded by mutex_; in the order of submission.
  bool closing_ = false;               // Guarded by mutex_.
  uint64_t changes_ = 0;               // Guarded by mutex_; what changed_ was last signalled with.
  std::unique_ptr<Timeline> changed_;  // Wakes the submit thread for a new submission or the end.

  std::mutex flights_mutex_;
  std::condition_variable flights_changed_;
  std::deque<InFlight> flights_;  // Guarded by flights_mutex_; the first one is being finished.
  bool enqueued_all_ = false;     // Guarded by flights_mutex_; nothing further comes.

  std::thread submit_thread_;      // Guarded by mutex_ until the destructor.
  std::thread completion_thread_;  // The same.
};

}  // namespace hpvm::gpu

#endif  // HPVMD_BACKENDS_GPU_SUBMIT_THREAD_H_
