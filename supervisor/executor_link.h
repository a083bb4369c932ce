// SPDX-License-Identifier: Apache-2.0
// The daemon's end of an executor: starts the process, sends requests, checks every answer as hostile, and tells how it
// ended.
//
// One ExecutorHub (one epoll thread) serves any number of links. Requests go out from the calling thread and never
// block: what the socket does not take at once is queued. Callbacks run on the hub's thread, never inside the call that
// gave them, and exactly once each: with the answer, or with kUnavailable when the process ended, or with kInternal
// when it broke the protocol (it is then killed). A callback must be short and must not wait for the hub; it may call
// any method of any link except a destructor.
//
// hpvmctl --local uses the same classes on `hpvm-executor --standalone`.
#ifndef HPVMD_SUPERVISOR_EXECUTOR_LINK_H_
#define HPVMD_SUPERVISOR_EXECUTOR_LINK_H_

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/diagnostic.h"
#include "base/element_type.h"
#include "base/hash.h"
#include "base/limits.h"
#include "base/status.h"

namespace hpvm {

// The epoll thread. Outlives its links.
class ExecutorHub {
 public:
  static StatusOr<std::unique_ptr<ExecutorHub>> Create();
  ~ExecutorHub();
  ExecutorHub(const ExecutorHub&) = delete;
  ExecutorHub& operator=(const ExecutorHub&) = delete;

  class Core;  // Defined in executor_hub.h.
  Core& core() { return *core_; }

 private:
  explicit ExecutorHub(std::unique_ptr<Core> core);
  std::unique_ptr<Core> core_;
};

// What an executor says that it holds of devices' memory, by entry of the grant page.
struct ExecutorUsage {
  std::vector<uint64_t> device_bytes;
  std::vector<uint64_t> idle_device_bytes;  // Of them; as long as the other.
};

// What an executor says that it knows of how long things take; clean text, figures finite and not negative.
struct ExecutorKernelCost {
  std::string kernel, device;
  uint64_t instances = 0;
  double estimate_ns = 0, measured_ns = 0;
  uint64_t samples = 0;
  double error = 0;
  uint64_t handle = 0;
};
struct ExecutorTransferCost {
  std::string source, target;  // Empty: host memory.
  double start_ns = 0, bytes_per_second = 0;
  bool is_estimate = true;
};
struct ExecutorCosts {
  std::vector<ExecutorKernelCost> kernels;
  std::vector<ExecutorTransferCost> transfers;
  bool more = false;  // There are other kernels.
};

// There, and of no use.
struct BrokenDevice {
  std::string id, detail;
};

struct ExecutorOptions {
  std::string program;           // Path of hpvm-executor.
  std::string compiler_program;  // Path of hpvm-compiler; empty: beside `program`.
  std::string cache_folder;      // Absolute; empty: compiled kernels are not kept.
  std::array<uint8_t, 32>
      artifact_key{};  // Random, one per tenant and cache folder; other keys find nothing in that cache.
  std::vector<std::string> backends = {"cpu"};  // The device profile, in the order of the grant page's entries.
  uint32_t cpu_threads = 0;                     // With the submitting one; 0: as the machine has.
  // A file for what fits in no memory, empty, borrowed during Start or Greet; -1: none. It never grows beyond
  // spill_bytes_max, which a spare has to be told when it starts.
  int spill_fd = -1;
  uint64_t spill_bytes_max = 0;
  uint64_t host_bytes_max = 0, device_bytes_max = 0;  // Of one graph; 0: the engine's defaults.
  int grant_page = -1;  // A sealed memfd of kGrantPageBytes; borrowed during Start. -1: no grants to obey.
  bool standalone =
      false;  // hpvm-executor --standalone: owned by a command, not by the daemon. Locked down all the same.
  bool lock_down = true;              // False only for debuggers.
  uint32_t uid = 0, gid = 0;          // Taken when the daemon is root; 0: keep.
  uint32_t sandbox_level_max = 4;     // Higher levels are not tried.
  uint32_t sandbox_level_min = 0;     // Below it the process ends with kFailedPrecondition, having read nothing.
  std::string scratch_folder;         // This process's alone; absolute; empty: none.
  uint32_t tasks_max = 0;             // Of its own user; 0: no limit.
  bool has_cgroup = false;            // `on_spawned` puts it into one of its own.
  bool without_device_nodes = false;  // No device of the profile needs a GPU's.
  // Devices of the profile that run no code of our emitters, each with a sentence.
  std::vector<BrokenDevice> emitted_refused;
  uint32_t jobs_max = 0;            // 0: the executor's default.
  uint64_t document_bytes_max = 0;  // 0: base/limits.h's default; so below.
  uint32_t nodes_max = 0, edges_max = 0;
  Duration ready_within = std::chrono::seconds(10);  // Without Ready by then the process is killed.
  // A run that does not answer so long after its deadline or Cancel costs the process.
  Duration stop_grace = std::chrono::milliseconds(limits::kStopGraceMs);
  // Called with the process's id before anything is sent to it, on the hub's thread; when it fails the process is
  // killed. May be empty.
  std::function<Status(int pid)> on_spawned;
  // When the process has ended by itself: what the daemon knows of the reason, a sentence; empty: nothing. On the hub's
  // thread. May be empty.
  std::function<std::string()> why_ended;
  // Called on the hub's thread with what the process tells unasked. May be empty.
  std::function<void(const ExecutorUsage&)> on_usage;
  // A process that the machine did not let run gets longer than stop_grace (StopPatience). Not where devices do the
  // work.
  bool waits_for_starved = true;
  // The executor's standard error: -1 keeps its last 4 KiB for the message that tells how it ended; otherwise this
  // descriptor (borrowed).
  int stderr_fd = -1;
};

struct ExecutorDevice {
  std::string id, kind, name, silicon;
  uint32_t compute_units = 0;
  uint64_t memory_bytes = 0;
  uint64_t allocation_bytes_max = 0;
  bool is_emulated = false;
  std::string gpu_target;  // As WriteGpuTarget writes it; empty for what is no GPU's.
};

// What a driver computes wrongly.
struct DriverDefect {
  std::string name, reason;
  bool is_ours = false;  // In code that our emitters make; else in modules written for the device.
};

struct ExecutorReady {
  std::vector<ExecutorDevice> devices;
  std::vector<BrokenDevice> broken;
  uint32_t sandbox_level = 0;
  std::string sandbox_detail;
  int pid = 0;       // For people: in the daemon's own namespace.
  Duration took{0};  // From the start of the process.
};

// Bytes that exist already: in memory (copied during the call), or in a memfd of sealed size (borrowed during the
// call).
struct BytesSource {
  std::span<const uint8_t> bytes;
  int fd = -1;
  uint64_t fd_bytes = 0;
};

struct ModuleInput {
  std::string name;  // In the document.
  Sha256 hash;
  BytesSource bytes;  // Sent only if this executor does not hold the module.
};

struct PrepareInput {
  uint64_t handle = 0;  // The caller's choice; not 0 and not in use on this link.
  BytesSource document;
  std::vector<ModuleInput> modules;
  Duration within{0};  // 0: no deadline.
  bool check = false;  // For checked runs.
};

struct ExecutorPort {
  std::string name;
  ElementType type = ElementType::kF32;
  std::vector<std::string> shape;  // Expressions, as written.
};

struct ExecutorSummary {
  std::string name;
  std::vector<ExecutorPort> inputs, outputs;
  std::vector<std::string> symbols;
  uint64_t leaf_nodes = 0, internal_nodes = 0, edges = 0;
  std::vector<std::string> devices;
  bool streaming = false;
  std::vector<std::string> fast_math_nodes;  // The first ones.
  struct NativeNode {
    std::string name, module;
    std::vector<std::string> devices;
  };
  std::vector<NativeNode> native_nodes;  // Leaves of modules written for their devices; the first ones.
  Duration parse{0}, compile{0}, load{0};
  uint32_t compiled = 0, from_cache = 0;
};

struct PrepareReply {
  Status status;  // Not OK: the world failed, or a limit of the executor's (kResourceExhausted) ended it.
  Diagnostics diagnostics;
  uint64_t diagnostics_omitted = 0;
  // Empty exactly when the status is not OK or the diagnostics have errors; then the handle stays free.
  std::optional<ExecutorSummary> summary;
  uint64_t compile_cpu_ns = 0;  // Of the compiler's processes, as the executor says.
};

// Part of a memfd of sealed size. The link shares each memfd with the executor once, on first use, and remembers it by
// `memory_id`.
struct MemorySlice {
  uint64_t memory_id = 0;     // Not 0; never another memfd's on this link, also after Forget.
  int fd = -1;                // Borrowed during the call.
  uint64_t memory_bytes = 0;  // The whole memfd.
  bool writable = true;       // How the executor may map it; the same in every use.
  uint64_t offset = 0;        // A multiple of 16.
  uint64_t bytes = 0;
};

struct InputTensor {
  std::string name;
  ElementType type = ElementType::kF32;
  std::vector<uint64_t> shape;
  std::span<const uint8_t> bytes;     // Inline, borrowed during the call; all of a run's together at most 8 MiB.
  std::optional<MemorySlice> memory;  // Instead of `bytes`.
};

struct OutputTarget {
  std::string name;
  enum class Kind : uint8_t { kInline, kMemory, kDiscard } kind = Kind::kInline;
  MemorySlice memory;  // kMemory: at least the output's size.
};

// An output of one repetition that is an input of the next.
struct RotationInput {
  std::string output, input;
};

struct RunInput {
  uint64_t handle = 0;
  std::vector<InputTensor> inputs;
  std::vector<OutputTarget> outputs;  // Outputs that are not named come back inline.
  std::map<std::string, int64_t> symbols;
  uint32_t repeat = 1;
  std::vector<RotationInput> rotations;
  std::string until;            // An output that ends the repetitions when it is not zero; empty: none.
  Duration within{0};           // 0: no deadline.
  bool is_last_chance = false;  // No attempt follows: the executor tries nothing out with it.
  uint32_t node_records_max = 1000;
  bool log = false;                        // Answer with what the kernels said.
  uint32_t inline_bytes_max = 256 * 1024;  // One inline output's; larger ones make the reply say needs_memory.
  std::function<void()> on_started;        // When the run leaves the executor's queue; may be empty.
};

struct OutputTensor {
  std::string name;
  ElementType type = ElementType::kF32;
  std::vector<uint64_t> shape;
  uint64_t bytes = 0;
  // Inline: the data, inside RunReply::body. Empty for outputs in memory (read them with pread) and dropped ones.
  std::span<const uint8_t> data;
};

struct ExecutorNodeRecord {
  std::string path, device;
  int64_t start_ns = 0, end_ns = 0;  // From the run's start.
  bool fast_math = false;
  bool is_estimate = false;       // Placed by an estimate.
  uint64_t first = 0, count = 0;  // Of a part of a node: its instances along the slowest dimension; 0, 0: all.
  uint64_t total_ns = 0;          // What it took in `runs` repetitions together.
  uint32_t runs = 0;
  std::string variant = {};  // The kernel's variant that ran, clean text; empty: unknown.
};

// What the kernels of a run said, clean text throughout.
struct ExecutorLog {
  using InstanceId = std::array<uint64_t, 3>;
  struct Line {
    std::string node;
    InstanceId instance{};
    std::string text;
  };
  struct Finding {
    std::string node, kind, message, buffer, place;
    std::vector<InstanceId> instances;
    uint64_t count = 1;
  };
  std::vector<Line> lines;
  uint64_t lines_dropped = 0;
  std::vector<Finding> findings;
  uint64_t findings_dropped = 0;
  bool check_incomplete = false;
};

struct RunReply {
  // What became of the run: OK, or the engine's failure (kAborted: trap; kCancelled; kDeadlineExceeded;
  // kInvalidArgument ...).
  Status status;
  std::vector<OutputTensor> outputs;
  // With status kResourceExhausted: nothing ran, some outputs are too large to be inline; `outputs` lists all with
  // their sizes.
  bool needs_memory = false;
  Duration queue{0}, bind{0}, copy_in{0}, run{0}, copy_out{0};
  std::vector<ExecutorNodeRecord> nodes;
  uint64_t nodes_run = 0;
  std::vector<Duration> device_time;  // By entry of the grant page, as the executor says; perhaps shorter, or empty.
  // With status kResourceExhausted: a driver refused so much memory of this entry's device.
  std::optional<uint32_t> short_entry;
  uint64_t short_bytes = 0;
  ExecutorLog log;                        // When asked for; also of a run that failed.
  std::vector<std::string> lost_devices;  // Ids: what failed the run, and is lost to this executor.
  std::vector<std::string> left_devices;  // Ids: lost, too, but the run went on without them.
  uint32_t repetitions = 0;
  bool is_converged = false;                    // `until` ended it.
  uint64_t moved_bytes = 0, spilled_bytes = 0;  // As the executor says.
  std::vector<uint8_t> body;                    // Owns inline data.
};

using RequestId = uint64_t;

class ExecutorLink {
 public:
  // Spawns the process, sends Hello and returns without waiting for Ready; requests may follow at once.
  // A status when the process cannot be started. `on_ready` and `on_end` may be empty. `on_end` is called once, after
  // all pending requests' callbacks, with why: "The executor process ended (signal 9)." ... ; OK after Shutdown.
  static StatusOr<std::unique_ptr<ExecutorLink>> Start(ExecutorHub& hub, const ExecutorOptions& options,
                                                       std::function<void(const ExecutorReady&)> on_ready = nullptr,
                                                       std::function<void(const Status&)> on_end = nullptr);
  // Spawns a process that settles and waits for Greet, having served nobody. No other method but Greet and Kill may be
  // called before that. `on_end` as above, if it ends before it is greeted.
  static StatusOr<std::unique_ptr<ExecutorLink>> StartSpare(ExecutorHub& hub, const ExecutorOptions& options,
                                                            std::function<void(const Status&)> on_end);
  // Once: it serves this tenant from now on. `options` are those of StartSpare, with what is the tenant's. kUnavailable
  // when it has ended; then `on_end` is not called, but the spare's was or will be.
  Status Greet(const ExecutorOptions& options, std::function<void(const ExecutorReady&)> on_ready,
               std::function<void(const Status&)> on_end);
  // Kills the process if it lives, waits until it is reaped and until no callback of this link runs or will run. Not on
  // the hub's thread. Pending requests fail first with kUnavailable.
  ~ExecutorLink();
  ExecutorLink(const ExecutorLink&) = delete;
  ExecutorLink& operator=(const ExecutorLink&) = delete;

  // Waits for Ready; how the process ended if it did first; kDeadlineExceeded. Not on the hub's thread.
  StatusOr<ExecutorReady> WaitReady(Time deadline = kNever);

  // Each returns the id for Cancel; 0 when the request was not sent, and then `done` is called with why, as always on
  // the hub's thread: kInvalidArgument for inputs outside the limits of protocol.h, kResourceExhausted when too many
  // requests wait.
  // Here and below a status instead of a reply only when the executor was lost or the request not sent.
  RequestId Prepare(const PrepareInput& input, std::function<void(StatusOr<PrepareReply>)> done);
  RequestId Run(const RunInput& input, std::function<void(StatusOr<RunReply>)> done);
  // Shapes of the outputs for the shapes of `inputs` (their data is not looked at). kInvalidArgument when they do not
  // fit.
  RequestId OutputShapes(uint64_t handle, const std::vector<InputTensor>& inputs,
                         const std::map<std::string, int64_t>& symbols,
                         std::function<void(StatusOr<std::vector<OutputTensor>>)> done);
  void Release(uint64_t handle);
  // Sets the stop word of a run or prepare; its answer comes soon, with kCancelled unless it was done already.
  void Cancel(RequestId id);
  // After changing the grant page's entry. `done` when the executor has seen the epoch; may be empty.
  void GrantChanged(uint32_t entry, uint32_t epoch, std::function<void(Status)> done = nullptr);
  // Buffers that no run uses go until at most `bytes_max` of the entry's device are held; `done` gets what is then.
  void Reclaim(uint32_t entry, uint64_t bytes_max, std::function<void(StatusOr<ExecutorUsage>)> done);
  // Of the kernels of a prepared graph; 0: of all that the executor holds.
  void ListCosts(uint64_t handle, std::function<void(StatusOr<ExecutorCosts>)> done);
  // Lets go of a memory: unmapped there when no run uses it. Call before or after closing the memfd.
  void Forget(uint64_t memory_id);

  // Asks the process to end; it is killed if it has not after `grace`. Returns at once.
  void Shutdown(Duration grace = std::chrono::milliseconds(500));
  // SIGKILL. Returns at once; pending requests fail with kUnavailable and `why`.
  void Kill(std::string_view why);

  int pid() const;
  // Processor time of the process so far; empty when it is gone, or devices do its work.
  std::optional<Duration> CpuTime() const;
  // Whether the process runs, now: asks the system.
  bool alive() const;
  // Requests without an answer.
  size_t pending() const;

  class Core;  // Defined in executor_link.cc.

 private:
  explicit ExecutorLink(std::shared_ptr<Core> core);
  // Shared with the hub's thread, which may be handling an event while the link is destroyed.
  std::shared_ptr<Core> core_;
};

// Asks `program --probe=BACKEND` for its devices and checks the answer; kUnavailable when it dies, kDeadlineExceeded
// after `within`. A backend without devices here gives none. Blocks.
struct ProbedDevices {
  std::vector<ExecutorDevice> devices;
  std::vector<BrokenDevice> broken;
};
// `on_spawned` is as in ExecutorOptions; the process is gone when ProbeDevices returns.
StatusOr<ProbedDevices> ProbeDevices(const std::string& program, const std::string& backend,
                                     Duration within = std::chrono::seconds(10),
                                     const std::function<Status(int pid)>& on_spawned = nullptr);
// Asks `program --probe-defects=DEVICE`; as ProbeDevices otherwise.
StatusOr<std::vector<DriverDefect>> ProbeDefects(const std::string& program, const std::string& device, Duration within,
                                                 const std::function<Status(int pid)>& on_spawned = nullptr);

}  // namespace hpvm

#endif  // HPVMD_SUPERVISOR_EXECUTOR_LINK_H_
