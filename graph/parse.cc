// SPDX-License-Identifier: Apache-2.0
#include "graph/parse.h"

#include <algorithm>

#include "graph/build.h"
#include "graph/diagnostic_sink.h"
#include "graph/json_tree.h"
#include "graph/long_form.h"
#include "graph/validate.h"

namespace hpvm::graph {

ParseOutcome Parse(std::string_view document, const Limits& limits) {
  ParseOutcome outcome;
  DiagnosticSink faults(limits.diagnostics_max);
  JsonTree tree, long_form;
  Graph graph;
  bool is_readable = tree.Read(document, limits, faults);
  const bool is_short = is_readable && IsShortForm(tree);
  if (is_short) {
    outcome.work = tree.size();
    // Members that stand twice, for example, have been reported; one of them would be rewritten and both read.
    is_readable = !faults.has_errors() && WriteLongForm(tree, limits, faults, long_form);
  }
  if (is_readable) {
    Builder builder(is_short ? long_form : tree, limits, faults, graph);
    builder.Build();
    const size_t listed = faults.listed();
    outcome.work += builder.work() + Validate(graph, faults);
    if (is_short) {  // The rules name places of the long form.
      faults.Translate(listed, [&](const std::string& place) { return long_form.PlaceOf(place); });
      faults.Unite();
    }
  }
  if (!faults.has_errors()) {
    outcome.graph = std::move(graph);
  }
  outcome.diagnostics = faults.Take();
  return outcome;
}

}  // namespace hpvm::graph
