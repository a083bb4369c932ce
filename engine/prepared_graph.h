// SPDX-License-Identifier: Apache-2.0
// A graph with its kernels compiled and loaded, and the plans of its last runs. Callers of the engine hold it as an
// opaque handle.
#ifndef HPVMD_ENGINE_PREPARED_GRAPH_H_
#define HPVMD_ENGINE_PREPARED_GRAPH_H_

#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "backends/device.h"
#include "engine/engine.h"
#include "engine/plan.h"
#include "graph/graph.h"
#include "scheduler/placement.h"

namespace hpvm {

class PreparedGraph {
 public:
  // Constant after Prepare.
  graph::Graph graph;
  GraphSummary summary;
  std::vector<Device*> devices;                               // Borrowed: EngineOptions::devices, or its checker alone.
  bool is_checked = false;                                    // Runs look for races and the like.
  std::vector<scheduler::DeviceFacts> facts;                  // By device.
  std::vector<std::vector<scheduler::Candidate>> candidates;  // By NodeId's index; leaves only.
  std::vector<std::vector<Executable*>> executables;          // Beside `candidates`; borrowed from `loaded`.
  std::vector<std::unique_ptr<Executable>> loaded;

  // One run at a time: whoever sets `is_running` owns `plans` until it clears it and notifies `idle`.
  std::mutex mutex;
  std::condition_variable idle;
  bool is_running = false;                   // Guarded by mutex.
  std::vector<std::unique_ptr<Plan>> plans;  // The last used first; at most kPlansMax.
};

// Plans hold their temporaries, so only a few sizes are remembered.
inline constexpr size_t kPlansMax = 4;

}  // namespace hpvm

#endif  // HPVMD_ENGINE_PREPARED_GRAPH_H_
