// SPDX-License-Identifier: Apache-2.0
#include "compiler/debug/dwarf_lines.h"

#include <gtest/gtest.h>

#include "base/limits.h"

namespace hpvm::debug {
namespace {

// Bytes builds a table by hand.
class Bytes {
 public:
  Bytes& U8(uint8_t value) { return Raw(value, 1); }
  Bytes& U16(uint16_t value) { return Raw(value, 2); }
  Bytes& U32(uint32_t value) { return Raw(value, 4); }
  Bytes& Text(std::string_view text) {
    bytes.insert(bytes.end(), text.begin(), text.end());
    return U8(0);
  }
  Bytes& Append(const Bytes& other) {
    bytes.insert(bytes.end(), other.bytes.begin(), other.bytes.end());
    return *this;
  }
  std::vector<uint8_t> bytes;

 private:
  Bytes& Raw(uint64_t value, int size) {
    for (int i = 0; i < size; ++i) {
      bytes.push_back(static_cast<uint8_t>(value >> (8 * i)));
    }
    return *this;
  }
};

// Returns one unit: the header's end (files), then the program.
Bytes UnitOf(uint16_t version, const Bytes& files, const Bytes& program) {
  Bytes header;
  header.U8(1);  // Shortest instruction.
  if (version >= 4) {
    header.U8(1);
  }
  header.U8(1).U8(static_cast<uint8_t>(-5)).U8(14).U8(10);  // Statements, line base and range, first special opcode.
  for (uint8_t operands : {0, 1, 1, 1, 1, 0, 0, 0, 1}) {
    header.U8(operands);
  }
  header.Append(files);
  Bytes body;
  body.U16(version);
  if (version == 5) {
    body.U8(4).U8(0);
  }
  body.U32(static_cast<uint32_t>(header.bytes.size())).Append(header).Append(program);
  Bytes unit;
  return unit.U32(static_cast<uint32_t>(body.bytes.size())).Append(body);
}

Bytes Files4() {
  Bytes files;
  files.Text("include").U8(0);
  files.Text("blur.c").U8(0).U8(0).U8(0);
  files.Text("hpvm.h").U8(1).U8(0).U8(0);
  return files.U8(0);
}

Bytes Files5() {
  Bytes files;
  files.U8(1).U8(1).U8(0x08).U8(2).Text("/home/me").Text("include");  // A path as text.
  files.U8(2).U8(1).U8(0x1f).U8(2).U8(0x0b);                          // A path in .debug_line_str, a folder.
  files.U8(2).U32(0).U8(0).U32(7).U8(1);
  return files;
}
constexpr std::string_view kLineStrings("blur.c\0hpvm.h", 14);

Bytes SetAddress(uint32_t address) {
  Bytes bytes;
  return bytes.U8(0).U8(5).U8(2).U32(address);
}

// From byte `address`: two bytes of line 7 column 3, three of line 9, then the end. `file` counts as in the version.
Bytes Program(uint32_t address, uint8_t file) {
  Bytes program;
  program.Append(SetAddress(address)).U8(4).U8(file).U8(5).U8(3).U8(3).U8(6).U8(1);  // File, column, line += 6, copy.
  program.U8(10 + 2 * 14 + 7);                                                       // Address += 2, line += 2.
  program.U8(2).U8(3).U8(0).U8(1).U8(1);                                             // Address += 3, end.
  return program;
}

LineTable ReadAll(const Bytes& line, std::span<const uint32_t> offsets) {
  DebugSections sections;
  sections.line = line.bytes;
  sections.line_str = {reinterpret_cast<const uint8_t*>(kLineStrings.data()), kLineStrings.size()};
  sections.code_begin = 100;
  sections.code_bytes = 1000;
  return ReadLineTable(sections, offsets);
}

// Returns "offset:file:line:column" of each entry, and the fault.
std::string Show(const LineTable& table) {
  std::string text;
  for (const SourceLine& line : table.lines) {
    text += (text.empty() ? "" : " ") + std::to_string(line.offset) + ":" +
            (line.line == 0 ? "-" : table.files[line.file] + ":" + std::to_string(line.line)) + ":" +
            std::to_string(line.column);
  }
  return table.status.ok() ? text : text + (text.empty() ? "" : " ") + "! " + Message(table.status);
}

constexpr uint32_t kOffsets[] = {109, 110, 111, 112, 114, 115, 120};

// Every version gives the lines of the requested bytes, merged, with folders except the compilation's own.
TEST(DwarfLinesTest, ReadsEveryVersion) {
  constexpr char kBlur[] = "110:blur.c:7:3 112:blur.c:9:3 115:-:0";
  constexpr char kHeader[] = "110:include/hpvm.h:7:3 112:include/hpvm.h:9:3 115:-:0";
  for (const uint16_t version : {2, 3, 4}) {
    SCOPED_TRACE(version);
    EXPECT_EQ(Show(ReadAll(UnitOf(version, Files4(), Program(10, 1)), kOffsets)), kBlur);
    EXPECT_EQ(Show(ReadAll(UnitOf(version, Files4(), Program(10, 2)), kOffsets)), kHeader);
  }
  EXPECT_EQ(Show(ReadAll(UnitOf(5, Files5(), Program(10, 0)), kOffsets)), kBlur);
  EXPECT_EQ(Show(ReadAll(UnitOf(5, Files5(), Program(10, 1)), kOffsets)), kHeader);
}

// Units and sequences add up; code that the linker dropped, whose address has no code, is ignored; a byte keeps the
// first line that it gets.
TEST(DwarfLinesTest, Sequences) {
  Bytes dead = Program(0, 2);
  Bytes far = Program(0xffffffff, 2);
  Bytes live = Program(10, 1);
  Bytes again = Program(10, 2);
  Bytes program;
  program.Append(dead).Append(far).Append(live).Append(again);
  Bytes line = UnitOf(4, Files4(), program);
  line.Append(UnitOf(5, Files5(), Program(15, 1)));
  EXPECT_EQ(Show(ReadAll(line, kOffsets)), "110:blur.c:7:3 112:blur.c:9:3 115:include/hpvm.h:7:3 120:-:0");
}

// The fault of one unit is reported, and the units around it are used.
TEST(DwarfLinesTest, SkipsBrokenUnits) {
  struct Case {
    const char* name;
    Bytes unit;
    const char* want;
  };
  Bytes bomb;
  bomb.U8(0).U8(0xff).U8(0xff).U8(0xff).U8(0xff).U8(0x0f);  // No format, four billion folders.
  Bytes cut = Program(10, 2);
  cut.bytes.resize(4);
  Bytes no_file = Program(10, 99);
  const Case cases[] = {
      {"Version", UnitOf(6, Files4(), {}), "version 6 is not supported; 2 to 5 are"},
      {"FilesWithoutSize", UnitOf(5, bomb, {}), "its list of files is malformed or too long"},
      {"FilesWithoutEnd", UnitOf(4, {}, {}), "its list of files is malformed or too long"},
      {"ProgramCut", UnitOf(4, Files4(), cut), "is cut short"},
      {"NoSuchFile", UnitOf(4, Files4(), no_file), nullptr},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(c.name);
    Bytes line = c.unit;
    line.Append(UnitOf(4, Files4(), Program(10, 1)));
    const std::string shown = Show(ReadAll(line, kOffsets));
    EXPECT_EQ(shown.substr(0, shown.find(" !")), "110:blur.c:7:3 112:blur.c:9:3 115:-:0");
    EXPECT_EQ(shown.find(c.want == nullptr ? "blur" : c.want) != std::string::npos, true) << shown;
    EXPECT_EQ(shown.find('!') == std::string::npos, c.want == nullptr) << shown;
  }
}

// No truncation and no flipped bit of a table reads out of bounds or gives lines that break an artifact's rules.
TEST(DwarfLinesTest, IsTotal) {
  Bytes whole = UnitOf(4, Files4(), Program(10, 1));
  whole.Append(UnitOf(5, Files5(), Program(15, 1)));
  const auto check = [&](const Bytes& line) {
    const LineTable table = ReadAll(line, kOffsets);
    for (size_t i = 0; i < table.lines.size(); ++i) {
      EXPECT_TRUE(table.lines[i].line == 0 || table.lines[i].file < table.files.size());
      EXPECT_TRUE(i == 0 || table.lines[i].offset > table.lines[i - 1].offset);
    }
  };
  for (size_t size = 0; size < whole.bytes.size(); ++size) {
    Bytes cut;
    cut.bytes.assign(whole.bytes.begin(), whole.bytes.begin() + static_cast<ptrdiff_t>(size));
    check(cut);
  }
  for (size_t bit = 0; bit < whole.bytes.size() * 8; ++bit) {
    Bytes flipped = whole;
    flipped.bytes[bit / 8] ^= static_cast<uint8_t>(1u << (bit % 8));
    check(flipped);
  }
}

// Long names keep their end, and names lose control characters.
TEST(DwarfLinesTest, CleansNames) {
  Bytes files;
  files.U8(0).Text(std::string(300, 'a') + "/b\x1b[2J.c").U8(0).U8(0).U8(0).U8(0);
  const LineTable table = ReadAll(UnitOf(4, files, Program(10, 1)), kOffsets);
  ASSERT_EQ(table.files.size(), 1u);
  EXPECT_EQ(table.files[0].size(), limits::kDebugFileNameBytesMax);
  EXPECT_TRUE(table.files[0].starts_with("...aaa")) << table.files[0];
  EXPECT_TRUE(table.files[0].ends_with("/b?[2J.c")) << table.files[0];
}

// A table above the size limit loses only the lines.
TEST(DwarfLinesTest, RefusesHugeTables) {
  Bytes line;
  line.bytes.resize(limits::kDebugLineBytesMax + 1);
  EXPECT_EQ(Message(ReadAll(line, kOffsets).status).find("the line tables (33554433 bytes") == 0, true);
}

// A module's sections are found by name, at any position; a truncated module gives its complete sections.
TEST(DwarfLinesTest, FindsSections) {
  Bytes module;
  module.U32(0x6d736100).U32(1);
  module.U8(10).U8(4).U32(0);
  module.U8(0).U8(13).U8(11);
  for (char c : std::string_view(".debug_line")) {
    module.U8(static_cast<uint8_t>(c));
  }
  module.U8(7);
  const DebugSections sections = FindDebugSections(module.bytes);
  EXPECT_EQ(sections.code_begin, 10u);
  EXPECT_EQ(sections.code_bytes, 4u);
  ASSERT_EQ(sections.line.size(), 1u);
  EXPECT_EQ(sections.line[0], 7);
  for (size_t size = 0; size < module.bytes.size(); ++size) {
    EXPECT_TRUE(FindDebugSections(std::span(module.bytes).first(size)).line.empty()) << size;
  }
}

}  // namespace
}  // namespace hpvm::debug
