// SPDX-License-Identifier: Apache-2.0
// What can be said of a graph's sizes before it runs.
#ifndef HPVMD_ENGINE_PLAN_CHECK_H_
#define HPVMD_ENGINE_PLAN_CHECK_H_

#include "base/status.h"
#include "engine/prepared_graph.h"

namespace hpvm::engine {

// For graphs whose sizes do not depend on what they are bound to: kResourceExhausted or kFailedPrecondition, with node
// and sizes, when some launch fits no device that may run it. Grants are not looked at, as they change. Keeps the flat
// graph for the first plan. Others pass: the first run looks.
Status CheckKnownSizes(PreparedGraph& prepared);

}  // namespace hpvm::engine

#endif  // HPVMD_ENGINE_PLAN_CHECK_H_
