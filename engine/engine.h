// SPDX-License-Identifier: Apache-2.0
// Prepare a graph once, run it many times: joins graph, compiler, scheduler and backends in one process.
//
// Prepare parses and validates the document, asks the compiler for every (module, entry, parameters) it names, loads
// the artifacts on the devices that may run them, and answers with a summary. Run solves symbols from the bound shapes;
// the first run with given sizes builds a plan (placement, buffers, segments: maximal runs on one device, each a
// ready-made command list) which later runs with equal sizes reuse.
//
// Memory: bound inputs and outputs are used where they are by devices that work in host memory. Inputs are never
// written and may share memory; an output that shares a byte with another port is refused. A run's temporaries belong
// to its plan.
//
// Streaming graphs: Run takes one item on every input and gives one on every output; the caller loops.
//
// Threads: all methods may be called from any thread. Runs of one prepared graph are serialised by it; different graphs
// run in parallel.
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
  std::vector<Device*> devices{};       // Borrowed; in order of preference among equals.
  Device* checker = nullptr;            // Borrowed; runs every node of a checked graph. Null: none can be checked.
  Hub* hub = nullptr;                   // Borrowed.
  CompilerService* compiler = nullptr;  // Borrowed.
  const Clock* clock = nullptr;         // Borrowed.
  graph::Limits graph_limits{};
  std::vector<DeviceMemory::Limits> device_limits{};  // By device; shorter: the others have none.
  // By device, shorter likewise: why it runs no code that our emitters made, a sentence; empty: it does. Modules that
  // were written for the device are not concerned.
  std::vector<std::string> emitted_refusals{};
  // Temporaries of one graph in host memory; what is beyond goes to the spill file. 0: half of the machine's memory.
  uint64_t host_bytes_max = 0;
  // Of one graph on one device, below what the device and the grant allow; 0: those alone.
  uint64_t device_bytes_max = 0;
  // A file for temporaries that fit nowhere else; borrowed, -1: none. Read and written by offset only, and never longer
  // than spill_bytes_max.
  int spill_fd = -1;
  uint64_t spill_bytes_max = 0;
  // How long copies to and from devices take is measured in the first run that may use one (a few milliseconds each),
  // unless its facts say so.
  bool measures_transfers = false;
};

// An output of one repetition that is an input of the next.
struct Rotation {
  std::string output, input;
};

// Device memory that a driver refused: others may hold it.
struct DeviceShortage {
  std::string device;  // Its id; empty: nothing was short.
  uint64_t bytes = 0;  // Of the buffer that did not fit.
};

// Bytes of modules by hash, for modules the document names by file or hash. The executor holds what the daemon sent.
class ModuleSource {
 public:
  virtual ~ModuleSource() = default;
  // The bytes, valid while the source lives; kNotFound with the name. `key` is the module's name in the graph for
  // files, the hash for hashes.
  virtual StatusOr<std::span<const uint8_t>> Find(const graph::Module& module) = 0;
  // A memfd of sealed size with exactly the bytes that Find answered, as compilers get them; -1: there is none, and one
  // is made for each compile. The source's.
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
  std::vector<std::string> devices;  // Ids of devices that at least one node may use.
  bool streaming = false;
  // Leaves that some device runs with fast math: their names, after those around them ("outer/blur"); at most
  // kFastNodesNamedMax.
  std::vector<std::string> fast_math_nodes;
  // Leaves of modules that were written for the devices that may run them, named likewise; at most
  // kFastNodesNamedMax.
  struct NativeNode {
    std::string name, module;  // The module as the document calls it.
    std::vector<std::string> devices;
  };
  std::vector<NativeNode> native_nodes;
  // How long each phase took.
  Duration parse{0}, compile{0}, load{0};
  uint32_t compiled = 0, from_cache = 0;
};

struct PrepareOptions {
  // Every node is compiled for the checker and runs there, whatever the document allows; each run then looks for races,
  // uninitialised reads and the like (RunLog::findings). Much slower.
  bool check = false;
  // Gets the ids of devices that answered kUnavailable: they are lost to this process. Optional.
  std::vector<std::string>* lost_devices = nullptr;
  // Not zero: stop soon with kCancelled. Optional.
  const std::atomic<uint32_t>* stop = nullptr;
  // Gets what the compiler's processes used of processors, also when no graph comes of it. Optional.
  Duration* compile_cpu = nullptr;
};

class HostPool;
class PreparedGraph;  // Defined in engine/prepared_graph.h; opaque to callers.

struct PrepareOutcome {
  Diagnostics diagnostics;               // Errors: `graph` is null.
  std::shared_ptr<PreparedGraph> graph;  // Shared: a running job outlives the handle's release.
  GraphSummary summary;
};

// What a graph port is bound to for one run. Host memory, borrowed until Run returns; used in place by host-visible
// devices.
struct Binding {
  ElementType type = ElementType::kF32;
  std::vector<uint64_t> shape;
  uint8_t* data = nullptr;
  uint64_t bytes = 0;
  // What `data` lies in, where that stays mapped for many runs: devices may pin it. Plans keep it; whoever unmaps the
  // memory closes the block before.
  std::shared_ptr<HostBlock> block{};
};

enum class Phase : uint8_t { kBind, kCopyIn, kRun, kCopyOut };

struct NodeRecord {
  std::string path;      // "outer[3]/blur".
  std::string device;    // "cpu:0".
  int64_t start_ns = 0;  // From the run's start, in the last repetition.
  int64_t end_ns = 0;
  int64_t total_ns = 0;  // What it took in `runs` repetitions together: all that ended, since the plan began to run.
  uint32_t runs = 0;
  std::string variant;       // The variant of the kernel that ran last (compiler/api/variant_text.h); empty: unknown.
  bool fast_math = false;    // Compiled with "math": "fast", by a device that heeds it.
  bool is_estimate = false;  // It was placed by an estimate: nothing like it was measured before.
  // Of a node that was split over devices: which instances along its slowest dimension; 0, 0: all.
  uint64_t first = 0, count = 0;
  std::string_view whole;  // Why a long one was not, where it was a question (scheduler::Name); a literal.
};

// The lines and findings of a run's kernels. Bounded: backends/contract/launch_log.h.
struct RunLog {
  struct Line {
    std::string node;  // Its path.
    std::array<uint64_t, 3> instance{};
    std::string text;  // Any bytes but line ends.
  };
  struct Found {
    std::string node;
    Finding finding;
  };
  std::vector<Line> lines;
  uint64_t lines_dropped = 0;
  std::vector<Found> findings;  // Of checked graphs.
  uint64_t findings_dropped = 0;
  bool check_incomplete = false;  // The check ran out of memory for its record: some faults may have gone unseen.
};

// Memory for an output.
struct OutputMemory {
  OutputMemory() = default;
  OutputMemory(uint8_t* where) : data(where) {}  // NOLINT: any memory will do.
  OutputMemory(uint8_t* where, std::shared_ptr<HostBlock> in) : data(where), block(std::move(in)) {}
  uint8_t* data = nullptr;
  std::shared_ptr<HostBlock> block{};  // As Binding::block.
};

struct RunRequest {
  std::map<std::string, Binding> inputs{};
  // Memory for outputs: every output must be bound, with bytes equal to its size (see OutputShapes), unless
  // `allocate_output` is set.
  std::map<std::string, Binding> outputs{};
  // Called for outputs that are not bound; returns memory of that size, zeroed or not, valid until Run returns.
  std::function<StatusOr<OutputMemory>(const std::string& name, ElementType type, const std::vector<uint64_t>& shape,
                                       uint64_t bytes)>
      allocate_output{};
  std::map<std::string, int64_t> symbols{};
  uint32_t repeat = 1;  // Runs the graph this often, with the same inputs but for rotations.
  // Between repetitions, all at once. kInvalidArgument when types or shapes differ, or a port is named twice.
  std::vector<Rotation> rotations{};
  // Name of an output of one element: not zero after a repetition ends the run with that one. Empty: none.
  std::string until{};
  const std::atomic<uint32_t>* stop = nullptr;  // Not zero: stop soon with kCancelled. Optional.
  Time deadline = kNever;                       // Checked between segments; callers set `stop` for kernels in flight.
  // False: the run keeps to the best plan that is known, as it also does when its deadline is near. Else it may be used
  // to find out whether another one is better.
  bool may_experiment = true;
  uint32_t node_records_max = 1000;  // The rest is only counted.
  RunLog* log = nullptr;             // Filled when the run ends, also when it fails. Optional.
  // Gets the id of the device whose kUnavailable failed the run: it is lost to this process. Optional.
  std::vector<std::string>* lost_devices = nullptr;
  // Says what a driver refused when the run fails for it with kResourceExhausted. Optional.
  DeviceShortage* shortage = nullptr;
};

struct RunResult {
  std::map<std::string, Binding> outputs;  // As bound or allocated, with shapes.
  Duration bind{0}, copy_in{0}, run{0}, copy_out{0};
  std::vector<NodeRecord> nodes;
  uint64_t nodes_run = 0;
  uint32_t repetitions = 0;    // How many there were; fewer than asked for when `until` said so.
  bool is_converged = false;   // It did.
  uint64_t moved_bytes = 0;    // Between host memory and devices.
  uint64_t spilled_bytes = 0;  // To and from the spill file.
  uint32_t lost_devices = 0;   // Devices that failed while the run went on without them.
  // By EngineOptions::devices: how long its nodes ran, by the device's own clock; at most `run`.
  std::vector<Duration> device_time;
};

class Engine {
 public:
  explicit Engine(EngineOptions options);
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  // A status only when the world failed (compiler gone, deadline, cancelled), set a limit (kResourceExhausted: a
  // compile took more than this server allows) or lacks something (kFailedPrecondition names the nodes that no device
  // may run); what is wrong with the graph or its modules is in the diagnostics, beside warnings (a node that only the
  // interpreter runs). Compiles at most four modules at a time. kFailedPrecondition for a check without a checker.
  //
  // An emulated device gets a node only if no real one takes it, or if the document names it: not because a compile for
  // a real device failed or took too long (docs/SCHEDULING.md).
  StatusOr<PrepareOutcome> Prepare(std::string_view document, ModuleSource& modules, Time deadline,
                                   const PrepareOptions& prepare = {});

  // Shapes and types of the outputs for given inputs, without running. For callers that provide the memory.
  StatusOr<std::map<std::string, Binding>> OutputShapes(PreparedGraph& graph,
                                                        const std::map<std::string, Binding>& inputs,
                                                        const std::map<std::string, int64_t>& symbols);

  // kInvalidArgument for bindings that do not fit (naming port, value, limit), kAborted for traps (node, instance,
  // reason), kCancelled, kDeadlineExceeded, kFailedPrecondition when no device may run a node, kResourceExhausted,
  // kUnavailable when a device is lost (node, device).
  StatusOr<RunResult> Run(PreparedGraph& graph, const RunRequest& request);

  // What is known of kernels and transfers: see ListKernels and ListTransfers.
  const CostStore& costs() const { return *costs_; }

  std::vector<DeviceInfo> devices() const;
  DeviceMemory& device_memory() { return *memory_; }
  // Graphs that do not run give memory of EngineOptions::devices[device] back until at most `bytes_max` are held.
  void ReclaimDevice(uint32_t device, uint64_t bytes_max) { memory_->Reclaim(*options_.devices[device], bytes_max); }

 private:
  EngineOptions options_;
  const std::shared_ptr<DeviceMemory> memory_;  // Shared with graphs, which may outlive the engine; so is costs_.
  const std::shared_ptr<CostStore> costs_;
  const std::shared_ptr<HostPool> host_pool_;
  const StatusOr<std::shared_ptr<Device>> spill_;  // Null without a spill file; shared as memory_ is.
};

}  // namespace hpvm::engine

#endif  // HPVMD_ENGINE_ENGINE_H_
