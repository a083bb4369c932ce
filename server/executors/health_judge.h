// SPDX-License-Identifier: Apache-2.0
// HealthJudge decides which devices are fenced because of their health, so that nothing is started on them. It does no
// I/O: readings in, verdicts out.
//
// A fence for heat ends by itself; any other stays until an administrator resumes the device or the server restarts,
// because a device that computed wrongly once is not trusted merely because it was reset.
#ifndef HPVMD_SERVER_EXECUTORS_HEALTH_JUDGE_H_
#define HPVMD_SERVER_EXECUTORS_HEALTH_JUDGE_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "hpvm/v1/record.pb.h"
#include "server/executors/health_reading.h"

namespace hpvm::server {

// DeviceVitals is a device of the management library with the verdict on it.
struct DeviceVitals {
  v1::DeviceHealth health;         // Includes fence and last_xid.
  bool is_fenced_by_heat = false;  // The fence ends when the device has cooled down.
};

class HealthJudge {
 public:
  // Number of readings in a row without a known device after which the device counts as gone.
  static constexpr uint32_t kMissesMax = 3;
  // Degrees below the limit to which a device that was fenced for heat must cool down.
  static constexpr double kCooledC = 10;

  // Judges a reading made at `wall_ns`. A device is fenced at `temperature_max_c` degrees; 0: never.
  void OnReading(const std::vector<DeviceReading>& readings, uint64_t temperature_max_c, int64_t wall_ns);
  // Clears the readings, since the library is silent; fences stay.
  void OnSilence();
  // Forgives the cause of the fence, but not new causes. Ignores unknown devices.
  void Lift(std::string_view uuid, std::string_view bus);
  const std::vector<DeviceVitals>& vitals() const { return vitals_; }

 private:
  // State beside `vitals_`.
  struct Known {
    bool has_uncorrected = false;
    uint64_t uncorrected = 0;  // Number of errors that are forgiven, or from before the server started.
    bool awaits_reset = false, forgives_reset = false;
    uint32_t misses = 0;
  };

  size_t Find(const v1::DeviceHealth& health);
  void Judge(const DeviceReading& reading, uint64_t temperature_max_c, size_t index);
  void Fence(size_t index, std::string why);

  std::vector<DeviceVitals> vitals_;  // At most kHealthDevicesMax, the first ones seen.
  std::vector<Known> known_;
};

// Returns a sentence about a fault that makes the device unusable; empty when the number is an application's fault, or
// unknown.
std::string_view FatalXid(uint64_t xid);

}  // namespace hpvm::server

#endif  // HPVMD_SERVER_EXECUTORS_HEALTH_JUDGE_H_
