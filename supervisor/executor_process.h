// SPDX-License-Identifier: Apache-2.0
// ExecutorProcess is the daemon's interface to one executor process: requests, and the checked messages that answer
// them. executor_link.h implements it for real processes; tests have other implementations.
#ifndef HPVMD_SUPERVISOR_EXECUTOR_PROCESS_H_
#define HPVMD_SUPERVISOR_EXECUTOR_PROCESS_H_

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/hash.h"
#include "base/limits.h"
#include "base/status.h"
#include "hpvm/element_type.h"
#include "proto/internal/executor.pb.h"

namespace hpvm::supervisor {

struct ExecutorReady {
  internal::Ready said;
  int pid = 0;       // For people; in the daemon's own namespace.
  Duration took{0};  // Time since the start of the process.
};

// Existing bytes: in memory (copied during the call), or in a sealed-size memfd (borrowed during the call).
struct BytesSource {
  std::span<const uint8_t> bytes;
  int fd = -1;
  uint64_t fd_bytes = 0;

  uint64_t size() const { return fd >= 0 ? fd_bytes : bytes.size(); }
};

struct ModuleInput {
  std::string name;  // The name in the document.
  Sha256 hash;
  BytesSource bytes;  // Sent only if this executor does not hold the module.
};

struct PrepareInput {
  // The caller's choice; not 0 and not in use on this link.
  uint64_t handle = 0;
  BytesSource document;
  std::vector<ModuleInput> modules;
  Duration within{0};  // 0: no deadline.
  bool check = false;  // Prepares for checked runs.
};

// Part of a sealed-size memfd. The link shares each memfd with the executor once, on first use, and identifies it by
// `memory_id`.
struct MemorySlice {
  // Not 0; never reused for another memfd on this link, even after Forget.
  uint64_t memory_id = 0;
  int fd = -1;                // Borrowed during the call.
  uint64_t memory_bytes = 0;  // Size of the whole memfd.
  bool writable = true;       // The executor may map it writable; the same in every use.
  uint64_t offset = 0;        // A multiple of 16.
  uint64_t bytes = 0;
};

struct InputTensor {
  std::string name;
  ElementType type = ElementType::kF32;
  std::vector<uint64_t> shape;
  // Inline, borrowed during the call; at most 8 MiB for all inputs of a run together.
  std::span<const uint8_t> bytes;
  std::optional<MemorySlice> memory;  // Instead of `bytes`.
};

struct OutputTarget {
  std::string name;
  enum class Kind : uint8_t { kInline, kMemory, kDiscard } kind = Kind::kInline;
  MemorySlice memory;  // kMemory: at least the output's size.
};

// Returns options for one repetition, 1,000 node records, and inline outputs of up to 256 KiB.
inline internal::RunOptions DefaultRunOptions() {
  internal::RunOptions options;
  options.set_repeat(1);
  options.set_node_records_max(1000);
  options.set_inline_bytes_max(limits::kInlineTensorBytesMax);
  return options;
}

struct RunInput {
  uint64_t handle = 0;
  std::vector<InputTensor> inputs;
  std::vector<OutputTarget> outputs;  // Outputs that are not named are returned inline.
  std::map<std::string, int64_t> symbols;
  internal::RunOptions options = DefaultRunOptions();
  Duration within{0};  // 0: no deadline.
  // Called when the run leaves the executor's queue; may be empty.
  std::function<void()> on_started;
  // Called with the checked lines that kernels have printed since the last call, on the thread that delivers answers:
  // no more in total than a run's log has, and at most about 20 times a second. May be empty.
  std::function<void(v1::RunLog)> on_log;
};

struct RunReply {
  internal::RunDone done;
  std::vector<uint8_t> body;  // Owns inline data.

  // Returns OK, or the engine's failure: kAborted (a trap), kCancelled, kDeadlineExceeded, kInvalidArgument ...
  Status status() const;
  // Returns inline data, inside `body`. Empty for outputs in memory (read them with pread) and dropped ones.
  std::span<const uint8_t> DataOf(const internal::OutputTensor& output) const {
    return std::span(body).subspan(output.body().offset(), output.body().bytes());
  }
};

using RequestId = uint64_t;

// Calls never block. Each callback is called once, later, on another thread (the hub's): with the answer, with
// kUnavailable when the process ended, or with kInternal when it violated the protocol. It must be short and must not
// wait for that thread; it may call any method of any executor except a destructor.
class ExecutorProcess {
 public:
  // Kills the process if it lives, waits until it is reaped and until no callback runs or will run. Must not be called
  // on a callback's thread. Pending requests fail first with kUnavailable.
  virtual ~ExecutorProcess() = default;

  // Both return the id for Cancel, or 0 when the request was not sent; then `done` is called with the reason:
  // kInvalidArgument for inputs outside the limits of protocol.h, kResourceExhausted when too many requests wait. Here
  // and below `done` gets an error only when the executor was lost or the request was not sent.
  virtual RequestId Prepare(const PrepareInput& input, std::function<void(StatusOr<internal::Prepared>)> done) = 0;
  virtual RequestId Run(const RunInput& input, std::function<void(StatusOr<RunReply>)> done) = 0;
  virtual void Release(uint64_t handle) = 0;
  // Sets the stop word of a run or prepare; its answer comes soon, with kCancelled unless it was already done.
  virtual void Cancel(RequestId id) = 0;
  // Sends any other request of executor.proto that has an answer and needs no data: a change of the grant page
  // (answered when the executor has seen it), or a request for memory or costs. A healthy process answers at once.
  // `done` receives the answer's envelope, which holds the message that executor.proto names; it may be empty.
  using AskDone = std::function<void(StatusOr<internal::Envelope>)>;
  virtual void Ask(internal::Envelope request, AskDone done) = 0;
  // Releases a memory: it is unmapped there when no run uses it. Call before or after closing the memfd.
  virtual void Forget(uint64_t memory_id) = 0;
  // Returns the process's processor time so far; nullopt when it is gone, or devices do its work.
  virtual std::optional<Duration> CpuTime() const = 0;
  // The process had waited as a spare for a tenant: its end may not have been noticed. Constant.
  virtual bool was_spare() const { return false; }
  // Asks the process to end; it is killed if it takes too long. Returns at once.
  virtual void Shutdown() = 0;
  // Sends SIGKILL. Returns at once; pending requests fail with kUnavailable and `why`.
  virtual void Kill(std::string_view why) = 0;
};

}  // namespace hpvm::supervisor

#endif  // HPVMD_SUPERVISOR_EXECUTOR_PROCESS_H_
