// SPDX-License-Identifier: Apache-2.0
#include "compiler/api/tuning_record.h"

#include <algorithm>
#include <cmath>
#include <tuple>

#include "base/limits.h"
#include "compiler/api/wire.h"

namespace hpvm {

static auto FieldsOf(TuningClass& c) { return std::tie(c.candidates, c.sizes, c.winner, c.instance_ns); }
static auto FieldsOf(TuningRecord& record) { return std::tie(record.device, record.classes); }

namespace {

constexpr uint32_t kVersion = 2;
constexpr size_t kDeviceBytesMax = 256;
constexpr size_t kCandidatesMax = 32;  // The bits of TuningClass::candidates.
static_assert(limits::kCpuVariantsMax < kCandidatesMax);

bool IsClass(const TuningClass& c) {
  if (c.winner >= kCandidatesMax || (c.candidates >> c.winner & 1) == 0 || c.instance_ns.size() > kCandidatesMax) {
    return false;
  }
  return std::ranges::all_of(c.instance_ns, [](float ns) { return std::isfinite(ns) && ns >= 0; });
}

}  // namespace

std::vector<uint8_t> EncodeTuning(const TuningRecord& record) {
  TuningRecord kept{record.device.substr(0, kDeviceBytesMax), record.classes};
  kept.classes.resize(std::min(kept.classes.size(), kTuningClassesMax));
  std::vector<uint8_t> bytes = WireBytes(kVersion, kept);
  while (bytes.size() > kTuningBytesMax) {
    kept.classes.pop_back();
    bytes = WireBytes(kVersion, kept);
  }
  return bytes;
}

StatusOr<TuningRecord> DecodeTuning(std::span<const uint8_t> bytes) {
  uint32_t version = 0;
  TuningRecord record;
  if (bytes.size() > kTuningBytesMax || !ReadWire(bytes, version, record) || version != kVersion ||
      record.device.size() > kDeviceBytesMax || record.classes.size() > kTuningClassesMax ||
      !std::ranges::all_of(record.classes, IsClass)) {
    return InvalidArgument("The record of a kernel's tuning (" + std::to_string(bytes.size()) +
                           " bytes) is malformed or has another version.");
  }
  return record;
}

}  // namespace hpvm
