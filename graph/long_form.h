// SPDX-License-Identifier: Apache-2.0
// Rewrites the short form of a document ("hpvm": 2) as the long form ("hpvm": 1), which the Builder reads.
//
// A short document declares each type and shape once. Nodes list their kernel's arguments in order; an argument names
// the input or the node that its data comes from, declares an output, or is a scalar. Everything else follows from the
// document alone, never from a module, so that a document means the same under every compiler. docs/GRAPHS.md has the
// rules.
//
// Each value of the long form keeps the place of the value that it comes from, so that the Builder's diagnostics name
// places in the document that the user wrote.
#ifndef HPVMD_GRAPH_LONG_FORM_H_
#define HPVMD_GRAPH_LONG_FORM_H_

#include "graph/diagnostic_sink.h"
#include "graph/json_tree.h"
#include "graph/parse.h"

namespace hpvm::graph {

// Returns true when the document's version ("hpvm") is 2.
bool IsShortForm(const JsonTree& document);

// Writes the long form of `document` into the empty `long_form`, which `document` has to outlive. Returns false, with
// an error in `faults`, when the document cannot be rewritten. Time and memory are linear in the size of the larger
// form; a long form beyond the limits is an error.
bool WriteLongForm(const JsonTree& document, const Limits& limits, DiagnosticSink& faults, JsonTree& long_form);

}  // namespace hpvm::graph

#endif  // HPVMD_GRAPH_LONG_FORM_H_
