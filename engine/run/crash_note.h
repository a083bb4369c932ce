// SPDX-License-Identifier: Apache-2.0
// Notes, in words, the work that this process has given to drivers and that has not ended, for the report of a crash,
// when only a signal handler runs.
#ifndef HPVMD_ENGINE_RUN_CRASH_NOTE_H_
#define HPVMD_ENGINE_RUN_CRASH_NOTE_H_

#include <cstddef>
#include <string_view>

namespace hpvm::engine {

// The note of one run; threads of other runs have their own. With more than sixteen at a time, further runs have no
// note.
class CrashNote {
 public:
  CrashNote();
  ~CrashNote();
  CrashNote(const CrashNote&) = delete;
  CrashNote& operator=(const CrashNote&) = delete;
  // Adds as much of `text` as fits; returns false when not all of it fits.
  bool Add(std::string_view text);
  void Clear();

 private:
  int slot_;  // -1 when no slot is free.
};

// Copies all notes, one per line, and returns their length. Async-signal-safe: a note that changes concurrently may
// be garbled.
size_t ReadCrashNotes(char* text, size_t size);

}  // namespace hpvm::engine

#endif  // HPVMD_ENGINE_RUN_CRASH_NOTE_H_
