// SPDX-License-Identifier: Apache-2.0
#include "backends/gpu/small_copies.h"

#include <algorithm>
#include <cstring>
#include <functional>
#include <numeric>

namespace hpvm::gpu {

void SmallCopies::Add(const SmallCopy& copy) {
  entries_.push_back({.copy = copy, .words = {}});
  bytes_most_ += MostOf(copy);
}

void SmallCopies::Clear() {
  entries_.clear();
  spans_.clear();
  bytes_most_ = staged_bytes_ = 0;
  is_ordered_ = false;
}

// Copies of a submission are mostly in the order of their positions.
void SmallCopies::Sort() {
  sorted_.resize(entries_.size());
  std::iota(sorted_.begin(), sorted_.end(), 0u);
  const auto is_before = [&](uint32_t a, uint32_t b) {
    const SmallCopy& x = entries_[a].copy;
    const SmallCopy& y = entries_[b].copy;
    return x.buffer != y.buffer ? std::less<GpuBuffer*>()(x.buffer, y.buffer) : x.offset < y.offset;
  };
  if (!std::is_sorted(sorted_.begin(), sorted_.end(), is_before)) {
    std::stable_sort(sorted_.begin(), sorted_.end(), is_before);
  }
}

bool SmallCopies::Overlaps() const {
  const GpuBuffer* buffer = nullptr;
  uint64_t end = 0;
  for (const uint32_t i : sorted_) {
    const SmallCopy& copy = entries_[i].copy;
    if (copy.buffer == buffer && copy.offset < end) {
      return true;
    }
    buffer = copy.buffer;
    end = copy.offset + copy.bytes;
  }
  return false;
}

void SmallCopies::Begin(Entry& entry) {
  const SmallCopy& copy = entry.copy;
  entry.staged = (staged_bytes_ + kSpanAlignment - 1) / kSpanAlignment * kSpanAlignment;
  spans_.push_back({copy.buffer, copy.offset, copy.bytes, entry.staged});
  staged_bytes_ = entry.staged + copy.bytes;
}

// `before` is the preceding entry in sorted order.
void SmallCopies::Join(Entry& before, Entry& entry) {
  CopySpan& span = spans_.back();
  const SmallCopy& copy = entry.copy;
  const uint64_t end = span.offset + span.bytes;
  if (is_up_) {
    before.zeros = copy.offset - end;
  }
  entry.staged = span.staged + (copy.offset - span.offset);
  span.bytes = std::max(end, copy.offset + copy.bytes) - span.offset;
  staged_bytes_ = span.staged + span.bytes;
}

void SmallCopies::Plan() {
  spans_.clear();
  staged_bytes_ = 0;
  Sort();
  is_ordered_ = is_up_ && Overlaps();
  if (is_ordered_) {
    for (Entry& entry : entries_) {
      Begin(entry);
    }
    return;
  }
  Entry* before = nullptr;
  for (const uint32_t i : sorted_) {
    Entry& entry = entries_[i];
    const SmallCopy& copy = entry.copy;
    const bool is_near = before != nullptr && before->copy.buffer == copy.buffer &&
                         copy.offset <= spans_.back().offset + spans_.back().bytes + GapMax(before->copy);
    is_near ? Join(*before, entry) : Begin(entry);
    before = &entry;
  }
}

void SmallCopies::Stage(uint8_t* staging) {
  for (Entry& entry : entries_) {
    uint8_t* const staged = staging + entry.staged;
    std::memcpy(staged, entry.copy.host, entry.copy.bytes);
    std::memset(staged + entry.copy.bytes, 0, entry.zeros);
    if (entry.copy.has_indices) {
      // The scan sees the bytes that go to the device, because others may write the host's memory meanwhile.
      WordScan scan;
      scan.Add(staged, entry.copy.bytes);
      entry.words = scan.range();
    }
  }
}

void SmallCopies::ForgetWords() const {
  for (const CopySpan& span : spans_) {
    span.buffer->words().Forget(span.offset, span.bytes);
  }
}

void SmallCopies::KeepWords() const {
  for (const Entry& entry : entries_) {
    if (entry.copy.has_indices) {
      entry.copy.buffer->KeepWords(entry.copy.offset, entry.copy.bytes, entry.words);
    } else if (is_ordered_) {
      // It may have overwritten words that an earlier copy recorded.
      entry.copy.buffer->words().Forget(entry.copy.offset, entry.copy.bytes);
    }
  }
}

}  // namespace hpvm::gpu
