// SPDX-License-Identifier: Apache-2.0
// The files of a graph document: its text, and the modules that it names. A document may be somebody else's, so what it
// names is read only where it lies itself, or where the user says.
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

// Where a document lies, and what of elsewhere it may name.
struct DocumentPlace {
  std::string document;  // A file, or "-" for standard input, whose modules lie below the current folder.
  std::vector<std::string> allow_files;  // Of --allow-file.
  std::string text;                      // Not empty: the document itself, and `document` is only where it stands.
};

void AddAllowFile(CLI::App& command, DocumentPlace& place);

// The document's text; of "-" standard input.
StatusOr<std::string> ReadDocument(const std::string& file);
StatusOr<std::string> ReadDocument(const DocumentPlace& place);

// A file that `place` names: one beside it or below, or one of its allowed files.
StatusOr<std::vector<uint8_t>> ReadNamedFile(const DocumentPlace& place, const std::string& file);
// Such a file's path for this process's folder, whether or not it is there; links in it are followed first.
StatusOr<std::string> PathOfNamedFile(const DocumentPlace& place, const std::string& file);

// The graph of such a text; kInvalidArgument lists every fault.
StatusOr<graph::Graph> ParseDocument(const std::string& file, const std::string& document);

// A module that the user names, which may be as large as any server lets it be.
StatusOr<std::string> ReadModuleFile(const std::string& file);

// The bytes of one module of a document, and what people know it by. kNotFound for one that is named by its hash.
StatusOr<std::string> ReadModuleOf(const DocumentPlace& place, const graph::Module& module, std::string* name);

}  // namespace hpvm::ctl

#endif  // HPVMD_CLIENT_CTL_DOCUMENT_FILES_H_
