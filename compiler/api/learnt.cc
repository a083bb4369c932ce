// SPDX-License-Identifier: Apache-2.0
#include "compiler/api/learnt.h"

#include <bit>
#include <cmath>

#include "base/limits.h"
#include "compiler/api/wire.h"

namespace hpvm {
namespace {

constexpr uint32_t kVersion = 1;
constexpr size_t kDeviceBytesMax = 256;
constexpr size_t kCandidatesMax = 32;  // The bits of LearntClass::candidates.
static_assert(limits::kCpuVariantsMax < kCandidatesMax);

bool IsClass(const LearntClass& c) {
  if (c.winner >= kCandidatesMax || (c.candidates >> c.winner & 1) == 0 || c.instance_ns.size() > kCandidatesMax) {
    return false;
  }
  for (float ns : c.instance_ns) {
    if (!std::isfinite(ns) || ns < 0) {
      return false;
    }
  }
  return true;
}

}  // namespace

std::vector<uint8_t> EncodeLearnt(const LearntRecord& record) {
  WireWriter out;
  out.U32(kVersion);
  out.Text(std::string_view(record.device).substr(0, kDeviceBytesMax));
  for (size_t i = 0; i < record.classes.size() && i < kLearntClassesMax; ++i) {
    const LearntClass& c = record.classes[i];
    if (out.bytes().size() + 16 + 4 * c.instance_ns.size() > kLearntBytesMax) {
      break;
    }
    out.U32(c.candidates);
    out.Raw(c.sizes.data(), c.sizes.size());
    out.U32(c.winner);
    out.U32(static_cast<uint32_t>(c.instance_ns.size()));
    for (float ns : c.instance_ns) {
      out.U32(std::bit_cast<uint32_t>(ns));
    }
  }
  return std::move(out.bytes());
}

StatusOr<LearntRecord> DecodeLearnt(std::span<const uint8_t> bytes) {
  const Status malformed = InvalidArgument("What was learnt of a kernel (" + std::to_string(bytes.size()) +
                                           " bytes) is malformed or of another version.");
  WireReader in(bytes);
  if (bytes.size() > kLearntBytesMax || in.U32() != kVersion) {
    return malformed;
  }
  LearntRecord record;
  record.device = in.Text();
  while (in.ok() && !in.AtEnd() && record.classes.size() < kLearntClassesMax) {
    LearntClass c;
    c.candidates = in.U32();
    for (uint8_t& size : c.sizes) {
      size = in.U8();
    }
    c.winner = in.U32();
    c.instance_ns.resize(in.Count(4));
    for (float& ns : c.instance_ns) {
      ns = std::bit_cast<float>(in.U32());
    }
    if (!IsClass(c)) {
      return malformed;
    }
    record.classes.push_back(std::move(c));
  }
  if (!in.AtEnd() || record.device.size() > kDeviceBytesMax) {
    return malformed;
  }
  return record;
}

}  // namespace hpvm
