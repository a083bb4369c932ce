// SPDX-License-Identifier: Apache-2.0
#include "server/executors/health_judge.h"

#include <algorithm>
#include <string>
#include <utility>

namespace hpvm::server {
namespace {

struct FatalFault {
  uint64_t xid;
  std::string_view what;
};

// NVIDIA, "XID Errors" (docs.nvidia.com/deploy/xid-errors): faults after which the device has to be reset or replaced.
// 13, 31, 43, 45, 68 and the like are an application's, whose kernel the driver ended; 63 says that a row is going to
// be replaced, which the reading reports by itself (awaits_reset).
constexpr FatalFault kFatalFaults[] = {
    {48, "a memory error that could not be corrected"},
    {62, "its microcontroller halted"},
    {64, "a bad row of its memory could not be retired"},
    {74, "its NVLink failed"},
    {79, "it has fallen off the bus"},
    {92, "memory errors came in great number"},
    {94, "a memory error that was contained"},
    {95, "a memory error that was not contained"},
    {119, "its system processor does not answer"},
    {120, "its system processor failed"},
    {140, "a memory error that the driver could not recover from"},
};

}  // namespace

std::string_view FatalXid(uint64_t xid) {
  const auto found = std::ranges::find(kFatalFaults, xid, &FatalFault::xid);
  return found == std::end(kFatalFaults) ? std::string_view() : found->what;
}

// Finds the device by UUID, or by bus address when one of the two has no UUID.
size_t HealthJudge::Find(const v1::DeviceHealth& health) {
  const auto has_uuid = [&](const DeviceVitals& other) {
    return !health.uuid().empty() && health.uuid() == other.health.uuid();
  };
  const auto has_bus = [&](const DeviceVitals& other) {
    return (health.uuid().empty() || other.health.uuid().empty()) && !health.bus().empty() &&
           health.bus() == other.health.bus();
  };
  auto found = std::find_if(vitals_.begin(), vitals_.end(), has_uuid);
  found = found == vitals_.end() ? std::find_if(vitals_.begin(), vitals_.end(), has_bus) : found;
  return static_cast<size_t>(found - vitals_.begin());
}

// Keeps the first reason, since later ones often follow from it. A fence for heat, which ends by itself, is replaced.
void HealthJudge::Fence(size_t index, std::string why) {
  DeviceVitals& vitals = vitals_[index];
  if (vitals.health.fence().empty() || vitals.is_fenced_by_heat) {
    vitals.health.set_fence(std::move(why));
    vitals.is_fenced_by_heat = false;
  }
}

void HealthJudge::Judge(const DeviceReading& reading, uint64_t temperature_max_c, size_t index) {
  DeviceVitals& vitals = vitals_[index];
  v1::DeviceHealth& health = vitals.health;
  Known& known = known_[index];
  for (const uint64_t xid : reading.xids) {
    health.set_last_xid(xid);
    if (const std::string_view what = FatalXid(xid); !what.empty()) {
      Fence(index, "The driver reported Xid " + std::to_string(xid) + ": " + std::string(what) + ".");
    }
  }
  if (reading.is_lost) {
    Fence(index, "The management library has lost the device.");
  }
  if (reading.awaits_reset && !known.forgives_reset) {
    Fence(index, "Bad rows of the device's memory are replaced only when the device is reset.");
  }
  known.awaits_reset = reading.awaits_reset;
  known.forgives_reset &= reading.awaits_reset;
  if (health.has_ecc_uncorrected()) {
    const uint64_t now = health.ecc_uncorrected();
    if (known.has_uncorrected && now > known.uncorrected) {
      Fence(index, "The device's memory had " + std::to_string(now - known.uncorrected) +
                       " errors that could not be corrected.");
    }
    // A driver that is loaded again counts from 0.
    known.uncorrected = known.has_uncorrected && health.fence().empty() ? std::min(known.uncorrected, now) : now;
    known.has_uncorrected = true;
  }
  if (!health.has_temperature_c() || (!vitals.is_fenced_by_heat && !health.fence().empty())) {
    return;
  }
  const auto limit = static_cast<double>(temperature_max_c);
  if (limit > 0 && health.temperature_c() >= limit) {
    health.set_fence("The device is too hot: " + std::to_string(static_cast<int>(health.temperature_c())) +
                     " degrees Celsius; the limit is " + std::to_string(temperature_max_c) +
                     " (devices.health_temperature_max_c).");
    vitals.is_fenced_by_heat = true;
  } else if (vitals.is_fenced_by_heat && (limit == 0 || health.temperature_c() <= limit - kCooledC)) {
    health.clear_fence();
    vitals.is_fenced_by_heat = false;
  }
}

void HealthJudge::OnReading(const std::vector<DeviceReading>& readings, uint64_t temperature_max_c, int64_t wall_ns) {
  std::vector<bool> is_there(vitals_.size());
  for (const DeviceReading& reading : readings) {
    const size_t index = Find(reading.health);
    if (index == vitals_.size()) {
      if (vitals_.size() >= kHealthDevicesMax) {
        continue;
      }
      vitals_.emplace_back();
      known_.emplace_back();
      is_there.push_back(true);
    }
    v1::DeviceHealth& health = vitals_[index].health;
    v1::DeviceHealth next = reading.health;
    next.set_fence(health.fence());
    // A reading that lacks UUID or bus does not erase it.
    next.set_uuid(next.uuid().empty() ? health.uuid() : next.uuid());
    next.set_bus(next.bus().empty() ? health.bus() : next.bus());
    if (health.has_last_xid()) {
      next.set_last_xid(health.last_xid());
    }
    next.set_read_unix_ns(wall_ns);
    health = std::move(next);
    is_there[index] = true;
    known_[index].misses = 0;
    Judge(reading, temperature_max_c, index);
  }
  for (size_t i = 0; i < is_there.size(); ++i) {
    if (!is_there[i] && ++known_[i].misses >= kMissesMax) {
      Fence(i, "The device is gone: the management library does not list it any more.");
    }
  }
}

void HealthJudge::OnSilence() {
  for (DeviceVitals& vitals : vitals_) {
    v1::DeviceHealth kept;
    kept.set_uuid(vitals.health.uuid());
    kept.set_bus(vitals.health.bus());
    kept.set_fence(vitals.health.fence());
    if (vitals.health.has_last_xid()) {
      kept.set_last_xid(vitals.health.last_xid());
    }
    vitals.health = std::move(kept);
  }
}

void HealthJudge::Lift(std::string_view uuid, std::string_view bus) {
  v1::DeviceHealth which;
  which.set_uuid(std::string(uuid));
  which.set_bus(std::string(bus));
  const size_t index = Find(which);
  if (index < vitals_.size()) {
    vitals_[index].health.clear_fence();
    vitals_[index].is_fenced_by_heat = false;
    known_[index].forgives_reset = known_[index].awaits_reset;
    known_[index].misses = 0;
  }
}

}  // namespace hpvm::server
