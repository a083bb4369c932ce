// SPDX-License-Identifier: Apache-2.0
// Any module's debug information gives a table that satisfies an artifact's rules.
#include <cstddef>
#include <cstdint>
#include <numeric>

#include "base/status.h"
#include "compiler/debug/dwarf_lines.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace hpvm::debug;
  DebugSections sections = FindDebugSections({data, size});
  if (sections.line.empty()) {
    // Reaches the tables without a module around them.
    sections.line = sections.line_str = sections.str = {data, size};
    sections.code_begin = 8;
    sections.code_bytes = 1u << 16;
  }
  std::vector<uint32_t> offsets(256);
  std::iota(offsets.begin(), offsets.end(), static_cast<uint32_t>(sections.code_begin));
  const LineTable table = ReadLineTable(sections, offsets);
  for (size_t i = 0; i < table.lines.size(); ++i) {
    HPVMD_CHECK(table.lines[i].line == 0 || table.lines[i].file < table.files.size());
    HPVMD_CHECK(i == 0 || table.lines[i].offset > table.lines[i - 1].offset);
  }
  return 0;
}
