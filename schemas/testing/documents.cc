// SPDX-License-Identifier: Apache-2.0
#include "schemas/testing/documents.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include <gtest/gtest.h>

namespace hpvm::graph::testing {

std::string ReadText(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  EXPECT_TRUE(file.good()) << path << " cannot be read.";
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

std::vector<Document> ReadDocuments(const std::string& folder) {
  const std::string suffix = ".json";
  const std::string expected = ".expected.txt";
  std::vector<Document> documents;
  for (const auto& entry : std::filesystem::directory_iterator(HPVMD_SOURCE_DIR "/schemas/examples/" + folder)) {
    const std::string path = entry.path();
    const std::string name = entry.path().filename();
    if (name.ends_with(suffix)) {
      documents.push_back({name.substr(0, name.size() - suffix.size()), path, ReadText(path)});
      continue;
    }
    const bool known =
        name.ends_with(expected) && std::filesystem::exists(path.substr(0, path.size() - expected.size()) + suffix);
    EXPECT_TRUE(known) << path << " belongs to no document.";
  }
  std::sort(documents.begin(), documents.end(),
            [](const Document& a, const Document& b) { return a.name < b.name; });
  return documents;
}

void CompareWithFile(const std::string& got, const std::string& path) {
  if (const char* bless = std::getenv("HPVMD_BLESS"); bless != nullptr && std::string(bless) == "1") {
    std::ofstream(path, std::ios::binary) << got;
    return;
  }
  EXPECT_EQ(got, ReadText(path)) << path << ": run the test with HPVMD_BLESS=1 to accept what it gives now.";
}

}  // namespace hpvm::graph::testing
