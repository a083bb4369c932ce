// SPDX-License-Identifier: Apache-2.0
// Turns JSON into a Graph: nlohmann's SAX reader under our own limits, followed by every rule of validate.h. Reports
// all faults at once.
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
  Diagnostics diagnostics;     // Errors and warnings, at most diagnostics_max of each, followed by a line that counts
                               // the rest.
  uint64_t work = 0;  // Number of values read, names looked up, ports and edges visited, for tests of linear time.
};

// Accepts any bytes; never throws, never recurses on the document's depth. Time and memory are linear in its size.
ParseOutcome Parse(std::string_view document, const Limits& limits = {});

// Prints the canonical document: two spaces, keys in the schema's order, defaults omitted. Parse(Print(g)) gives g.
std::string Print(const Graph& graph);
// Prints the graph for Graphviz, with one cluster per internal node.
std::string ToDot(const Graph& graph);

}  // namespace hpvm::graph

#endif  // HPVMD_GRAPH_PARSE_H_
