// SPDX-License-Identifier: Apache-2.0
#include "compiler/api/cost_record.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>

#include "compiler/api/wire.h"

namespace hpvm {
namespace {

constexpr uint32_t kVersion = 1;
constexpr size_t kDeviceBytesMax = 256;
constexpr size_t kClassBytes = 2 + 8 + 8 * 4;

constexpr std::array kFigures = {&CostRecordClass::weight,     &CostRecordClass::instances, &CostRecordClass::bytes,
                                 &CostRecordClass::operations, &CostRecordClass::time_ns,   &CostRecordClass::variance,
                                 &CostRecordClass::low_ns,     &CostRecordClass::error};

void WriteClass(const CostRecordClass& c, WireWriter& out) {
  out.U8(c.size);
  out.U8(c.intensity);
  out.U64(c.samples);
  for (float CostRecordClass::*const figure : kFigures) {
    out.U32(std::bit_cast<uint32_t>(c.*figure));
  }
}

CostRecordClass ReadClass(WireReader& in) {
  CostRecordClass c;
  c.size = in.U8();
  c.intensity = in.U8();
  c.samples = in.U64();
  for (float CostRecordClass::*const figure : kFigures) {
    c.*figure = std::bit_cast<float>(in.U32());
    if (!std::isfinite(c.*figure) || c.*figure < 0) {
      in.Fail();
    }
  }
  return c;
}

}  // namespace

std::vector<uint8_t> EncodeCosts(const CostRecord& record) {
  WireWriter out;
  out.U32(kVersion);
  for (size_t i = 0; i < record.devices.size() && i < kCostRecordDevicesMax; ++i) {
    const CostRecordDevice& device = record.devices[i];
    const std::string_view name = std::string_view(device.device).substr(0, kDeviceBytesMax);
    const size_t head = out.bytes().size() + 4 + name.size() + 4;
    if (head > kCostRecordBytesMax) {
      break;
    }
    const size_t count =
        std::min({device.classes.size(), kCostRecordClassesMax, (kCostRecordBytesMax - head) / kClassBytes});
    out.Text(name);
    out.U32(static_cast<uint32_t>(count));
    for (size_t c = 0; c < count; ++c) {
      WriteClass(device.classes[c], out);
    }
  }
  return std::move(out.bytes());
}

StatusOr<CostRecord> DecodeCosts(std::span<const uint8_t> bytes) {
  const Status malformed = InvalidArgument("What was measured of a kernel (" + std::to_string(bytes.size()) +
                                           " bytes) is malformed or of another version.");
  WireReader in(bytes);
  if (bytes.size() > kCostRecordBytesMax || in.U32() != kVersion) {
    return malformed;
  }
  CostRecord record;
  while (in.ok() && !in.AtEnd() && record.devices.size() < kCostRecordDevicesMax) {
    CostRecordDevice& device = record.devices.emplace_back();
    device.device = in.Text();
    const uint32_t count = in.Count(kClassBytes);
    if (device.device.size() > kDeviceBytesMax || count > kCostRecordClassesMax) {
      return malformed;
    }
    for (uint32_t c = 0; c < count && in.ok(); ++c) {
      device.classes.push_back(ReadClass(in));
    }
  }
  return in.AtEnd() ? StatusOr<CostRecord>(std::move(record)) : malformed;
}

}  // namespace hpvm
