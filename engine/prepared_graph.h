// SPDX-License-Identifier: Apache-2.0
// A graph with its kernels compiled and loaded, and the plans of its last runs. Callers of the engine hold it as an
// opaque handle.
#ifndef HPVMD_ENGINE_PREPARED_GRAPH_H_
#define HPVMD_ENGINE_PREPARED_GRAPH_H_

#include <condition_variable>
#include <cstdint>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "backends/contract/device.h"
#include "engine/device_memory.h"
#include "engine/engine.h"
#include "engine/memory/host_memory.h"
#include "engine/plan.h"
#include "graph/graph.h"
#include "scheduler/placement/placement.h"

namespace hpvm::engine {

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
  std::unique_ptr<GraphCosts> costs;     // Never null once the engine has prepared it.
  // EngineOptions: what plans may hold; 0: what there is. The spill device only copies; shared, as a graph may outlive
  // the engine; null: none.
  uint64_t host_bytes_max = 0, device_bytes_max = 0;
  std::shared_ptr<Device> spill;
  std::shared_ptr<HostPool> host_pool;   // The engine's, shared likewise; null: none.
  std::shared_ptr<DeviceMemory> memory;  // The engine's; shared, as a graph may outlive it. Null: nothing is counted.
  // Some devices have one space because one imports the other's memory. Taken back, with new spaces, when a driver
  // turns out not to do what it says: whoever runs may then change this and the spaces in `facts`.
  bool shares_memory = false;
  // By device: it runs nothing any more; shorter: the others are there. Changed by whoever runs.
  std::vector<bool> is_lost;

  // Of graphs that have one size only, until a plan takes it; by whose turn it is to run.
  std::unique_ptr<graph::FlatGraph> flat;

  // One run at a time: whoever sets `is_running` owns `plans` until it clears it and notifies `idle`.
  std::mutex mutex;
  std::condition_variable idle;
  bool is_running = false;                   // Guarded by mutex.
  std::list<const void*> waiting;            // Guarded by mutex: who wants to run, the first to come first.
  std::vector<std::unique_ptr<Plan>> plans;  // The last used first; at most kPlansMax.
  DeviceShortage shortage;                   // What the last plan that could not be built lacked.
  std::optional<uint32_t> unavailable;       // The device whose loss kept that plan from being built.
};

// Plans hold their temporaries, so only a few sizes are remembered.
inline constexpr size_t kPlansMax = 4;

}  // namespace hpvm::engine

#endif  // HPVMD_ENGINE_PREPARED_GRAPH_H_
