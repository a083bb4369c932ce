// SPDX-License-Identifier: Apache-2.0
// Method: each memory is an ordered map of byte ranges with their last writer and the readers since. An access
// splits the ranges at its ends, collects the recorded steps that conflict, and replaces what they imply.
// Invariants: ranges of one memory do not overlap. Steps arrive in increasing order, so every collected step is
// earlier and the order has no cycle; steps that are no longer recorded come before a recorded one, or are of its
// group.
// A read of more than 64 ranges merges them, and more than 1024 readers of a range (without groups) are replaced by
// the next one: successors may then wait for more than necessary, and the cost stays near-linear.
#include "scheduler/residency/order.h"

#include <algorithm>

namespace hpvm::scheduler {
namespace {

constexpr uint32_t kNoStep = 0xffffffffu;
// An access to this many ranges with separate histories merges them, so that repeated small writes followed by large
// reads do not cost quadratic time. Its successors may then wait for more than necessary.
constexpr size_t kEntriesMax = 64;
constexpr size_t kReadersMax = 1024;
// Temporaries of a space share one memory; every other storage is its own memory.
constexpr uint64_t kOwnMemory = uint64_t{1} << 32;
constexpr double kCopyBytesPerNs = 10;
constexpr int64_t kRunNs = 1000;
constexpr int64_t kDriverCopyNs = 1000;
constexpr int64_t kHostCopyNs = 20;

}  // namespace

ConflictMap::Memory::iterator ConflictMap::Split(Memory& memory, uint64_t at) {
  auto it = memory.lower_bound(at);
  if (it == memory.begin() || (it != memory.end() && it->first == at)) {
    return it;
  }
  const auto before = std::prev(it);
  if (before->second.end <= at) {
    return it;
  }
  Entry tail = before->second;
  before->second.end = at;
  return memory.emplace_hint(it, at, std::move(tail));
}

void ConflictMap::AddReader(Entry& entry, uint32_t step, std::vector<uint32_t>& earlier) {
  if (group_of_step_ != nullptr) {
    for (uint32_t& reader : entry.readers) {
      if ((*group_of_step_)[reader] == (*group_of_step_)[step]) {
        reader = step;
        return;
      }
    }
  } else if (entry.readers.size() >= kReadersMax) {
    earlier.insert(earlier.end(), entry.readers.begin(), entry.readers.end());
    entry.readers.clear();
  }
  if (entry.readers.empty() || entry.readers.back() != step) {
    entry.readers.push_back(step);
  }
}

void ConflictMap::Access(uint64_t memory_index, ByteRange range, bool writes, uint32_t step,
                         std::vector<uint32_t>& earlier) {
  if (range.is_empty()) {
    return;
  }
  Memory& memory = memories_[memory_index];
  auto first = Split(memory, range.begin);
  if (first == memory.end() || first->first != range.begin || first->second.end != range.end) {
    Split(memory, range.end);
    first = memory.lower_bound(range.begin);
  }
  size_t entries = 0;
  uint64_t at = range.begin;
  auto it = first;
  for (; it != memory.end() && it->first < range.end; ++it, ++entries) {
    Entry& entry = it->second;
    if (entry.writer != kNoStep && entry.writer != step) {
      earlier.push_back(entry.writer);
    }
    if (writes) {
      for (const uint32_t reader : entry.readers) {
        if (reader != step) {
          earlier.push_back(reader);
        }
      }
      continue;
    }
    if (at < it->first) {
      memory.emplace_hint(it, at, Entry{.end = it->first, .readers = {step}});
    }
    at = entry.end;
    AddReader(entry, step, earlier);
  }
  if (!writes && entries <= kEntriesMax) {
    if (at < range.end) {
      memory.emplace_hint(it, at, Entry{.end = range.end, .readers = {step}});
    }
    return;
  }
  if (writes && entries == 1 && first->first == range.begin && first->second.end == range.end) {
    first->second.writer = step;
    first->second.readers.clear();
    return;
  }
  if (!writes) {
    // The earlier readers must come first, as this step replaces them in the record.
    for (auto other = memory.lower_bound(range.begin); other != it; ++other) {
      for (const uint32_t reader : other->second.readers) {
        if (reader != step) {
          earlier.push_back(reader);
        }
      }
    }
  }
  memory.erase(memory.lower_bound(range.begin), it);
  memory.emplace_hint(it, range.begin, Entry{.end = range.end, .writer = step, .readers = {}});
}

MemoryRange Locate(const Residency& residency, const Touch& touch) {
  const Storage& storage = residency.storages[touch.storage.index];
  if (storage.kind != Storage::Kind::kTemporary) {
    return {kOwnMemory + touch.storage.index, touch.range};
  }
  const uint64_t base = storage.offset - storage.first;  // Address of the value's byte 0, which need not be present.
  return {storage.space, {base + touch.range.begin, base + touch.range.end}};
}

Duration PlannedTime(const Step& step, std::span<const Task> tasks) {
  if (step.kind == Step::Kind::kRun) {
    return std::max(tasks[step.task].end - tasks[step.task].start, Duration(kRunNs));
  }
  const int64_t start_ns = step.lane == Lane::kCompute ? kHostCopyNs : kDriverCopyNs;
  return Duration(start_ns + static_cast<int64_t>(static_cast<double>(step.bytes) / kCopyBytesPerNs));
}

StepOrder OrderSteps(const Residency& residency, const Segment& segment, std::span<const Task> tasks) {
  StepOrder order;
  ConflictMap conflicts;
  std::vector<uint32_t> earlier, edges;  // Edges: predecessors, step after step.
  std::vector<Duration> done(segment.step_count);
  order.predecessors.resize(segment.step_count);
  order.first_successor.resize(segment.step_count + 1);
  Duration total{0}, longest{0};
  for (uint32_t i = 0; i < segment.step_count; ++i) {
    const uint32_t step = segment.first_step + i;
    earlier.clear();
    for (uint32_t t = residency.first_touch[step]; t < residency.first_touch[step + 1]; ++t) {
      const Touch& touch = residency.touches[t];
      if (residency.storages[touch.storage.index].kind == Storage::Kind::kInput) {
        continue;  // Never written.
      }
      const MemoryRange place = Locate(residency, touch);
      conflicts.Access(place.memory, place.range, touch.writes, i, earlier);
    }
    std::sort(earlier.begin(), earlier.end());
    earlier.erase(std::unique(earlier.begin(), earlier.end()), earlier.end());
    Duration start{0};
    for (const uint32_t before : earlier) {
      start = std::max(start, done[before]);
      ++order.first_successor[before + 1];
    }
    order.predecessors[i] = static_cast<uint32_t>(earlier.size());
    edges.insert(edges.end(), earlier.begin(), earlier.end());
    const Duration time = PlannedTime(residency.steps[step], tasks);
    done[i] = start + time;
    total += time;
    longest = std::max(longest, done[i]);
  }
  order.parallelism =
      longest.count() > 0 ? static_cast<double>(total.count()) / static_cast<double>(longest.count()) : 1;
  if (order.parallelism < kParallelismMin) {
    order.first_successor = order.predecessors = {};
    return order;
  }
  for (size_t i = 1; i < order.first_successor.size(); ++i) {
    order.first_successor[i] += order.first_successor[i - 1];
  }
  order.successors.resize(edges.size());
  std::vector<uint32_t> next(order.first_successor.begin(), order.first_successor.end() - 1);
  size_t edge = 0;
  for (uint32_t i = 0; i < segment.step_count; ++i) {
    for (uint32_t n = 0; n < order.predecessors[i]; ++n) {
      order.successors[next[edges[edge++]]++] = i;
    }
  }
  return order;
}

}  // namespace hpvm::scheduler
