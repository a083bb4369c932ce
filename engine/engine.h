// SPDX-License-Identifier: Apache-2.0
// Prepares a graph once and runs it many times: combines graph, compiler, scheduler and backends in one process.
//
// Prepare parses and validates the document, has the compiler compile every (module, entry, parameters) that it
// names, loads the artifacts on the devices that may run them, and returns a summary. Run solves symbols from the
// bound shapes; the first run with given sizes builds a plan (placement, buffers, segments: maximal runs on one
// device, each a prepared command list), which later runs with equal sizes reuse.
//
// Memory: devices that work in host memory use bound inputs and outputs in place. Inputs are never written and may
// share memory; an output that shares a byte with another port is refused. A run's temporaries belong to its plan.
//
// Streaming graphs: Run takes one item from every input and gives one to every output; the caller loops.
//
// Threads: all methods are thread-safe. Runs of one prepared graph are serialised; different graphs run in parallel.
#ifndef HPVMD_ENGINE_ENGINE_H_
#define HPVMD_ENGINE_ENGINE_H_

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "backends/contract/device.h"
#include "backends/contract/host_block.h"
#include "backends/contract/launch_log.h"
#include "base/clock.h"
#include "base/diagnostic.h"
#include "base/hash.h"
#include "base/status.h"
#include "compiler/api/service.h"
#include "engine/costs.h"
#include "engine/device_memory.h"
#include "graph/parse.h"
#include "hpvm/element_type.h"

namespace hpvm::engine {

struct EngineOptions {
  std::vector<Device*> devices{};  // Borrowed; in order of preference among equal devices.
  Device* checker = nullptr;       // Borrowed; runs every node of a checked graph. Null when no graph can be checked.
  Hub* hub = nullptr;              // Borrowed.
  CompilerService* compiler = nullptr;  // Borrowed.
  const Clock* clock = nullptr;         // Borrowed.
  graph::Limits graph_limits{};
  std::vector<DeviceMemory::Limits> device_limits{};  // Indexed by device; devices beyond its end have no limits.
  // Indexed by device, may be shorter: a sentence that says why the device does not run code from our emitters; empty
  // when it does. Modules that were written for the device are not affected.
  std::vector<std::string> emitted_refusals{};
  // Limit on temporaries of one graph in host memory; the rest goes to the spill file. 0 means half of the machine's
  // memory.
  uint64_t host_bytes_max = 0;
  // Limit for one graph on one device, below the limits of the device and the grant; 0 means only those limits.
  uint64_t device_bytes_max = 0;
  // A file for temporaries that fit nowhere else; borrowed, -1 when there is none. Accessed only by offset, and never
  // longer than spill_bytes_max.
  int spill_fd = -1;
  uint64_t spill_bytes_max = 0;
  // Measures the copies to and from devices in the first run that may use a device (a few milliseconds each), unless
  // its facts contain the speeds.
  bool measures_transfers = false;
};

// An output of one repetition that is an input of the next.
struct Rotation {
  std::string output, input;
};

// Device memory that a driver refused; other holders may be able to release some.
struct DeviceShortage {
  std::string device;  // The device's id; empty when nothing was short.
  uint64_t bytes = 0;  // Size of the buffer that did not fit.
};

// Provides the bytes of modules that the document names by file or hash. The executor holds the modules that the
// daemon sent.
class ModuleSource {
 public:
  virtual ~ModuleSource() = default;
  // Returns the module's bytes, valid while the source lives, or kNotFound with the module's name. Files are found by
  // the module's name in the graph, hashes by the hash.
  virtual StatusOr<std::span<const uint8_t>> Find(const graph::Module& module) = 0;
  // Returns a memfd of sealed size with exactly the bytes that Find returned, as compilers receive them; -1 when
  // there is none, and each compile creates one. The source owns the descriptor.
  virtual int MemfdOf(const graph::Module& module) {
    (void)module;
    return -1;
  }
};

struct PortSummary {
  std::string name;
  ElementType type = ElementType::kF32;
  std::vector<std::string> shape;  // Expressions, as written.
};

inline constexpr size_t kFastNodesNamedMax = 100;  // Enough for people; a summary must fit in one message.

struct GraphSummary {
  std::string name;
  std::vector<PortSummary> inputs, outputs;
  std::vector<std::string> symbols;
  uint64_t leaf_nodes = 0, internal_nodes = 0, edges = 0;
  std::vector<std::string> devices;  // Ids of devices that may run at least one node.
  // Sets of devices, as bits by index in EngineOptions::devices: at least one device of each set must be present.
  // Contains no superset of another set; empty for checked graphs.
  std::vector<uint32_t> needs;
  bool streaming = false;
  // Names of leaves that some device runs with fast math, with the names of enclosing nodes ("outer/blur"); at most
  // kFastNodesNamedMax.
  std::vector<std::string> fast_math_nodes;
  // Leaves of modules that were written for the devices that may run them, named in the same way; at most
  // kFastNodesNamedMax.
  struct NativeNode {
    std::string name, module;  // `module` is the module's name in the document.
    std::vector<std::string> devices;
  };
  std::vector<NativeNode> native_nodes;
  // Duration of each phase.
  Duration parse{0}, compile{0}, load{0};
  uint32_t compiled = 0, from_cache = 0;
};

struct PrepareOptions {
  // Compiles every node for the checker, which runs it, whatever the document allows; each run then looks for races,
  // uninitialised reads and similar faults (RunLog::findings). Much slower.
  bool check = false;
  // Receives the ids of devices that returned kUnavailable: they are lost to this process. Optional.
  std::vector<std::string>* lost_devices = nullptr;
  // A nonzero value ends Prepare soon with kCancelled. Optional.
  const std::atomic<uint32_t>* stop = nullptr;
  // Receives the CPU time of the compiler's processes, even when Prepare fails. Optional.
  Duration* compile_cpu = nullptr;
};

class HostPool;
class PreparedGraph;  // Defined in engine/prepared_graph.h; opaque to callers.

struct PrepareOutcome {
  Diagnostics diagnostics;               // With errors, `graph` is null.
  std::shared_ptr<PreparedGraph> graph;  // Shared, because a running job outlives the release of the handle.
  GraphSummary summary;
};

// The memory bound to a graph port for one run. Host memory, borrowed until Run returns; host-visible devices use it
// in place.
struct Binding {
  ElementType type = ElementType::kF32;
  std::vector<uint64_t> shape;
  uint8_t* data = nullptr;
  uint64_t bytes = 0;
  // The block that contains `data`, when it stays mapped for many runs: devices may pin it. Plans keep the block; its
  // owner must close it before unmapping the memory.
  std::shared_ptr<HostBlock> block{};
};

enum class Phase : uint8_t { kBind, kCopyIn, kRun, kCopyOut };

struct NodeRecord {
  std::string path;      // "outer[3]/blur".
  std::string device;    // "cpu:0".
  int64_t start_ns = 0;  // From the start of the run, in the last repetition.
  int64_t end_ns = 0;
  int64_t total_ns = 0;  // Total time of the `runs` repetitions that ended since the plan began to run.
  uint32_t runs = 0;
  std::string variant;       // The kernel variant that ran last (compiler/api/variant_text.h); empty when unknown.
  bool fast_math = false;    // Compiled with "math": "fast", by a device that supports it.
  bool is_estimate = false;  // Placed by an estimate: no similar launch had been measured before.
  // For a node that was split over devices: the range of instances along its slowest dimension; 0, 0 means all.
  uint64_t first = 0, count = 0;
  std::string_view whole;  // Reason why a long node was not split, when a split was considered (scheduler::Name); a
                           // string literal.
};

// The printed lines and the findings of a run's kernels. backends/contract/launch_log.h limits their number.
struct RunLog {
  struct Line {
    std::string node;  // The node's path.
    std::array<uint64_t, 3> instance{};
    std::string text;  // Any bytes except line ends.
  };
  struct Found {
    std::string node;
    Finding finding;
  };
  std::vector<Line> lines;
  uint64_t lines_dropped = 0;
  std::vector<Found> findings;  // For checked graphs.
  uint64_t findings_dropped = 0;
  bool check_incomplete = false;  // The check's record ran out of memory, so some faults may have been missed.
};

// Memory for an output.
struct OutputMemory {
  OutputMemory() = default;
  OutputMemory(uint8_t* where) : data(where) {}  // NOLINT: accepts any memory.
  OutputMemory(uint8_t* where, std::shared_ptr<HostBlock> in) : data(where), block(std::move(in)) {}
  uint8_t* data = nullptr;
  std::shared_ptr<HostBlock> block{};  // See Binding::block.
};

struct RunRequest {
  std::map<std::string, Binding> inputs{};
  // Memory for outputs: every output must be bound, with exactly its size in bytes (see OutputShapes), unless
  // `allocate_output` is set.
  std::map<std::string, Binding> outputs{};
  // Called for outputs that are not bound; returns memory of that size, zeroed or not, valid until Run returns.
  std::function<StatusOr<OutputMemory>(const std::string& name, ElementType type, const std::vector<uint64_t>& shape,
                                       uint64_t bytes)>
      allocate_output{};
  std::map<std::string, int64_t> symbols{};
  uint32_t repeat = 1;  // Number of runs of the graph, with the same inputs except for rotations.
  // Applied between repetitions, simultaneously. kInvalidArgument when types or shapes differ, or a port is named
  // twice.
  std::vector<Rotation> rotations{};
  // Name of an output with one element: a nonzero value after a repetition ends the run. Empty for none.
  std::string until{};
  const std::atomic<uint32_t>* stop = nullptr;  // A nonzero value ends the run soon with kCancelled. Optional.
  // When RunResult::device_time, summed over all devices, exceeds this after a repetition, the run ends with
  // kResourceExhausted. 0 means no limit.
  Duration device_time_max{0};
  bool* over_device_time = nullptr;  // Set to true when the run fails because of device_time_max. Optional.
  Time deadline = kNever;            // Checked between segments; callers set `stop` for kernels in flight.
  // When false, the run uses the best plan known, as it also does when its deadline is near. Otherwise the run may
  // try whether another plan is better.
  bool may_experiment = true;
  uint32_t node_records_max = 1000;  // Further nodes are only counted.
  // Receives each line when a kernel prints it, or when its launch ends on devices that return lines only then; at
  // most as many lines as a log holds. Requires `log`. The printing threads call it, one at a time; it must be quick.
  // Optional.
  std::function<void(const RunLog::Line&)> on_line{};
  RunLog* log = nullptr;  // Filled when the run ends, even when it fails. Optional.
  // Receives the id of the device whose kUnavailable failed the run: it is lost to this process. Optional.
  std::vector<std::string>* lost_devices = nullptr;
  // Receives what a driver refused when that fails the run with kResourceExhausted. Optional.
  DeviceShortage* shortage = nullptr;
};

struct RunResult {
  std::map<std::string, Binding> outputs;  // As bound or allocated, with shapes.
  Duration bind{0}, copy_in{0}, run{0}, copy_out{0};
  std::vector<NodeRecord> nodes;
  uint64_t nodes_run = 0;
  uint32_t repetitions = 0;    // Number of repetitions that ran; fewer than requested when `until` ended the run.
  bool is_converged = false;   // True when `until` ended the run.
  uint64_t moved_bytes = 0;    // Bytes moved between host memory and devices.
  uint64_t spilled_bytes = 0;  // Bytes moved to and from the spill file.
  uint32_t lost_devices = 0;   // Number of devices that failed while the run continued without them.
  // Indexed as EngineOptions::devices: time in which the device ran the run's nodes, by its own clock; at most `run`.
  std::vector<Duration> device_time;
};

class Engine {
 public:
  explicit Engine(EngineOptions options);
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  // Returns an error status only for external failures (compiler gone, deadline, cancelled), for limits
  // (kResourceExhausted: a compile exceeded this server's limits) and for missing devices or features
  // (kFailedPrecondition names the nodes that no device may run; also for a check without a checker). Faults of the
  // graph and its modules are in the diagnostics, beside warnings (a node that only the interpreter runs). Compiles
  // at most four modules at a time.
  //
  // An emulated device runs a node only when no real device accepts it, or when the document names the emulated
  // device; a failed or slow compile for a real device is not a reason (docs/SCHEDULING.md).
  StatusOr<PrepareOutcome> Prepare(std::string_view document, ModuleSource& modules, Time deadline,
                                   const PrepareOptions& prepare = {});

  // Returns shapes and types of the outputs for given inputs, without running, for callers that provide the memory.
  StatusOr<std::map<std::string, Binding>> OutputShapes(PreparedGraph& graph,
                                                        const std::map<std::string, Binding>& inputs,
                                                        const std::map<std::string, int64_t>& symbols);

  // Fails with kInvalidArgument for bindings that do not fit (naming port, value, limit), kAborted for traps (node,
  // instance, reason), kCancelled, kDeadlineExceeded, kFailedPrecondition when no device may run a node,
  // kResourceExhausted, kUnavailable when a device is lost (node, device).
  StatusOr<RunResult> Run(PreparedGraph& graph, const RunRequest& request);

  // Returns the costs of kernels and transfers: see ListKernels and ListTransfers.
  const CostStore& costs() const { return *costs_; }

  std::vector<DeviceInfo> devices() const;
  DeviceMemory& device_memory() { return *memory_; }
  // Makes graphs that do not run release memory of EngineOptions::devices[device] until at most `bytes_max` are held.
  void ReclaimDevice(uint32_t device, uint64_t bytes_max) { memory_->Reclaim(*options_.devices[device], bytes_max); }

 private:
  EngineOptions options_;
  const std::shared_ptr<DeviceMemory> memory_;  // Both this and costs_ are shared with graphs, which may outlive the
                                                // engine.
  const std::shared_ptr<CostStore> costs_;
  const std::shared_ptr<HostPool> host_pool_;
  const StatusOr<std::shared_ptr<Device>> spill_;  // Null without a spill file; shared for the same reason as
                                                   // memory_.
};

}  // namespace hpvm::engine

#endif  // HPVMD_ENGINE_ENGINE_H_
