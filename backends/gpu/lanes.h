// SPDX-License-Identifier: Apache-2.0
// Lanes of a device behind a driver: one submit thread for each lane in use.
#ifndef HPVMD_BACKENDS_GPU_LANES_H_
#define HPVMD_BACKENDS_GPU_LANES_H_

#include <array>
#include <memory>
#include <mutex>

#include "backends/gpu/submit_thread.h"

namespace hpvm::gpu {

// Opens the driver's part for each lane.
class LaneDrivers {
 public:
  virtual ~LaneDrivers() = default;
  // The returned pointer stays valid. Called once per lane, at its first use, so that a lane's resources do not slow
  // down a device's start.
  virtual StatusOr<Driver*> OpenLane(Lane lane) = 0;
};

class Lanes {
 public:
  // All are borrowed for its life; `gate` may be null. Without copy lanes everything uses the kernels' lane. Its
  // threads run on `near`. Declare it last in its device, so that it stops first.
  Lanes(Hub& hub, LaneDrivers& drivers, bool has_copy_lanes, GrantGate* gate, NearCpus near)
      : hub_(hub),
        drivers_(drivers),
        has_copy_lanes_(has_copy_lanes),
        gate_(gate),
        near_(std::move(near)),
        board_(hub, gate) {}

  // Only queues. Thread-safe.
  Status Submit(const Submission& submission);

 private:
  Hub& hub_;
  LaneDrivers& drivers_;
  const bool has_copy_lanes_;
  GrantGate* const gate_;
  const NearCpus near_;
  FlightBoard board_;
  std::mutex mutex_;
  std::array<std::unique_ptr<SubmitThread>, kLanes> threads_;  // Guarded by mutex_.
};

}  // namespace hpvm::gpu

#endif  // HPVMD_BACKENDS_GPU_LANES_H_
