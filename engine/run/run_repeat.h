// SPDX-License-Identifier: Apache-2.0
// Interprets a request's rotations and its `until` for a graph.
#ifndef HPVMD_ENGINE_RUN_RUN_REPEAT_H_
#define HPVMD_ENGINE_RUN_RUN_REPEAT_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "base/status.h"
#include "engine/bindings.h"
#include "engine/engine.h"
#include "graph/flatten.h"
#include "graph/graph.h"
#include "hpvm/element_type.h"
#include "scheduler/residency/residency.h"

namespace hpvm::engine {

struct Repetition {
  std::vector<scheduler::Carry> rotations;  // Keyed by output.
  // The same for plans: empty when the graph runs once.
  std::vector<scheduler::Carry> carries;
  std::optional<uint32_t> until;  // The root's port.
};

// Fails with kInvalidArgument for a request without repetitions, for unknown ports, for ports that are named twice,
// and for an `until` whose elements cannot be tested for zero.
StatusOr<Repetition> ReadRepetition(const graph::Node& root, const RunRequest& request);

// Checks what depends on sizes: fails with kInvalidArgument when a rotation's ports differ in type or shape, or
// `until` does not have one element. Inputs are bound in `ports`.
Status CheckRepetition(const graph::Node& root, const Repetition& repetition, const PortBindings& ports,
                       const graph::SymbolValues& symbols);

// Returns the outputs that the host reads after each repetition before the next one: the output that ends the run,
// and those that kernels take as scalars. Sorted by port, each once.
std::vector<uint32_t> OutputsOnHost(const graph::Graph& graph, const Repetition& repetition);

// Returns true when the element is not zero; also for a NaN.
bool IsNotZero(ElementType type, const uint8_t* element);

}  // namespace hpvm::engine

#endif  // HPVMD_ENGINE_RUN_RUN_REPEAT_H_
