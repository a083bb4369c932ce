// SPDX-License-Identifier: Apache-2.0
#include "compiler/debug/source_info.h"

#include <llvm/Demangle/Demangle.h>

#include <algorithm>
#include <cctype>
#include <map>
#include <vector>

#include "compiler/debug/dwarf_lines.h"

namespace hpvm::debug {
namespace {

// Names refer back to parts of themselves, and each reference may double the text: some hundred bytes can expand to
// gigabytes. Names up to the first length stay small; names without references may be longer.
constexpr size_t kAnyNameBytesMax = 96;
constexpr size_t kPlainNameBytesMax = 512;
constexpr size_t kReadableBytesMax = 256;
// A module may have a million functions; those that reach a trap message are among the first.
constexpr size_t kNamesMax = 20'000;

bool MayReferBack(std::string_view name) {
  const bool is_rust = name.starts_with("_R");
  for (size_t i = 0; i + 1 < name.size(); ++i) {
    const char next = name[i + 1];
    const bool is_reference =
        next == '_' || std::isupper(static_cast<uint8_t>(next)) != 0 || std::isdigit(static_cast<uint8_t>(next)) != 0;
    if (is_rust ? name[i] == 'B' : (name[i] == 'S' || name[i] == 'T') && is_reference) {
      return true;
    }
  }
  return false;
}

// Rust's older scheme ends each name with a hash of the crate.
void DropHash(std::string& name) {
  constexpr size_t kHashBytes = 19;  // "::h" and 16 digits.
  if (name.size() <= kHashBytes) {
    return;
  }
  const std::string_view end = std::string_view(name).substr(name.size() - kHashBytes);
  const bool is_hash = end.starts_with("::h") && std::all_of(end.begin() + 3, end.end(), [](char c) {
                         return std::isxdigit(static_cast<uint8_t>(c)) != 0;
                       });
  if (is_hash) {
    name.resize(name.size() - kHashBytes);
  }
}

std::string Cut(std::string_view name) {
  return std::string(name.substr(0, kReadableBytesMax)) + (name.size() > kReadableBytesMax ? "..." : "");
}

// Returns the bytes of the module that a message may have to name, sorted and distinct.
std::vector<uint32_t> SourcesOf(const ir::Module& module, const Artifact& artifact) {
  std::vector<uint32_t> sources;
  for (const KernelRemark& remark : artifact.remarks) {
    if (remark.source != 0) {
      sources.push_back(remark.source);
    }
  }
  for (const ir::Function& function : module.functions) {
    for (const ir::Op& op : function.ops) {
      if (op.source != 0 && (ir::Info(op.code).effects & (ir::kReads | ir::kWrites | ir::kTraps | ir::kSyncs)) != 0) {
        sources.push_back(op.source);
      }
    }
  }
  std::ranges::sort(sources);
  sources.erase(std::unique(sources.begin(), sources.end()), sources.end());
  return sources;
}

// Replaces the line that debug information has for each place's byte; the lines around it stay.
void AddPlaces(std::span<const ir::SourceLocation> places, Artifact* artifact) {
  std::map<std::string, uint32_t> files;
  for (uint32_t i = 0; i < artifact->files.size(); ++i) {
    files.try_emplace(artifact->files[i], i);
  }
  std::vector<SourceLine> lines;
  size_t next = 0;
  SourceLine around;  // The last line of the debug information that begins no later.
  for (const ir::SourceLocation& place : places) {
    for (; next < artifact->lines.size() && artifact->lines[next].offset <= place.source; ++next) {
      around = artifact->lines[next];
      if (around.offset < place.source) {
        lines.push_back(around);
      }
    }
    if (!lines.empty() && lines.back().offset == place.source) {
      lines.pop_back();
    }
    const auto [file, is_new] = files.try_emplace(place.file, static_cast<uint32_t>(artifact->files.size()));
    if (is_new) {
      artifact->files.push_back(place.file);
    }
    lines.push_back({.offset = place.source, .file = file->second, .line = place.line, .column = place.column});
    if (next == artifact->lines.size() || artifact->lines[next].offset > place.source + 1) {
      around.offset = place.source + 1;
      lines.push_back(around);
    }
  }
  lines.insert(lines.end(), artifact->lines.begin() + static_cast<ptrdiff_t>(next), artifact->lines.end());
  artifact->lines = std::move(lines);
}

}  // namespace

void AddSourceInfo(std::span<const uint8_t> bytes, const ir::Module& module, std::span<const ir::SourceLocation> places,
                   Artifact* artifact, Diagnostics* diagnostics) {
  for (size_t i = 0; i < artifact->function_names.size(); ++i) {
    std::string& name = artifact->function_names[i];
    name = i < kNamesMax ? ReadableName(name) : Cut(name);
  }
  const DebugSections sections = FindDebugSections(bytes);
  if (sections.line.empty()) {
    AddPlaces(places, artifact);
    return;
  }
  LineTable table = ReadLineTable(sections, SourcesOf(module, *artifact));
  artifact->files = std::move(table.files);
  artifact->lines = std::move(table.lines);
  AddPlaces(places, artifact);
  if (!table.status.ok()) {
    diagnostics->push_back({Severity::kWarning,
                            "module \"" + artifact->module_name + "\"",
                            {},
                            "Its debug information is ignored in part, since " + Message(table.status) +
                                "; messages may name bytes instead of source lines."});
  }
}

std::string ReadableName(std::string_view name) {
  const bool is_mangled = name.starts_with("_Z") || name.starts_with("_R");
  if (!is_mangled || name.size() > (MayReferBack(name) ? kAnyNameBytesMax : kPlainNameBytesMax)) {
    return Cut(name);
  }
  std::string readable = llvm::demangle(name);
  DropHash(readable);
  return Cut(readable);
}

}  // namespace hpvm::debug
