// SPDX-License-Identifier: Apache-2.0
#include <array>

#include "base/limits.h"
#include "graph/build.h"

namespace hpvm::graph {
namespace {

constexpr uint32_t kModulesMax = 4096;
constexpr auto kKindNames = [] {
  std::array<std::string_view, kModuleKinds.size()> names;
  for (size_t i = 0; i < names.size(); ++i) {
    names[i] = kModuleKinds[i].name;
  }
  return names;
}();

// Decodes RFC 4648 section 4, padded, without white space. Returns false when `text` is anything else.
bool DecodeBase64(std::string_view text, std::vector<uint8_t>& bytes) {
  static constexpr auto kDigits = [] {
    std::array<int8_t, 256> digits{};
    digits.fill(-1);
    const std::string_view alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    for (size_t i = 0; i < alphabet.size(); ++i) {
      digits[static_cast<uint8_t>(alphabet[i])] = static_cast<int8_t>(i);
    }
    return digits;
  }();
  if (text.size() % 4 != 0) {
    return false;
  }
  size_t padding = 0;
  while (padding < 2 && padding < text.size() && text[text.size() - 1 - padding] == '=') {
    ++padding;
  }
  text.remove_suffix(padding);
  bytes.reserve(text.size() / 4 * 3 + 2);
  uint32_t bits = 0;
  uint32_t count = 0;
  for (const char c : text) {
    const int8_t digit = kDigits[static_cast<uint8_t>(c)];
    if (digit < 0) {
      return false;
    }
    bits = bits << 6 | static_cast<uint32_t>(digit);
    count += 6;
    if (count >= 8) {
      count -= 8;
      bytes.push_back(static_cast<uint8_t>(bits >> count));
    }
  }
  // Unused bits must be zero, so that bytes have a single text.
  return (bits & ((1u << count) - 1)) == 0;
}

}  // namespace

void Builder::ReadModules(JsonId id) {
  if (id == kNoJson || !Expect(id, Kind::kObject, "Modules")) {
    return;
  }
  if (tree_[id].size > kModulesMax) {
    Fail(id, "The graph has ", tree_[id].size, " modules; the limit is ", kModulesMax, ".");
    return;
  }
  for (JsonId child = tree_.FirstChild(id); child != kNoJson; child = tree_.Next(child)) {
    Module& module = graph_.modules.emplace_back();
    module.pointer.text = tree_.PointerTo(child);
    module.name = tree_.NameOf(child);
    CheckName(child, "Module", module.name);
    module_of_[tree_[child].name] = static_cast<uint32_t>(graph_.modules.size() - 1);
    ReadModule(module, child);
  }
}

void Builder::ReadModule(Module& module, JsonId id) {
  Fields fields;
  if (!ReadFields(id, "Module", {Key::kKind, Key::kSource, Key::kOptions}, {Key::kKind, Key::kSource}, fields)) {
    return;
  }
  std::optional<uint32_t> kind;
  if (fields.has(Key::kKind)) {
    kind = ReadChoice(fields[Key::kKind], "Kind", kKindNames);
  }
  module.kind = kModuleKinds[kind.value_or(0)].kind;
  if (fields.has(Key::kSource)) {
    ReadSource(module, fields[Key::kSource]);
  }
  if (fields.has(Key::kOptions)) {
    module.build_options = ReadText(fields[Key::kOptions], "Options");
    if (module.build_options.size() > limits::kBuildOptionsBytesMax) {
      Fail(fields[Key::kOptions], "Options have ", module.build_options.size(), " bytes; the limit is ",
           limits::kBuildOptionsBytesMax, ".");
    }
    if (kind.has_value() && kModuleKinds[*kind].takes != "options") {
      Fail(fields[Key::kOptions], "Options are for modules of kind ", NamesOfKinds("options"),
           "; this module is of kind ", Quoted(kKindNames[*kind]), ".");
    }
  }
}

void Builder::ReadSource(Module& module, JsonId id) {
  Fields fields;
  if (!ReadFields(id, "Source", {Key::kFile, Key::kSha256, Key::kInline}, {}, fields)) {
    return;
  }
  const int given = fields.has(Key::kFile) + fields.has(Key::kSha256) + fields.has(Key::kInline);
  if (given != 1) {
    Fail(id, "Source has ", given, " of \"file\", \"sha256\" and \"inline\"; exactly 1 is needed.");
    return;
  }
  if (const JsonId file = fields[Key::kFile]; file != kNoJson) {
    module.source = Module::Source::kFile;
    module.file = ReadText(file, "File");
    if (tree_[file].kind() == Kind::kString && (module.file.empty() || module.file.find('\0') != std::string::npos)) {
      Fail(file, "File ", Quoted(module.file), " is not a file name.");
    }
  } else if (const JsonId hash = fields[Key::kSha256]; hash != kNoJson) {
    module.source = Module::Source::kHash;
    const std::string text = ReadText(hash, "Hash");
    const bool lower = text.find_first_not_of("0123456789abcdef") == std::string::npos;
    module.hash = lower ? Sha256FromHex(text) : std::nullopt;
    if (tree_[hash].kind() == Kind::kString && !module.hash.has_value()) {
      Fail(hash, "Hash ", Quoted(text), " is not 64 lower-case hexadecimal digits.");
    }
  } else if (const JsonId bytes = fields[Key::kInline]; Expect(bytes, Kind::kString, "Inline module")) {
    module.source = Module::Source::kInline;
    const std::string_view text = tree_.String(bytes);
    if (text.size() / 4 * 3 > limits::kModuleBytesMax + 2) {
      Fail(bytes, "Inline module has about ", text.size() / 4 * 3, " bytes; the limit is ", limits::kModuleBytesMax,
           ".");
    } else if (text.empty() || !DecodeBase64(text, module.bytes)) {
      Fail(bytes, "Inline module is not base64 (RFC 4648 section 4, padded, without white space) of at least 1 byte.");
    }
  }
}

}  // namespace hpvm::graph
