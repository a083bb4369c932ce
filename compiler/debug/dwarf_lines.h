// SPDX-License-Identifier: Apache-2.0
// Source lines from a module's DWARF: the line tables of its custom section .debug_line, versions 2 to 5.
//
// The reader is our own (docs/decisions/0005): it streams, and keeps only the lines of the offsets asked for, so that a
// hostile table costs no more memory than its section.
#ifndef HPVMD_COMPILER_DEBUG_DWARF_LINES_H_
#define HPVMD_COMPILER_DEBUG_DWARF_LINES_H_

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "compiler/api/artifact.h"

namespace hpvm::debug {

// What the module has of debug information; empty spans for what it has not.
struct DebugSections {
  std::span<const uint8_t> line, line_str, str;
  // Addresses in the tables count from the code section's contents, which begin at this byte of the module.
  uint64_t code_begin = 0;
  uint64_t code_bytes = 0;
};
// Looks at the sections' headers only; what is malformed ends the search.
DebugSections FindDebugSections(std::span<const uint8_t> module);

struct LineTable {
  std::vector<std::string> files;
  std::vector<SourceLine> lines;
  // What was wrong with the debug information. The tables read before and after the fault count all the same.
  Status status;
};

// Lines of the bytes `offsets` of the module, sorted and different, merged where they are equal. Any bytes give a
// table; time and memory are bounded by the sizes of the sections and of `offsets`.
LineTable ReadLineTable(const DebugSections& sections, std::span<const uint32_t> offsets);

}  // namespace hpvm::debug

#endif  // HPVMD_COMPILER_DEBUG_DWARF_LINES_H_
