// SPDX-License-Identifier: Apache-2.0
#include "graph/parse.h"

#include <algorithm>

#include "graph/build.h"
#include "graph/faults.h"
#include "graph/json_tree.h"
#include "graph/validate.h"

namespace hpvm::graph {

ParseOutcome Parse(std::string_view document, const Limits& limits) {
  ParseOutcome outcome;
  Faults faults(limits.diagnostics_max);
  JsonTree tree;
  Graph graph;
  if (tree.Read(document, limits, faults)) {
    Builder builder(tree, limits, faults, graph);
    builder.Build();
    outcome.work = builder.work() + Validate(graph, faults);
  }
  if (!faults.has_errors()) {
    outcome.graph = std::move(graph);
  }
  outcome.diagnostics = faults.Take();
  return outcome;
}

}  // namespace hpvm::graph
