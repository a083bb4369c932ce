// SPDX-License-Identifier: Apache-2.0
// The rules between nodes. build.h contains the rules on single objects, flatten.h those that need symbol values.
//
//   Names      Ports and scalars of a node have different names.
//   Edges      An edge starts at a sibling's out or inout port or at the enclosing node's in or inout port, and ends at
//              a sibling's in or inout port or at the enclosing node's out or inout port. in and inout take exactly one
//              edge; exactly one edge writes each output of an internal node or of the graph. Outputs fan out freely
//              and may stay unused.
//   Types      Both ends of an edge have one element type, one rank and one shape. Shapes are compared as polynomials;
//              cases that this cannot decide are left to Flatten, which knows the symbols.
//   one_to_one Both ends are siblings with equal instance counts.
//   Order      Edges among siblings form no cycle; children are put in topological order, which is the document's order
//              when that is topological.
//   Warnings   Nodes whose results reach no output of their enclosing node.
//
// A graph being validated may contain placeholders for items that could not be read and are already reported:
// Endpoint::port of 2^32 - 1, ElementType 0 (type or rank unknown), kUnknownAccess, an Expr without terms. Validation
// ignores them. A graph without errors contains none.
#ifndef HPVMD_GRAPH_VALIDATE_H_
#define HPVMD_GRAPH_VALIDATE_H_

#include <cstdint>

#include "graph/diagnostic_sink.h"
#include "graph/graph.h"

namespace hpvm::graph {

inline constexpr Access kUnknownAccess = Access{3};

// Reports to `faults` and sorts children. Returns the number of steps taken.
uint64_t Validate(Graph& graph, DiagnosticSink& faults);

// In sort.cc. Puts `scope`'s children in topological order, stable by their present order; reports each cycle. Sets
// `moved` when the order changed. `position` is scratch space with one entry per node.
uint64_t SortChildren(Graph& graph, NodeId scope, DiagnosticSink& faults, std::vector<uint32_t>& position, bool& moved);
// Renumbers nodes and replica indices as reading the sorted document would number them.
void Renumber(Graph& graph);

}  // namespace hpvm::graph

#endif  // HPVMD_GRAPH_VALIDATE_H_
