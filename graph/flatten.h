// SPDX-License-Identifier: Apache-2.0
// Turns a graph with given symbol values into a list: leaf launches in an order that respects every edge, and the
// values that they pass on.
//
// A value is the content of one buffer at one time: given from outside or written by one launch. An `in` port uses a
// value, an `out` port creates one, an `inout` port uses one and creates the next. Binds through internal nodes
// vanish. Replicas of an internal node run in order of their index, x fastest; replicas that write through one bound
// port share a buffer, so each replica's value follows the previous one's.
#ifndef HPVMD_GRAPH_FLATTEN_H_
#define HPVMD_GRAPH_FLATTEN_H_

#include <array>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "base/limits.h"
#include "base/status.h"
#include "graph/graph.h"

namespace hpvm::graph {

// One value per symbol, indexed by SymbolId.
using SymbolValues = std::vector<int64_t>;

// Fails with kInvalidArgument on overflow or division by zero, naming the expression.
StatusOr<int64_t> Evaluate(const Expr& expr, const SymbolValues& symbols);
// Computes in doubles from the first operation on, so that "1/n" is not an integer; `%` has the sign of the divisor.
// Fails with kInvalidArgument on division by zero and on a result that is not finite, naming the expression.
StatusOr<double> EvaluateReal(const Expr& expr, const SymbolValues& symbols);

// Solves symbols from the shapes of bound inputs: a dimension that is a lone symbol gives the symbol its value; all
// other dimensions are checked. `given` (name -> value) takes precedence and is checked, too. kInvalidArgument names
// the input, the dimension and both values, or the symbol that remains unsolved.
StatusOr<SymbolValues> SolveSymbols(const Graph& graph,
                                    const std::map<std::string, std::vector<uint64_t>>& input_shapes,
                                    const std::map<std::string, int64_t>& given);

using FlatValueId = Id<struct FlatValueTag>;
using FlatNodeId = Id<struct FlatNodeTag>;

struct FlatValue {
  uint64_t bytes = 0;
  ElementType type = ElementType::kF32;
  std::vector<uint64_t> shape;
  FlatNodeId producer;  // Invalid for a graph input.
  uint32_t producer_port = 0;
  uint32_t input = 0;  // For a graph input: index of the root's port.
};

struct FlatPort {
  Access access = Access::kIn;
  FlatValueId in;              // For kIn, kInOut; for kOut valid when the content from an earlier replica must be kept.
  FlatValueId out;             // For kOut, kInOut.
  bool is_one_to_one = false;  // For kIn, kInOut: instance i reads only data that instance i of the value's producer
                               // wrote.
};

struct FlatScalar {
  ScalarType type = ScalarType::kI32;
  uint64_t bits = 0;
  int32_t input = -1;  // Index of the root's port that provides the value at run time, or -1.
};

struct FlatNode {
  NodeId leaf;
  uint64_t replica = 0;  // Linear index over all enclosing replications.
  std::array<uint64_t, 3> extent{1, 1, 1};
  std::array<uint64_t, 3> group{0, 0, 0};  // 0 when not given.
  // Index of the leaf's port that provides the extent, at most `extent`, when the node starts; -1 when it is
  // `extent`.
  std::array<int32_t, 3> extent_port{-1, -1, -1};
  uint32_t first_port = 0;    // Index in FlatGraph::ports; one per port of the leaf, in order.
  uint32_t first_scalar = 0;  // Index in FlatGraph::scalars.
};

struct FlatGraph {
  std::vector<FlatNode> nodes;  // In execution order.
  std::vector<FlatPort> ports;
  std::vector<FlatScalar> scalars;
  std::vector<FlatValue> values;
  std::vector<FlatValueId> outputs;  // One per port of the root, invalid for inputs.
};

// Fails with kInvalidArgument (shape mismatch along an edge, negative extent) or kResourceExhausted (expanded nodes,
// bytes over 2^63), with the place.
StatusOr<FlatGraph> Flatten(const Graph& graph, const SymbolValues& symbols,
                            uint64_t expanded_nodes_max = limits::kGraphExpandedNodesMax);

// Returns a path such as "outer/blur" or "outer[3]/blur".
std::string PathOf(const Graph& graph, const FlatNode& node);

}  // namespace hpvm::graph

#endif  // HPVMD_GRAPH_FLATTEN_H_
