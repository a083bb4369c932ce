// SPDX-License-Identifier: Apache-2.0
// The facts of a launch that a plan knows before it runs, in the form that the compiler's bounds and work programs
// need.
#ifndef HPVMD_ENGINE_LAUNCH_FACTS_H_
#define HPVMD_ENGINE_LAUNCH_FACTS_H_

#include <cstdint>
#include <vector>

#include "compiler/ir/bounds.h"
#include "graph/flatten.h"
#include "graph/graph.h"

namespace hpvm::engine {

struct KnownLaunch {
  ir::BoundsFacts facts;
  // Kernel parameters that are scalars known only to a run (inputs of the graph); their values are 0 in `facts`.
  std::vector<uint32_t> unknown_params;
  // The extents are limits: some extents are known only when the launch begins.
  bool is_extent_limit = false;
};

// Returns the facts of the whole launch.
KnownLaunch FactsOf(const graph::Graph& graph, const graph::FlatGraph& flat, uint32_t node);

// Returns true when `program` uses a scalar that only a run knows, or extents that are only limits, so that nothing
// can be concluded from it for this launch.
bool DependsOnTheRun(const ir::BoundsProgram& program, const KnownLaunch& launch);

}  // namespace hpvm::engine

#endif  // HPVMD_ENGINE_LAUNCH_FACTS_H_
