// SPDX-License-Identifier: Apache-2.0
#include "compiler/api/cost_record.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <tuple>

#include "compiler/api/wire.h"

namespace hpvm {

static auto FieldsOf(CostRecordClass& c) {
  return std::tie(c.size, c.intensity, c.samples, c.weight, c.instances, c.bytes, c.operations, c.time_ns, c.variance,
                  c.low_ns, c.error, c.is_settled);
}
static auto FieldsOf(CostRecordDevice& device) { return std::tie(device.device, device.classes); }
static auto FieldsOf(CostRecord& record) { return std::tie(record.devices); }

namespace {

constexpr uint32_t kVersion = 3;
constexpr size_t kDeviceBytesMax = 256;

bool IsClass(const CostRecordClass& c) {
  const float figures[] = {c.weight, c.instances, c.bytes, c.operations, c.time_ns, c.variance, c.low_ns, c.error};
  return std::all_of(std::begin(figures), std::end(figures), [](float f) { return std::isfinite(f) && f >= 0; });
}

bool IsDevice(const CostRecordDevice& device) {
  return device.device.size() <= kDeviceBytesMax && device.classes.size() <= kCostRecordClassesMax &&
         std::ranges::all_of(device.classes, IsClass);
}

}  // namespace

std::vector<uint8_t> EncodeCosts(const CostRecord& record) {
  CostRecord kept;
  std::vector<uint8_t> bytes = WireBytes(kVersion, kept);
  for (size_t i = 0; i < std::min(record.devices.size(), kCostRecordDevicesMax); ++i) {
    CostRecordDevice& device = kept.devices.emplace_back(record.devices[i]);
    device.device.resize(std::min(device.device.size(), kDeviceBytesMax));
    const size_t head = bytes.size() + WireBytes(device.device, uint32_t{0}).size();
    if (head > kCostRecordBytesMax) {
      break;
    }
    device.classes.resize(std::min({device.classes.size(), kCostRecordClassesMax,
                                    (kCostRecordBytesMax - head) / WireBytesMin<CostRecordClass>()}));
    bytes = WireBytes(kVersion, kept);
  }
  return bytes;
}

StatusOr<CostRecord> DecodeCosts(std::span<const uint8_t> bytes) {
  uint32_t version = 0;
  CostRecord record;
  if (bytes.size() > kCostRecordBytesMax || !ReadWire(bytes, version, record) || version != kVersion ||
      record.devices.size() > kCostRecordDevicesMax || !std::ranges::all_of(record.devices, IsDevice)) {
    return InvalidArgument("The record of a kernel's measured launch costs (" + std::to_string(bytes.size()) +
                           " bytes) is malformed or has another version.");
  }
  return record;
}

}  // namespace hpvm
