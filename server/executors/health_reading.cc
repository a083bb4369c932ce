// SPDX-License-Identifier: Apache-2.0
#include "server/executors/health_reading.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>

#include <nlohmann/json.hpp>

#include "base/clean_text.h"
#include "server/config/device_families.h"

namespace hpvm::server {
namespace {

using Json = nlohmann::json;

constexpr size_t kTextBytesMax = 80;
// Bounds that no device exceeds.
constexpr double kTemperatureMin = -60, kTemperatureMax = 250;
constexpr double kPowerMax = 100'000;
constexpr uint64_t kMemoryMax = uint64_t{1} << 50;
constexpr uint64_t kXidMax = 100'000;

std::string TextOf(const Json& json, const char* key) {
  const auto found = json.find(key);
  return found == json.end() || !found->is_string()
             ? ""
             : CleanText(found->get_ref<const std::string&>().substr(0, kTextBytesMax), kTextBytesMax, false);
}

bool FlagOf(const Json& json, const char* key) {
  const auto found = json.find(key);
  return found != json.end() && found->is_boolean() && found->get<bool>();
}

std::optional<double> NumberOf(const Json& json, const char* key, double min, double max) {
  const auto found = json.find(key);
  if (found == json.end() || !found->is_number()) {
    return std::nullopt;
  }
  const double value = found->get<double>();
  return std::isfinite(value) && value >= min && value <= max ? std::optional(value) : std::nullopt;
}

std::optional<uint64_t> CountOf(const Json& json, const char* key, uint64_t max) {
  const auto found = json.find(key);
  if (found == json.end() || !found->is_number_unsigned()) {
    return std::nullopt;
  }
  const auto value = found->get<uint64_t>();
  return value <= max ? std::optional(value) : std::nullopt;
}

DeviceReading DeviceOf(const Json& json) {
  DeviceReading reading;
  v1::DeviceHealth& health = reading.health;
  health.set_uuid(UuidOf(TextOf(json, "uuid")));
  health.set_bus(BusOf(TextOf(json, "bus")));
  if (const auto value = NumberOf(json, "temperature_c", kTemperatureMin, kTemperatureMax)) {
    health.set_temperature_c(*value);
  }
  if (const auto value = NumberOf(json, "power_w", 0, kPowerMax)) {
    health.set_power_w(*value);
  }
  if (const auto value = NumberOf(json, "power_limit_w", 0, kPowerMax)) {
    health.set_power_limit_w(*value);
  }
  if (const auto value = CountOf(json, "memory_used_bytes", kMemoryMax)) {
    health.set_memory_used_bytes(*value);
  }
  if (const auto value = NumberOf(json, "busy", 0, 1)) {
    health.set_busy(*value);
  }
  if (const auto value = CountOf(json, "ecc_corrected", UINT64_MAX)) {
    health.set_ecc_corrected(*value);
  }
  if (const auto value = CountOf(json, "ecc_uncorrected", UINT64_MAX)) {
    health.set_ecc_uncorrected(*value);
  }
  health.set_throttled(FlagOf(json, "throttled"));
  reading.is_lost = FlagOf(json, "lost");
  reading.awaits_reset = FlagOf(json, "awaits_reset");
  if (const auto xids = json.find("xids"); xids != json.end() && xids->is_array()) {
    for (const Json& xid : *xids) {
      if (xid.is_number_unsigned() && xid.get<uint64_t>() <= kXidMax && reading.xids.size() < kXidsMax) {
        reading.xids.push_back(xid.get<uint64_t>());
      }
    }
  }
  return reading;
}

}  // namespace

StatusOr<std::vector<DeviceReading>> ParseHealthReading(std::string_view line) {
  const Json json = Json::parse(line, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) {
    return InvalidArgument("The management library's reading is not a JSON object.");
  }
  if (const std::string error = TextOf(json, "error"); !error.empty()) {
    return Unavailable(error);
  }
  const auto devices = json.find("devices");
  if (devices == json.end() || !devices->is_array() || devices->size() > kHealthDevicesMax) {
    return InvalidArgument("The management library's reading names no devices, or more than " +
                           std::to_string(kHealthDevicesMax) + ".");
  }
  std::vector<DeviceReading> readings;
  for (const Json& device : *devices) {
    if (!device.is_object()) {
      continue;
    }
    DeviceReading reading = DeviceOf(device);
    const auto is_same = [&](const DeviceReading& other) {
      return other.health.uuid() == reading.health.uuid() && other.health.bus() == reading.health.bus();
    };
    if ((!reading.health.uuid().empty() || !reading.health.bus().empty()) &&
        std::none_of(readings.begin(), readings.end(), is_same)) {
      reading.health.set_driver_version(TextOf(device, "driver"));
      readings.push_back(std::move(reading));
    }
  }
  return readings;
}

}  // namespace hpvm::server
