// SPDX-License-Identifier: Apache-2.0
// A graph bound to sizes: all memory is allocated and every command written, so that a run only fills in the memory
// that it was given.
//
// A plan is made from symbol values: Flatten -> Place -> PlanResidency -> memory and command lists. Memory comes in
// arenas, one per space, in as few pieces as the space's devices allow. A slot of a command list is a piece, or
// memory that a run may exchange: an input or output of the graph, or a storage that trades places between
// repetitions. Each device has one table from slot to its Buffer; each run replaces the entries of inputs and outputs
// by imports of the caller's memory.
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

// The location of a storage, as commands name it.
struct SlotView {
  SlotIndex slot = 0;
  uint64_t offset = 0;
};

// The caller's memory of one graph port, as one device sees it.
struct PortImport {
  uint32_t port = 0;  // The root's port.
  uint32_t device = 0;
  SlotIndex slot = 0;
  uint64_t bytes = 0;
  uint8_t* data = nullptr;           // The memory that `buffer` was made from,
  const HostBlock* block = nullptr;  // and the block that contained it; the buffer holds the block.
  std::unique_ptr<Buffer> buffer;
};

// A kernel scalar that comes from a rank-0 input.
struct ScalarSource {
  uint32_t slot = 0;  // Index in Plan::scalars.
  uint32_t port = 0;  // The root's port.
  graph::ScalarType type = graph::ScalarType::kI32;
};

// One lane of one device that the plan uses, with a timeline of its own. Submissions of a queue run in order.
struct PlanQueue {
  uint32_t device = 0;
  Lane lane = Lane::kCompute;
  std::unique_ptr<Timeline> timeline{};
  uint64_t base = 0;  // The timeline's value before the next stage; the run advances it.
};

// Values count from the queue's base at the beginning of the stage.
struct PlanWait {
  uint32_t queue = 0;
  uint64_t value = 0;
};

// An extent that is known only when the launch begins, for a device that does not read it itself. The segment's waits
// cover the step that brings the value to host memory; the runner of the plan reads it there and writes it to the
// command before submitting it.
struct LateExtent {
  uint32_t command = 0;  // Index of a DispatchCommand in the segment's list.
  uint32_t dimension = 0;
  uint32_t device = 0;  // The value is at buffers[device][slot]->host() + offset, little-endian and unsigned.
  SlotIndex slot = 0;
  uint64_t offset = 0;
  uint32_t bytes = 4;  // 4 or 8.
  uint64_t limit = 0;  // A larger value fails the run with kAborted.
};

struct PlanSegment {
  uint32_t queue = 0;  // Index in Plan::queues.
  CommandList commands;
  std::vector<PlanWait> waits;
  uint64_t signal = 0;  // Value on the queue's timeline; counts as PlanWait::value does.
  std::string note;     // When a driver runs it: the nodes and the device, for messages.
  std::vector<LateExtent> late;
};

// Segments that run together, in order.
struct PlanStage {
  uint32_t first_segment = 0, segment_count = 0;
  std::vector<uint64_t> steps;  // Indexed by queue: the number by which the stage advances it.
  // Bytes of one pass: between host memory and devices' own memory; to and from the spill file.
  uint64_t moved_bytes = 0, spilled_bytes = 0;
};

struct HostOutput {
  uint32_t port = 0;  // The root's port.
  uint32_t device = 0;
  SlotIndex slot = 0;  // The data is at buffers[device][slot]->host() + offset.
  uint64_t offset = 0;
};

// Duration of each step of making a plan.
struct PlanTimes {
  Duration flatten{0}, place{0}, residency{0}, memory{0}, commands{0};
};

struct Plan {
  // The arguments for which the plan was made.
  graph::SymbolValues symbols;
  std::vector<scheduler::Carry> carries;
  std::vector<uint32_t> asked_on_host;  // PlanRequest::on_host.
  std::optional<uint32_t> until;  // With carries: the root's port that ends the run. The caller that requested the
                                  // plan sets it.
  std::vector<std::vector<uint64_t>> input_shapes;  // Indexed by the root's port; serves to recognise a run like the
                                                    // last one without solving symbols.
  std::map<std::string, int64_t> given;

  graph::FlatGraph flat;
  std::vector<scheduler::Task> tasks;  // In planning order.
  uint64_t fallback_nodes = 0;
  uint64_t estimated_nodes = 0;  // Placed by an estimate: no similar node was measured.
  Duration makespan{0};          // The planned duration.
  PlanTimes times;
  // The locations of values, for a run that continues without a lost device. Has steps only when several devices run
  // something.
  scheduler::Residency residency;
  std::vector<SlotView> views;   // Indexed by storage.
  uint64_t temporary_bytes = 0;  // In host memory.

  // Borrowed from the prepared graph; includes the device of the spill file, if any, which only copies.
  std::vector<Device*> devices;
  std::vector<std::vector<Buffer*>> buffers;  // Indexed by device, then by slot.
  std::vector<uint8_t*> host_of_slot;         // Addresses in `host`, null for other slots; may be shorter.
  std::vector<PortImport> imports;
  std::vector<uint64_t> scalars;
  std::vector<ScalarSource> scalar_sources;
  std::vector<PlanSegment> segments;
  std::vector<PlanQueue> queues;
  // The prologue runs once before the first repetition, the body in each one, the epilogue once after the last.
  // Without carries all is in `body`. Segments wait only for others of their stage: the runner starts a stage after
  // the previous one.
  PlanStage prologue, body, epilogue;
  // Pairs that trade places in every device's table between two repetitions; of equal size; no slot occurs twice.
  std::vector<std::pair<SlotIndex, SlotIndex>> swaps;
  // For PlanRequest::on_host: the locations of the outputs in host memory when the body has ended.
  std::vector<HostOutput> on_host;
  std::vector<NodeTiming> timings;  // Indexed by task.
  PlanReview review;                // The runner of the plan maintains this and the following members.
  FeedState feed;
  std::vector<std::string> paths;  // Paths of the first nodes; filled when records are requested.

  DeviceBytes device_bytes;  // Accounts for the buffers below, which are destroyed first.
  // Owners of the targets of `buffers`. Buffers are destroyed before the memory that contains them, and imported
  // buffers before exported ones.
  std::vector<HostMemory> host;  // Pieces of the host's arena, and storages that trade places.
  std::vector<std::unique_ptr<Buffer>> exported, owned;
};

struct PlanRequest {
  graph::SymbolValues symbols{};
  std::vector<scheduler::Carry> carries{};  // When not empty, the plan is for repetitions that hand values on.
  uint32_t repeat = 1;  // Number of repetitions, with `carries`; later calls may run the same plan more often.
  std::vector<uint32_t> on_host{};  // The root's outputs that the host reads after every body.
  // If not null, copied instead of flattening the graph: the remainder of a run. It may have more inputs than the
  // root has ports.
  const graph::FlatGraph* flat = nullptr;
  const std::vector<scheduler::Task>* tasks = nullptr;  // If not null, copied instead of placing nodes anew.
  static constexpr uint32_t kAnyDevice = 0xffffffffu;
  uint32_t only_device = kAnyDevice;  // Runs every node that it can run, at any cost.
  uint64_t host_bytes_held = 0;       // Host memory that the run holds besides; it reduces the space for temporaries.
  bool has_whole_shares = false;      // Each device runs one piece of a split launch.
  bool may_pin = false;  // Some launches may run where they will be measured instead of where they are quickest.
};

// Fails with kInvalidArgument, kFailedPrecondition or kResourceExhausted (temporaries exceed device memory), each
// naming the node where there is one, or with kUnavailable when a device is lost (PreparedGraph::unavailable). The
// caller has the turn to run the graph, because this function may stop sharing memory that a driver refuses to share.
StatusOr<std::unique_ptr<Plan>> BuildPlan(PreparedGraph& prepared, PlanRequest request);
// Creates timelines for every queue that the plan uses: initially, and after a failure, which poisons them.
Status ResetTimelines(Plan& plan);
// Returns the address of a storage before any storage has traded places, valid as long as the plan; null when the
// storage is in no memory of the plan that the host sees.
uint8_t* HostAddress(const Plan& plan, scheduler::StorageId storage);
// Returns the executable that runs a task.
const Executable& ExecutableOf(const PreparedGraph& prepared, const Plan& plan, uint32_t task);

}  // namespace hpvm::engine

#endif  // HPVMD_ENGINE_PLAN_H_
