// SPDX-License-Identifier: Apache-2.0
// The complete contract between the engine and a device. Callers have validated everything: a failure here is a fault
// of the device or of this program.
//
// Work is a Submission (wait points, commands, signal points). A submission starts when all its wait points are
// reached; its commands run in order, each observing the writes of earlier ones; then its signal points are reached.
// Points are 64-bit values on timelines that only grow. Failures propagate: when a wait point's timeline has failed, or
// a command fails, the rest of the submission does not run and its signal timelines fail with that status, as do
// submissions that wait for them. Devices that only queue (DeviceInfo::runs_inline is false) fail a timeline only when
// no submission that signals it remains active: submissions that had begun have ended, others never begin. After seeing
// the failure, a caller may therefore free everything that those submissions name.
//
// Hosts wait with WaitAny on the process's single Hub, with a deadline. There are no callbacks and no optional methods:
// a device states what it cannot do in its DeviceInfo, or by kNo from Supports.
//
// Threads: every method is thread-safe, but Submit calls for one device are made one at a time. Ownership: the caller
// keeps buffers and executables alive until the submission's signals are reached or failed.
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
  std::string name;                                    // For people: "AMD EPYC, 2 threads, AVX-512".
  std::string silicon;                                 // Devices with equal text share hardware.
  // Names that identify the device, as its driver reports them: 32 hexadecimal digits, "0000:3b:00.0"; empty when
  // unknown.
  std::string uuid, bus;
  uint32_t compute_units = 1;  // Worker threads or multiprocessors.
  uint64_t memory_bytes = 0;   // Capacity.
  uint64_t allocation_bytes_max = 0;
  bool host_visible = false;  // Its buffers are host memory, accessible by Buffer::host().
  // Submit runs a submission whose waits are reached on the calling thread (and helpers) before it returns. Otherwise
  // Submit only queues it.
  bool runs_inline = false;
  // Supports Submission::check.
  bool checks = false;
  GpuTarget gpu;  // Set when IsGpuCode(artifact_kind).
  // Memory can be shared between devices of one silicon by file descriptor: Allocate supports BufferSpec::is_exported,
  // or BufferSpec::shared.
  bool exports_memory = false, imports_memory = false;
  // The device is the host's processor under another name; used for nodes that no better device can run.
  bool is_emulated = false;
  double bytes_per_second = 0;       // Approximate speed of its memory; 0: unknown.
  double operations_per_second = 0;  // Approximate 32-bit arithmetic speed of all units together; 0: unknown.
  // Approximate time from one launch's end to the next one's start in a queue; 0: unknown.
  double launch_ns = 0;
  // Approximate speed of large copies to and from host memory; 0: unknown.
  double upload_bytes_per_second = 0, download_bytes_per_second = 0;
  // Submission::lane is respected: copies overlap with kernels. Otherwise everything runs in the order of submission.
  bool has_copy_lanes = false;
};

// Timeline holds the reached value of one sequence of events. It starts at 0.
class Timeline;
struct TimelinePoint {
  Timeline* timeline = nullptr;
  uint64_t value = 0;
};

// Hub wakes waiting hosts. There is one per process; it outlives every timeline.
class Hub {
 public:
  // Returns the index of a reached or failed point as soon as there is one; kDeadlineExceeded at `deadline`.
  StatusOr<size_t> WaitAny(std::span<const TimelinePoint> points, Time deadline);
  // Called by timelines after every change.
  void Notify();

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  uint64_t generation_ = 0;  // Guarded by mutex_.
  std::atomic<uint32_t> waiters_{0};
};

// Thread-safe. A waiter that sees a value may destroy the timeline while Signal or Fail is still notifying the hub.
class Timeline {
 public:
  explicit Timeline(Hub& hub) : hub_(hub) {}
  Timeline(const Timeline&) = delete;
  Timeline& operator=(const Timeline&) = delete;

  // Returns the highest value reached, or the failure. Poll tells whether a point was reached before a failure.
  StatusOr<uint64_t> Query() const;
  // Reaches `value` < 2^63, from the host. Values only grow; a smaller value, or one after a failure, has no effect.
  void Signal(uint64_t value);
  // Fails every point not yet reached. The first failure is kept.
  void Fail(Status status);
  // Returns OK when `value` is reached; the failure; or kDeadlineExceeded.
  Status Wait(uint64_t value, Time deadline);

 private:
  // Set on failure: the value no longer grows, so that the answers to "which value" and "did it fail before that value"
  // never change.
  static constexpr uint64_t kFrozen = uint64_t{1} << 63;

  Hub& hub_;
  std::atomic<uint64_t> value_{0};
  std::atomic<bool> failed_{false};
  mutable std::mutex mutex_;
  Status failure_;  // Guarded by mutex_; constant once the timeline has failed.
};

// State of one point. kReached also when the timeline failed after it; for kFailed the status is stored in `failure` if
// that is not null.
enum class PointState : uint8_t { kPending, kReached, kFailed };
PointState Poll(const TimelinePoint& point, Status* failure = nullptr);

class Buffer;
class HostBlock;  // host_block.h.

struct BufferSpec {
  uint64_t bytes = 0;
  // Host memory to use in place instead of allocating; only when DeviceInfo::host_visible. Borrowed for the buffer's
  // life.
  uint8_t* import = nullptr;
  // Another device will share it; only when DeviceInfo::exports_memory.
  bool is_exported = false;
  // Memory of another device of the same silicon (whose Buffer was allocated with is_exported) to use instead of
  // allocating; only when DeviceInfo::imports_memory. Borrowed for the buffer's life.
  const Buffer* shared = nullptr;
};

// Memory in the form in which another driver imports it: an opaque descriptor, owned by the buffer, and the
// allocation's size.
struct ExportedMemory {
  int fd = -1;
  uint64_t bytes = 0;
};

// Memory on one device. Newly allocated memory reads as zero.
class Buffer {
 public:
  virtual ~Buffer() = default;
  virtual uint64_t bytes() const = 0;
  // Returns the data when DeviceInfo::host_visible, otherwise null. Never null for a host-visible buffer with at least
  // one byte.
  virtual uint8_t* host() = 0;
  // Returns the block that contains `host()`, if devices may pin it, otherwise null. Owned by the buffer.
  virtual HostBlock* block() const { return nullptr; }
  // The fd is -1 unless the buffer was allocated with BufferSpec::is_exported.
  virtual ExportedMemory exported() const { return {}; }
};

// The device chooses which of Artifact::variants runs launches.
inline constexpr uint32_t kAutoVariant = 0xffffffffu;

// A kernel loaded on one device.
class Executable {
 public:
  virtual ~Executable() = default;
  virtual const Artifact& artifact() const = 0;
};

// Returns true when a dispatch may run a part of a launch (DispatchCommand::first, count). It may not when the code is
// a tenant's own for the device, because that counts its instances from 0.
inline bool RunsParts(const Executable& executable) { return !executable.artifact().gpu.is_native; }

// Buffers and scalars are named by slot: a command list is built once, at prepare, and each submission brings its own
// tables.
using SlotIndex = uint32_t;
inline constexpr SlotIndex kNoSlot = 0xffffffffu;

// Copies between two buffers of this device, or between a buffer and host memory (a host-visible buffer).
struct CopyCommand {
  SlotIndex source = 0, target = 0;
  uint64_t source_offset = 0, target_offset = 0, bytes = 0;
  // From host memory: kernels take offsets from these bytes, so the device should note the range of their words if it
  // can.
  bool has_indices = false;
  // From host memory: number of unused bytes after the target, which the copy may overwrite with zeros, so that one
  // command can make several copies to neighbours. All other accesses to them are ordered with this command.
  uint64_t room = 0;
};

// Fills a range with a repeated byte.
struct FillCommand {
  SlotIndex target = 0;
  uint64_t offset = 0, bytes = 0;
  uint8_t value = 0;
};

struct DispatchArgument {
  // For buffers, index in Submission::buffers; for scalars of the run, index in Submission::scalars.
  SlotIndex slot = kNoSlot;
  bool is_buffer = false;
  bool is_output = false;  // Buffers: the content on entry is irrelevant.
  uint64_t offset = 0;     // Buffers: first byte of the view.
  uint64_t bytes = 0;      // Buffers: size of the view.
  uint64_t scalar = 0;     // Scalars with slot == kNoSlot: the bits.
};

// The number of instances is known only when the launch begins: it is a little-endian unsigned integer of 4 or 8 bytes,
// in a buffer in host memory. It replaces the extent, which is its limit: a larger number fails the launch with
// kAborted and a sentence with both numbers.
struct ExtentSource {
  SlotIndex slot = kNoSlot;  // kNoSlot: the extent is as given.
  uint64_t offset = 0;
  uint32_t bytes = 4;
};

inline constexpr uint64_t kAllInstances = ~uint64_t{0};

struct DispatchCommand {
  Executable* executable = nullptr;         // Borrowed.
  std::array<uint64_t, 3> extent{1, 1, 1};  // The number of instances as kernels see it.
  std::array<uint64_t, 3> group{1, 1, 1};
  // The part that runs, [first, first + count) in each dimension: instances keep their ids in the whole launch. `first`
  // is a multiple of the group; so is `count`, unless the part reaches the end (as with kAllInstances).
  std::array<uint64_t, 3> first{0, 0, 0};
  std::array<uint64_t, 3> count{kAllInstances, kAllInstances, kAllInstances};
  std::array<ExtentSource, 3> extent_from{};  // Only when DeviceInfo::host_visible.
  // Range in CommandList::arguments; one argument per kernel parameter, in order.
  uint32_t first_argument = 0, argument_count = 0;
  // The caller's tag: index in Submission::timings, and reported in failures.
  uint32_t node = 0;
};

using Command = std::variant<CopyCommand, FillCommand, DispatchCommand>;

// State that a device keeps with a list between submissions: memory for bookkeeping, and measurements.
class ListMemo {
 public:
  explicit ListMemo(const void* owner) : owner_(owner) {}
  virtual ~ListMemo() = default;
  // The device that owns it; another device makes its own.
  const void* owner() const { return owner_; }

 private:
  const void* const owner_;
};

// Holds the memo while no submission uses it. Thread-safe.
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

// Dependencies between commands. The list's order is always consistent with them; a device may follow either.
struct CommandOrder {
  // Indexed by command, plus one entry: index of its first successor in `successors`.
  std::vector<uint32_t> first_successor;
  std::vector<uint32_t> successors;    // Commands that come later in the list.
  std::vector<uint32_t> predecessors;  // Indexed by command: number of commands that it waits for.
  mutable ListMemoSlot memo{};         // Owned by the device.
};

struct CommandList {
  std::vector<Command> commands;
  std::vector<DispatchArgument> arguments;
  std::unique_ptr<const CommandOrder> order;  // Null: one after another.
};

inline constexpr uint8_t kVariantUnknown = 0xff;

// Nanoseconds on the device's clock at the start and the end of a dispatch, by node tag.
struct NodeTiming {
  int64_t start_ns = 0;
  int64_t end_ns = 0;
  // The time is an equal share of the time of several different launches, so it does not measure this one.
  bool is_shared = false;
  // The device has decided which code to use for such launches, and in which way, and ran this one so. While it still
  // experiments, a launch may take several times as long as later ones.
  bool is_settled = true;
  // The artifact's variant that ran it, or the larger part of it (compiler/api/variant_text.h). A device that sets only
  // times leaves it unchanged.
  uint8_t variant = kVariantUnknown;
};

// Filled by the device when a dispatch fails, before the timelines fail: the node and, for kernels that trapped, the
// place.
struct Failure {
  uint32_t node = 0xffffffffu;
  ir::TrapReport trap;
};

struct Submission {
  std::span<const TimelinePoint> waits{};
  Lane lane = Lane::kCompute;
  const CommandList* commands = nullptr;
  std::span<Buffer* const> buffers{};   // Indexed by slot.
  std::span<const uint64_t> scalars{};  // Indexed by slot; bits.
  std::span<const TimelinePoint> signals{};
  // Stops the launches in progress when not zero (the job is cancelled, or its deadline has passed): they fail with
  // kCancelled.
  const std::atomic<uint32_t>* stop = nullptr;
  std::span<NodeTiming> timings{};  // Indexed by node tag; may be empty.
  Failure* failure = nullptr;       // May be null.
  LaunchLog* log = nullptr;         // Receives output of kernels and findings of checks; null drops them.
  // Checks every dispatch for races, uninitialised reads and similar faults (docs/KERNELS.md); only when
  // DeviceInfo::checks. Slow.
  bool check = false;
  // Everything above stays valid until the signals are reached or failed.
};

// Requirements of a kernel, for Supports.
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
  // Creates a timeline for points that its submissions signal or wait for.
  std::unique_ptr<Timeline> CreateTimeline() const { return std::make_unique<Timeline>(hub_); }
  // Measurements of its large copies through staging memory; empty when it makes none.
  const CopyMeter& copy_meter() const { return copy_meter_; }
  virtual Support Supports(const KernelNeeds& needs) const = 0;
  // kInvalidArgument: the module is faulty, as the message explains (the driver's log). kCancelled, kDeadlineExceeded:
  // the caller's patience ended during a build (devices without a builder ignore it). Any other status is a fault of
  // this program or of the device.
  virtual StatusOr<std::unique_ptr<Executable>> Load(Artifact artifact, const Patience& patience) = 0;
  StatusOr<std::unique_ptr<Executable>> Load(Artifact artifact) { return Load(std::move(artifact), Patience()); }
  virtual StatusOr<std::unique_ptr<Buffer>> Allocate(const BufferSpec& spec) = 0;
  // See the head of this file. When it returns an error, nothing was accepted and the signals will not change.
  virtual Status Submit(const Submission& submission) = 0;

 protected:
  Hub& hub_;
  CopyMeter copy_meter_;
};

}  // namespace hpvm

#endif  // HPVMD_BACKENDS_CONTRACT_DEVICE_H_
