// SPDX-License-Identifier: Apache-2.0
// A graph bound to sizes: all memory allocated, every command written, so that a run only fills in the memory it was
// given.
//
// The plan is made from symbol values: Flatten -> Place -> PlanResidency -> memory and command lists. Memory comes in
// arenas, one a space, in as few pieces as the space's devices allow. A slot of a command list is a piece, or memory
// that a run may exchange: a graph's input or output, or a storage that trades places between repetitions. Each device
// has one table from slot to its Buffer; the entries of inputs and outputs are replaced by each run with imports of
// the caller's memory.
//
// The tag of a dispatch (DispatchCommand::node) is the index of its task.
#ifndef HPVMD_ENGINE_PLAN_H_
#define HPVMD_ENGINE_PLAN_H_

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "backends/contract/device.h"
#include "base/lane.h"
#include "base/status.h"
#include "engine/costs.h"
#include "engine/device_memory.h"
#include "engine/memory/host_memory.h"
#include "engine/plan_review.h"
#include "graph/flatten.h"
#include "graph/graph.h"
#include "scheduler/placement/placement.h"
#include "scheduler/residency/residency.h"

namespace hpvm::engine {

class PreparedGraph;

// Where a storage is, as commands name it.
struct SlotView {
  SlotIndex slot = 0;
  uint64_t offset = 0;
};

// The caller's memory of one graph port as one device sees it.
struct PortImport {
  uint32_t port = 0;  // The root's.
  uint32_t device = 0;
  SlotIndex slot = 0;
  uint64_t bytes = 0;
  uint8_t* data = nullptr;           // What `buffer` was made from,
  const HostBlock* block = nullptr;  // and where that lay; the buffer holds it.
  std::unique_ptr<Buffer> buffer;
};

// A kernel scalar that comes from a rank-0 input.
struct ScalarSource {
  uint32_t slot = 0;  // In Plan::scalars.
  uint32_t port = 0;  // The root's.
  graph::ScalarType type = graph::ScalarType::kI32;
};

// One lane of one device that the plan uses, with a timeline of its own. Submissions of a queue run one after another.
struct PlanQueue {
  uint32_t device = 0;
  Lane lane = Lane::kCompute;
  std::unique_ptr<Timeline> timeline{};
  uint64_t base = 0;  // Its value before the next stage; the run moves it on.
};

// Values count from the queue's base at the beginning of the stage.
struct PlanWait {
  uint32_t queue = 0;
  uint64_t value = 0;
};

// An extent that is known when the launch begins only, of a device that does not read it itself. The segment's waits
// cover the step that brings the value to host memory; who runs the plan reads it there and puts it into the command
// before submitting it.
struct LateExtent {
  uint32_t command = 0;  // In the segment's list; a DispatchCommand.
  uint32_t dimension = 0;
  uint32_t device = 0;  // buffers[device][slot]->host() + offset: little-endian and unsigned.
  SlotIndex slot = 0;
  uint64_t offset = 0;
  uint32_t bytes = 4;  // 4 or 8.
  uint64_t limit = 0;  // More fails the run with kAborted.
};

struct PlanSegment {
  uint32_t queue = 0;  // In Plan::queues.
  CommandList commands;
  std::vector<PlanWait> waits;
  uint64_t signal = 0;  // On the queue's timeline; counts as PlanWait::value.
  std::string note;     // Where a driver runs it: which nodes, and where.
  std::vector<LateExtent> late;
};

// Segments that are run together, in order.
struct PlanStage {
  uint32_t first_segment = 0, segment_count = 0;
  std::vector<uint64_t> steps;  // By queue: how far the stage moves it on.
  // Of one pass: between host memory and devices' own; to and from the spill file.
  uint64_t moved_bytes = 0, spilled_bytes = 0;
};

struct HostOutput {
  uint32_t port = 0;  // The root's.
  uint32_t device = 0;
  SlotIndex slot = 0;  // buffers[device][slot]->host() + offset is the data.
  uint64_t offset = 0;
};

// How long each step of making a plan took.
struct PlanTimes {
  Duration flatten{0}, place{0}, residency{0}, memory{0}, commands{0};
};

struct Plan {
  // What it was made for.
  graph::SymbolValues symbols;
  std::vector<scheduler::Carry> carries;
  std::vector<uint32_t> asked_on_host;  // PlanRequest::on_host.
  std::optional<uint32_t> until;  // With carries: the root's port that ends the run. Set by who asked for the plan.
  std::vector<std::vector<uint64_t>>
      input_shapes;  // By the root's port; to recognise a run like the last without solving symbols.
  std::map<std::string, int64_t> given;

  graph::FlatGraph flat;
  std::vector<scheduler::Task> tasks;  // In the order in which they were planned.
  uint64_t fallback_nodes = 0;
  uint64_t estimated_nodes = 0;  // Placed by an estimate: nothing like them was measured.
  Duration makespan{0};          // As planned.
  PlanTimes times;
  // Where values lie, for who goes on without a lost device. Steps only when several devices run something.
  scheduler::Residency residency;
  std::vector<SlotView> views;   // By storage.
  uint64_t temporary_bytes = 0;  // In host memory.

  // Borrowed; the prepared graph's, and where there is one the device of the spill file, which only copies.
  std::vector<Device*> devices;
  std::vector<std::vector<Buffer*>> buffers;  // By device, by slot.
  std::vector<uint8_t*> host_of_slot;         // In `host`; null elsewhere; may be shorter.
  std::vector<PortImport> imports;
  std::vector<uint64_t> scalars;
  std::vector<ScalarSource> scalar_sources;
  std::vector<PlanSegment> segments;
  std::vector<PlanQueue> queues;
  // Once before the first repetition, each time, once after the last. Without carries all is in `body`. Segments wait
  // only for others of their stage: who runs a stage lets it begin after the one before.
  PlanStage prologue, body, epilogue;
  // Between two repetitions these trade places in every device's table; of equal size; no slot twice.
  std::vector<std::pair<SlotIndex, SlotIndex>> swaps;
  // Of PlanRequest::on_host: where the outputs lie in host memory when the body has ended.
  std::vector<HostOutput> on_host;
  std::vector<NodeTiming> timings;  // By task.
  PlanReview review;                // Whoever runs the plan keeps it, and what follows.
  FeedState feed;
  std::vector<std::string> paths;  // Of the first nodes; filled as records are asked for.

  DeviceBytes device_bytes;  // What the buffers below are counted as; gone after them.
  // Owners of what `buffers` points to. Buffers go before the memory they lie in, and imported ones before those that
  // were exported.
  std::vector<HostMemory> host;  // Pieces of the host's arena, and what trades places.
  std::vector<std::unique_ptr<Buffer>> exported, owned;
};

struct PlanRequest {
  graph::SymbolValues symbols{};
  std::vector<scheduler::Carry> carries{};  // Not empty: for repetitions that hand values on.
  uint32_t repeat = 1;              // So many repetitions, with `carries`; others may come later, by the same plan.
  std::vector<uint32_t> on_host{};  // The root's outputs that the run reads on the host after every body.
  // Copied, if not null, instead of flattening the graph: what remains of a run. Its inputs may be more than the root's
  // ports.
  const graph::FlatGraph* flat = nullptr;
  const std::vector<scheduler::Task>* tasks = nullptr;  // Copied, if not null, instead of placing nodes anew.
  static constexpr uint32_t kAnyDevice = 0xffffffffu;
  uint32_t only_device = kAnyDevice;  // Where every node runs that can, whatever that costs.
  uint64_t host_bytes_held = 0;       // Host memory that the run has besides; so much less is left for temporaries.
  bool has_whole_shares = false;      // Of a split launch each device runs one piece.
  bool may_pin = false;  // Some launches may run where they are measured rather than where they are quickest.
};

// kInvalidArgument, kFailedPrecondition, kResourceExhausted (temporaries against device memory), each naming the node
// where there is one; kUnavailable when a device is lost (PreparedGraph::unavailable). Called by whose turn it is to
// run: takes back the sharing of memory that a driver refuses.
StatusOr<std::unique_ptr<Plan>> BuildPlan(PreparedGraph& prepared, PlanRequest request);
// New timelines for every queue that the plan uses: at first, and after a failure, which poisons them.
Status ResetTimelines(Plan& plan);
// Where a storage lies before anything has traded places, until the plan goes; null: in no memory of the plan's that
// the host sees.
uint8_t* HostAddress(const Plan& plan, scheduler::StorageId storage);
// What runs a task.
const Executable& ExecutableOf(const PreparedGraph& prepared, const Plan& plan, uint32_t task);

}  // namespace hpvm::engine

#endif  // HPVMD_ENGINE_PLAN_H_
