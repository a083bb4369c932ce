// SPDX-License-Identifier: Apache-2.0
// The example documents beside the schema, for tests.
#ifndef HPVMD_SCHEMAS_TESTING_DOCUMENTS_H_
#define HPVMD_SCHEMAS_TESTING_DOCUMENTS_H_

#include <string>
#include <vector>

namespace hpvm::graph::testing {

struct Document {
  std::string name;  // "graph-cycle".
  std::string path;
  std::string text;
};

// All documents of schemas/examples/<folder>, by name. Fails the test on a file that is neither a document nor
// one's expected text.
std::vector<Document> ReadDocuments(const std::string& folder);
std::string ReadText(const std::string& path);

// Compares `got` with the file; HPVMD_BLESS=1 rewrites the file instead.
void CompareWithFile(const std::string& got, const std::string& path);

}  // namespace hpvm::graph::testing

#endif  // HPVMD_SCHEMAS_TESTING_DOCUMENTS_H_
