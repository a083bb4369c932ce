// SPDX-License-Identifier: Apache-2.0
// JSON to Graph: nlohmann's SAX reader under our own limits, then every rule of validate.h. Reports every fault at
// once.
#ifndef HPVMD_GRAPH_PARSE_H_
#define HPVMD_GRAPH_PARSE_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/diagnostic.h"
#include "base/limits.h"
#include "graph/graph.h"

namespace hpvm::graph {

struct Limits {
  uint64_t document_bytes_max = limits::kGraphDocumentBytesMax;
  uint32_t nodes_max = limits::kGraphNodesMax;
  uint32_t edges_max = limits::kGraphEdgesMax;
  uint32_t depth_max = limits::kGraphDepthMax;
  uint32_t string_bytes_max = limits::kGraphStringBytesMax;
  uint32_t diagnostics_max = limits::kDiagnosticsMax;
};

struct ParseOutcome {
  std::optional<Graph> graph;  // Empty exactly when `diagnostics` has errors.
  Diagnostics diagnostics;  // Errors and warnings, at most diagnostics_max of each; then a line that counts the rest.
  uint64_t work = 0;        // Values read, names looked up, ports and edges visited: what tests of linear time count.
};

// Any bytes; never throws, never recurses on the document's depth. Time and memory are linear in its size.
ParseOutcome Parse(std::string_view document, const Limits& limits = {});

// The canonical document: two spaces, keys in the schema's order, defaults left out. Parse(Print(g)) gives g.
std::string Print(const Graph& graph);
// Graphviz, one cluster an internal node.
std::string ToDot(const Graph& graph);

}  // namespace hpvm::graph

#endif  // HPVMD_GRAPH_PARSE_H_
