// SPDX-License-Identifier: Apache-2.0
// Checks the bindings of a run against the graph's ports.
#ifndef HPVMD_ENGINE_BINDINGS_H_
#define HPVMD_ENGINE_BINDINGS_H_

#include <map>
#include <string>
#include <vector>

#include "base/status.h"
#include "compiler/api/artifact.h"
#include "compiler/ir/launch.h"
#include "engine/engine.h"
#include "graph/flatten.h"
#include "graph/graph.h"

namespace hpvm::engine {

// Indexed by the root's port; null for ports that are not bound yet.
using PortBindings = std::vector<const Binding*>;

enum class BindData : uint8_t { kRequired, kOptional };

// Finds each input's binding and checks type, size and memory. kInvalidArgument names the port; unknown and missing
// names are errors.
Status BindInputs(const graph::Node& root, const std::map<std::string, Binding>& inputs, BindData data,
                  PortBindings& ports);
Status CheckOutputNames(const graph::Node& root, const std::map<std::string, Binding>& outputs);
Status CheckOutput(const graph::Port& port, const graph::FlatValue& value, const Binding& binding);
// Inputs may share memory. An output that shares a byte with another port is refused, because the output is written
// while the other port may still be read.
Status CheckOverlaps(const graph::Node& root, const PortBindings& ports);

StatusOr<graph::SymbolValues> SolveSymbols(const graph::Graph& graph, const PortBindings& ports,
                                           const std::map<std::string, int64_t>& given);
// Returns type, shape and number of bytes of a port for given symbol values, without memory.
StatusOr<Binding> ShapeOf(const graph::Port& port, const graph::SymbolValues& symbols);

// Returns the bits of a kernel's scalar from a rank-0 tensor. Integers convert when the value fits; floats convert to
// floats, and integers to floats.
StatusOr<uint64_t> ScalarBits(const graph::Port& port, const Binding& binding, graph::ScalarType type);

}  // namespace hpvm::engine

#endif  // HPVMD_ENGINE_BINDINGS_H_
