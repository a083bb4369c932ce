// SPDX-License-Identifier: Apache-2.0
#include "supervisor/executor_link.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/epoll.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <condition_variable>
#include <list>
#include <mutex>
#include <unordered_map>
#include <utility>
#include <variant>

#include "base/failpoint.h"
#include "base/io/child_process.h"
#include "base/io/frame_channel.h"
#include "base/io/memfd.h"
#include "proto/internal/protocol.h"
#include "supervisor/executor_hub.h"
#include "supervisor/run_message.h"
#include "supervisor/stop_patience.h"

namespace hpvm {
namespace {

using internal::Envelope;

// What may wait for an executor that does not read: a few of the largest frames.
constexpr size_t kQueuedBytesMax = 64 * limits::kMiB;
constexpr size_t kStderrBytesKept = 4096;
// Bytes sent in a frame's body rather than in a memfd of their own.
constexpr uint64_t kInlineSourceBytesMax = 1 * limits::kMiB;
// What a socket's buffers can hold, read in the reader's portions, and some.
constexpr int kLastReadsMax = 64;
// A prepare compiles; its own deadline is the compiler's to keep, so only a long overrun costs the process.
constexpr Duration kPrepareGrace = std::chrono::seconds(5);
// What asks for no work is answered at once by a process that is well; a grant is noticed between two chunks.
constexpr Duration kAnswerWithin = std::chrono::seconds(60);

// From this sandbox level on the process has a process namespace.
constexpr uint32_t kOwnPidsLevel = 4;

using PrepareDone = std::function<void(StatusOr<internal::Prepared>)>;
using RunDone = std::function<void(StatusOr<RunReply>)>;
using AckDone = std::function<void(Status)>;
using UsageDone = std::function<void(StatusOr<internal::Usage>)>;
using CostsDone = std::function<void(StatusOr<internal::Costs>)>;
struct HelloDone {};

struct Pending {
  std::variant<HelloDone, PrepareDone, RunDone, AckDone, UsageDone, CostsDone> done;
  Time kill_at = kNever;
  Time stop_at = kNever;                       // Runs: from when on it should stop.
  StopPatience patience = {};                  // From then on.
  std::function<void()> on_started = nullptr;  // Runs.
  uint32_t node_records_max = 0;               // Runs.
};

struct FailPending {
  const Status& status;
  void operator()(const HelloDone&) const {}
  void operator()(const AckDone& done) const {
    if (done) {
      done(status);
    }
  }
  template <typename Done>
  void operator()(const Done& done) const {
    done(status);
  }
};

// Keys in the order of their last use, with a bound; what falls out must be let go of at the other side.
template <typename Key>
class RecentKeys {
 public:
  // True when the key was there.
  bool Touch(const Key& key, uint64_t weight = 1) {
    const auto found = places_.find(key);
    if (found != places_.end()) {
      order_.splice(order_.end(), order_, found->second);
      return true;
    }
    places_.emplace(key, order_.insert(order_.end(), {key, weight}));
    weight_ += weight;
    return false;
  }
  bool Erase(const Key& key) {
    const auto found = places_.find(key);
    if (found == places_.end()) {
      return false;
    }
    weight_ -= found->second->second;
    order_.erase(found->second);
    places_.erase(found);
    return true;
  }
  const Key& oldest() const { return order_.front().first; }
  size_t size() const { return places_.size(); }
  uint64_t weight() const { return weight_; }

 private:
  std::list<std::pair<Key, uint64_t>> order_;
  std::unordered_map<Key, typename std::list<std::pair<Key, uint64_t>>::iterator> places_;
  uint64_t weight_ = 0;
};

// Messages that answer nothing: an executor sends one every 100 ms at most.
constexpr int kUsagesPerSecond = 50, kUsagesAtOnce = 100;

class UsageRate {
 public:
  bool Take(Time now) {
    left_ =
        std::min<double>(kUsagesAtOnce, left_ + kUsagesPerSecond * 1e-9 * static_cast<double>((now - last_).count()));
    last_ = now;
    left_ -= 1;
    return left_ >= 0;
  }

 private:
  double left_ = kUsagesAtOnce;
  Time last_{0};
};

// As if the connection had ended before that message.
Status ReachReceived(Envelope::MessageCase message) {
  switch (message) {
    case Envelope::kReady:
      return HPVMD_FAILPOINT("link.ready.receive");
    case Envelope::kPrepared:
      return HPVMD_FAILPOINT("link.prepared.receive");
    case Envelope::kEvent:
      return HPVMD_FAILPOINT("link.started.receive");
    case Envelope::kRunDone:
      return HPVMD_FAILPOINT("link.run_done.receive");
    case Envelope::kGrantAck:
      return HPVMD_FAILPOINT("link.grant_ack.receive");
    case Envelope::kUsage:
      return HPVMD_FAILPOINT("link.usage.receive");
    case Envelope::kCosts:
      return HPVMD_FAILPOINT("link.costs.receive");
    default:
      return absl::OkStatus();
  }
}

// A memfd with a copy of `bytes`.
StatusOr<UniqueFd> MemfdOf(std::span<const uint8_t> bytes) {
  HPVMD_ASSIGN_OR_RETURN(UniqueFd fd, CreateSealedMemfd("hpvm-bytes", bytes.size()));
  HPVMD_RETURN_IF_ERROR(WriteAt(fd.get(), 0, bytes));
  return fd;
}

Status BrokeProtocol(const Status& why) {
  return Internal("The executor process broke the protocol and was killed: " + Message(why));
}

// `hello` as it is sent.
internal::Hello HelloOf(const ExecutorOptions& options) {
  internal::Hello hello = options.hello;
  hello.set_version(kExecutorProtocolVersion);
  hello.set_has_grant_page(options.grant_page >= 0);
  hello.set_has_spill_file(options.spill_fd >= 0);
  return hello;
}

// Locking: mutex_ guards everything that is not marked as the hub's thread's. Callbacks run without it.
class Link final : public ExecutorLink, public HubSource {
 public:
  Link(ExecutorHub::Core& hub, const ExecutorOptions& options, bool is_spare,
       std::function<void(const ExecutorReady&)> on_ready, std::function<void(const Status&)> on_end)
      : hub_(hub), is_spare_(is_spare), options_(options), on_ready_(std::move(on_ready)), on_end_(std::move(on_end)) {}
  ~Link() override;

  Status StartProcess();
  Status Greet(const ExecutorOptions& options, std::function<void(const ExecutorReady&)> on_ready,
               std::function<void(const Status&)> on_end) override;
  StatusOr<ExecutorReady> WaitReady(Time deadline) override;

  RequestId Prepare(const PrepareInput& input, PrepareDone done) override;
  RequestId Run(const RunInput& input, RunDone done) override;
  void Release(uint64_t handle) override;
  void Cancel(RequestId id) override;
  void GrantChanged(uint32_t entry, uint32_t epoch, AckDone done) override;
  void Forget(uint64_t memory_id) override;
  void Reclaim(uint32_t entry, uint64_t bytes_max, UsageDone done) override;
  void ListCosts(uint64_t handle, CostsDone done) override;
  std::optional<Duration> CpuTime() const override { return alive() ? UsedCpuTime() : std::nullopt; }
  bool was_spare() const override { return is_spare_; }
  void Shutdown() override;
  void Kill(std::string_view why) override;
  int pid() const override { return process_.pid; }
  bool alive() const override;
  size_t pending() const override;

  void OnEvent(Event event, uint32_t epoll_events) override;
  void OnTimer(uint64_t tag) override;

 private:
  enum TimerTag : uint64_t { kReadyTimer, kOverdueTimer, kShutdownTimer };

  Status SpawnProcess();
  Status StartOnHub(Status status);
  void GreetOnHub();
  // Sends a request and remembers it, or tells `pending` why not. mutex_ held.
  StatusOr<RequestId> SendRequest(EncodedRequest& request, std::span<const int> fds, Pending pending);
  RequestId Finish(StatusOr<RequestId> sent, Pending* unsent);
  // Sends what is answered at once by a process that is well, unless `reached` forbids it.
  void Ask(Status reached, const Envelope& envelope, Pending pending);
  std::optional<Duration> UsedCpuTime() const;
  Status SendLocked(const Envelope& envelope, std::span<const uint8_t> body = {}, std::span<const int> fds = {},
                    bool more = false);
  Status ShareMemories(const RunInput& input);
  Status ShareMemory(const MemorySlice& slice);
  Status PutModules(const PrepareInput& input);
  void ArmOverdue(Time when);
  bool IsOverdue(Pending& pending, Time now);
  void KillLocked(Status why);

  // Hub's thread.
  void ReadSocket();
  Status HandleFrame(Frame frame);
  Status HandleReady(const internal::Ready& ready);
  Status HandleRunDone(Pending pending, internal::RunDone done, std::vector<uint8_t> body);
  Status HandleAnswer(Envelope said, std::vector<uint8_t> body, Pending pending);
  Status HandleUsage(const internal::Usage& usage);
  void ReadStderr();
  void End(const std::string& how);
  Status EndStatus(const std::string& how);
  std::string WhatWasLate(const Pending& pending) const;

  ExecutorHub::Core& hub_;
  const bool is_spare_;
  bool is_started_ = false;  // The hub tells of its end.
  ExecutorOptions options_;  // Changed by Greet only, on the hub's thread.
  std::function<void(const ExecutorReady&)> on_ready_;
  std::function<void(const Status&)> on_end_;

  SpawnedProcess process_;  // Set by Start; the descriptor lives as long as this.
  UniqueFd socket_;         // As above.

  // Hub's thread only.
  uint64_t source_ = 0;
  std::optional<FrameReader> reader_;
  bool socket_ended_ = false;
  UniqueFd stderr_;
  std::string stderr_tail_;
  UsageRate usages_;
  std::vector<std::string> devices_;  // Ready's.

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::optional<FrameWriter> writer_;
  bool watches_write_ = false;
  RequestId next_id_ = 1;
  std::unordered_map<RequestId, Pending> pending_;
  RecentKeys<Sha256> modules_;
  RecentKeys<uint64_t> memories_;
  Time armed_for_ = kNever;
  Time started_{0};
  std::optional<ExecutorReady> ready_;
  Status kill_reason_;  // Why we killed it; OK when we did not.
  bool shutting_down_ = false;
  bool ended_ = false;  // Nothing is sent any more; pending_ is empty.
  Status end_status_;
  bool finished_ = false;  // The last callback has returned.
};

Status Link::StartProcess() {
  Status started, status;
  // On a thread that outlives every link: the executor dies with the thread that started it. The hub learns of the
  // process when it has been recorded, and so cannot reap it before.
  hub_.SpawnAndWait([&] {
    started = SpawnProcess();
    status = started.ok() ? HPVMD_FAILPOINT("link.spawn.after") : started;
    if (status.ok() && options_.on_spawned) {
      status = options_.on_spawned(process_.pid);
    }
  });
  HPVMD_RETURN_IF_ERROR(started);
  hub_.RunAndWait([&] { started = StartOnHub(status); });
  is_started_ = started.ok();
  return started;
}

// On the thread that starts processes.
Status Link::SpawnProcess() {
  HPVMD_ASSIGN_OR_RETURN(auto ends, CreateSocketPair());
  int pipe_ends[2] = {-1, -1};
  if (options_.stderr_fd < 0 && pipe2(pipe_ends, O_CLOEXEC | O_NONBLOCK) != 0) {
    return FromErrno(errno, "Creating a pipe");
  }
  stderr_.reset(pipe_ends[0]);
  UniqueFd stderr_write(pipe_ends[1]);
  SpawnOptions spawn;
  spawn.arguments = {options_.program};
  if (options_.standalone) {
    spawn.arguments.push_back("--standalone");
  }
  spawn.socket = ends.second.get();
  spawn.stderr_fd = options_.stderr_fd >= 0 ? options_.stderr_fd : stderr_write.get();
  const uint32_t level_plus_1 = options_.hello.sandbox_level_max_plus_1();
  spawn.has_own_pids = !options_.hello.without_lock_down() && (level_plus_1 == 0 || level_plus_1 > kOwnPidsLevel);
  started_ = RealClock().Now();
  HPVMD_RETURN_IF_ERROR(HPVMD_FAILPOINT("link.spawn.before"));
  HPVMD_ASSIGN_OR_RETURN(process_, Spawn(spawn));
  socket_ = std::move(ends.first);
  reader_.emplace(socket_.get(), kFromExecutorLimits);
  return absl::OkStatus();
}

// Once the process is there, a failure (also an earlier one, `status`) ends it, and is told when it is reaped like any
// other.
Status Link::StartOnHub(Status status) {
  source_ = hub_.Add(this);
  if (const Status watched = hub_.Watch(source_, Event::kExit, process_.pidfd.get(), EPOLLIN); !watched.ok()) {
    hub_.Remove(source_);
    KillAndReap(process_);
    return watched;
  }
  if (status.ok()) {
    status = hub_.Watch(source_, Event::kSocket, socket_.get(), EPOLLIN);
  }
  if (status.ok() && stderr_.valid()) {
    status = hub_.Watch(source_, Event::kStderr, stderr_.get(), EPOLLIN);
  }
  {
    std::lock_guard lock(mutex_);
    writer_.emplace(socket_.get(), FrameWriter::Wait::kNo, kQueuedBytesMax);
    if (status.ok() && is_spare_) {
      Envelope settle;
      *settle.mutable_settle()->mutable_known() = HelloOf(options_);
      status = SendLocked(settle);
    }
    if (!status.ok()) {
      KillLocked(status);
      return absl::OkStatus();
    }
  }
  if (!is_spare_) {
    GreetOnHub();
  }
  return absl::OkStatus();
}

void Link::GreetOnHub() {
  std::lock_guard lock(mutex_);
  EncodedRequest hello;
  *hello.envelope.mutable_hello() = HelloOf(options_);
  Status status = HPVMD_FAILPOINT("link.hello.send");
  if (status.ok()) {
    std::vector<int> fds;
    for (const int fd : {options_.grant_page, options_.spill_fd}) {
      if (fd >= 0) {
        fds.push_back(fd);
      }
    }
    status = SendRequest(hello, fds, Pending{.done = HelloDone{}}).status();
    options_.spill_fd = -1;  // Sent, and the caller's.
  }
  // One that has ended already says itself how, in a moment; if it only does not listen, the timer ends it.
  if (!status.ok() && status.code() != absl::StatusCode::kUnavailable) {
    KillLocked(status);
    return;
  }
  hub_.StartTimer(started_ + options_.ready_within, source_, kReadyTimer);
}

Status Link::Greet(const ExecutorOptions& options, std::function<void(const ExecutorReady&)> on_ready,
                   std::function<void(const Status&)> on_end) {
  Status status;
  hub_.RunAndWait([&] {
    {
      std::lock_guard lock(mutex_);
      if (ended_ || !kill_reason_.ok()) {
        status = Unavailable("The executor process that waited has ended.");
        return;
      }
    }
    options_ = options;
    on_ready_ = std::move(on_ready);
    on_end_ = std::move(on_end);
    started_ = RealClock().Now();
    GreetOnHub();
  });
  return status;
}

Link::~Link() {
  if (!is_started_) {
    return;
  }
  Kill("The executor process was killed because it is no longer needed.");
  {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return finished_; });
  }
  // The hub leaves this object, and runs the callbacks of requests that were not sent, which are posted one by one.
  hub_.RunAndWait([] {});
}

StatusOr<ExecutorReady> Link::WaitReady(Time deadline) {
  std::unique_lock lock(mutex_);
  const auto settled = [&] { return ready_.has_value() || ended_; };
  if (deadline == kNever) {
    changed_.wait(lock, settled);
  } else if (!changed_.wait_for(lock, std::max(deadline - RealClock().Now(), Duration(0)), settled)) {
    return DeadlineExceeded("The executor process is not ready in time.");
  }
  if (ready_.has_value()) {
    return *ready_;
  }
  return end_status_.ok() ? Unavailable("The executor process was shut down.") : end_status_;
}

StatusOr<RequestId> Link::SendRequest(EncodedRequest& request, std::span<const int> fds, Pending pending) {
  if (pending_.size() >= kRequestsMax) {
    return ResourceExhausted("The requests that wait for the executor (" + std::to_string(pending_.size()) +
                             ") reach the limit (" + std::to_string(kRequestsMax) + ").");
  }
  const RequestId id = next_id_++;
  request.envelope.set_request_id(id);
  HPVMD_RETURN_IF_ERROR(SendLocked(request.envelope, request.body, fds));
  const Time next = std::min(pending.stop_at, pending.kill_at);
  pending_.emplace(id, std::move(pending));
  ArmOverdue(next);
  return id;
}

Status Link::SendLocked(const Envelope& envelope, std::span<const uint8_t> body, std::span<const int> fds, bool more) {
  if (ended_ || shutting_down_ || !kill_reason_.ok()) {
    if (ended_ && !end_status_.ok()) {
      return end_status_;
    }
    // Another executor may take it, unless this one was refused for its sandbox: the next one's would be no better.
    return absl::IsFailedPrecondition(kill_reason_) ? kill_reason_
           : kill_reason_.ok()                      ? Unavailable("The executor process is ending.")
                               : Unavailable("The executor process is ending: " + Message(kill_reason_));
  }
  std::string head = envelope.SerializeAsString();
  if (head.size() > kHeadBytesMax || body.size() > kBodyBytesMax) {
    return InvalidArgument("The request's description (" + std::to_string(head.size()) + " bytes) exceeds the limit (" +
                           std::to_string(kHeadBytesMax) + ").");
  }
  const Status status = writer_->Send(head, body, fds, more);
  if (writer_->pending() && !watches_write_ && !more) {
    watches_write_ = true;
    hub_.Rewatch(source_, Event::kSocket, socket_.get(), EPOLLIN | EPOLLOUT);
  }
  if (status.code() == absl::StatusCode::kUnavailable) {
    return Unavailable("The executor process is gone.");  // Its end is told with more detail to what is pending.
  }
  return status;
}

// `unsent` is what SendRequest did not take; its callback runs on the hub's thread like any other.
RequestId Link::Finish(StatusOr<RequestId> sent, Pending* unsent) {
  if (sent.ok()) {
    return *sent;
  }
  hub_.Post([pending = std::move(*unsent), status = sent.status()] { std::visit(FailPending{status}, pending.done); });
  return 0;
}

Status Link::PutModules(const PrepareInput& input) {
  for (const ModuleInput& module : input.modules) {
    const uint64_t bytes = module.bytes.fd >= 0 ? module.bytes.fd_bytes : module.bytes.bytes.size();
    if (bytes == 0 || bytes > limits::kModuleBytesMax) {
      return InvalidArgument("Module \"" + module.name + "\": The size (" + std::to_string(bytes) +
                             " bytes) is not between 1 and the limit (" + std::to_string(limits::kModuleBytesMax) +
                             ").");
    }
    HPVMD_RETURN_IF_ERROR(HPVMD_FAILPOINT("link.module.send"));
    if (modules_.Touch(module.hash, bytes)) {
      continue;
    }
    while (modules_.size() > kModulesMax || modules_.weight() > kModulesBytesMax) {
      const Sha256 oldest = modules_.oldest();
      if (oldest == module.hash) {
        modules_.Erase(oldest);
        return ResourceExhausted("The modules of one graph exceed the limit (" + std::to_string(kModulesBytesMax) +
                                 " bytes).");
      }
      modules_.Erase(oldest);
      Envelope drop;
      drop.mutable_drop_module()->set_sha256(oldest.bytes.data(), oldest.bytes.size());
      HPVMD_RETURN_IF_ERROR(SendLocked(drop, {}, {}, true));
    }
    Envelope envelope;
    internal::PutModule* put = envelope.mutable_put_module();
    put->set_sha256(module.hash.bytes.data(), module.hash.bytes.size());
    put->set_bytes(bytes);
    Status status;
    if (module.bytes.fd < 0 && bytes <= kInlineSourceBytesMax) {
      put->mutable_body()->set_bytes(static_cast<uint32_t>(bytes));
      status = SendLocked(envelope, module.bytes.bytes, {}, true);
    } else {
      UniqueFd copy;
      if (module.bytes.fd < 0) {
        HPVMD_ASSIGN_OR_RETURN(copy, MemfdOf(module.bytes.bytes));
      }
      const int fd[] = {module.bytes.fd >= 0 ? module.bytes.fd : copy.get()};
      status = SendLocked(envelope, {}, fd);
    }
    if (!status.ok()) {
      modules_.Erase(module.hash);
      return status;
    }
  }
  return absl::OkStatus();
}

RequestId Link::Prepare(const PrepareInput& input, PrepareDone done) {
  Pending pending{.done = std::move(done)};
  if (input.within > Duration(0)) {
    pending.kill_at = RealClock().Now() + input.within + kPrepareGrace;
  }
  Pending unsent = pending;
  EncodedRequest request;
  internal::PrepareGraph* prepare = request.envelope.mutable_prepare_graph();
  prepare->set_handle(input.handle);
  prepare->set_deadline_ns(static_cast<uint64_t>(std::max<int64_t>(input.within.count(), 0)));
  prepare->set_check(input.check);
  for (const ModuleInput& module : input.modules) {
    internal::NamedModule* named = prepare->add_modules();
    named->set_name(module.name);
    named->set_sha256(module.hash.bytes.data(), module.hash.bytes.size());
  }
  const auto send = [&]() -> StatusOr<RequestId> {
    if (input.handle == 0 || input.modules.size() > kModulesMax) {
      return InvalidArgument("The prepare request has no handle or more modules (" +
                             std::to_string(input.modules.size()) + ") than the limit (" + std::to_string(kModulesMax) +
                             ").");
    }
    UniqueFd copy;
    int fd = input.document.fd;
    const uint64_t bytes = fd >= 0 ? input.document.fd_bytes : input.document.bytes.size();
    prepare->set_document_bytes(bytes);
    if (fd < 0 && bytes > kInlineSourceBytesMax) {
      HPVMD_ASSIGN_OR_RETURN(copy, MemfdOf(input.document.bytes));
      fd = copy.get();
    } else if (fd < 0) {
      prepare->mutable_document()->set_bytes(static_cast<uint32_t>(bytes));
      request.body = input.document.bytes;
    }
    HPVMD_RETURN_IF_ERROR(HPVMD_FAILPOINT("link.prepare.send"));
    std::lock_guard lock(mutex_);
    const Status put = PutModules(input);
    StatusOr<RequestId> sent =
        put.ok() ? SendRequest(request, {&fd, fd >= 0 ? 1u : 0u}, std::move(pending)) : StatusOr<RequestId>(put);
    if (absl::IsUnavailable(sent.status()) && !ended_ && !shutting_down_ && kill_reason_.ok()) {
      // The process has just gone, and perhaps said why (that its sandbox is too weak): End answers with that.
      sent = next_id_++;
      pending_.emplace(*sent, unsent);
    }
    return sent;
  };
  return Finish(send(), &unsent);
}

Status Link::ShareMemory(const MemorySlice& slice) {
  HPVMD_RETURN_IF_ERROR(HPVMD_FAILPOINT("link.memory.share"));
  if (memories_.Touch(slice.memory_id)) {
    return absl::OkStatus();
  }
  while (memories_.size() > kMemoriesMax) {
    const uint64_t oldest = memories_.oldest();
    memories_.Erase(oldest);
    Envelope forget;
    forget.mutable_forget_memory()->set_memory_id(oldest);
    HPVMD_RETURN_IF_ERROR(SendLocked(forget, {}, {}, true));
  }
  Envelope envelope;
  internal::ShareMemory* share = envelope.mutable_share_memory();
  share->set_memory_id(slice.memory_id);
  share->set_bytes(slice.memory_bytes);
  share->set_writable(slice.writable);
  const Status status = SendLocked(envelope, {}, {&slice.fd, 1}, true);
  if (!status.ok()) {
    memories_.Erase(slice.memory_id);
  }
  return status;
}

Status Link::ShareMemories(const RunInput& input) {
  size_t slices = 0;
  for (const InputTensor& tensor : input.inputs) {
    slices += tensor.memory.has_value() ? 1 : 0;
  }
  for (const OutputTarget& output : input.outputs) {
    slices += output.kind == OutputTarget::Kind::kMemory ? 1 : 0;
  }
  if (slices > kMemoriesMax) {
    return InvalidArgument("The memories of one run (" + std::to_string(slices) + ") exceed the limit (" +
                           std::to_string(kMemoriesMax) + ").");
  }
  for (const InputTensor& tensor : input.inputs) {
    if (tensor.memory.has_value()) {
      HPVMD_RETURN_IF_ERROR(ShareMemory(*tensor.memory));
    }
  }
  for (const OutputTarget& output : input.outputs) {
    if (output.kind == OutputTarget::Kind::kMemory) {
      HPVMD_RETURN_IF_ERROR(ShareMemory(output.memory));
    }
  }
  return absl::OkStatus();
}

RequestId Link::Run(const RunInput& input, RunDone done) {
  Pending pending{.done = std::move(done),
                  .on_started = input.on_started,
                  .node_records_max = std::min(input.options.node_records_max(), kNodeRecordsMax)};
  if (input.within > Duration(0)) {
    pending.stop_at = RealClock().Now() + input.within;
    pending.kill_at = pending.stop_at + options_.stop_grace;
  }
  EncodedRequest request;
  StatusOr<RequestId> sent = [&]() -> StatusOr<RequestId> {
    if (input.handle == 0 || input.options.repeat() == 0) {
      return InvalidArgument("The run has no handle or repeats 0 times.");
    }
    HPVMD_RETURN_IF_ERROR(EncodeRun(input, &request));
    HPVMD_RETURN_IF_ERROR(HPVMD_FAILPOINT("link.run.send"));
    return RequestId{0};
  }();
  if (sent.ok()) {
    std::lock_guard lock(mutex_);
    const Status shared = ShareMemories(input);
    // The callback moves into the table only when the request is sure to be sent.
    Pending copy = pending;
    sent = shared.ok() ? SendRequest(request, {}, std::move(copy)) : StatusOr<RequestId>(shared);
  }
  HPVMD_FAILPOINT("link.run.sent").IgnoreError();  // It runs: only a delay or an end makes sense here.
  return Finish(std::move(sent), &pending);
}

void Link::Ask(Status reached, const Envelope& envelope, Pending pending) {
  pending.kill_at = RealClock().Now() + kAnswerWithin;
  Pending unsent = pending;
  StatusOr<RequestId> sent = RequestId{0};
  if (!reached.ok()) {
    sent = reached;
  } else {
    EncodedRequest request{.envelope = envelope, .body = {}, .storage = {}};
    std::lock_guard lock(mutex_);
    sent = SendRequest(request, {}, std::move(pending));
  }
  Finish(std::move(sent), &unsent);
}

void Link::GrantChanged(uint32_t entry, uint32_t epoch, AckDone done) {
  Envelope envelope;
  envelope.mutable_grant_changed()->set_entry(entry);
  envelope.mutable_grant_changed()->set_epoch(epoch);
  Ask(HPVMD_FAILPOINT("link.grant.send"), envelope, {.done = std::move(done)});
}

void Link::Reclaim(uint32_t entry, uint64_t bytes_max, UsageDone done) {
  Envelope envelope;
  envelope.mutable_reclaim()->set_entry(entry);
  envelope.mutable_reclaim()->set_bytes_max(bytes_max);
  Ask(HPVMD_FAILPOINT("link.reclaim.send"), envelope, {.done = std::move(done)});
}

void Link::ListCosts(uint64_t handle, CostsDone done) {
  Envelope envelope;
  envelope.mutable_list_costs()->set_handle(handle);
  Ask(HPVMD_FAILPOINT("link.costs.send"), envelope, {.done = std::move(done)});
}

void Link::Release(uint64_t handle) {
  Envelope envelope;
  envelope.mutable_release_graph()->set_handle(handle);
  if (!HPVMD_FAILPOINT("link.release.send").ok()) {
    return;
  }
  std::lock_guard lock(mutex_);
  SendLocked(envelope).IgnoreError();  // A dead executor holds nothing to let go of.
}

void Link::Forget(uint64_t memory_id) {
  std::lock_guard lock(mutex_);
  if (!memories_.Erase(memory_id)) {
    return;
  }
  Envelope envelope;
  envelope.mutable_forget_memory()->set_memory_id(memory_id);
  if (HPVMD_FAILPOINT("link.forget.send").ok()) {
    SendLocked(envelope).IgnoreError();
  }
}

void Link::Cancel(RequestId id) {
  std::lock_guard lock(mutex_);
  const auto found = pending_.find(id);
  if (found == pending_.end()) {
    return;
  }
  Envelope envelope;
  envelope.mutable_cancel()->set_target_id(id);
  if (HPVMD_FAILPOINT("link.cancel.send").ok()) {  // Else lost: then the grace ends and the process with it.
    SendLocked(envelope).IgnoreError();
  }
  if (std::holds_alternative<RunDone>(found->second.done)) {
    Pending& pending = found->second;
    const Time now = RealClock().Now();
    if (pending.stop_at > now && pending.kill_at > now + options_.stop_grace) {  // Else it has been asked already.
      pending.stop_at = kNever;
      pending.patience = StopPatience(now, options_.stop_grace, UsedCpuTime());
      pending.kill_at = pending.patience.end();
      ArmOverdue(pending.kill_at);
    }
  }
}

// One timer a link covers all its requests: most end long before it fires, and it then looks for the next.
void Link::ArmOverdue(Time when) {
  if (when < armed_for_) {
    armed_for_ = when;
    hub_.StartTimer(when, source_, kOverdueTimer);
  }
}

// Notes when the run should have stopped; true when the process must end.
bool Link::IsOverdue(Pending& pending, Time now) {
  if (pending.stop_at <= now) {
    pending.patience = StopPatience(pending.stop_at, options_.stop_grace, UsedCpuTime());
    pending.stop_at = kNever;
  }
  if (pending.kill_at > now) {
    return false;
  }
  const std::optional<Time> longer = pending.patience.Longer(now, UsedCpuTime());
  pending.kill_at = longer.value_or(pending.kill_at);
  return !longer.has_value();
}

std::optional<Duration> Link::UsedCpuTime() const {
  clockid_t clock;
  timespec used{};
  if (!options_.waits_for_starved || clock_getcpuclockid(process_.pid, &clock) != 0 ||
      clock_gettime(clock, &used) != 0) {
    return std::nullopt;
  }
  return std::chrono::seconds(used.tv_sec) + Duration(used.tv_nsec);
}

void Link::Shutdown() {
  std::lock_guard lock(mutex_);
  if (ended_ || shutting_down_ || !kill_reason_.ok()) {
    return;
  }
  Envelope envelope;
  envelope.mutable_shutdown();
  if (HPVMD_FAILPOINT("link.shutdown.send").ok()) {
    SendLocked(envelope).IgnoreError();
  }
  shutting_down_ = true;
  hub_.StartTimer(RealClock().Now() + options_.shutdown_grace, source_, kShutdownTimer);
}

void Link::KillLocked(Status why) {
  if (!ended_ && kill_reason_.ok()) {
    kill_reason_ = std::move(why);
    HPVMD_FAILPOINT("link.kill.before").IgnoreError();
    SendKill(process_);
  }
}

// One that has ended by itself, though nobody has reaped it yet, is told as it ended.
void Link::Kill(std::string_view why) {
  if (alive()) {
    std::lock_guard lock(mutex_);
    KillLocked(Unavailable(why));
  }
}

bool Link::alive() const {
  std::lock_guard lock(mutex_);
  if (ended_) {
    return false;
  }
  // It may have ended without having been reaped.
  pollfd process{process_.pidfd.get(), POLLIN, 0};
  return poll(&process, 1, 0) == 0;
}

size_t Link::pending() const {
  std::lock_guard lock(mutex_);
  return pending_.size();
}

void Link::OnEvent(Event event, uint32_t epoll_events) {
  switch (event) {
    case Event::kSocket:
      if ((epoll_events & EPOLLOUT) != 0) {
        std::lock_guard lock(mutex_);
        writer_->Flush().IgnoreError();  // A failure shows as the socket's end.
        if (!writer_->pending() && watches_write_) {
          watches_write_ = false;
          hub_.Rewatch(source_, Event::kSocket, socket_.get(), EPOLLIN);
        }
      }
      if ((epoll_events & (EPOLLIN | EPOLLHUP | EPOLLERR)) != 0) {
        ReadSocket();
      }
      break;
    case Event::kStderr:
      ReadStderr();
      break;
    case Event::kExit: {
      HPVMD_FAILPOINT("link.reap.before").IgnoreError();
      const std::string how = Reap(process_);
      if (!how.empty()) {
        End(how);
      }
      break;
    }
  }
}

void Link::ReadSocket() {
  if (socket_ended_) {
    return;
  }
  Status status = reader_->Fill(FrameReader::Wait::kNo);
  while (status.ok()) {
    Frame frame;
    StatusOr<bool> next = reader_->Next(&frame);
    if (!next.ok()) {
      status = next.status();
    } else if (!*next) {
      return;
    } else {
      status = HandleFrame(std::move(frame));
    }
  }
  // The end, or a broken rule: nothing more is believed, and the process must go.
  socket_ended_ = true;
  hub_.Unwatch(socket_.get());
  std::lock_guard lock(mutex_);
  if (status.code() == absl::StatusCode::kInvalidArgument) {
    KillLocked(BrokeProtocol(status));
  } else if (!shutting_down_) {
    SendKill(process_);  // Usually it has ended already; the exit tells how.
  }
}

Status Link::HandleReady(const internal::Ready& said) {
  if (said.devices_size() == 0) {
    return InvalidArgument("Ready: an executor without devices.");
  }
  const ExecutorReady ready{.said = said, .pid = process_.pid, .took = RealClock().Now() - started_};
  devices_.clear();
  for (const internal::DeviceReport& report : said.devices()) {
    devices_.push_back(report.device().id());
  }
  {
    std::lock_guard lock(mutex_);
    ready_ = ready;
    changed_.notify_all();
  }
  if (on_ready_) {
    on_ready_(ready);
  }
  return absl::OkStatus();
}

Status Link::HandleRunDone(Pending pending, internal::RunDone done, std::vector<uint8_t> body) {
  if (static_cast<uint32_t>(done.nodes_size()) > pending.node_records_max) {
    const Status status = InvalidArgument("RunDone: there are more node records than asked for.");
    std::get<RunDone>(pending.done)(BrokeProtocol(status));
    return status;
  }
  std::get<RunDone>(pending.done)(RunReply{.done = std::move(done), .body = std::move(body)});
  return absl::OkStatus();
}

Status Link::HandleUsage(const internal::Usage& usage) {
  if (!usages_.Take(RealClock().Now())) {
    return InvalidArgument("Usage: it is told more often than " + std::to_string(kUsagesPerSecond) +
                           " times a second.");
  }
  if (options_.on_usage) {
    options_.on_usage(usage);
  }
  return absl::OkStatus();
}

Status Link::HandleFrame(Frame frame) {
  HPVMD_ASSIGN_OR_RETURN(Unchecked<Envelope> unchecked, ParseHead(frame.head));
  HPVMD_ASSIGN_OR_RETURN(Envelope said,
                         CheckFromExecutor(std::move(unchecked), frame.body.size(), frame.fds.size(), devices_));
  HPVMD_RETURN_IF_ERROR(ReachReceived(said.message_case()));
  if (said.message_case() == Envelope::kFatal) {
    std::lock_guard lock(mutex_);
    KillLocked(GetStatus(said.fatal().status()));
    return absl::OkStatus();
  }
  if (said.message_case() == Envelope::kUsage && said.request_id() == 0) {
    return HandleUsage(said.usage());
  }
  const auto unexpected = [] { return InvalidArgument("A message answers no request of its kind."); };
  Pending pending;
  {
    std::lock_guard lock(mutex_);
    const auto found = pending_.find(said.request_id());
    if (found == pending_.end()) {
      return unexpected();
    }
    if (said.message_case() == Envelope::kEvent) {
      pending.on_started = std::exchange(found->second.on_started, nullptr);
    } else {
      static constexpr Envelope::MessageCase kAnswers[] = {Envelope::kReady,    Envelope::kPrepared, Envelope::kRunDone,
                                                           Envelope::kGrantAck, Envelope::kUsage,    Envelope::kCosts};
      if (kAnswers[found->second.done.index()] != said.message_case()) {
        return unexpected();
      }
      pending = std::move(found->second);
      pending_.erase(found);
    }
  }
  return HandleAnswer(std::move(said), std::move(frame.body), std::move(pending));
}

Status Link::HandleAnswer(Envelope said, std::vector<uint8_t> body, Pending pending) {
  switch (said.message_case()) {
    case Envelope::kReady:
      return HandleReady(said.ready());
    case Envelope::kEvent:
      if (!pending.on_started) {
        return InvalidArgument("Event: nobody asked for it.");
      }
      pending.on_started();
      return absl::OkStatus();
    case Envelope::kPrepared:
      std::get<PrepareDone>(pending.done)(std::move(*said.mutable_prepared()));
      return absl::OkStatus();
    case Envelope::kRunDone:
      return HandleRunDone(std::move(pending), std::move(*said.mutable_run_done()), std::move(body));
    case Envelope::kUsage:
      std::get<UsageDone>(pending.done)(std::move(*said.mutable_usage()));
      return absl::OkStatus();
    case Envelope::kCosts:
      std::get<CostsDone>(pending.done)(std::move(*said.mutable_costs()));
      return absl::OkStatus();
    default:
      FailPending{absl::OkStatus()}(std::get<AckDone>(pending.done));
      return absl::OkStatus();
  }
}

void Link::ReadStderr() {
  char bytes[1024];
  const ssize_t got = read(stderr_.get(), bytes, sizeof(bytes));
  if (got > 0) {
    stderr_tail_.append(bytes, static_cast<size_t>(got));
    if (stderr_tail_.size() > kStderrBytesKept) {
      stderr_tail_.erase(0, stderr_tail_.size() - kStderrBytesKept);
    }
  } else if (got == 0 || errno != EAGAIN) {
    hub_.Unwatch(stderr_.get());
  }
}

void Link::OnTimer(uint64_t tag) {
  std::unique_lock lock(mutex_);
  switch (tag) {
    case kReadyTimer:
      if (!ready_.has_value()) {
        KillLocked(Unavailable("The executor process was killed because it was not ready within " +
                               std::to_string(options_.ready_within / std::chrono::milliseconds(1)) + " ms."));
      }
      break;
    case kShutdownTimer:
      SendKill(process_);
      break;
    case kOverdueTimer: {
      armed_for_ = kNever;
      const Time now = RealClock().Now();
      Time next = kNever;
      for (auto& [id, pending] : pending_) {
        if (IsOverdue(pending, now)) {
          KillLocked(Unavailable("The executor process was killed because " + WhatWasLate(pending)));
          return;
        }
        next = std::min({next, pending.stop_at, pending.kill_at});
      }
      ArmOverdue(next);
      break;
    }
    default:
      break;
  }
}

std::string Link::WhatWasLate(const Pending& pending) const {
  if (!std::holds_alternative<RunDone>(pending.done) && !std::holds_alternative<PrepareDone>(pending.done)) {
    return "it did not answer within " + std::to_string(kAnswerWithin / std::chrono::seconds(1)) + " s.";
  }
  return "a request did not stop within " + std::to_string(options_.stop_grace / std::chrono::milliseconds(1)) +
         " ms after its deadline or cancellation.";
}

Status Link::EndStatus(const std::string& how) {
  std::lock_guard lock(mutex_);
  if (!kill_reason_.ok()) {
    return kill_reason_;
  }
  if (shutting_down_) {
    return absl::OkStatus();
  }
  std::string message = "The executor process ended (" + how + ").";
  if (const std::string why = options_.why_ended ? options_.why_ended() : ""; !why.empty()) {
    message += " " + why;
  }
  const size_t last = stderr_tail_.find_last_not_of("\n ");
  if (last != std::string::npos) {
    message += " Its last words: " + CleanText(stderr_tail_.substr(0, last + 1), kStderrBytesKept);
  }
  return Unavailable(message);
}

// The process is gone: takes in what it still said, fails what is pending, then tells.
void Link::End(const std::string& how) {
  // Up to the socket's end, which a peer that gave its end away could hold off for ever.
  for (int reads = 0; reads < kLastReadsMax && !socket_ended_; ++reads) {
    ReadSocket();
  }
  if (stderr_.valid()) {
    ReadStderr();
    hub_.Unwatch(stderr_.get());
  }
  if (!socket_ended_) {
    hub_.Unwatch(socket_.get());
    socket_ended_ = true;
  }
  hub_.Unwatch(process_.pidfd.get());
  hub_.Remove(source_);
  const Status status = EndStatus(how);
  HPVMD_FAILPOINT("link.end.before").IgnoreError();
  std::unordered_map<RequestId, Pending> failed;
  {
    std::lock_guard lock(mutex_);
    ended_ = true;
    end_status_ = status;
    failed.swap(pending_);
    changed_.notify_all();
  }
  const Status reason = status.ok() ? Unavailable("The executor process was shut down.") : status;
  for (const auto& [id, pending] : failed) {
    std::visit(FailPending{reason}, pending.done);
  }
  if (on_end_) {
    on_end_(status);
  }
  std::lock_guard lock(mutex_);
  finished_ = true;
  changed_.notify_all();
}

StatusOr<std::unique_ptr<ExecutorLink>> StartLink(ExecutorHub& hub, const ExecutorOptions& options, bool is_spare,
                                                  std::function<void(const ExecutorReady&)> on_ready,
                                                  std::function<void(const Status&)> on_end) {
  auto link = std::make_unique<Link>(hub.core(), options, is_spare, std::move(on_ready), std::move(on_end));
  HPVMD_RETURN_IF_ERROR(link->StartProcess());
  return link;
}

}  // namespace

internal::Hello DefaultHello() {
  internal::Hello hello;
  hello.add_backends("cpu");
  hello.set_artifact_key(std::string(sizeof(Sha256::bytes), '\0'));
  return hello;
}

Status RunReply::status() const { return GetStatus(done.status()); }

StatusOr<std::unique_ptr<ExecutorLink>> ExecutorLink::Start(ExecutorHub& hub, const ExecutorOptions& options,
                                                            std::function<void(const ExecutorReady&)> on_ready,
                                                            std::function<void(const Status&)> on_end) {
  return StartLink(hub, options, /*is_spare=*/false, std::move(on_ready), std::move(on_end));
}

StatusOr<std::unique_ptr<ExecutorLink>> ExecutorLink::StartSpare(ExecutorHub& hub, const ExecutorOptions& options,
                                                                 std::function<void(const Status&)> on_end) {
  return StartLink(hub, options, /*is_spare=*/true, nullptr, std::move(on_end));
}

}  // namespace hpvm
