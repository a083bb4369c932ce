// SPDX-License-Identifier: Apache-2.0
#include "engine/plan_check.h"

#include <algorithm>
#include <utility>

#include "engine/plan_placement.h"
#include "engine/plan_spaces.h"

namespace hpvm::engine {
namespace {

Status CheckLaunches(const PreparedGraph& prepared, const graph::FlatGraph& flat) {
  for (uint32_t node = 0; node < flat.nodes.size(); ++node) {
    const size_t choices = prepared.candidates[flat.nodes[node].leaf.index].size();
    bool can_run = false;
    for (uint32_t choice = 0; choice < choices && !can_run; ++choice) {
      can_run = CheckLaunch(prepared, flat, node, choice).ok();
    }
    if (!can_run) {
      return ExplainUnplaced(prepared, flat, node, FailedPrecondition("No device can run the node."));
    }
  }
  return absl::OkStatus();
}

}  // namespace

Status CheckKnownSizes(PreparedGraph& prepared) {
  const std::vector<bool>& is_index = prepared.graph.is_index_symbol;
  if (std::any_of(is_index.begin(), is_index.end(), [](bool index) { return !index; })) {
    return absl::OkStatus();
  }
  StatusOr<graph::FlatGraph> flat =
      graph::Flatten(prepared.graph, graph::SymbolValues(prepared.graph.symbols.size(), 0));
  if (!flat.ok() || !CheckExtents(prepared, *flat).ok()) {
    return absl::OkStatus();  // The run reports it.
  }
  HPVMD_RETURN_IF_ERROR(CheckLaunches(prepared, *flat));
  HPVMD_RETURN_IF_ERROR(CheckFits(prepared, *flat));
  prepared.flat = std::make_unique<graph::FlatGraph>(*std::move(flat));
  return absl::OkStatus();
}

}  // namespace hpvm::engine
