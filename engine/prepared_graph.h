// SPDX-License-Identifier: Apache-2.0
// A graph with its kernels compiled and loaded, and the plans of its last runs. For callers of the engine it is an
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
  std::vector<Device*> devices;                               // Borrowed: EngineOptions::devices, or only its checker.
  bool is_checked = false;                                    // Runs look for races and similar faults.
  std::vector<scheduler::DeviceFacts> facts;                  // Indexed by device.
  std::vector<std::vector<scheduler::Candidate>> candidates;  // Indexed by NodeId; leaves only.
  std::vector<std::vector<Executable*>> executables;          // Parallel to `candidates`; borrowed from `loaded`.
  std::vector<std::unique_ptr<Executable>> loaded;
  std::unique_ptr<GraphCosts> costs;  // Never null after the engine has prepared the graph.
  // Limits on plans, from EngineOptions; 0 means the available memory. The spill device only copies; it is shared,
  // because a graph may outlive the engine, and null when there is none.
  uint64_t host_bytes_max = 0, device_bytes_max = 0;
  std::shared_ptr<Device> spill;
  std::shared_ptr<HostPool> host_pool;   // The engine's, shared for the same reason; null when there is none.
  std::shared_ptr<DeviceMemory> memory;  // The engine's, shared for the same reason. Null when memory is not counted.
  // Some devices have one space, because one imports the other's memory. When a driver turns out not to support that,
  // the thread that runs the graph clears this and changes the spaces in `facts`.
  bool shares_memory = false;
  // Indexed by device: true when it runs nothing any more; may be shorter. The thread that runs the graph changes it.
  std::vector<bool> is_lost;
  // Indexed by device: true when new runs start nothing there, as the grants required when the last run began.
  // Changed likewise.
  std::vector<bool> is_closed;

  // For graphs with a single size, until a plan takes it; accessed by the thread that has the turn to run.
  std::unique_ptr<graph::FlatGraph> flat;

  // One run at a time: the thread that sets `is_running` owns `plans` until it clears it and notifies `idle`.
  std::mutex mutex;
  std::condition_variable idle;
  bool is_running = false;                   // Guarded by mutex.
  std::list<const void*> waiting;            // The runs that wait, in order of arrival. Guarded by mutex.
  std::vector<std::unique_ptr<Plan>> plans;  // Ordered by last use, most recent first; at most kPlansMax.
  DeviceShortage shortage;                   // The memory that the last plan that could not be built lacked.
  std::optional<uint32_t> unavailable;       // The device whose loss prevented that plan.
};

// Plans hold their temporaries, so only a few sizes are remembered.
inline constexpr size_t kPlansMax = 4;

}  // namespace hpvm::engine

#endif  // HPVMD_ENGINE_PREPARED_GRAPH_H_
