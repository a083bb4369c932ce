// SPDX-License-Identifier: Apache-2.0
// MinCut finds the cheapest set of nodes whose removal disconnects the sources from the sinks (Menger; found by
// maximum flow as in Edmonds and Karp, JACM 19, 1972, with each node split in two).
#ifndef HPVMD_COMPILER_PASS_GANG_MIN_CUT_H_
#define HPVMD_COMPILER_PASS_GANG_MIN_CUT_H_

#include <cstdint>
#include <utility>
#include <vector>

namespace hpvm::pass {

struct CutGraph {
  std::vector<uint32_t> costs;                       // Indexed by node; sources and sinks may be cut too.
  std::vector<std::pair<uint32_t, uint32_t>> edges;  // From, to.
  std::vector<uint32_t> sources, sinks;
};

// Returns, by node, true if it is cut; the set nearest the sinks if several are cheapest. Takes at most (sum of the
// cut's costs) walks over the graph.
std::vector<bool> MinCut(const CutGraph& graph);

}  // namespace hpvm::pass

#endif  // HPVMD_COMPILER_PASS_GANG_MIN_CUT_H_
