// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "graph/flatten.h"
#include "graph/parse.h"
#include "schemas/testing/documents.h"

namespace hpvm::graph {
namespace {

using testing::Document;
using testing::ReadDocuments;

// Every valid example parses without a word, prints, and reads back as the same graph.
TEST(ExamplesTest, ValidOnesParseAndPrint) {
  const std::vector<Document> documents = ReadDocuments("valid");
  EXPECT_GE(documents.size(), 12u);
  for (const Document& document : documents) {
    SCOPED_TRACE(document.name);
    const ParseOutcome outcome = Parse(document.text);
    EXPECT_EQ(ToString(outcome.diagnostics), "");
    ASSERT_TRUE(outcome.graph.has_value());
    const std::string printed = Print(*outcome.graph);
    const ParseOutcome again = Parse(printed);
    ASSERT_TRUE(again.graph.has_value()) << ToString(again.diagnostics) << printed;
    EXPECT_TRUE(*again.graph == *outcome.graph) << printed;
    EXPECT_EQ(Print(*again.graph), printed);
  }
}

// Every valid example expands for small sizes: all leaves once or more, each value written before it is read.
TEST(ExamplesTest, ValidOnesFlatten) {
  for (const Document& document : ReadDocuments("valid")) {
    SCOPED_TRACE(document.name);
    const ParseOutcome outcome = Parse(document.text);
    ASSERT_TRUE(outcome.graph.has_value());
    const StatusOr<FlatGraph> flat = Flatten(*outcome.graph, SymbolValues(outcome.graph->symbols.size(), 6));
    ASSERT_TRUE(flat.ok()) << Message(flat.status());
    std::vector<bool> written(flat->values.size(), false);
    for (size_t i = 0; i < flat->values.size(); ++i) {
      written[i] = !flat->values[i].producer.valid();
    }
    std::vector<bool> launched(outcome.graph->nodes.size(), false);
    for (const FlatNode& node : flat->nodes) {
      launched[node.leaf.index] = true;
      for (size_t p = 0; p < outcome.graph->node(node.leaf).ports.size(); ++p) {
        const FlatPort& port = flat->ports[node.first_port + p];
        EXPECT_TRUE(!port.in.valid() || written[port.in.index]) << PathOf(*outcome.graph, node);
        if (port.out.valid()) {
          written[port.out.index] = true;
        }
      }
    }
    for (size_t i = 0; i < launched.size(); ++i) {
      EXPECT_EQ(launched[i], outcome.graph->nodes[i].is_leaf) << outcome.graph->nodes[i].name;
    }
  }
}

// Every invalid example gives exactly the text beside it, and no graph.
TEST(ExamplesTest, InvalidOnesAreExplained) {
  const std::vector<Document> documents = ReadDocuments("invalid");
  EXPECT_GE(documents.size(), 30u);
  for (const Document& document : documents) {
    SCOPED_TRACE(document.name);
    const ParseOutcome outcome = Parse(document.text);
    EXPECT_FALSE(outcome.graph.has_value());
    EXPECT_TRUE(HasErrors(outcome.diagnostics));
    testing::CompareWithFile(ToString(outcome.diagnostics) + "\n",
                             document.path.substr(0, document.path.size() - 5) + ".expected.txt");
  }
}

}  // namespace
}  // namespace hpvm::graph
