// SPDX-License-Identifier: Apache-2.0
// Runs the line programs as a stream: each row assigns its line to the requested offsets that it covers. Assigned
// offsets are skipped by a disjoint-set forest with path compression.
#include "compiler/debug/dwarf_lines.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "base/limits.h"
#include "compiler/api/byte_reader.h"

namespace hpvm::debug {
namespace {

// DWARF constants, from section 7 of the standard.
enum Form : uint64_t {
  kBlock2 = 0x03,
  kBlock4 = 0x04,
  kData2 = 0x05,
  kData4 = 0x06,
  kData8 = 0x07,
  kString = 0x08,
  kBlock = 0x09,
  kBlock1 = 0x0a,
  kData1 = 0x0b,
  kStrp = 0x0e,
  kUdata = 0x0f,
  kSecOffset = 0x17,
  kData16 = 0x1e,
  kLineStrp = 0x1f,
};
enum Content : uint64_t { kPath = 1, kDirectoryIndex = 2 };
enum StandardOpcode : uint8_t {
  kExtended = 0,
  kCopy = 1,
  kAdvancePc = 2,
  kAdvanceLine = 3,
  kSetFile = 4,
  kSetColumn = 5,
  kNegateStmt = 6,
  kSetBasicBlock = 7,
  kConstAddPc = 8,
  kFixedAdvancePc = 9,
};
enum ExtendedOpcode : uint8_t { kEndSequence = 1, kSetAddress = 2, kDefineFile = 3 };

constexpr uint32_t kNoFile = 0xffffffff;

struct FileEntry {
  std::string_view name;
  uint64_t directory = 0;
};

// One unit's header.
struct Unit {
  uint16_t version = 0;
  bool is_64 = false;
  uint8_t instruction_bytes_min = 1;
  int8_t line_base = 0;
  uint8_t line_range = 1;
  uint8_t opcode_base = 1;
  std::span<const uint8_t> opcode_lengths;
  std::vector<std::string_view> directories;
  std::vector<FileEntry> files;
  std::vector<uint32_t> interned;  // Per file: index in LineTable::files, or kNoFile.
  ByteReader program{{}};
};

Status Malformed(std::string_view what) { return InvalidArgument(std::string(what)); }

// Assignment gives every offset the line of the first row that covers it. Assigned offsets are skipped, so that
// overlapping tables cost no more than disjoint ones.
class Assignment {
 public:
  explicit Assignment(std::span<const uint32_t> offsets, uint64_t code_begin)
      : offsets_(offsets), code_begin_(code_begin), rows_(offsets.size()), next_(offsets.size() + 1) {
    for (size_t i = 0; i < next_.size(); ++i) {
      next_[i] = static_cast<uint32_t>(i);
    }
  }

  // Finds the first offset in [begin, end) of the code section without a line; returns false when there is none.
  bool Wants(uint64_t begin, uint64_t end) {
    if (begin >= end || offsets_.empty() || begin > offsets_.back()) {
      return false;
    }
    end_ = end + code_begin_;
    at_ = Skip(static_cast<size_t>(std::ranges::lower_bound(offsets_, begin + code_begin_) - offsets_.begin()));
    return at_ < offsets_.size() && offsets_[at_] < end_;
  }
  // Assigns the line to the offsets of the last Wants.
  void Assign(uint32_t file, uint32_t line, uint32_t column) {
    for (; at_ < offsets_.size() && offsets_[at_] < end_; at_ = Skip(at_ + 1)) {
      rows_[at_] = {offsets_[at_], file, line, column};
      next_[at_] = static_cast<uint32_t>(at_ + 1);
    }
  }

  std::vector<SourceLine> Merged() const {
    std::vector<SourceLine> merged;
    SourceLine last;
    for (size_t i = 0; i < rows_.size(); ++i) {
      SourceLine row = rows_[i];
      row.offset = offsets_[i];
      if (row.line != last.line || row.file != last.file || row.column != last.column) {
        merged.push_back(row);
        last = row;
      }
    }
    return merged;
  }

 private:
  size_t Skip(size_t index) {
    size_t end = index;
    while (next_[end] != end) {
      end = next_[end];
    }
    while (next_[index] != index) {
      index = std::exchange(next_[index], static_cast<uint32_t>(end));
    }
    return end;
  }

  const std::span<const uint32_t> offsets_;
  const uint64_t code_begin_;
  std::vector<SourceLine> rows_;  // Per offset; line 0: not assigned, or not known.
  std::vector<uint32_t> next_;    // Follow to the first index from here on without a line.
  size_t at_ = 0;
  uint64_t end_ = 0;
};

class LineReader {
 public:
  LineReader(const DebugSections& sections, std::span<const uint32_t> offsets)
      : sections_(sections), assignment_(offsets, sections.code_begin) {}

  LineTable Read() {
    ByteReader in(sections_.line);
    while (!in.AtEnd() && rows_ < limits::kDebugRowsMax) {
      const size_t begin = in.position();
      Unit unit;
      std::optional<ByteReader> body = TakeUnit(in, &unit);
      if (!body.has_value()) {
        Note(Malformed("the unit at byte " + std::to_string(begin) + " of .debug_line is cut short"));
        break;
      }
      Status read = ReadHeader(*body, unit);
      if (read.ok()) {
        read = RunProgram(unit);
      }
      if (!read.ok()) {
        Note(Malformed("the unit at byte " + std::to_string(begin) + " of .debug_line: " + Message(read)));
      }
    }
    if (rows_ >= limits::kDebugRowsMax) {
      Note(Malformed("the line tables have more rows than the limit (" + std::to_string(limits::kDebugRowsMax) + ")"));
    }
    table_.lines = assignment_.Merged();
    return std::move(table_);
  }

 private:
  void Note(Status status) {
    if (table_.status.ok()) {
      table_.status = std::move(status);
    }
  }

  static std::optional<ByteReader> TakeUnit(ByteReader& in, Unit* unit) {
    uint64_t bytes = in.U32();
    if (bytes == 0xffffffff) {
      unit->is_64 = true;
      bytes = in.U64();
    } else if (bytes >= 0xfffffff0) {
      return std::nullopt;
    }
    std::span<const uint8_t> body = in.Take(bytes);
    return in.ok() ? std::optional<ByteReader>(ByteReader(body)) : std::nullopt;
  }

  Status ReadHeader(ByteReader& in, Unit& unit) {
    unit.version = in.U16();
    if (unit.version < 2 || unit.version > 5) {
      return Malformed("version " + std::to_string(unit.version) + " is not supported; 2 to 5 are");
    }
    if (unit.version == 5) {
      in.Take(2);  // Sizes of addresses and segments; set_address has its own size.
    }
    const uint64_t header_bytes = unit.is_64 ? in.U64() : in.U32();
    ByteReader header(in.Take(header_bytes));
    unit.program = ByteReader(in.Rest());
    unit.instruction_bytes_min = header.U8();
    if (unit.version >= 4) {
      header.U8();  // Operations per instruction: WebAssembly has no bundles.
    }
    header.U8();  // default_is_stmt.
    unit.line_base = static_cast<int8_t>(header.U8());
    unit.line_range = header.U8();
    unit.opcode_base = header.U8();
    if (!in.ok() || !header.ok() || unit.line_range == 0 || unit.opcode_base == 0) {
      return Malformed("its header is cut short or malformed");
    }
    unit.opcode_lengths = header.Take(unit.opcode_base - 1u);
    HPVMD_RETURN_IF_ERROR(unit.version == 5 ? ReadFiles5(header, unit) : ReadFiles(header, unit));
    unit.interned.assign(unit.files.size(), kNoFile);
    return absl::OkStatus();
  }

  // Versions 2 to 4: lists of strings, each ended by an empty string. Both lists count from 1; the compilation's
  // folder is 0.
  static Status ReadFiles(ByteReader& in, Unit& unit) {
    unit.directories.emplace_back();
    for (std::string_view name = in.String(); !name.empty(); name = in.String()) {
      unit.directories.push_back(name);
    }
    unit.files.emplace_back();
    for (std::string_view name = in.String(); !name.empty(); name = in.String()) {
      unit.files.push_back({name, in.Uleb()});
      in.Uleb();  // Time.
      in.Uleb();  // Size.
    }
    return in.ok() && unit.files.size() <= limits::kDebugFilesMax && unit.directories.size() <= limits::kDebugFilesMax
               ? absl::OkStatus()
               : Malformed("its list of files is malformed or too long");
  }

  // Version 5: a format, then entries of that format. Both lists count from 0, which is the compilation's folder.
  Status ReadFiles5(ByteReader& in, Unit& unit) const {
    const auto read = [&](auto add) {
      std::vector<std::pair<uint64_t, uint64_t>> format(in.U8());
      for (auto& [content, form] : format) {
        content = in.Uleb();
        form = in.Uleb();
      }
      const uint64_t count = in.Uleb();
      if (!in.ok() || (count != 0 && format.empty()) || count > limits::kDebugFilesMax) {
        return false;
      }
      for (uint64_t i = 0; i < count && in.ok(); ++i) {
        FileEntry entry;
        for (const auto& [content, form] : format) {
          ReadField(in, unit.is_64, form, content, &entry);
        }
        add(entry);
      }
      return in.ok();
    };
    const bool good = read([&](const FileEntry& entry) { unit.directories.push_back(entry.name); }) &&
                      read([&](const FileEntry& entry) { unit.files.push_back(entry); });
    return good ? absl::OkStatus() : Malformed("its list of files is malformed or too long");
  }

  void ReadField(ByteReader& in, bool is_64, uint64_t form, uint64_t content, FileEntry* entry) const {
    std::string_view text;
    uint64_t number = 0;
    switch (form) {
      case kString:
        text = in.String();
        break;
      case kLineStrp:
        text = StringAt(sections_.line_str, is_64 ? in.U64() : in.U32());
        break;
      case kStrp:
        text = StringAt(sections_.str, is_64 ? in.U64() : in.U32());
        break;
      case kSecOffset:
        is_64 ? in.U64() : in.U32();
        break;
      case kUdata:
        number = in.Uleb();
        break;
      case kData1:
        number = in.U8();
        break;
      case kData2:
        number = in.U16();
        break;
      case kData4:
        number = in.U32();
        break;
      case kData8:
        number = in.U64();
        break;
      case kData16:
        in.Take(16);
        break;
      case kBlock:
        in.Take(in.Uleb());
        break;
      case kBlock1:
        in.Take(in.U8());
        break;
      case kBlock2:
        in.Take(in.U16());
        break;
      case kBlock4:
        in.Take(in.U32());
        break;
      default:
        in.Fail();
    }
    if (content == kPath) {
      entry->name = text;
    } else if (content == kDirectoryIndex) {
      entry->directory = number;
    }
  }

  // Returns only the string's first bytes, because longer names are cut anyway.
  static std::string_view StringAt(std::span<const uint8_t> section, uint64_t offset) {
    if (offset >= section.size()) {
      return {};
    }
    const std::span<const uint8_t> rest =
        section.subspan(offset, std::min<uint64_t>(section.size() - offset, limits::kDebugFileNameBytesMax * 4));
    const auto* text = reinterpret_cast<const char*>(rest.data());
    return {text, strnlen(text, rest.size())};
  }

  struct Row {
    uint64_t address = 0, file = 1, line = 1, column = 0;
  };

  Status RunProgram(Unit& unit) {
    ByteReader& in = unit.program;
    Row row, last;
    bool in_sequence = false, is_dead = true;
    // A row ends the range of the preceding row.
    const auto emit = [&] {
      ++rows_;
      if (in_sequence && !is_dead) {
        Cover(unit, last.address, row.address, last.file, last.line, last.column);
      }
      last = row;
      in_sequence = true;
    };
    while (!in.AtEnd() && rows_ < limits::kDebugRowsMax) {
      const uint8_t opcode = in.U8();
      if (opcode >= unit.opcode_base) {
        const uint8_t special = static_cast<uint8_t>(opcode - unit.opcode_base);
        row.address += uint64_t{unit.instruction_bytes_min} * (special / unit.line_range);
        row.line += static_cast<uint64_t>(int64_t{unit.line_base} + special % unit.line_range);
        emit();
        continue;
      }
      switch (opcode) {
        case kExtended: {
          ByteReader operand(in.Take(in.Uleb()));
          const uint8_t extended = operand.U8();
          if (extended == kEndSequence) {
            emit();
            row = {};
            in_sequence = false;
            is_dead = true;
          } else if (extended == kSetAddress) {
            row.address = operand.size() == 4 ? operand.U32() : operand.U64();
            // Linkers give dropped code an address at which no function can be.
            is_dead = row.address == 0 || row.address >= sections_.code_bytes;
            in_sequence = in_sequence && !is_dead;
          }
          if (!in.ok() || !operand.ok()) {
            return Malformed("an operation is cut short");
          }
          break;
        }
        case kCopy:
          emit();
          break;
        case kAdvancePc:
          row.address += unit.instruction_bytes_min * in.Uleb();
          break;
        case kAdvanceLine:
          row.line += static_cast<uint64_t>(in.Sleb());
          break;
        case kSetFile:
          row.file = in.Uleb();
          break;
        case kSetColumn:
          row.column = in.Uleb();
          break;
        case kConstAddPc:
          row.address += uint64_t{unit.instruction_bytes_min} * ((255u - unit.opcode_base) / unit.line_range);
          break;
        case kFixedAdvancePc:
          row.address += in.U16();
          break;
        default:  // Not needed, or unknown: its operands are numbers.
          for (unsigned i = 0; opcode <= unit.opcode_lengths.size() && i < unit.opcode_lengths[opcode - 1u]; ++i) {
            in.Uleb();
          }
      }
      if (!in.ok()) {
        return Malformed("its program is cut short");
      }
    }
    return absl::OkStatus();
  }

  void Cover(Unit& unit, uint64_t begin, uint64_t end, uint64_t file, uint64_t line, uint64_t column) {
    if (end > sections_.code_bytes || line == 0 || line > UINT32_MAX || !assignment_.Wants(begin, end)) {
      return;
    }
    const uint32_t interned = Intern(unit, file);
    if (interned != kNoFile) {
      assignment_.Assign(interned, static_cast<uint32_t>(line),
                         static_cast<uint32_t>(std::min<uint64_t>(column, UINT32_MAX)));
    }
  }

  uint32_t Intern(Unit& unit, uint64_t file) {
    if (file >= unit.files.size()) {
      return kNoFile;
    }
    uint32_t& interned = unit.interned[file];
    if (interned == kNoFile) {
      const std::string name = NameOf(unit, unit.files[file]);
      const auto [found, is_new] = files_.try_emplace(name, static_cast<uint32_t>(table_.files.size()));
      if (is_new && table_.files.size() >= limits::kDebugFilesMax) {
        files_.erase(found);
        return kNoFile;
      }
      if (is_new) {
        table_.files.push_back(name);
      }
      interned = found->second;
    }
    return interned;
  }

  // Returns the name as the compiler was given it: relative to its folder, which is not shown. A long name keeps its
  // end, which is more informative.
  static std::string NameOf(const Unit& unit, const FileEntry& entry) {
    std::string name(entry.name.substr(0, limits::kDebugFileNameBytesMax * 4));
    if (entry.directory != 0 && entry.directory < unit.directories.size() && !name.starts_with('/')) {
      name = std::string(unit.directories[entry.directory].substr(0, limits::kDebugFileNameBytesMax * 4)) + '/' + name;
    }
    for (char& c : name) {
      c = static_cast<uint8_t>(c) < 0x20 || c == 0x7f ? '?' : c;
    }
    if (name.size() > limits::kDebugFileNameBytesMax) {
      name = "..." + name.substr(name.size() - limits::kDebugFileNameBytesMax + 3);
    }
    return name.empty() ? "?" : name;
  }

  const DebugSections& sections_;
  Assignment assignment_;
  LineTable table_;
  std::unordered_map<std::string, uint32_t> files_;
  uint64_t rows_ = 0;
};

}  // namespace

DebugSections FindDebugSections(std::span<const uint8_t> module) {
  DebugSections sections;
  ByteReader in(module);
  in.Take(8);
  while (in.ok() && !in.AtEnd()) {
    const uint8_t id = in.U8();
    const uint64_t bytes = in.Uleb();
    const size_t begin = in.position();
    const std::span<const uint8_t> contents = in.Take(bytes);
    if (!in.ok()) {
      break;
    }
    constexpr uint8_t kCustom = 0, kCode = 10;
    if (id == kCode) {
      sections.code_begin = begin;
      sections.code_bytes = bytes;
    } else if (id == kCustom) {
      ByteReader custom(contents);
      const std::span<const uint8_t> name_bytes = custom.Take(custom.Uleb());
      const std::string_view name(reinterpret_cast<const char*>(name_bytes.data()), name_bytes.size());
      std::span<const uint8_t>* section = name == ".debug_line"       ? &sections.line
                                          : name == ".debug_line_str" ? &sections.line_str
                                          : name == ".debug_str"      ? &sections.str
                                                                      : nullptr;
      if (section != nullptr && custom.ok()) {
        *section = custom.Rest();
      }
    }
  }
  return sections;
}

LineTable ReadLineTable(const DebugSections& sections, std::span<const uint32_t> offsets) {
  if (sections.line.empty() || offsets.empty()) {
    return {};
  }
  if (sections.line.size() > limits::kDebugLineBytesMax || offsets.size() > limits::kDebugOffsetsMax) {
    LineTable table;
    table.status = ResourceExhausted("the line tables (" + std::to_string(sections.line.size()) + " bytes for " +
                                     std::to_string(offsets.size()) + " places) are larger than the limits (" +
                                     std::to_string(limits::kDebugLineBytesMax) + " bytes, " +
                                     std::to_string(limits::kDebugOffsetsMax) + " places)");
    return table;
  }
  return LineReader(sections, offsets).Read();
}

}  // namespace hpvm::debug
