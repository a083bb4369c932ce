// SPDX-License-Identifier: Apache-2.0
// What a request's rotations and its `until` mean for a graph.
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
  std::vector<scheduler::Carry> rotations;  // By output.
  // The same for plans: nothing when the graph runs once.
  std::vector<scheduler::Carry> carries;
  std::optional<uint32_t> until;  // The root's port.
};

// kInvalidArgument: no repetition, ports that the graph does not have, ports that are named twice, an `until` whose
// elements have no test for zero.
StatusOr<Repetition> ReadRepetition(const graph::Node& root, const RunRequest& request);

// What only sizes tell: kInvalidArgument when a rotation's ports differ in type or shape, or `until` is not one
// element. Inputs are bound in `ports`.
Status CheckRepetition(const graph::Node& root, const Repetition& repetition, const PortBindings& ports,
                       const graph::SymbolValues& symbols);

// Which outputs the host reads after each repetition before the next: what ends the run, and what kernels take as
// scalars then. By port, each once.
std::vector<uint32_t> OutputsOnHost(const graph::Graph& graph, const Repetition& repetition);

// Whether the element is not zero; of NaN, too.
bool IsNotZero(ElementType type, const uint8_t* element);

}  // namespace hpvm::engine

#endif  // HPVMD_ENGINE_RUN_RUN_REPEAT_H_
