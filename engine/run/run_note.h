// SPDX-License-Identifier: Apache-2.0
// What this process has given to drivers and not heard of since, in words: for a crash's last words, when nothing but a
// signal handler runs any more.
#ifndef HPVMD_ENGINE_RUN_RUN_NOTE_H_
#define HPVMD_ENGINE_RUN_RUN_NOTE_H_

#include <cstddef>
#include <string_view>

namespace hpvm::engine {

// One run's part; threads of other runs have their own. Beyond sixteen at a time runs go unmentioned.
class RunNote {
 public:
  RunNote();
  ~RunNote();
  RunNote(const RunNote&) = delete;
  RunNote& operator=(const RunNote&) = delete;
  // Adds `text`, as far as there is room; false when not all of it fits.
  bool Add(std::string_view text);
  void Clear();

 private:
  int slot_;  // -1: none is free.
};

// Copies all notes, a line each; their length. Async-signal-safe: a note that changes meanwhile may come out mixed.
size_t ReadRunNotes(char* text, size_t size);

}  // namespace hpvm::engine

#endif  // HPVMD_ENGINE_RUN_RUN_NOTE_H_
