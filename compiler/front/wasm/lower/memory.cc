// SPDX-License-Identifier: Apache-2.0
#include "compiler/front/wasm/lower/memory.h"

#include <algorithm>
#include <map>

#include "base/limits.h"
#include "compiler/front/wasm/read/fault.h"

namespace hpvm::wasm {
namespace {

constexpr uint64_t kPageBytes = 64 * limits::kKiB;
// Limit on memory.grow in a memory without a maximum: enough for a small allocator, and little compared with the 4
// GiB of wasm32.
constexpr uint64_t kGrowthBytes = 16 * limits::kMiB;

void Fail(const std::string& place, uint64_t offset, std::string message, Diagnostics& diagnostics) {
  if (diagnostics.size() < limits::kDiagnosticsMax) {
    diagnostics.push_back(Fault(place, offset, std::move(message)));
  }
}

// Appends the uncovered parts of [begin, end) to `pieces` and marks them covered. Each call merges the ranges that it
// touches, so all calls together take about linear time.
void Uncovered(uint64_t begin, uint64_t end, std::map<uint64_t, uint64_t>& covered,
               std::vector<std::pair<uint64_t, uint64_t>>& pieces) {
  auto at = covered.upper_bound(begin);
  if (at != covered.begin() && std::prev(at)->second >= begin) {
    --at;
  }
  uint64_t merged_begin = begin;
  uint64_t merged_end = end;
  uint64_t next = begin;
  while (at != covered.end() && at->first <= end) {
    if (next < at->first) {
      pieces.emplace_back(next, at->first);
    }
    next = std::max(next, at->second);
    merged_begin = std::min(merged_begin, at->first);
    merged_end = std::max(merged_end, at->second);
    at = covered.erase(at);
  }
  if (next < end) {
    pieces.emplace_back(next, end);
  }
  covered.emplace(merged_begin, merged_end);
}

}  // namespace

std::vector<ir::DataSegment> MergeSegments(std::span<const DataSegment> segments) {
  std::map<uint64_t, uint64_t> covered;
  std::map<uint64_t, std::span<const uint8_t>> parts;
  for (auto segment = segments.rbegin(); segment != segments.rend(); ++segment) {
    if (segment->bytes.empty() || segment->mode != SegmentMode::kActive) {
      continue;
    }
    std::vector<std::pair<uint64_t, uint64_t>> pieces;
    const uint64_t offset = segment->offset.low;
    Uncovered(offset, offset + segment->bytes.size(), covered, pieces);
    for (const auto& [begin, end] : pieces) {
      parts.emplace(begin, segment->bytes.subspan(begin - offset, end - begin));
    }
  }
  std::vector<ir::DataSegment> merged;
  for (const auto& [address, bytes] : parts) {
    if (merged.empty() || merged.back().address + merged.back().bytes.size() != address) {
      merged.push_back({address, {}});
    }
    merged.back().bytes.insert(merged.back().bytes.end(), bytes.begin(), bytes.end());
  }
  return merged;
}

void AssembleMemory(const Module& module, bool can_grow, const std::string& place, ir::Module& out,
                    Diagnostics& diagnostics) {
  if (!module.memory) {
    return;  // Validation refuses segments when there is no memory.
  }
  const Memory& memory = *module.memory;
  constexpr uint64_t kPagesMax = limits::kModuleMemoryBytesMax / kPageBytes;
  if (memory.limits.initial > kPagesMax) {
    Fail(place, memory.source,
         "The module's memory (" + std::to_string(memory.limits.initial) +
             " pages of 64 KiB) is larger than the limit (" + std::to_string(kPagesMax) +
             " pages). Buffers need no module memory; declare a smaller memory.",
         diagnostics);
    return;
  }
  if (memory.limits.is_shared) {
    diagnostics.push_back(
        {.severity = Severity::kWarning,
         .place = place,
         .offset = memory.source,
         .message = "The module's memory is declared shared; each instance still has its own memory."});
  }
  out.is_memory64 = memory.limits.is_64;
  out.memory_bytes = memory.limits.initial * kPageBytes;
  out.memory_bytes_max = out.memory_bytes;
  if (can_grow) {
    const uint64_t pages_max =
        std::min(memory.limits.maximum.value_or(memory.limits.initial + kGrowthBytes / kPageBytes), kPagesMax);
    out.memory_bytes_max = std::max(out.memory_bytes, pages_max * kPageBytes);
  }
  for (const DataSegment& segment : module.data) {
    if (segment.mode != SegmentMode::kActive) {
      continue;
    }
    const uint64_t offset = segment.offset.low;
    if (offset > out.memory_bytes || segment.bytes.size() > out.memory_bytes - offset) {
      Fail(place, segment.source,
           "A data segment at address " + std::to_string(offset) + " (" + std::to_string(segment.bytes.size()) +
               " bytes) does not fit the module's memory (" + std::to_string(out.memory_bytes) + " bytes).",
           diagnostics);
      return;
    }
  }
  out.data = MergeSegments(module.data);
}

}  // namespace hpvm::wasm
