// SPDX-License-Identifier: Apache-2.0
#include "supervisor/executor_hub.h"

#include <utility>

namespace hpvm::supervisor {

StatusOr<std::unique_ptr<ExecutorHub>> ExecutorHub::Create() {
  HPVMD_ASSIGN_OR_RETURN(std::unique_ptr<EventHub> events, EventHub::Create());
  return std::unique_ptr<ExecutorHub>(new ExecutorHub(std::move(events)));
}

void ExecutorHub::SpawnAndWait(const std::function<void()>& work) {
  AwaitPosted([this](std::function<void()> posted) { spawns_.PostOnce("", std::move(posted)); }, work);
}

}  // namespace hpvm::supervisor
