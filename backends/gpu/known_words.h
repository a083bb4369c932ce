// SPDX-License-Identifier: Apache-2.0
// The range of the words in a device's memory, for launches whose code omits checks of offsets that rest on them
// (ir::ProveByWords).
//
// Memory safety rests on it, so only what nobody else can write counts: bytes that were looked at in our own staging
// memory, from which they went to memory that only this device's submissions write. Each command that writes there
// makes them forgotten when it is enqueued. The order of submissions is that of the data, as everywhere.
#ifndef HPVMD_BACKENDS_GPU_KNOWN_WORDS_H_
#define HPVMD_BACKENDS_GPU_KNOWN_WORDS_H_

#include <atomic>
#include <cstdint>
#include <mutex>
#include <vector>

#include "backends/contract/device.h"
#include "compiler/ir/bounds.h"

namespace hpvm::gpu {

// The range of the words of both.
ir::WordRange Union(const ir::WordRange& a, const ir::WordRange& b);

// The least and the greatest of the words of a copy that is made piece by piece.
class WordScan {
 public:
  void Add(const uint8_t* data, uint64_t bytes);
  // A piece of so many bytes whose whole words somebody has looked at.
  void Add(const ir::WordRange& words, uint64_t bytes);
  // Not known when a piece began inside a word.
  ir::WordRange range() const { return is_whole_ ? range_ : ir::WordRange(); }

 private:
  uint64_t bytes_ = 0;
  bool is_whole_ = true;
  ir::WordRange range_;
};

// The ranges of one buffer's words. Places are its bytes, words lie at multiples of 4. Any thread.
class KnownWords {
 public:
  // More pieces than these are not kept apart: the oldest is forgotten.
  static constexpr size_t kPiecesMax = 16;

  void Keep(uint64_t begin, uint64_t bytes, const ir::WordRange& range);
  // They are written.
  void Forget(uint64_t begin, uint64_t bytes);
  // The range of all whole words of these bytes; not known unless that of each is, and `begin` is a word's place.
  ir::WordRange Of(uint64_t begin, uint64_t bytes) const;

 private:
  struct Piece {
    uint64_t begin = 0, end = 0;
    ir::WordRange range;
  };
  mutable std::mutex mutex_;
  std::vector<Piece> pieces_;  // Guarded by mutex_; apart, the oldest first.
  // False when there are none, as in most buffers: every launch asks.
  std::atomic<bool> has_pieces_{false};
};

// Memory that a driver has.
class GpuBuffer : public Buffer {
 public:
  uint8_t* host() override { return nullptr; }
  KnownWords& words() { return words_; }
  // True of memory that others write, too: nothing is ever known of it.
  virtual bool is_shared() const = 0;
  void KeepWords(uint64_t begin, uint64_t bytes, const ir::WordRange& range) {
    if (!is_shared()) {
      words_.Keep(begin, bytes, range);
    }
  }

 private:
  KnownWords words_;
};

// Nothing is known any more of what the submission names: some of its commands may never have run.
void ForgetWords(const Submission& submission);

}  // namespace hpvm::gpu

#endif  // HPVMD_BACKENDS_GPU_KNOWN_WORDS_H_
