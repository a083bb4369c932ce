// SPDX-License-Identifier: Apache-2.0
// Checks a graph's sizes before it runs.
#ifndef HPVMD_ENGINE_PLAN_CHECK_H_
#define HPVMD_ENGINE_PLAN_CHECK_H_

#include "base/status.h"
#include "engine/prepared_graph.h"

namespace hpvm::engine {

// For graphs whose sizes do not depend on bindings: fails with kResourceExhausted or kFailedPrecondition, with node
// and sizes, when some launch fits no device that may run it. Ignores grants, because they change. Keeps the flat
// graph for the first plan. Other graphs pass, and their first run checks the sizes.
Status CheckKnownSizes(PreparedGraph& prepared);

}  // namespace hpvm::engine

#endif  // HPVMD_ENGINE_PLAN_CHECK_H_
