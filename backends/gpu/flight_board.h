// SPDX-License-Identifier: Apache-2.0
// FlightBoard is shared by the lanes of one device: it lists the points that flights submitted to the driver will
// reach, so that a submission of another lane can be enqueued behind one of them and wait on the device instead of the
// host; and it counts flights.
//
// Thread-safe.
#ifndef HPVMD_BACKENDS_GPU_FLIGHT_BOARD_H_
#define HPVMD_BACKENDS_GPU_FLIGHT_BOARD_H_

#include <array>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "backends/contract/device.h"
#include "backends/contract/grant_gate.h"

namespace hpvm::gpu {

// The point at which a flight's work on the device ends, in the form in which its driver waits for it
// (driver-specific), and the flight's outcome. The outcome is known before its signals settle, which may have to wait
// for later flights (submit_thread.h).
class Milestone {
 public:
  virtual ~Milestone() = default;
  // Call once, when the flight has ended.
  void Settle(Status status) const;
  // Waits for the outcome without a time limit.
  Status Await() const;

 private:
  mutable std::mutex mutex_;
  mutable std::condition_variable changed_;
  mutable bool has_ended_ = false;  // Guarded by mutex_.
  mutable Status status_;           // Guarded by mutex_.
};
using Milestones = std::vector<std::shared_ptr<const Milestone>>;
// Returns OK when all flights have ended well. A flight that was enqueued behind others calls it before it has an
// effect on the host.
Status AwaitAll(const Milestones& milestones);

// Conditions for enqueueing behind a flight before it has ended.
struct Behind {
  // Shared by the board, while the flight is in progress, and flights about to be enqueued behind it. Null: no flight
  // may be, because this one still has work to do on the host.
  std::shared_ptr<const Milestone> milestone;
  // It may fail because of its kernel: only work without effects before its waits are known to be reached may follow
  // it.
  bool may_trap = false;
};

class FlightBoard {
 public:
  // Flights of a lane that are enqueued at once: one runs, one waits behind it, and one is being enqueued.
  static constexpr uint32_t kFlightsMax = 3;

  // Both are borrowed; `gate` may be null.
  FlightBoard(Hub& hub, GrantGate* gate) : gate_(gate), posted_(std::make_unique<Timeline>(hub)) {}
  FlightBoard(const FlightBoard&) = delete;
  FlightBoard& operator=(const FlightBoard&) = delete;

  // Waits until one more flight of the lane may begin: limited by kFlightsMax, and by the grant's limit for all lanes
  // together.
  void Enter(Lane lane);
  void Leave(Lane lane);

  // Posts the enqueued flight that will reach `signals`; valid until Strike, which comes before the signals settle.
  void Post(std::span<const TimelinePoint> signals, Behind behind);
  void Strike(std::span<const TimelinePoint> signals);
  // Returns the flight that will reach the point, if the device can wait for it.
  Behind Find(const TimelinePoint& point) const;
  // Returns a point that is reached when another flight has been posted. Must be requested before Find.
  TimelinePoint NextPost() const;

 private:
  struct Entry {
    TimelinePoint signal;
    Behind behind;
  };

  GrantGate* const gate_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::array<uint32_t, kLanes> flights_{};  // Guarded by mutex_.
  std::vector<Entry> entries_;              // Guarded by mutex_.
  uint64_t posts_ = 0;                      // Guarded by mutex_.
  const std::unique_ptr<Timeline> posted_;  // Counts posts.
};

}  // namespace hpvm::gpu

#endif  // HPVMD_BACKENDS_GPU_FLIGHT_BOARD_H_
