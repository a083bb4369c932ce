// SPDX-License-Identifier: Apache-2.0
// The whole contract between the engine and a device. Callers have validated everything: a failure here is the device's
// or ours.
//
// Work is a Submission (wait points, commands, signal points). Order is data: a submission starts when all its wait
// points are reached; its commands run in order, each seeing what the ones before it wrote; then its signal points are
// reached. Points are 64-bit values on timelines that only grow. A failure poisons: when a wait point's timeline has
// failed, or a command fails, nothing further of the submission runs and its signal timelines fail with that status,
// and so on to whoever waits for them. Devices that only queue (DeviceInfo::runs_inline is false) fail a timeline when
// nothing is left that was submitted to signal it: what had begun has ended, what had not never begins. So whoever sees
// it failed may free what all of those submissions name.
//
// Hosts wait with WaitAny on the process's one Hub, with a deadline. There are no callbacks and no optional methods:
// what a device cannot do is a fact in its DeviceInfo, or a kNo from Supports.
//
// Threads: every method may be called from any thread; Submit calls for one device are made one at a time. Ownership:
// the caller keeps buffers and executables alive until the submission's signals are reached or failed.
#ifndef HPVMD_BACKENDS_CONTRACT_DEVICE_H_
#define HPVMD_BACKENDS_CONTRACT_DEVICE_H_

#include <array>
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "backends/contract/copy_meter.h"
#include "backends/contract/launch_log.h"
#include "backends/contract/patience.h"
#include "base/clock.h"
#include "base/lane.h"
#include "base/status.h"
#include "compiler/api/artifact.h"
#include "compiler/api/gpu_target.h"
#include "compiler/ir/launch.h"

namespace hpvm {

enum class DeviceKind : uint8_t { kNull, kInterp, kCpu, kGpu, kFpga };
std::string_view Name(DeviceKind kind);  // "null", "interp", "cpu", "gpu", "fpga"

struct DeviceInfo {
  std::string id;  // "cpu:0"; unique in the process.
  DeviceKind kind = DeviceKind::kNull;
  ArtifactKind artifact_kind = ArtifactKind::kInterp;  // The kind of code that it runs.
  std::string name;            // For people: "AMD EPYC, 2 threads, AVX-512".
  std::string silicon;         // Devices with the same text share the same hardware.
  uint32_t compute_units = 1;  // Worker threads, multiprocessors.
  uint64_t memory_bytes = 0;   // Capacity.
  uint64_t allocation_bytes_max = 0;
  bool host_visible = false;  // Its buffers are host memory: Buffer::host() is their data.
  // Submit runs a submission whose waits are reached on the calling thread (and helpers) before it returns. Otherwise
  // Submit only queues.
  bool runs_inline = false;
  // Obeys Submission::check.
  bool checks = false;
  GpuTarget gpu;  // Where IsGpuCode(artifact_kind).
  // Memory of one silicon that passes between its devices by file descriptor: Allocate obeys BufferSpec::is_exported,
  // or BufferSpec::shared.
  bool exports_memory = false, imports_memory = false;
  // The device is the host's processor under another name: for nodes that nothing better can run.
  bool is_emulated = false;
  double bytes_per_second = 0;       // Of its memory, about; 0: unknown.
  double operations_per_second = 0;  // 32-bit arithmetic, about, all units together; 0: unknown.
  double launch_ns = 0;              // From one launch's end to the next one's start in a queue, about; 0: unknown.
  // To and from host memory by large copies, about; 0: unknown.
  double upload_bytes_per_second = 0, download_bytes_per_second = 0;
  // Submission::lane means something: copies run beside kernels. Otherwise everything runs in the order of submission.
  bool has_copy_lanes = false;
};

// Reached values of one sequence of events. Starts at 0.
class Timeline;
struct TimelinePoint {
  Timeline* timeline = nullptr;
  uint64_t value = 0;
};

// Wakes hosts that wait. One a process; outlives every timeline.
class Hub {
 public:
  // Returns the index of a point that is reached or failed, as soon as there is one; kDeadlineExceeded at `deadline`.
  StatusOr<size_t> WaitAny(std::span<const TimelinePoint> points, Time deadline);
  // Called by timelines after every change.
  void Notify();

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  uint64_t generation_ = 0;  // Guarded by mutex_.
  std::atomic<uint32_t> waiters_{0};
};

// Any thread. It may be destroyed by whoever sees a value, while Signal or Fail is still notifying the hub.
class Timeline {
 public:
  explicit Timeline(Hub& hub) : hub_(hub) {}
  Timeline(const Timeline&) = delete;
  Timeline& operator=(const Timeline&) = delete;

  // The highest value reached, or the status it failed with. Poll tells whether one point was reached before a failure.
  StatusOr<uint64_t> Query() const;
  // Reaches `value` < 2^63, from the host. Values only grow; a smaller one, or one after a failure, changes nothing.
  void Signal(uint64_t value);
  // Fails every point that is not reached. The first failure stays.
  void Fail(Status status);
  // OK when `value` is reached; the failure; kDeadlineExceeded.
  Status Wait(uint64_t value, Time deadline);

 private:
  // Set once failed: the value no longer grows, so that both questions, "which value" and "did it fail before that
  // value", have one answer for ever.
  static constexpr uint64_t kFrozen = uint64_t{1} << 63;

  Hub& hub_;
  std::atomic<uint64_t> value_{0};
  std::atomic<bool> failed_{false};
  mutable std::mutex mutex_;
  Status failure_;  // Guarded by mutex_; constant once failed_.
};

// What became of one point. kReached also when the timeline failed after it; kFailed stores the status in `failure`
// when not null.
enum class PointState : uint8_t { kPending, kReached, kFailed };
PointState Poll(const TimelinePoint& point, Status* failure = nullptr);

class Buffer;
class HostBlock;  // host_block.h.

struct BufferSpec {
  uint64_t bytes = 0;
  // Host memory to use in place instead of allocating; only where DeviceInfo::host_visible. Borrowed for the buffer's
  // life.
  uint8_t* import = nullptr;
  // Another device is to share it; only where DeviceInfo::exports_memory.
  bool is_exported = false;
  // Memory of another device of the same silicon (its Buffer was allocated with is_exported) to use instead of
  // allocating; only where DeviceInfo::imports_memory. Borrowed for the buffer's life.
  const Buffer* shared = nullptr;
};

// Memory as another driver imports it: an opaque descriptor, owned by the buffer, and the size of the allocation.
struct ExportedMemory {
  int fd = -1;
  uint64_t bytes = 0;
};

// Memory on one device. Freshly allocated memory reads as zero.
class Buffer {
 public:
  virtual ~Buffer() = default;
  virtual uint64_t bytes() const = 0;
  // The data, where DeviceInfo::host_visible; else null. Never null for a host-visible buffer of at least one byte.
  virtual uint8_t* host() = 0;
  // What `host()` lies in, where devices may pin that; null elsewhere. Held by the buffer.
  virtual HostBlock* block() const { return nullptr; }
  // An fd of -1 unless allocated with BufferSpec::is_exported.
  virtual ExportedMemory exported() const { return {}; }
};

// Which of Artifact::variants runs launches: the device finds out.
inline constexpr uint32_t kAutoVariant = 0xffffffffu;

// A kernel loaded on one device.
class Executable {
 public:
  virtual ~Executable() = default;
  virtual const Artifact& artifact() const = 0;
};

// Whether a dispatch may run a part of a launch (DispatchCommand::first, count). Not where the code is a tenant's own
// for the device: it counts its instances from 0.
inline bool RunsParts(const Executable& executable) { return !executable.artifact().gpu.is_native; }

// Buffers and scalars are named by slot: a command list is built once, at prepare, and each submission brings its own
// tables.
using SlotIndex = uint32_t;
inline constexpr SlotIndex kNoSlot = 0xffffffffu;

// Copies between two buffers of this device, or between one and host memory (a host-visible buffer).
struct CopyCommand {
  SlotIndex source = 0, target = 0;
  uint64_t source_offset = 0, target_offset = 0, bytes = 0;
  // From host memory: kernels take offsets from these bytes, so a device that can should note the range of their words.
  bool has_indices = false;
  // From host memory: so many bytes behind the target mean nothing to anybody, and the copy may write zeros there, so
  // that one command can make several copies to neighbours. Nobody else touches them without being ordered with it.
  uint64_t room = 0;
};

// Fills with a repeated byte.
struct FillCommand {
  SlotIndex target = 0;
  uint64_t offset = 0, bytes = 0;
  uint8_t value = 0;
};

struct DispatchArgument {
  SlotIndex slot = kNoSlot;  // Buffers: in Submission::buffers. Scalars from the run's table: in Submission::scalars.
  bool is_buffer = false;
  bool is_output = false;  // Buffers: the content on entry means nothing.
  uint64_t offset = 0;     // Buffers: first byte of the view.
  uint64_t bytes = 0;      // Buffers: size of the view.
  uint64_t scalar = 0;     // Scalars with slot == kNoSlot: the bits.
};

// How many instances there are is known when the launch begins only: a little-endian integer of 4 or 8 bytes, read as
// unsigned, in a buffer that is host memory. It replaces the extent, which is its limit: a larger one fails the launch
// with kAborted and a sentence that has both.
struct ExtentSource {
  SlotIndex slot = kNoSlot;  // kNoSlot: the extent is as written.
  uint64_t offset = 0;
  uint32_t bytes = 4;
};

inline constexpr uint64_t kAllInstances = ~uint64_t{0};

struct DispatchCommand {
  Executable* executable = nullptr;         // Borrowed.
  std::array<uint64_t, 3> extent{1, 1, 1};  // What kernels see as the number of instances.
  std::array<uint64_t, 3> group{1, 1, 1};
  // The part that runs, [first, first + count) in each dimension: instances keep their ids in the whole. `first` is a
  // multiple of the group; so is `count`, unless it reaches the end (kAllInstances does).
  std::array<uint64_t, 3> first{0, 0, 0};
  std::array<uint64_t, 3> count{kAllInstances, kAllInstances, kAllInstances};
  std::array<ExtentSource, 3> extent_from{};        // Only where DeviceInfo::host_visible.
  uint32_t first_argument = 0, argument_count = 0;  // In CommandList::arguments; one a kernel parameter, in order.
  uint32_t node = 0;                                // The caller's tag: index in Submission::timings, and in failures.
};

using Command = std::variant<CopyCommand, FillCommand, DispatchCommand>;

// What a device keeps beside a list from one submission to the next: memory for its books, what it has measured.
class ListMemo {
 public:
  explicit ListMemo(const void* owner) : owner_(owner) {}
  virtual ~ListMemo() = default;
  // Whose it is; another device makes its own.
  const void* owner() const { return owner_; }

 private:
  const void* const owner_;
};

// Where it stays while no submission has it. Any thread.
class ListMemoSlot {
 public:
  ListMemoSlot() = default;
  ListMemoSlot(ListMemoSlot&& other) noexcept : memo_(other.memo_.exchange(nullptr)) {}
  ~ListMemoSlot() { delete memo_.load(); }
  std::unique_ptr<ListMemo> Take() { return std::unique_ptr<ListMemo>(memo_.exchange(nullptr)); }
  void Give(std::unique_ptr<ListMemo> memo) { delete memo_.exchange(memo.release()); }

 private:
  std::atomic<ListMemo*> memo_{nullptr};
};

// Which commands must wait for which. The order in the list always agrees with it; a device may follow either.
struct CommandOrder {
  std::vector<uint32_t> first_successor;  // By command, and one more: where its successors begin in `successors`.
  std::vector<uint32_t> successors;       // Commands that come later in the list.
  std::vector<uint32_t> predecessors;     // By command: how many it waits for.
  mutable ListMemoSlot memo{};            // The device's own.
};

struct CommandList {
  std::vector<Command> commands;
  std::vector<DispatchArgument> arguments;
  std::unique_ptr<const CommandOrder> order;  // Null: one after another.
};

inline constexpr uint8_t kVariantUnknown = 0xff;

// Nanoseconds on the device's clock between the start and the end of a dispatch, by node tag.
struct NodeTiming {
  int64_t start_ns = 0;
  int64_t end_ns = 0;
  // An equal share of what several different launches took together: who wants to know what this one takes gets no
  // answer from it.
  bool is_shared = false;
  // The device knows by which code, and in which way, it runs launches like this one, and ran it so. While it still
  // tries them out, a launch may take several times as long as those after it.
  bool is_settled = true;
  // The artifact's variant that ran it, or the larger part of it (compiler/api/variant_text.h). A device that sets
  // only times leaves it as it is.
  uint8_t variant = kVariantUnknown;
};

// Filled by the device when a dispatch fails, before the timelines fail: which node, and for kernels that trapped,
// where.
struct Failure {
  uint32_t node = 0xffffffffu;
  ir::TrapReport trap;
};

struct Submission {
  std::span<const TimelinePoint> waits{};
  Lane lane = Lane::kCompute;
  const CommandList* commands = nullptr;
  std::span<Buffer* const> buffers{};   // By slot.
  std::span<const uint64_t> scalars{};  // By slot; bits.
  std::span<const TimelinePoint> signals{};
  // Stops the launches in progress when not zero (the job is cancelled, its deadline passed): they fail with
  // kCancelled.
  const std::atomic<uint32_t>* stop = nullptr;
  std::span<NodeTiming> timings{};  // By node tag; may be empty.
  Failure* failure = nullptr;       // May be null.
  LaunchLog* log = nullptr;         // Takes what kernels print and what checks find; null drops it.
  // Looks for races, uninitialised reads and the like in every dispatch (docs/KERNELS.md); only where
  // DeviceInfo::checks. Slow.
  bool check = false;
  // Everything above stays valid until the signals are reached or failed.
};

// What a kernel needs, for Supports.
struct KernelNeeds {
  ArtifactKind kind = ArtifactKind::kCpuImage;
  bool uses_barrier = false;
  bool uses_group_memory = false;
  std::array<uint64_t, 3> group{1, 1, 1};
};

struct Support {
  bool ok = true;
  std::string reason;  // When not ok: a sentence for people.
};

class Device {
 public:
  // Borrows the hub, which its timelines notify.
  explicit Device(Hub& hub) : hub_(hub) {}
  virtual ~Device() = default;
  virtual const DeviceInfo& info() const = 0;
  Hub& hub() const { return hub_; }
  ArtifactKind artifact_kind() const { return info().artifact_kind; }
  // For points that its submissions signal, or wait for.
  std::unique_ptr<Timeline> CreateTimeline() const { return std::make_unique<Timeline>(hub_); }
  // Its large copies from and to host memory, where it makes them by way of staging memory; else it stays empty.
  const CopyMeter& copy_meter() const { return copy_meter_; }
  virtual Support Supports(const KernelNeeds& needs) const = 0;
  // kInvalidArgument: the module is at fault, and the message says how (the driver's log); kCancelled,
  // kDeadlineExceeded: the caller's patience ended while a builder was at work (devices without one do not look at it);
  // any other status is ours or the device's.
  virtual StatusOr<std::unique_ptr<Executable>> Load(Artifact artifact, const Patience& patience) = 0;
  StatusOr<std::unique_ptr<Executable>> Load(Artifact artifact) { return Load(std::move(artifact), Patience()); }
  virtual StatusOr<std::unique_ptr<Buffer>> Allocate(const BufferSpec& spec) = 0;
  // See the head of this file. A status means that nothing was accepted and the signals will not change.
  virtual Status Submit(const Submission& submission) = 0;

 protected:
  Hub& hub_;
  CopyMeter copy_meter_;
};

}  // namespace hpvm

#endif  // HPVMD_BACKENDS_CONTRACT_DEVICE_H_
