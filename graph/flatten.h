// SPDX-License-Identifier: Apache-2.0
// A graph for given symbol values as a plain list: leaf launches in an order that respects every edge, and the
// values they pass on.
//
// A value is the contents of one buffer at one time: given from outside or written by one launch. An `in` port uses
// a value, an `out` port makes one, an `inout` port uses one and makes the next. Binds through internal nodes
// vanish. Replicas of an internal node run in order of their index, x fastest; what several replicas write through
// one bound port is one buffer, so each replica's value follows the last one's.
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

// One value a symbol, by SymbolId.
using SymbolValues = std::vector<int64_t>;

// kInvalidArgument on overflow or division by zero, naming the expression.
StatusOr<int64_t> Evaluate(const Expr& expr, const SymbolValues& symbols);
// In doubles from the first operation on, so that "1/n" is no integer; `%` has the sign of the divisor.
// kInvalidArgument on division by zero and on a result that is not finite, naming the expression.
StatusOr<double> EvaluateReal(const Expr& expr, const SymbolValues& symbols);

// Solves symbols from the shapes of bound inputs: dimensions that are a lone symbol give it its value, all others
// are checked. `given` (name -> value) wins and is checked too. kInvalidArgument names the input, the dimension,
// both values; or the symbol left unsolved.
StatusOr<SymbolValues> SolveSymbols(const Graph& graph,
                                    const std::map<std::string, std::vector<uint64_t>>& input_shapes,
                                    const std::map<std::string, int64_t>& given);

using FlatValueId = Id<struct FlatValueTag>;
using FlatNodeId = Id<struct FlatNodeTag>;

struct FlatValue {
  uint64_t bytes = 0;
  ElementType type = ElementType::kF32;
  std::vector<uint64_t> shape;
  FlatNodeId producer;  // Invalid: a graph input.
  uint32_t producer_port = 0;
  uint32_t input = 0;  // Index of the root's port, when there is no producer.
};

struct FlatPort {
  Access access = Access::kIn;
  FlatValueId in;              // kIn, kInOut; for kOut valid when an earlier replica's contents must be kept.
  FlatValueId out;             // kOut, kInOut.
  bool is_one_to_one = false;  // kIn, kInOut: instance i reads only what instance i of the value's producer wrote.
};

struct FlatScalar {
  ScalarType type = ScalarType::kI32;
  uint64_t bits = 0;
  int32_t input = -1;  // Index of the root's port that gives the value at run time, or -1.
};

struct FlatNode {
  NodeId leaf;
  uint64_t replica = 0;  // Linear index over all enclosing replications.
  std::array<uint64_t, 3> extent{1, 1, 1};
  std::array<uint64_t, 3> group{0, 0, 0};  // 0: not given.
  // Index of the leaf's port that gives the extent when the node starts, at most `extent`; -1: it is `extent`.
  std::array<int32_t, 3> extent_port{-1, -1, -1};
  uint32_t first_port = 0;    // In FlatGraph::ports; one a port of the leaf, in order.
  uint32_t first_scalar = 0;  // In FlatGraph::scalars.
};

struct FlatGraph {
  std::vector<FlatNode> nodes;  // In execution order.
  std::vector<FlatPort> ports;
  std::vector<FlatScalar> scalars;
  std::vector<FlatValue> values;
  std::vector<FlatValueId> outputs;  // One a port of the root, invalid for inputs.
};

// kInvalidArgument (shape mismatch along an edge, negative extent), kResourceExhausted (expanded nodes, bytes over
// 2^63) with the place.
StatusOr<FlatGraph> Flatten(const Graph& graph, const SymbolValues& symbols,
                            uint64_t expanded_nodes_max = limits::kGraphExpandedNodesMax);

// "outer/blur" or "outer[3]/blur".
std::string PathOf(const Graph& graph, const FlatNode& node);

}  // namespace hpvm::graph

#endif  // HPVMD_GRAPH_FLATTEN_H_
