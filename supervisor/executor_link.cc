// SPDX-License-Identifier: Apache-2.0
#include "supervisor/executor_link.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <condition_variable>
#include <mutex>
#include <utility>

#include "base/failpoint.h"
#include "base/io/child_process.h"
#include "base/io/memfd.h"
#include "base/io/ring_channel.h"
#include "proto/internal/protocol.h"
#include "supervisor/executor_holdings.h"
#include "supervisor/pending_requests.h"
#include "supervisor/request_message.h"

namespace hpvm::supervisor {
namespace {

using internal::Envelope;

// Limit of data queued for an executor that does not read: a few of the largest frames.
constexpr size_t kQueuedBytesMax = 64 * limits::kMiB;
constexpr size_t kStderrBytesKept = 4096;
// More turns than needed to drain a ring and a socket's buffers.
constexpr int kLastTurnsMax = 256;
// Limit of one turn on the hub's thread; then other sources have their turns.
constexpr int kTurnFramesMax = 16;
constexpr size_t kTurnBytesMax = 128 * 1024;
// Data sent in a turn waits at most this long for the turn's end.
constexpr Duration kUnseenMax = std::chrono::microseconds(50);
// A prepare compiles; the compiler enforces its deadline, so only a long overrun costs the process.
constexpr Duration kPrepareGrace = std::chrono::seconds(5);
// From this sandbox level on the process has a PID namespace.
constexpr uint32_t kOwnPidsLevel = 4;

// Rate limit of unsolicited messages. An honest executor reports its usage every 100 ms at most.
constexpr int kUsagesPerSecond = 50, kUsagesAtOnce = 100;
// Rate limit of bells that find nothing, because the frame for which they were rung may have been taken before. This
// many cost the daemon's thread less than a per cent of its time; a bell that is rung without end makes a hundred times
// as many turns.
constexpr int kUselessBellsPerSecond = 1'000, kUselessBellsAtOnce = 1'000;

class UselessRate {
 public:
  UselessRate(int per_second, int at_once) : per_second_(per_second), at_once_(at_once), left_(at_once) {}
  bool Take(Time now) {
    left_ = std::min<double>(at_once_, left_ + per_second_ * 1e-9 * static_cast<double>((now - last_).count()));
    last_ = now;
    left_ -= 1;
    return left_ >= 0;
  }
  // One more may follow.
  void Allow() { left_ = std::min<double>(at_once_, left_ + 1); }

 private:
  int per_second_, at_once_;
  double left_;
  Time last_{0};
};

// Simulates the end of the connection before that message.
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
    case Envelope::kUsage:
      return HPVMD_FAILPOINT("link.usage.receive");
    case Envelope::kFatal:
      return absl::OkStatus();
    default:
      return HPVMD_FAILPOINT("link.answer.receive");
  }
}

Status BrokeProtocol(const Status& why) {
  return Internal("The executor process broke the protocol and was killed: " + Message(why));
}

// Returns `hello` in the form in which it is sent.
internal::Hello HelloOf(const ExecutorOptions& options) {
  internal::Hello hello = options.hello;
  hello.set_version(kExecutorProtocolVersion);
  hello.set_has_grant_page(options.grant_page >= 0);
  hello.set_has_spill_file(options.spill_fd >= 0);
  return hello;
}

// Locking: mutex_ guards every member that is not marked as belonging to the hub's thread. Callbacks run without it.
class Link final : public ExecutorLink, public EventSource {
 public:
  Link(ExecutorHub& hub, const ExecutorOptions& options, bool is_spare,
       std::function<void(const ExecutorReady&)> on_ready, std::function<void(const Status&)> on_end)
      : executors_(hub),
        hub_(hub.events()),
        is_spare_(is_spare),
        options_(options),
        on_ready_(std::move(on_ready)),
        on_end_(std::move(on_end)) {}
  ~Link() override;

  Status StartProcess();
  Status Greet(const ExecutorOptions& options, std::function<void(const ExecutorReady&)> on_ready,
               std::function<void(const Status&)> on_end) override;
  StatusOr<ExecutorReady> WaitReady(Time deadline) override;

  RequestId Prepare(const PrepareInput& input, std::function<void(StatusOr<internal::Prepared>)> done) override;
  RequestId Run(const RunInput& input, std::function<void(StatusOr<RunReply>)> done) override;
  void Ask(Envelope request, AskDone done) override;
  void Release(uint64_t handle) override;
  void Cancel(RequestId id) override;
  void Forget(uint64_t memory_id) override;
  std::optional<Duration> CpuTime() const override { return alive() ? UsedCpuTime() : std::nullopt; }
  bool was_spare() const override { return is_spare_; }
  void Shutdown() override;
  void Kill(std::string_view why) override;
  int pid() const override { return process_.pid; }
  bool alive() const override;
  size_t pending() const override;

  void OnEvent(uint8_t kind, uint32_t epoll_events) override;
  void OnTimer(uint64_t tag) override;
  bool OnTurn() override;
  bool BeginSleep() override;

 private:
  enum EventKind : uint8_t { kSocket, kExit, kStderr, kBell };
  enum TimerTag : uint64_t { kReadyTimer, kOverdueTimer, kShutdownTimer };

  Status SpawnProcess();
  Status CreateRings();
  RingPairMemory& Rings() { return *reinterpret_cast<RingPairMemory*>(rings_memory_.data()); }
  Status StartOnHub(Status status);
  void GreetOnHub();
  // Sends a request and records it. The caller holds mutex_.
  StatusOr<RequestId> SendRequest(EncodedRequest& request, const Pending& pending);
  // Returns 0 for a request that was not sent; its callback runs on the hub's thread like any other.
  RequestId Finish(const StatusOr<RequestId>& sent, Pending pending);
  std::optional<Duration> UsedCpuTime() const;
  Status SendLocked(const Envelope& envelope, std::span<const uint8_t> body = {}, std::span<const int> fds = {},
                    bool more = false);
  ExecutorHoldings::Send Sender();
  void ArmOverdue(Time when);
  void KillLocked(Status why);

  void FlushWriter();
  // Wakes the executor for data sent during this turn of the hub's thread.
  void WakeExecutor();

  // On the hub's thread. Receives some frames; returns true when there were any, or part of one.
  StatusOr<bool> TakeFrames();
  void EndChannel(const Status& why);
  Status HandleFrame(Frame frame);
  Status HandleReady(const internal::Ready& ready);
  Status HandleUsage(const internal::Usage& usage);
  void ReadStderr();
  void End(const std::string& how);
  Status EndStatus(const std::string& how);

  ExecutorHub& executors_;
  EventHub& hub_;
  const bool is_spare_;
  bool is_started_ = false;  // The hub reports its end.
  ExecutorOptions options_;  // Changed only by Greet, on the hub's thread.
  std::function<void(const ExecutorReady&)> on_ready_;
  std::function<void(const Status&)> on_end_;

  SpawnedProcess process_;  // Set by Start; the descriptor lives as long as this object.
  UniqueFd socket_;         // Likewise, and the mapping of the rings.
  UniqueFd rings_memfd_;    // Until it is sent.
  Mapping rings_memory_;
  UniqueFd bell_;  // Rung by the executor; never read.

  // The following members belong to the hub's thread.
  uint64_t source_ = 0;
  std::optional<RingChannelReader> reader_;
  bool channel_ended_ = false;
  bool socket_ended_ = false;  // The remaining contents of the rings are still received.
  bool has_rung_ = false;      // The bell was rung since the last turn.
  bool is_turn_ = false;       // Frames are being received; used only on the hub's thread.
  // Time since which the executor has not been woken for data that a turn sent.
  Time unseen_since_ = kNever;
  UselessRate useless_bells_{kUselessBellsPerSecond, kUselessBellsAtOnce};
  UniqueFd stderr_;
  std::string stderr_tail_;
  UselessRate usages_{kUsagesPerSecond, kUsagesAtOnce};
  std::vector<std::string> devices_;  // From Ready.

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::optional<RingChannelWriter> writer_;
  PendingRequests pending_;
  ExecutorHoldings holdings_;
  Time armed_for_ = kNever;
  Time started_{0};
  std::optional<ExecutorReady> ready_;
  // Why this link killed the process; OK when it did not.
  Status kill_reason_;
  bool shutting_down_ = false;
  bool ended_ = false;  // Nothing is sent any more; pending_ is empty.
  Status end_status_;
  bool finished_ = false;  // The last callback has returned.
};

Status Link::StartProcess() {
  Status started, status;
  // On a thread that outlives every link, because the executor dies with the thread that started it. The hub learns of
  // the process only after it has been recorded, and so cannot reap it before.
  executors_.SpawnAndWait([&] {
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

// Runs on the thread that starts processes.
Status Link::SpawnProcess() {
  HPVMD_RETURN_IF_ERROR(CreateRings());
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
  spawn.cpus = options_.cpus;
  spawn.stderr_fd = options_.stderr_fd >= 0 ? options_.stderr_fd : stderr_write.get();
  const uint32_t level_plus_1 = options_.hello.sandbox_level_max_plus_1();
  spawn.has_own_pids = !options_.hello.without_lock_down() && (level_plus_1 == 0 || level_plus_1 > kOwnPidsLevel);
  started_ = RealClock().Now();
  HPVMD_RETURN_IF_ERROR(HPVMD_FAILPOINT("link.spawn.before"));
  HPVMD_ASSIGN_OR_RETURN(process_, Spawn(spawn));
  socket_ = std::move(ends.first);
  reader_.emplace(socket_.get(), Rings().to_server, kNoBell, kFromExecutorLimits);
  return absl::OkStatus();
}

Status Link::CreateRings() {
  HPVMD_ASSIGN_OR_RETURN(rings_memfd_, CreateSealedMemfd("hpvm-rings", kRingPairBytes));
  HPVMD_ASSIGN_OR_RETURN(rings_memory_, Mapping::Map(rings_memfd_.get(), kRingPairBytes, Mapping::Access::kReadWrite));
  bell_.reset(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  return bell_.valid() ? absl::OkStatus() : FromErrno(errno, "Creating an executor's bell");
}

// Once the process exists, a failure (including an earlier one, `status`) ends it, and is reported when it is reaped
// like any other end.
Status Link::StartOnHub(Status status) {
  source_ = hub_.Add(this);
  if (const Status watched = hub_.Watch(source_, kExit, process_.pidfd.get(), EPOLLIN); !watched.ok()) {
    hub_.Remove(source_);
    KillAndReap(process_);
    return watched;
  }
  if (status.ok()) {
    status = hub_.Watch(source_, kSocket, socket_.get(), EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET);
  }
  if (status.ok()) {
    status = hub_.Watch(source_, kBell, bell_.get(), EPOLLIN | EPOLLET);
  }
  if (status.ok() && stderr_.valid()) {
    status = hub_.Watch(source_, kStderr, stderr_.get(), EPOLLIN);
  }
  {
    std::lock_guard lock(mutex_);
    writer_.emplace(socket_.get(), RingChannelWriter::Wait::kNo, kQueuedBytesMax);
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
    hello.fds = {rings_memfd_.get(), bell_.get()};
    for (const int fd : {options_.grant_page, options_.spill_fd}) {
      if (fd >= 0) {
        hello.fds.push_back(fd);
      }
    }
    status = SendRequest(hello, {}).status();
    options_.spill_fd = -1;  // It has been sent, and belongs to the caller.
    rings_memfd_.reset();
    writer_->UseRing(Rings().to_client, kNoBell);
  }
  // A process that has ended already reports its own end in a moment; if it only does not listen, the timer ends it.
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
  // Waits until the hub has released this object and run the callbacks of unsent requests, which are posted one by one.
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

StatusOr<RequestId> Link::SendRequest(EncodedRequest& request, const Pending& pending) {
  HPVMD_ASSIGN_OR_RETURN(const RequestId id, pending_.NextId());
  request.envelope.set_request_id(id);
  HPVMD_RETURN_IF_ERROR(SendLocked(request.envelope, request.body, request.fds));
  ArmOverdue(pending_.Add(id, request.envelope.message_case(), pending));
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
  // An answer often makes room for the next run: the executor is woken once for all sends of a turn.
  const bool in_turn = hub_.IsHubThread() && is_turn_;
  if (in_turn && unseen_since_ == kNever) {
    unseen_since_ = RealClock().Now();
  }
  const Status status = writer_->Send(head, body, fds, more || in_turn);
  if (status.code() == absl::StatusCode::kUnavailable) {
    return Unavailable("The executor process is gone.");  // Its end is reported with more detail to pending requests.
  }
  if (status.code() == absl::StatusCode::kInvalidArgument) {
    KillLocked(BrokeProtocol(status));
    return Unavailable("The executor process is ending: " + Message(kill_reason_));
  }
  return status;
}

void Link::WakeExecutor() {
  std::lock_guard lock(mutex_);
  unseen_since_ = kNever;
  FlushWriter();
}

// There may be room now for queued data. The caller holds mutex_.
void Link::FlushWriter() {
  const Status status = writer_->pending() ? writer_->Flush() : absl::OkStatus();
  if (status.code() == absl::StatusCode::kInvalidArgument) {
    KillLocked(BrokeProtocol(status));  // Other failures show as the socket's end.
  }
}

RequestId Link::Finish(const StatusOr<RequestId>& sent, Pending pending) {
  if (sent.ok()) {
    return *sent;
  }
  hub_.Post([pending = std::move(pending), status = sent.status()] { pending.Fail(status); });
  return 0;
}

ExecutorHoldings::Send Link::Sender() {
  return [this](const Envelope& envelope, std::span<const uint8_t> body, std::span<const int> fds, bool more) {
    return SendLocked(envelope, body, fds, more);
  };
}

RequestId Link::Prepare(const PrepareInput& input, std::function<void(StatusOr<internal::Prepared>)> done) {
  const Pending pending{
      .done =
          [done = std::move(done)](StatusOr<Answer> answer) {
            answer.ok() ? done(std::move(*answer->said.mutable_prepared())) : done(answer.status());
            return absl::OkStatus();
          },
      .kill_at = input.within > Duration(0) ? RealClock().Now() + input.within + kPrepareGrace : kNever};
  const auto send = [&]() -> StatusOr<RequestId> {
    EncodedRequest request;
    HPVMD_RETURN_IF_ERROR(EncodePrepare(input, &request));
    HPVMD_RETURN_IF_ERROR(HPVMD_FAILPOINT("link.prepare.send"));
    std::lock_guard lock(mutex_);
    const Status put = holdings_.PutModules(input, Sender());
    StatusOr<RequestId> sent = put.ok() ? SendRequest(request, pending) : StatusOr<RequestId>(put);
    if (absl::IsUnavailable(sent.status()) && !ended_ && !shutting_down_ && kill_reason_.ok()) {
      // The process has just ended, and perhaps said why (that its sandbox is too weak): End answers with that reason.
      if (sent = pending_.NextId(); sent.ok()) {
        pending_.Add(*sent, request.envelope.message_case(), pending);
      }
    }
    return sent;
  };
  return Finish(send(), pending);
}

RequestId Link::Run(const RunInput& input, std::function<void(StatusOr<RunReply>)> done) {
  Pending pending{
      .done = [done = std::move(done), records_max = std::min(input.options.node_records_max(), kNodeRecordsMax)](
                  StatusOr<Answer> answer) -> Status {
        if (!answer.ok()) {
          done(answer.status());
          return absl::OkStatus();
        }
        internal::RunDone& said = *answer->said.mutable_run_done();
        if (static_cast<uint32_t>(said.nodes_size()) > records_max) {
          const Status status = InvalidArgument("RunDone: there are more node records than the request asked for.");
          done(BrokeProtocol(status));
          return status;
        }
        done(RunReply{.done = std::move(said), .body = std::move(answer->body)});
        return absl::OkStatus();
      },
      .on_started = input.on_started,
      .on_log = input.on_log};
  if (input.within > Duration(0)) {
    pending.stop_at = RealClock().Now() + input.within;
    pending.kill_at = pending.stop_at + options_.stop_grace;
  }
  const auto send = [&]() -> StatusOr<RequestId> {
    EncodedRequest request;
    HPVMD_RETURN_IF_ERROR(EncodeRun(input, &request));
    HPVMD_RETURN_IF_ERROR(HPVMD_FAILPOINT("link.run.send"));
    std::lock_guard lock(mutex_);
    HPVMD_RETURN_IF_ERROR(holdings_.ShareMemories(input, Sender()));
    return SendRequest(request, pending);
  };
  const StatusOr<RequestId> sent = send();
  HPVMD_FAILPOINT("link.run.sent").IgnoreError();  // The run is in progress: only a delay or an end makes sense here.
  return Finish(sent, std::move(pending));
}

void Link::Ask(Envelope request, AskDone done) {
  const Pending pending{.done =
                            [done = std::move(done)](StatusOr<Answer> answer) {
                              if (done) {
                                answer.ok() ? done(std::move(answer->said)) : done(answer.status());
                              }
                              return absl::OkStatus();
                            },
                        .kill_at = RealClock().Now() + PendingRequests::kAnswerWithin};
  const auto send = [&]() -> StatusOr<RequestId> {
    HPVMD_RETURN_IF_ERROR(HPVMD_FAILPOINT("link.ask.send"));
    EncodedRequest encoded{.envelope = std::move(request)};
    std::lock_guard lock(mutex_);
    return SendRequest(encoded, pending);
  };
  Finish(send(), pending);
}

void Link::Release(uint64_t handle) {
  Envelope envelope;
  envelope.mutable_release_graph()->set_handle(handle);
  if (!HPVMD_FAILPOINT("link.release.send").ok()) {
    return;
  }
  std::lock_guard lock(mutex_);
  SendLocked(envelope).IgnoreError();  // A dead executor holds nothing to be released.
}

void Link::Forget(uint64_t memory_id) {
  std::lock_guard lock(mutex_);
  if (!holdings_.Forget(memory_id)) {
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
  if (!pending_.contains(id)) {
    return;
  }
  Envelope envelope;
  envelope.mutable_cancel()->set_target_id(id);
  // Otherwise it is lost: then the grace ends, and the process with it.
  if (HPVMD_FAILPOINT("link.cancel.send").ok()) {
    SendLocked(envelope).IgnoreError();
  }
  ArmOverdue(pending_.NoteCancelled(id, options_.stop_grace, RealClock().Now(), UsedCpuTime()));
}

// One timer per link covers all its requests: most end long before it fires, and it then looks for the next deadline.
void Link::ArmOverdue(Time when) {
  if (when < armed_for_) {
    armed_for_ = when;
    hub_.StartTimer(when, source_, kOverdueTimer);
  }
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

// A process that has ended by itself, even if not yet reaped, is reported with its own end.
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

void Link::OnEvent(uint8_t kind, uint32_t epoll_events) {
  switch (kind) {
    case kSocket:
    case kBell: {
      has_rung_ |= kind == kBell;
      socket_ended_ |= (epoll_events & (EPOLLRDHUP | EPOLLHUP | EPOLLERR)) != 0;
      hub_.KeepAwake(source_);
      std::lock_guard lock(mutex_);
      if (writer_->pending()) {
        has_rung_ = false;  // For the freed room.
        FlushWriter();
      }
      break;
    }
    case kStderr:
      ReadStderr();
      break;
    case kExit: {
      HPVMD_FAILPOINT("link.reap.before").IgnoreError();
      const std::string how = Reap(process_);
      if (!how.empty()) {
        End(how);
      }
      break;
    }
  }
}

bool Link::OnTurn() {
  if (channel_ended_) {
    return false;
  }
  is_turn_ = true;
  const StatusOr<bool> took = TakeFrames();
  is_turn_ = false;
  if (unseen_since_ != kNever) {
    WakeExecutor();
  }
  if (!took.ok()) {
    EndChannel(took.status());
    return false;
  }
  const bool was_useless = std::exchange(has_rung_, false) && !*took;
  if (was_useless && !useless_bells_.Take(RealClock().Now())) {
    EndChannel(InvalidArgument("It signalled its eventfd without a message more often than " +
                               std::to_string(kUselessBellsPerSecond) + " times a second."));
  } else if (!*took && socket_ended_) {
    EndChannel(Unavailable("The executor process closed the connection."));
  }
  return *took;
}

bool Link::BeginSleep() { return channel_ended_ || reader_->BeginSleep(); }

StatusOr<bool> Link::TakeFrames() {
  size_t bytes = 0;
  int taken = 0;
  while (taken < kTurnFramesMax && bytes < kTurnBytesMax) {
    Frame frame;
    HPVMD_ASSIGN_OR_RETURN(const bool is_whole, reader_->Next(&frame));
    if (is_whole) {
      bytes += frame.head.size() + frame.body.size();
      useless_bells_.Allow();
      HPVMD_RETURN_IF_ERROR(HandleFrame(std::move(frame)));
      if (unseen_since_ != kNever && RealClock().Now() - unseen_since_ > kUnseenMax) {
        WakeExecutor();
      }
    } else {
      HPVMD_ASSIGN_OR_RETURN(const bool has_come, reader_->Fill());
      if (!has_come) {
        break;
      }
    }
    ++taken;
  }
  return taken > 0;
}

// The channel's end, or a violation: nothing more is accepted, and the process must end.
void Link::EndChannel(const Status& why) {
  channel_ended_ = true;
  hub_.Unwatch(socket_.get());
  hub_.Unwatch(bell_.get());
  std::lock_guard lock(mutex_);
  if (why.code() == absl::StatusCode::kInvalidArgument) {
    KillLocked(BrokeProtocol(why));
  } else if (!shutting_down_) {
    SendKill(process_);  // Usually it has ended already; the exit status tells how.
  }
}

Status Link::HandleReady(const internal::Ready& said) {
  if (said.devices_size() == 0) {
    return InvalidArgument("Ready: the executor lists no devices.");
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

Status Link::HandleUsage(const internal::Usage& usage) {
  if (!usages_.Take(RealClock().Now())) {
    return InvalidArgument("Usage: the message comes more often than " + std::to_string(kUsagesPerSecond) +
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
  const bool is_ready = said.message_case() == Envelope::kReady, is_event = said.message_case() == Envelope::kEvent;
  StatusOr<Pending> pending;
  {
    std::lock_guard lock(mutex_);
    pending = pending_.Take(said, RealClock().Now());
  }
  HPVMD_RETURN_IF_ERROR(pending.status());
  if (is_event && pending->on_log) {
    pending->on_log(std::move(*said.mutable_event()->mutable_log()));
  } else if (is_event && pending->on_started) {
    pending->on_started();
  }
  if (is_event) {
    return absl::OkStatus();
  }
  return is_ready ? HandleReady(said.ready()) : pending->done(Answer{std::move(said), std::move(frame.body)});
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
      const StatusOr<Time> next = pending_.FindOverdue(options_.stop_grace, RealClock().Now(), UsedCpuTime());
      if (!next.ok()) {
        KillLocked(next.status());
        return;
      }
      ArmOverdue(*next);
      break;
    }
    default:
      break;
  }
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
    message += " The end of its stderr: " + CleanText(stderr_tail_.substr(0, last + 1), kStderrBytesKept);
  }
  return Unavailable(message);
}

// The process is gone: receives its remaining messages, fails pending requests, then reports the end.
void Link::End(const std::string& how) {
  // Up to the channel's end, which a peer that passed its socket on to others could delay for ever.
  socket_ended_ = true;
  for (int turns = 0; turns < kLastTurnsMax && !channel_ended_; ++turns) {
    OnTurn();
  }
  if (stderr_.valid()) {
    ReadStderr();
    hub_.Unwatch(stderr_.get());
  }
  if (!channel_ended_) {
    hub_.Unwatch(socket_.get());
    hub_.Unwatch(bell_.get());
    channel_ended_ = true;
  }
  hub_.Unwatch(process_.pidfd.get());
  hub_.Remove(source_);
  const Status status = EndStatus(how);
  HPVMD_FAILPOINT("link.end.before").IgnoreError();
  PendingRequests failed;
  {
    std::lock_guard lock(mutex_);
    ended_ = true;
    end_status_ = status;
    failed = std::exchange(pending_, {});
    changed_.notify_all();
  }
  failed.FailAll(status.ok() ? Unavailable("The executor process was shut down.") : status);
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
  auto link = std::make_unique<Link>(hub, options, is_spare, std::move(on_ready), std::move(on_end));
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

}  // namespace hpvm::supervisor
