// SPDX-License-Identifier: Apache-2.0
#include "client/ctl/document_files.h"

#include <sys/stat.h>

#include <algorithm>
#include <filesystem>

#include "CLI/CLI.hpp"
#include "client/ctl/options.h"
#include "client/files/input_file.h"

#include "base/limits.h"
#include "graph/parse.h"

namespace hpvm::ctl {
namespace {

namespace fs = std::filesystem;

// Upper bound of a server's limits.module_bytes_max.
constexpr uint64_t kAllowedBytesMax = 1 * limits::kGiB;

fs::path FolderOf(const std::string& document_file) {
  return document_file == "-" ? fs::path() : fs::path(document_file).parent_path();
}

bool IsSameFile(const std::string& one, const std::string& other) {
  struct stat first {
  }, second{};
  return stat(one.c_str(), &first) == 0 && stat(other.c_str(), &second) == 0 && first.st_dev == second.st_dev &&
         first.st_ino == second.st_ino;
}

// Returns the file of --allow-file that `path` refers to; empty when there is none.
std::string AllowedFile(const DocumentSource& place, const fs::path& path) {
  const auto found = std::find_if(place.allow_files.begin(), place.allow_files.end(),
                                  [&](const std::string& allowed) { return IsSameFile(allowed, path.string()); });
  return found == place.allow_files.end() ? "" : *found;
}

Status NotBelow(const DocumentSource& place, const std::string& file, const std::string& message) {
  return InvalidArgument(message +
                         " A document may name only files in its own folder and below; to allow this file, give " +
                         "--allow-file " + (FolderOf(place.document) / file).string() + ".");
}

}  // namespace

void AddAllowFile(CLI::App& command, DocumentSource& place) {
  AddEach(command, "--allow-file", place.allow_files,
          "A file that the document may name although it does not lie in the document's folder or below it, or "
          "is larger than 64 MiB");
}

StatusOr<std::string> ReadDocument(const std::string& file) {
  return file == "-" ? ReadStandardInput(limits::kGraphDocumentBytesMax)
                     : ReadInputText(file, limits::kGraphDocumentBytesMax);
}

StatusOr<std::string> ReadDocument(const DocumentSource& place) {
  return place.text.empty() ? ReadDocument(place.document) : StatusOr<std::string>(place.text);
}

StatusOr<std::vector<uint8_t>> ReadNamedFile(const DocumentSource& place, const std::string& file) {
  const fs::path folder = FolderOf(place.document);
  // Opens the path that the user wrote, because the document's may lead elsewhere by now.
  if (const std::string allowed = AllowedFile(place, folder / file); !allowed.empty()) {
    return ReadInputFile(allowed, kAllowedBytesMax);
  }
  StatusOr<std::vector<uint8_t>> bytes = ReadFileBelow(folder.string(), file, limits::kModuleBytesMax);
  if (bytes.status().code() == absl::StatusCode::kPermissionDenied) {
    return NotBelow(place, file, Message(bytes.status()));
  }
  return bytes;
}

StatusOr<std::string> PathOfNamedFile(const DocumentSource& place, const std::string& file) {
  std::error_code error;
  const fs::path folder = FolderOf(place.document).empty() ? fs::path(".") : FolderOf(place.document);
  const fs::path path = folder / file;
  const fs::path whole = fs::weakly_canonical(fs::absolute(path), error), root = fs::canonical(folder, error);
  const auto is_allowed = [&](const std::string& allowed) {
    return fs::weakly_canonical(fs::absolute(allowed), error) == whole;
  };
  const auto [left, at] = std::mismatch(root.begin(), root.end(), whole.begin(), whole.end());
  if (left != root.end() && !std::any_of(place.allow_files.begin(), place.allow_files.end(), is_allowed)) {
    return NotBelow(place, file, "The file \"" + file + "\" does not lie below \"" + folder.string() + "\".");
  }
  return path.string();
}

StatusOr<graph::Graph> ParseDocument(const std::string& file, const std::string& document) {
  graph::ParseOutcome parsed = graph::Parse(document);
  if (!parsed.graph.has_value()) {
    return InvalidArgument("The graph \"" + file + "\" is not valid:\n" + ToString(parsed.diagnostics));
  }
  return *std::move(parsed.graph);
}

StatusOr<std::string> ReadModuleFile(const std::string& file) {
  return file == "-" ? ReadStandardInput(kAllowedBytesMax) : ReadInputText(file, kAllowedBytesMax);
}

StatusOr<std::string> ReadModuleOf(const DocumentSource& place, const graph::Module& module, std::string* name) {
  *name = module.name;
  if (module.source == graph::Module::Source::kInline) {
    return std::string(module.bytes.begin(), module.bytes.end());
  }
  if (module.source == graph::Module::Source::kHash) {
    return NotFound("Module \"" + module.name + "\" is named by its hash, which only a server can look up.");
  }
  *name = (FolderOf(place.document) / module.file).string();
  HPVMD_ASSIGN_OR_RETURN(const std::vector<uint8_t> bytes,
                         While(ReadNamedFile(place, module.file), "reading module \"" + module.name + "\""));
  return std::string(bytes.begin(), bytes.end());
}

}  // namespace hpvm::ctl
