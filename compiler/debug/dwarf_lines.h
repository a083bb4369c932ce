// SPDX-License-Identifier: Apache-2.0
// Reads source lines from a module's DWARF: the line tables in its custom section .debug_line, versions 2 to 5.
//
// The reader is our own (docs/decisions/0005): it streams, and keeps only the lines of the requested offsets, so that
// a hostile table costs no more memory than its section.
#ifndef HPVMD_COMPILER_DEBUG_DWARF_LINES_H_
#define HPVMD_COMPILER_DEBUG_DWARF_LINES_H_

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "compiler/api/artifact.h"

namespace hpvm::debug {

// The debug sections of a module; spans of missing sections are empty.
struct DebugSections {
  std::span<const uint8_t> line, line_str, str;
  // Addresses in the tables count from the code section's contents, which begin at this byte of the module.
  uint64_t code_begin = 0;
  uint64_t code_bytes = 0;
};
// Reads only the sections' headers; a malformed header ends the search.
DebugSections FindDebugSections(std::span<const uint8_t> module);

struct LineTable {
  std::vector<std::string> files;
  std::vector<SourceLine> lines;
  // The fault in the debug information, if any. Tables read before and after the fault are still used.
  Status status;
};

// Returns the lines of the module's bytes `offsets`, which must be sorted and distinct; adjacent equal lines are
// merged. Any bytes give a table; the sizes of the sections and of `offsets` bound time and memory.
LineTable ReadLineTable(const DebugSections& sections, std::span<const uint32_t> offsets);

}  // namespace hpvm::debug

#endif  // HPVMD_COMPILER_DEBUG_DWARF_LINES_H_
