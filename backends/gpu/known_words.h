// SPDX-License-Identifier: Apache-2.0
// KnownWords records the range of the words in a device's memory, for launches whose code omits checks of offsets based
// on them (ir::ProveByWords).
//
// Memory safety rests on it, so it covers only bytes that no other party can write: bytes scanned in this process's
// staging memory, from which they were copied to memory that only this device's submissions write. Each command that
// writes there invalidates the record when it is enqueued. As everywhere, the order of submissions is the order of
// data.
#ifndef HPVMD_BACKENDS_GPU_KNOWN_WORDS_H_
#define HPVMD_BACKENDS_GPU_KNOWN_WORDS_H_

#include <atomic>
#include <cstdint>
#include <mutex>
#include <vector>

#include "backends/contract/device.h"
#include "compiler/ir/bounds.h"

namespace hpvm::gpu {

// Returns the smallest range that covers both.
ir::WordRange Union(const ir::WordRange& a, const ir::WordRange& b);

// Accumulates the minimum and maximum of the words of a copy that is made piece by piece.
class WordScan {
 public:
  void Add(const uint8_t* data, uint64_t bytes);
  // Adds a piece of `bytes` whose whole words were already scanned.
  void Add(const ir::WordRange& words, uint64_t bytes);
  // Unknown when a piece began inside a word.
  ir::WordRange range() const { return is_whole_ ? range_ : ir::WordRange(); }

 private:
  uint64_t bytes_ = 0;
  bool is_whole_ = true;
  ir::WordRange range_;
};

// KnownWords holds the ranges of one buffer's words, by byte position; words are at multiples of 4. Thread-safe.
class KnownWords {
 public:
  // With more pieces than this, the oldest is forgotten.
  static constexpr size_t kPiecesMax = 16;

  void Keep(uint64_t begin, uint64_t bytes, const ir::WordRange& range);
  // These bytes are written.
  void Forget(uint64_t begin, uint64_t bytes);
  // Returns the range of all whole words of these bytes; unknown unless that of each is known and `begin` is at a word.
  ir::WordRange Of(uint64_t begin, uint64_t bytes) const;

 private:
  struct Piece {
    uint64_t begin = 0, end = 0;
    ir::WordRange range;
  };
  mutable std::mutex mutex_;
  std::vector<Piece> pieces_;  // Guarded by mutex_; disjoint, oldest first.
  // False when there are none, as in most buffers; every launch checks it.
  std::atomic<bool> has_pieces_{false};
};

// Memory managed by a driver.
class GpuBuffer : public Buffer {
 public:
  uint8_t* host() override { return nullptr; }
  KnownWords& words() { return words_; }
  // True for memory that others also write: nothing is ever known of it.
  virtual bool is_shared() const = 0;
  void KeepWords(uint64_t begin, uint64_t bytes, const ir::WordRange& range) {
    if (!is_shared()) {
      words_.Keep(begin, bytes, range);
    }
  }

 private:
  KnownWords words_;
};

// Forgets everything about the buffers of the submission, because some of its commands may never have run.
void ForgetWords(const Submission& submission);

}  // namespace hpvm::gpu

#endif  // HPVMD_BACKENDS_GPU_KNOWN_WORDS_H_
