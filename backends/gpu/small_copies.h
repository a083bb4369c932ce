// SPDX-License-Identifier: Apache-2.0
// SmallCopies batches small copies between host memory and a device, because a driver takes some microseconds for each
// call, however few bytes it moves.
//
// Adjacent copies on the device become one span of staging memory, which one command moves. An upload span overwrites
// bytes between two of its copies only when these are unused (CopyCommand::room), with zeros. A download span reads all
// bytes between its copies, but only the requested bytes leave the staging memory. Therefore no client receives other
// bytes, and no bytes that are still needed are overwritten.
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
  uint64_t offset = 0, bytes = 0;  // Range in the buffer.
  uint64_t room = 0;               // Upload: CopyCommand::room, inside the buffer.
  uint8_t* host = nullptr;         // Only read by uploads.
  bool has_indices = false;        // Upload: CopyCommand::has_indices.
};

// The bytes that one command moves between a buffer and staging memory.
struct CopySpan {
  GpuBuffer* buffer = nullptr;
  uint64_t offset = 0, bytes = 0;  // Range in the buffer.
  uint64_t staged = 0;             // Offset in the batch's staging memory.
};

// Copies in the order of a submission, with no other commands between them. Used by one thread.
class SmallCopies {
 public:
  // Larger copies take longer than a driver call.
  static constexpr uint64_t kCopyBytesMax = 16 * 1024;
  // Moving this many additional bytes takes a fraction of a call's time.
  static constexpr uint64_t kGapBytesMax = 1024;
  static constexpr uint64_t kBatchBytesMax = 1024 * 1024;
  // Alignment of spans in the staging memory.
  static constexpr uint64_t kSpanAlignment = 64;

  explicit SmallCopies(bool is_up) : is_up_(is_up) {}

  static bool IsSmall(uint64_t bytes) { return bytes <= kCopyBytesMax; }
  bool is_empty() const { return entries_.empty(); }
  // Returns false when the batch is full and has to be moved before the copy is added.
  bool Takes(const SmallCopy& copy) const { return bytes_most_ + MostOf(copy) <= kBatchBytesMax; }
  void Add(const SmallCopy& copy);

  // Computes the spans. They may be moved in any order, unless some uploads write the same bytes: then each copy is a
  // separate span, in the order of addition, and is_ordered() is true.
  void Plan();
  std::span<const CopySpan> spans() const { return spans_; }
  bool is_ordered() const { return is_ordered_; }
  uint64_t staged_bytes() const { return staged_bytes_; }

  // For uploads, call in this order: Stage copies the host's bytes to staging memory of staged_bytes(); ForgetWords,
  // before the spans are submitted to the driver, invalidates known words in the written ranges; KeepWords, afterwards,
  // records the range of the words of indices.
  void Stage(uint8_t* staging);
  void ForgetWords() const;
  void KeepWords() const;

  // For downloads: visits the bytes to be copied out of the staging memory, in the order in which the copies were
  // added, so that the last of several copies to the same bytes takes effect.
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
    uint64_t zeros = 0;  // After it, for uploads.
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
  std::vector<Entry> entries_;    // In order of addition.
  std::vector<uint32_t> sorted_;  // Entries by buffer and position.
  std::vector<CopySpan> spans_;
  bool is_ordered_ = false;
  uint64_t bytes_most_ = 0;
  uint64_t staged_bytes_ = 0;
};

}  // namespace hpvm::gpu

#endif  // HPVMD_BACKENDS_GPU_SMALL_COPIES_H_
