// SPDX-License-Identifier: Apache-2.0
// A graph bound to sizes: every buffer allocated, every command written, so that a run only fills in the memory it was
// given.
//
// The plan is made from symbol values: Flatten -> Place -> PlanResidency -> memory and command lists. Slots in command
// lists are storages (scheduler/residency.h); each device has one table from slot to its Buffer. Temporaries in host
// memory are views of one mapping; the entries of graph inputs and outputs are replaced by each run with imports of the
// caller's memory.
#ifndef HPVMD_ENGINE_PLAN_H_
#define HPVMD_ENGINE_PLAN_H_

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "backends/device.h"
#include "base/status.h"
#include "engine/device_memory.h"
#include "graph/flatten.h"
#include "graph/graph.h"
#include "scheduler/placement.h"
#include "scheduler/residency.h"

namespace hpvm {

class PreparedGraph;

// Anonymous memory, zero when first touched.
class HostMemory {
 public:
  HostMemory() = default;
  static StatusOr<HostMemory> Map(uint64_t bytes);
  HostMemory(HostMemory&& other) noexcept;
  HostMemory& operator=(HostMemory&& other) noexcept;
  ~HostMemory();
  uint8_t* data() const { return data_; }

 private:
  uint8_t* data_ = nullptr;
  uint64_t bytes_ = 0;
};

// The caller's memory of one graph port as one device sees it.
struct PortImport {
  uint32_t port = 0;  // The root's.
  uint32_t device = 0;
  SlotIndex slot = 0;
  uint64_t bytes = 0;
  uint8_t* data = nullptr;  // What `buffer` was made from.
  std::unique_ptr<Buffer> buffer;
};

// A kernel scalar that comes from a rank-0 input.
struct ScalarSource {
  uint32_t slot = 0;  // In Plan::scalars.
  uint32_t port = 0;  // The root's.
  graph::ScalarType type = graph::ScalarType::kI32;
};

// Values on timelines count from the device's value before the run (Plan::timeline_base).
struct PlanWait {
  uint32_t device = 0;
  uint64_t value = 0;
};

struct PlanSegment {
  uint32_t device = 0;
  CommandList commands;
  std::vector<PlanWait> waits;
  uint64_t signal = 0;  // On the device's timeline.
  std::string note;     // Where a driver runs it: which nodes, and where.
};

struct Plan {
  // What it was made for.
  graph::SymbolValues symbols;
  std::vector<std::vector<uint64_t>>
      input_shapes;  // By the root's port; to recognise a run like the last without solving symbols.
  std::map<std::string, int64_t> given;

  graph::FlatGraph flat;
  std::vector<scheduler::Task> tasks;    // In the order in which they were planned.
  std::vector<uint32_t> device_of;       // By flat node.
  std::vector<Executable*> executables;  // By flat node; borrowed from the prepared graph.
  uint64_t fallback_nodes = 0;
  uint64_t temporary_bytes = 0;  // In host memory.

  std::vector<Device*> devices;               // Borrowed; by device index.
  std::vector<std::vector<Buffer*>> buffers;  // By device, by slot.
  std::vector<PortImport> imports;
  std::vector<uint64_t> scalars;
  std::vector<ScalarSource> scalar_sources;
  std::vector<PlanSegment> segments;
  std::vector<std::unique_ptr<Timeline>> timelines;  // By device; null where no segment runs.
  std::vector<uint64_t> timeline_steps;              // By device: how far one run advances it.
  std::vector<uint64_t> timeline_base;               // By device: its value before the next run.
  std::vector<NodeTiming> timings;                   // By flat node.
  std::vector<std::string> paths;                    // Of the first nodes; filled as records are asked for.

  DeviceBytes device_bytes;  // What the buffers below are counted as; gone after them.
  // Owners of what `buffers` points to. Buffers go before the memory they lie in, and imported ones before those that
  // were exported.
  HostMemory host;
  std::vector<std::unique_ptr<Buffer>> exported, owned;
};

// Host memory as a buffer for a device whose own buffers are not host memory: the other side of its copies. Borrows
// `data`.
std::unique_ptr<Buffer> MakeHostView(uint8_t* data, uint64_t bytes);
// kInvalidArgument, kFailedPrecondition, kResourceExhausted (temporaries against device memory), each naming the node
// where there is one. Called by whose turn it is to run: takes back the sharing of memory that a driver refuses.
StatusOr<std::unique_ptr<Plan>> BuildPlan(PreparedGraph& prepared, graph::SymbolValues symbols);
// New timelines for every device that the plan uses: at first, and after a failure, which poisons them.
Status ResetTimelines(Plan& plan);

}  // namespace hpvm

#endif  // HPVMD_ENGINE_PLAN_H_
