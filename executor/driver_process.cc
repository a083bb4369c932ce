// SPDX-License-Identifier: Apache-2.0
#include "executor/driver_process.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <deque>
#include <optional>
#include <utility>
#include <vector>

#include "base/io/build_id.h"
#include "base/io/cache_folder.h"
#include "base/processor_time.h"
#include "compiler/api/wire.h"
#include "executor/driver_environment.h"
#include "executor/driver_wire.h"
#include "executor/driver_worker.h"
#include "sandbox/sandbox.h"

namespace hpvm {
namespace {

// How long an end may take to send or read one message.
constexpr Duration kMessageMax = std::chrono::seconds(10);
// Requests that wait for a builder; beyond it the socket is not read, so the runner waits.
constexpr size_t kWaitingMax = 64;
// What drivers built, in the cache: a log and a binary.
constexpr char kBinaries[] = ".hpvd";
constexpr uint64_t kBinaryFileBytesMax = limits::kArtifactBytesMax + 2 * kDriverLogBytesMax;

// Of everything that a result depends on: this program's build, since it chooses what drivers are asked for, the
// driver, the request and the code.
Sha256 CacheKeyOf(const DriverRequest& request, const Sha256& build) {
  DriverRequest keyed = request;
  keyed.id = 1;  // Which request it is does not matter.
  Hasher hasher;
  hasher.Add(build.bytes);
  hasher.Add(EncodeDriverRequest(keyed));
  hasher.Add(request.build.code);
  return hasher.Finish();
}

struct Job {
  uint64_t id = 0;
  bool is_kept = false;
  Sha256 name;  // In the cache.
  std::string device;
  Frame frame;  // As it came, for the builder.
};

struct Builder {
  pid_t pid = -1;
  UniqueFd socket;
  PrivateFolder folder;
  bool has_loaded = false;
  std::optional<Job> job;
  Time deadline = kNever;  // Of loading, of being idle, or when to look whether the job is late.
  Duration used_before{0};  // Of processors, when the job began; and the job's end by the clock.
  Time wall_deadline = kNever;
};

class Supervisor {
 public:
  explicit Supervisor(const DriverSupervisorOptions& options)
      : options_(options),
        cache_({.folder = options.cache_folder,
                .bytes_max = options.cache_bytes_max,
                .build = build_,
                .suffixes = {kBinaries},
                .partial = ".driver-",
                .program = "hpvm-executor"}) {}
  ~Supervisor() {
    for (Builder& builder : builders_) {
      End(builder);
    }
  }

  Status Serve() {
    HPVMD_RETURN_IF_ERROR(LockDown());
    HPVMD_ASSIGN_OR_RETURN(const Frame hello, ReceiveFrame(options_.socket, kDriverFrameLimits));
    HPVMD_ASSIGN_OR_RETURN(key_, DecodeDriverHello(hello));
    while (true) {
      HPVMD_RETURN_IF_ERROR(Poll());
      HPVMD_RETURN_IF_ERROR(Assign());
    }
  }

 private:
  Status LockDown() {
    signal(SIGPIPE, SIG_IGN);
    if (!options_.is_sandboxed) {
      return absl::OkStatus();
    }
    // What its builders need, since they can only lock themselves down further. Their own entries below /proc have
    // other numbers than this process's.
    std::vector<PathRule> paths = DriverPaths(options_.cache_folder, /*is_builder=*/true, options_.has_nodes);
    paths.push_back({"/proc", PathAccess::kRead});
    if (options_.cache_folder.empty()) {
      paths.push_back({"/tmp", PathAccess::kPrivate});
    }
    SandboxReport report;
    return Confine(&report, {SandboxRole::kSupervisor, std::move(paths)});
  }

  Status Poll() {
    std::vector<pollfd> fds;
    Time wake = kNever;
    for (const Builder& builder : builders_) {
      fds.push_back({builder.socket.get(), POLLIN, 0});
      wake = std::min(wake, builder.deadline);
    }
    fds.push_back({options_.socket, static_cast<short>(waiting_.size() < kWaitingMax ? POLLIN : 0), 0});
    int timeout_ms = -1;
    if (wake != kNever) {
      const Duration left = std::max(Duration{0}, wake - RealClock().Now());
      timeout_ms = static_cast<int>(std::chrono::ceil<std::chrono::milliseconds>(left).count());
    }
    if (poll(fds.data(), fds.size(), timeout_ms) < 0 && errno != EINTR) {
      return FromErrno(errno, "Waiting for builders");
    }
    const Time now = RealClock().Now();
    // From the last to the first, since those that ended are removed.
    for (size_t i = builders_.size(); i-- > 0;) {
      bool has_ended = false;
      if (fds[i].revents != 0) {
        HPVMD_RETURN_IF_ERROR(Read(builders_[i], &has_ended));
      } else if (now >= builders_[i].deadline && !HasTimeLeft(builders_[i], now)) {
        has_ended = true;
        HPVMD_RETURN_IF_ERROR(EndLate(builders_[i]));
      }
      if (has_ended) {
        builders_.erase(builders_.begin() + static_cast<ptrdiff_t>(i));
      }
    }
    return fds.back().revents != 0 ? Receive() : absl::OkStatus();
  }

  Status Receive() {
    HPVMD_ASSIGN_OR_RETURN(Frame frame,
                           ReceiveFrame(options_.socket, kDriverFrameLimits, RealClock().Now() + kMessageMax));
    if (IsDriverCancel(frame)) {
      HPVMD_ASSIGN_OR_RETURN(const DriverCancel cancel, DecodeDriverCancel(frame));
      Cancel(cancel.id);
      return absl::OkStatus();
    }
    HPVMD_ASSIGN_OR_RETURN(const DriverRequest request, DecodeDriverRequest(frame));
    Job job;
    job.id = request.id;
    job.device = request.build.device;
    job.is_kept = !request.identity.empty() && !options_.cache_folder.empty();
    if (job.is_kept) {
      job.name = CacheKeyOf(request, build_);
      if (const auto found = cache_.Read(job.name, kBinaries, key_, kBinaryFileBytesMax)) {
        WireReader in(*found);
        const std::string log = in.Text();
        return Respond({.id = job.id, .status = {}, .log = log}, in.Bytes());
      }
    }
    job.frame = std::move(frame);
    waiting_.push_back(std::move(job));
    return absl::OkStatus();
  }

  // A driver's compiler cannot be told to stop: its process ends. What has been answered already is not known any more.
  void Cancel(uint64_t id) {
    std::erase_if(waiting_, [id](const Job& job) { return job.id == id; });
    const auto busy = std::find_if(builders_.begin(), builders_.end(), [id](const Builder& builder) {
      return builder.job.has_value() && builder.job->id == id;
    });
    if (busy != builders_.end()) {
      Kill(*busy);
      builders_.erase(busy);
    }
  }

  // Gives what waits to builders that have nothing to do, and to new ones while there may be more.
  Status Assign() {
    while (!waiting_.empty()) {
      auto idle = std::find_if(builders_.begin(), builders_.end(),
                               [](const Builder& builder) { return builder.has_loaded && !builder.job.has_value(); });
      if (idle == builders_.end()) {
        const bool is_one_coming = std::any_of(builders_.begin(), builders_.end(),
                                               [](const Builder& builder) { return !builder.has_loaded; });
        if (is_one_coming || builders_.size() >= options_.builders_max) {
          return absl::OkStatus();
        }
        if (const Status started = Start(); !started.ok()) {
          HPVMD_RETURN_IF_ERROR(FailOne(Unavailable("A builder cannot be started: " + Message(started))));
        }
        continue;
      }
      idle->job = std::move(waiting_.front());
      waiting_.pop_front();
      const Time now = RealClock().Now();
      idle->used_before = ProcessorTimeOf(idle->pid);
      idle->wall_deadline = now + options_.build_wall_max;
      idle->deadline = std::min(now + options_.build_max, idle->wall_deadline);
      // A builder that does not take it ends as one that died of it: its socket shows so.
      SendFrame(idle->socket.get(), idle->job->frame.head, idle->job->frame.body, {}, RealClock().Now() + kMessageMax)
          .IgnoreError();
    }
    return absl::OkStatus();
  }

  Status Start() {
    Builder builder;
    HPVMD_ASSIGN_OR_RETURN(builder.folder, MakePrivateFolder(options_.cache_folder));
    HPVMD_ASSIGN_OR_RETURN(auto ends, CreateSocketPair());
    const pid_t parent = getpid();
    builder.pid = fork();
    if (builder.pid < 0) {
      const int error = errno;
      RemoveFolder(builder.folder.path);
      return FromErrno(error, "Forking");
    }
    if (builder.pid == 0) {
      RunDriverWorker({.socket = ends.second.get(),
                       .parent = parent,
                       .private_folder = builder.folder.path,
                       .supervisor = &options_});
    }
    builder.socket = std::move(ends.first);
    builder.deadline = RealClock().Now() + options_.load_max;
    builders_.push_back(std::move(builder));
    return absl::OkStatus();
  }

  Status Read(Builder& builder, bool* has_ended) {
    StatusOr<Frame> frame = ReceiveFrame(builder.socket.get(), kDriverFrameLimits, RealClock().Now() + kMessageMax);
    const StatusOr<DriverAnswer> answer = frame.ok() ? DecodeDriverAnswer(*frame) : frame.status();
    const bool is_expected =
        answer.ok() &&
        (builder.has_loaded ? builder.job.has_value() && answer->id == builder.job->id : answer->id == 0);
    if (!is_expected) {
      *has_ended = true;
      return EndDead(builder);
    }
    if (!builder.has_loaded) {
      *has_ended = !answer->status.ok();
      if (*has_ended) {
        End(builder);
        return FailOne(While(Unavailable(Message(answer->status)), "loading the driver to build with"));
      }
      builder.has_loaded = true;
    } else {
      const Job job = *std::exchange(builder.job, std::nullopt);
      if (answer->status.ok() && job.is_kept) {
        WireWriter out;
        out.Text(answer->log);
        out.Bytes(frame->body);
        cache_.Write(job.name, kBinaries, key_, out.bytes());
      }
      HPVMD_RETURN_IF_ERROR(Respond(*answer, frame->body));
    }
    builder.deadline = RealClock().Now() + options_.idle_max;
    return absl::OkStatus();
  }

  // The builder has closed its socket, or sent what no builder of ours sends.
  Status EndDead(Builder& builder) {
    const std::string how = End(builder);
    if (builder.job.has_value()) {
      return Respond({.id = builder.job->id,
                      .status = InvalidArgument("The compiler of device " + builder.job->device +
                                                "'s driver died on the module (" + how + ")."),
                      .log = {}});
    }
    return builder.has_loaded
               ? absl::OkStatus()
               : FailOne(Unavailable("The driver to build with died while it was loaded (" + how + ")."));
  }

  // The clock says that a job is late, the processor may say that it hardly ran: then the next look is moved.
  bool HasTimeLeft(Builder& builder, Time now) const {
    if (!builder.job.has_value() || now >= builder.wall_deadline) {
      return false;
    }
    const Duration left = options_.build_max - (ProcessorTimeOf(builder.pid) - builder.used_before);
    builder.deadline = std::min(now + std::max<Duration>(left, std::chrono::milliseconds(10)), builder.wall_deadline);
    return left > Duration(0);
  }

  Status EndLate(Builder& builder) {
    const bool is_by_clock = RealClock().Now() >= builder.wall_deadline;
    End(builder);
    if (builder.job.has_value()) {
      const std::string limit = is_by_clock
                                    ? "this server's limit by the clock (" + Seconds(options_.build_wall_max)
                                    : "this server's limit of processor time (" + Seconds(options_.build_max);
      return Respond({.id = builder.job->id,
                      .status = ResourceExhausted("The compiler of device " + builder.job->device +
                                                  "'s driver takes longer than " + limit + ") for the module."),
                      .log = {}});
    }
    return builder.has_loaded ? absl::OkStatus()
                              : FailOne(Unavailable("The driver to build with takes longer than the limit (" +
                                                    Seconds(options_.load_max) + ") to load."));
  }

  static void Kill(Builder& builder) {
    kill(builder.pid, SIGKILL);
    End(builder);
  }

  // Kills, reaps and tells how it ended.
  static std::string End(Builder& builder) {
    builder.socket.reset();
    int status = 0;
    // Time to end by itself, so that what killed it is seen; the socket's end comes a moment before the process's.
    pid_t reaped = 0;
    for (int i = 0; i < 20 && reaped == 0; ++i) {
      reaped = waitpid(builder.pid, &status, WNOHANG);
      if (reaped == 0) {
        poll(nullptr, 0, i == 0 ? 0 : 1);
      }
    }
    if (reaped == 0) {
      kill(builder.pid, SIGKILL);
      while (waitpid(builder.pid, &status, 0) < 0 && errno == EINTR) {
      }
    }
    kill(-builder.pid,
         SIGKILL);  // The programs that it started; the group's number is not given away while it has any.
    RemoveFolder(builder.folder.path);
    return WIFSIGNALED(status) ? "signal " + std::to_string(WTERMSIG(status))
                               : "exit status " + std::to_string(WEXITSTATUS(status));
  }

  static std::string Seconds(Duration duration) {
    const auto ms = std::chrono::duration_cast<std::chrono::milliseconds>(duration).count();
    return ms % 1000 == 0 ? std::to_string(ms / 1000) + " s" : std::to_string(ms) + " ms";
  }

  // No builder comes: whoever waits longest is told, the next ones try again.
  Status FailOne(const Status& status) {
    if (waiting_.empty()) {
      return absl::OkStatus();
    }
    const uint64_t id = waiting_.front().id;
    waiting_.pop_front();
    return Respond({.id = id, .status = status, .log = {}});
  }

  Status Respond(const DriverAnswer& answer, std::span<const uint8_t> binary = {}) {
    return SendFrame(options_.socket, EncodeDriverAnswer(answer), binary, {}, RealClock().Now() + kMessageMax);
  }

  const DriverSupervisorOptions& options_;
  const Sha256 build_ = BuildIdentityOf(MappedObjects());  // No driver is among them: none is loaded here.
  CacheFolder cache_;
  ArtifactKey key_{};
  std::deque<Job> waiting_;
  std::vector<Builder> builders_;
};

}  // namespace

Status SendDriverFolder(int socket, const std::string& folder) {
  return SendFrame(socket, folder, {}, {}, RealClock().Now() + kMessageMax);
}

StatusOr<std::string> ReceiveDriverFolder(int socket) {
  constexpr FrameLimits kLimits = {.head_bytes_max = 4096, .body_bytes_max = 0, .fds_max = 0};
  HPVMD_ASSIGN_OR_RETURN(Frame frame, ReceiveFrame(socket, kLimits, RealClock().Now() + kMessageMax));
  return std::move(frame.head);
}

int RunDriverSupervisor(const DriverSupervisorOptions& options) {
  const Status status = Supervisor(options).Serve();
  if (absl::IsUnavailable(status)) {
    return 0;  // The runner is gone.
  }
  fprintf(stderr, "hpvm-executor: a driver's supervisor ends: %s\n", Message(status).c_str());
  return 1;
}

}  // namespace hpvm
