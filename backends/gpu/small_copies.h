// SPDX-License-Identifier: Apache-2.0
// Small copies between host memory and a device, made together: a driver takes some microseconds for each call, however
// few bytes it moves.
//
// Copies that lie side by side on the device become one span of staging memory, which one command moves. A span that
// goes up writes what lies between two of its copies only where that means nothing (CopyCommand::room), and writes
// zeros there. A span that comes down reads whatever lies between its copies, and only what was asked for leaves the
// staging memory. So nobody gets bytes that are not his, and nothing is written that somebody still needs.
#ifndef HPVMD_BACKENDS_GPU_SMALL_COPIES_H_
#define HPVMD_BACKENDS_GPU_SMALL_COPIES_H_

#include <cstdint>
#include <span>
#include <vector>

#include "backends/gpu/known_words.h"

namespace hpvm::gpu {

// A copy in one direction; both sides are borrowed.
struct SmallCopy {
  GpuBuffer* buffer = nullptr;
  uint64_t offset = 0, bytes = 0;  // In the buffer.
  uint64_t room = 0;               // Upwards: CopyCommand::room, inside the buffer.
  uint8_t* host = nullptr;         // Upwards it is only read.
  bool has_indices = false;        // Upwards: CopyCommand::has_indices.
};

// The bytes that one command moves between a buffer and staging memory.
struct CopySpan {
  GpuBuffer* buffer = nullptr;
  uint64_t offset = 0, bytes = 0;  // In the buffer.
  uint64_t staged = 0;             // In the staging memory of the batch.
};

// Copies in the order of a submission, with nothing else between them. One thread.
class SmallCopies {
 public:
  // Larger copies take longer than a driver's call does.
  static constexpr uint64_t kCopyBytesMax = 16 * 1024;
  // Moving so much more takes a fraction of what a call does.
  static constexpr uint64_t kGapBytesMax = 1024;
  static constexpr uint64_t kBatchBytesMax = 1024 * 1024;
  // Spans begin at multiples of it in the staging memory.
  static constexpr uint64_t kSpanAlignment = 64;

  explicit SmallCopies(bool is_up) : is_up_(is_up) {}

  static bool IsSmall(uint64_t bytes) { return bytes <= kCopyBytesMax; }
  bool is_empty() const { return entries_.empty(); }
  // False: the batch is full, and has to be moved before the copy is added.
  bool Takes(const SmallCopy& copy) const { return bytes_most_ + MostOf(copy) <= kBatchBytesMax; }
  void Add(const SmallCopy& copy);

  // Lays the spans out. They may be moved in any order, unless some copies upwards write the same bytes: then each is a
  // span of its own, in the order in which they were added, and is_ordered() is true.
  void Plan();
  std::span<const CopySpan> spans() const { return spans_; }
  bool is_ordered() const { return is_ordered_; }
  uint64_t staged_bytes() const { return staged_bytes_; }

  // Upwards, in this order: brings the host's bytes to the staging memory of staged_bytes(); says, before the spans are
  // handed to the driver, that what they write is no longer known; notes the range of the words of indices behind it.
  void Stage(uint8_t* staging);
  void ForgetWords() const;
  void KeepWords() const;

  // Downwards: what is to be copied out of the staging memory, in the order in which the copies were added, so that of
  // several to the same bytes the last one counts.
  template <typename F>  // F(const uint8_t* staged, uint8_t* host, uint64_t bytes)
  void ForEachArrival(const uint8_t* staging, F visit) const {
    for (const Entry& entry : entries_) {
      visit(staging + entry.staged, entry.copy.host, entry.copy.bytes);
    }
  }

  void Clear();

 private:
  struct Entry {
    SmallCopy copy;
    uint64_t staged = 0;
    uint64_t zeros = 0;  // Behind it, upwards.
    ir::WordRange words;
  };

  uint64_t GapMax(const SmallCopy& copy) const {
    return !is_up_ ? kGapBytesMax : copy.room < kGapBytesMax ? copy.room : kGapBytesMax;
  }
  uint64_t MostOf(const SmallCopy& copy) const { return copy.bytes + GapMax(copy) + kSpanAlignment; }
  void Sort();
  bool Overlaps() const;
  void Begin(Entry& entry);
  void Join(Entry& before, Entry& entry);

  const bool is_up_;
  std::vector<Entry> entries_;    // In the order in which they were added.
  std::vector<uint32_t> sorted_;  // Entries by buffer and place.
  std::vector<CopySpan> spans_;
  bool is_ordered_ = false;
  uint64_t bytes_most_ = 0;
  uint64_t staged_bytes_ = 0;
};

}  // namespace hpvm::gpu

#endif  // HPVMD_BACKENDS_GPU_SMALL_COPIES_H_
