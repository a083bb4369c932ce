// SPDX-License-Identifier: Apache-2.0
// The rules between nodes. Those of one object stand in build.h, those that need values of symbols in flatten.h.
//
//   Names      Ports and scalars of a node have different names.
//   Edges      An edge starts at a sibling's out or inout port or at the enclosing node's in or inout port, and
//   ends at a sibling's in or
//              inout port or at the enclosing node's out or inout port. in and inout take exactly one edge; what an
//              internal node or the graph gives out is written by exactly one. Outputs fan out freely and may stay
//              unused.
//   Types      Both ends of an edge have one element type, one rank and one shape. Shapes are compared as
//   polynomials; what that cannot
//              decide is left to Flatten, which knows the symbols.
//   one_to_one Both ends are siblings with equal instance counts.
//   Order      Edges among siblings form no cycle; children are put in topological order, in the document's where
//   it is one. Warnings   Nodes whose results reach no output of their enclosing node.
//
// A graph being validated may hold placeholders for what could not be read, already reported: Endpoint::port of
// 2^32 - 1, ElementType 0 (type or rank unknown), kUnknownAccess, an Expr without terms. They are passed over. A
// graph without errors holds none.
#ifndef HPVMD_GRAPH_VALIDATE_H_
#define HPVMD_GRAPH_VALIDATE_H_

#include <cstdint>

#include "graph/faults.h"
#include "graph/graph.h"

namespace hpvm::graph {

inline constexpr Access kUnknownAccess = Access{3};

// Reports to `faults`, sorts children. Returns the steps taken.
uint64_t Validate(Graph& graph, Faults& faults);

// sort.cc. Puts `scope`'s children in topological order, stable by their present order; reports each cycle. Sets
// `moved` when the order changed. `position` is scratch of one entry a node.
uint64_t SortChildren(Graph& graph, NodeId scope, Faults& faults, std::vector<uint32_t>& position, bool& moved);
// Numbers nodes and replica indices anew in the order that reading the sorted document would give.
void Renumber(Graph& graph);

}  // namespace hpvm::graph

#endif  // HPVMD_GRAPH_VALIDATE_H_
