// SPDX-License-Identifier: Apache-2.0
// Writes the engine's knowledge of costs into a message.
#ifndef HPVMD_EXECUTOR_COST_LIST_H_
#define HPVMD_EXECUTOR_COST_LIST_H_

#include <cstdint>
#include <map>
#include <memory>

#include "engine/engine.h"
#include "proto/internal/protocol.h"

namespace hpvm::executor {

// Describes the costs of these graphs, by handle: as many kernels as fit (kCostsMax, kCostsHeadBytesMax); sets `more`
// when there are others.
void DescribeCosts(const engine::Engine& engine,
                   const std::map<uint64_t, std::shared_ptr<engine::PreparedGraph>>& graphs, internal::Costs* costs);

}  // namespace hpvm::executor

#endif  // HPVMD_EXECUTOR_COST_LIST_H_
