// SPDX-License-Identifier: Apache-2.0
// What the lanes of one device know of each other: which points the flights will reach that the driver has got, so that
// a submission of another lane can be enqueued behind one of them and waits on the device instead of the host; and how
// many flights there are.
//
// Any thread.
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

// Where a flight's work on the device ends, as its driver waits for it (the driver's own kind), and what became of the
// flight. That is known before its signals settle, which may have to wait for later flights (submit_thread.h).
class Milestone {
 public:
  virtual ~Milestone() = default;
  // Once, when the flight has ended.
  void Settle(Status status) const;
  // However long it takes.
  Status Await() const;

 private:
  mutable std::mutex mutex_;
  mutable std::condition_variable changed_;
  mutable bool has_ended_ = false;  // Guarded by mutex_.
  mutable Status status_;           // Guarded by mutex_.
};
using Milestones = std::vector<std::shared_ptr<const Milestone>>;
// OK when all flights have ended well. What a flight that was enqueued behind others calls before it has an effect on
// the host.
Status AwaitAll(const Milestones& milestones);

// What may be enqueued behind a flight before it has ended.
struct Behind {
  // Shared by the board, while the flight is under way, and whoever is about to be enqueued behind it. Null: nothing
  // may, as the flight still has something to do on the host.
  std::shared_ptr<const Milestone> milestone;
  // It may fail for what a kernel does: behind it goes only what has no effect before its waits are known to be
  // reached.
  bool may_trap = false;
};

class FlightBoard {
 public:
  // Flights of a lane that are enqueued at once: one runs, one is behind it, and one is being enqueued.
  static constexpr uint32_t kFlightsMax = 3;

  // Both are borrowed; `gate` may be null.
  FlightBoard(Hub& hub, GrantGate* gate) : gate_(gate), posted_(std::make_unique<Timeline>(hub)) {}
  FlightBoard(const FlightBoard&) = delete;
  FlightBoard& operator=(const FlightBoard&) = delete;

  // Waits until one more flight of the lane may be under way: by kFlightsMax, and by what the grant allows all lanes
  // together.
  void Enter(Lane lane);
  void Leave(Lane lane);

  // The flight that will reach `signals` was enqueued; until Strike, which comes before the signals settle.
  void Post(std::span<const TimelinePoint> signals, Behind behind);
  void Strike(std::span<const TimelinePoint> signals);
  // The flight that will reach the point, if it may be waited for on the device.
  Behind Find(const TimelinePoint& point) const;
  // Reached when another flight has been posted. To be asked for before Find.
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
  const std::unique_ptr<Timeline> posted_;  // Counts them.
};

}  // namespace hpvm::gpu

#endif  // HPVMD_BACKENDS_GPU_FLIGHT_BOARD_H_
