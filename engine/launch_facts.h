// SPDX-License-Identifier: Apache-2.0
// What a plan knows of a launch before it runs, as the compiler's programs of offsets and of work want it.
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
  // Which kernel parameters are scalars that only a run knows (inputs of the graph); theirs are 0 in `facts`.
  std::vector<uint32_t> unknown_params;
  // The extents are limits: some are known only when the launch begins.
  bool is_extent_limit = false;
};

// Of the whole launch.
KnownLaunch FactsOf(const graph::Graph& graph, const graph::FlatGraph& flat, uint32_t node);

// Whether `program` names a scalar that only a run knows, or extents that are only limits, so that nothing can be
// concluded from it for this launch.
bool DependsOnTheRun(const ir::BoundsProgram& program, const KnownLaunch& launch);

}  // namespace hpvm::engine

#endif  // HPVMD_ENGINE_LAUNCH_FACTS_H_
