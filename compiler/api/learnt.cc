// SPDX-License-Identifier: Apache-2.0
#include "compiler/api/learnt.h"

#include <algorithm>
#include <cmath>
#include <tuple>

#include "base/limits.h"
#include "compiler/api/wire.h"

namespace hpvm {

static auto FieldsOf(LearntClass& c) { return std::tie(c.candidates, c.sizes, c.winner, c.instance_ns); }
static auto FieldsOf(LearntRecord& record) { return std::tie(record.device, record.classes); }

namespace {

constexpr uint32_t kVersion = 2;
constexpr size_t kDeviceBytesMax = 256;
constexpr size_t kCandidatesMax = 32;  // The bits of LearntClass::candidates.
static_assert(limits::kCpuVariantsMax < kCandidatesMax);

bool IsClass(const LearntClass& c) {
  if (c.winner >= kCandidatesMax || (c.candidates >> c.winner & 1) == 0 || c.instance_ns.size() > kCandidatesMax) {
    return false;
  }
  return std::ranges::all_of(c.instance_ns, [](float ns) { return std::isfinite(ns) && ns >= 0; });
}

}  // namespace

std::vector<uint8_t> EncodeLearnt(const LearntRecord& record) {
  LearntRecord kept{record.device.substr(0, kDeviceBytesMax), record.classes};
  kept.classes.resize(std::min(kept.classes.size(), kLearntClassesMax));
  std::vector<uint8_t> bytes = WireBytes(kVersion, kept);
  while (bytes.size() > kLearntBytesMax) {
    kept.classes.pop_back();
    bytes = WireBytes(kVersion, kept);
  }
  return bytes;
}

StatusOr<LearntRecord> DecodeLearnt(std::span<const uint8_t> bytes) {
  uint32_t version = 0;
  LearntRecord record;
  if (bytes.size() > kLearntBytesMax || !ReadWire(bytes, version, record) || version != kVersion ||
      record.device.size() > kDeviceBytesMax || record.classes.size() > kLearntClassesMax ||
      !std::ranges::all_of(record.classes, IsClass)) {
    return InvalidArgument("What was learnt of a kernel (" + std::to_string(bytes.size()) +
                           " bytes) is malformed or of another version.");
  }
  return record;
}

}  // namespace hpvm
