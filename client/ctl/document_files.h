// SPDX-License-Identifier: Apache-2.0
// Files of a graph document: its text and the modules that it names. A document may come from somebody else, so only
// files in its own folder, or files that the user allows, are read on its behalf.
#ifndef HPVMD_CLIENT_CTL_DOCUMENT_FILES_H_
#define HPVMD_CLIENT_CTL_DOCUMENT_FILES_H_

#include <string>
#include <vector>

#include "base/status.h"
#include "graph/graph.h"

namespace CLI {
class App;
}

namespace hpvm::ctl {

// DocumentSource is the location of a document and the files elsewhere that it may name.
struct DocumentSource {
  std::string document;  // A file, or "-" for standard input, whose modules lie below the current folder.
  std::vector<std::string> allow_files;  // Files of --allow-file.
  std::string text;  // If not empty: the text of the document; `document` is then only its location.
};

void AddAllowFile(CLI::App& command, DocumentSource& place);

// Returns the document's text; "-" reads standard input.
StatusOr<std::string> ReadDocument(const std::string& file);
StatusOr<std::string> ReadDocument(const DocumentSource& place);

// Reads a file that the document names: in its folder or below, or one of its allowed files.
StatusOr<std::vector<uint8_t>> ReadNamedFile(const DocumentSource& place, const std::string& file);
// Returns the path of such a file relative to this process's folder, whether or not it exists; resolves symbolic
// links.
StatusOr<std::string> PathOfNamedFile(const DocumentSource& place, const std::string& file);

// Parses the text of a graph; kInvalidArgument lists every error.
StatusOr<graph::Graph> ParseDocument(const std::string& file, const std::string& document);

// Reads a module that the user names, up to the largest size that any server allows.
StatusOr<std::string> ReadModuleFile(const std::string& file);

// Reads one module of a document and returns its display name in `name`. kNotFound for a module that is named by its
// hash.
StatusOr<std::string> ReadModuleOf(const DocumentSource& place, const graph::Module& module, std::string* name);

}  // namespace hpvm::ctl

#endif  // HPVMD_CLIENT_CTL_DOCUMENT_FILES_H_
