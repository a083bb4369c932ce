// SPDX-License-Identifier: Apache-2.0
// Reads any bytes as a graph document: nothing may crash, hang or leak, and an accepted document must print, read
// back and expand.
#include <cstdint>
#include <string_view>

#include "base/status.h"
#include "graph/flatten.h"
#include "graph/parse.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace hpvm::graph;
  Limits limits;
  limits.nodes_max = 2000;
  limits.edges_max = 8000;
  const ParseOutcome outcome = Parse({reinterpret_cast<const char*>(data), size}, limits);
  HPVMD_CHECK(outcome.graph.has_value() != hpvm::HasErrors(outcome.diagnostics));
  HPVMD_CHECK(outcome.diagnostics.size() <= 2 * (limits.diagnostics_max + 1));
  if (!outcome.graph.has_value()) {
    return 0;
  }
  const Graph& graph = *outcome.graph;
  const ParseOutcome again = Parse(Print(graph));
  HPVMD_CHECK(again.graph.has_value());
  HPVMD_CHECK(*again.graph == graph);
  HPVMD_CHECK(!ToDot(graph).empty());
  for (const int64_t value : {int64_t{0}, int64_t{1}, int64_t{7}, INT64_MAX}) {
    const auto flat = Flatten(graph, SymbolValues(graph.symbols.size(), value), 2000);
    for (const FlatNode& node : flat.ok() ? flat->nodes : std::vector<FlatNode>()) {
      HPVMD_CHECK(!PathOf(graph, node).empty());
    }
  }
  return 0;
}
