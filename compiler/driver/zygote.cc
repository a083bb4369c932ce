// SPDX-License-Identifier: Apache-2.0
// The zygote's loop: one thread, one poll over the client and the children's pipes.
#include "compiler/api/zygote.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <deque>
#include <map>
#include <thread>

#include "base/io/build_id.h"
#include "base/io/cache_folder.h"
#include "base/io/child_process.h"
#include "base/io/memfd.h"
#include "base/processor_time.h"
#include "compiler/back/llvm/llvm_back.h"
#include "compiler/driver/cache_key.h"
#include "compiler/driver/zygote_child.h"
#include "compiler/front/opencl/program.h"
#include "sandbox/sandbox.h"
#if HPVMD_HAS_KERNEL_IL
#include "compiler/back/kernel_il/kernel_il.h"
#endif

namespace hpvm {
namespace {

// How long the client may take to send or read one message.
constexpr Duration kMessageMax = std::chrono::seconds(10);
// Requests that wait for a child; beyond it the socket is not read, so the client waits.
constexpr size_t kWaitingMax = 64;
// A result's diagnostics beside its artifact.
constexpr size_t kResultBytesMax = limits::kArtifactBytesMax + limits::kMiB;
// What the client may have kept of one artifact, a few for each class of launches; and of how many artifacts.
constexpr uint32_t kKeepsMax = 200;
constexpr size_t kDeliveredMax = 10'000;
// Files of the cache: artifacts, and beside them what devices have learnt of them and what their launches took.
constexpr char kArtifacts[] = ".hpva", kLearnt[] = ".hpvl", kCosts[] = ".hpvc";

struct Waiting {
  ZygoteRequest request;
  UniqueFd module;
  uint64_t module_bytes = 0;
  Sha256 cache_name;
  Time deadline = kNever;  // The client's.
};

struct Child {
  Waiting job;
  SpawnedProcess process;
  UniqueFd pipe;
  Time deadline = kNever;  // The earlier of the client's and the cap.
  std::vector<uint8_t> received;
};

// A child that closed its pipe, and one that wrote too much.
enum class End : uint8_t { kExited, kTooLarge };

std::string Seconds(uint64_t ns) {
  const uint64_t tenths = ns / 100'000'000;
  return std::to_string(tenths / 10) + "." + std::to_string(tenths % 10) + " s";
}

uint64_t Nanoseconds(const timeval& time) {
  return static_cast<uint64_t>(time.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(time.tv_usec) * 1'000;
}

class Zygote {
 public:
  explicit Zygote(const ZygoteOptions& options) : options_(options) {}
  Status Prepare();
  Status Serve();
  ~Zygote();

 private:
  Status Receive();
  Status ReceiveRequest(Frame frame);
  Status Keep(const Frame& frame);
  void Name(ZygoteResponse& response, const Sha256& name);
  Status Admit(Waiting job);
  Status Start(Waiting job);
  Status Read(Child& child, bool* ended);
  Status Finish(Child& child, End end);
  Status Cancel(const Frame& frame);
  void Kill(const Child& child);
  void ReapKilled();
  Status EndLate(const Child& child);
  Status WarmUpIfIdle();
  const Sha256& BuildFor(const CompileRequest& request) const;
  Status Poll();
  Status Respond(const ZygoteResponse& response, std::span<const uint8_t> artifact);
  Status Refuse(const ZygoteRequest& request, std::string message, uint64_t cpu_ns = 0,
                CompileEnd end = CompileEnd::kItself);
  Status RefuseDead(const Child& child, End end, int wait_status, uint64_t cpu_ns);

  const ZygoteOptions& options_;
  Status LockDown(const std::string& cache_folder);

  const Sha256 build_ = BuildIdentityOf(MappedObjects());
  Sha256 opencl_build_;  // With what LoadWhatOpenClNeeds loaded.
  CacheFolder cache_{{}};
  bool is_locked_down_ = false;
  ArtifactKey key_{};
  CpuTarget target_;
  std::optional<CallFilter> child_filter_;
  size_t children_max_ = 1;
  bool is_warm_ = false;
  std::deque<Waiting> waiting_;
  std::vector<Child> children_;
  std::vector<pid_t> killed_;  // Not waited for yet: giving gigabytes back takes a process a while.
  // Artifacts that the client may say something of, and how often it did.
  struct Kept {
    uint32_t learnt = 0, costs = 0;
  };
  std::map<Sha256, Kept> delivered_;
};

Zygote::~Zygote() {
  for (const Child& child : children_) {
    Kill(child);
  }
  for (const pid_t pid : killed_) {
    waitpid(pid, nullptr, 0);
  }
}

// Before no file can be opened any more. What is missing costs those that need it a message of their own, and not the
// others their compiler.
void LoadWhatOpenClNeeds() {
  const auto tell = [](const Status& ready) {
    if (!ready.ok()) {
      std::fprintf(stderr, "hpvm-compiler: %s\n", Message(ready).c_str());
    }
  };
  tell(opencl::PrepareOpenCl());
#if HPVMD_HAS_KERNEL_IL
  tell(PrepareKernelIl());
#endif
}

Status Zygote::Prepare() {
  children_max_ =
      options_.children_max != 0 ? options_.children_max : std::max(1u, std::thread::hardware_concurrency());
  HPVMD_ASSIGN_OR_RETURN(target_, HostCpuTarget());
  InitializeLlvm();
  if (options_.has_opencl) {
    LoadWhatOpenClNeeds();
  }
  opencl_build_ = BuildIdentityOf(MappedObjects());
  if (options_.is_sandboxed) {
    HPVMD_ASSIGN_OR_RETURN(child_filter_, CallFilter::For(SandboxRole::kCompileChild));
  }
  return options_.cache_folder.empty() ? absl::OkStatus() : LockDown(options_.cache_folder);
}

// Opens the folder of the cache, and from then on nothing outside it.
Status Zygote::LockDown(const std::string& cache_folder) {
  cache_ = CacheFolder({.folder = cache_folder,
                        .bytes_max = options_.cache_bytes_max,
                        .build = build_,
                        .suffixes = {kArtifacts, kLearnt, kCosts},
                        .partial = ".partial-",
                        .program = "hpvm-compiler"});
  is_locked_down_ = true;
  if (!options_.is_sandboxed) {
    return absl::OkStatus();
  }
  ConfineOptions confine;
  confine.role = SandboxRole::kCompiler;
  confine.level_min = options_.needs_landlock ? SandboxLevel::kFiles : SandboxLevel::kSyscalls;
  if (!cache_folder.empty()) {
    confine.paths = {{cache_folder, PathAccess::kPrivate}};  // One that is not there is a cache that holds nothing.
  }
  SandboxReport report;
  HPVMD_RETURN_IF_ERROR(Confine(&report, confine));
  if (report.level < SandboxLevel::kFiles) {
    std::fprintf(stderr, "hpvm-compiler: only the list of system calls keeps it from files (%s)\n",
                 report.detail.c_str());
  }
  return absl::OkStatus();
}

Status Zygote::Serve() {
  // Started before there is a tenant, it has the time for this now.
  HPVMD_RETURN_IF_ERROR(WarmUpIfIdle());
  HPVMD_ASSIGN_OR_RETURN(Frame first, ReceiveFrame(options_.socket, kZygoteFrameLimits));
  HPVMD_ASSIGN_OR_RETURN(const ZygoteHello hello, DecodeHello(HeadBytes(first)));
  key_ = hello.key;
  if (!is_locked_down_) {  // Nothing of a tenant's has been read so far.
    HPVMD_RETURN_IF_ERROR(LockDown(hello.cache_folder));
  }
  for (;;) {
    HPVMD_RETURN_IF_ERROR(WarmUpIfIdle());
    HPVMD_RETURN_IF_ERROR(Poll());
    while (!waiting_.empty() && children_.size() + killed_.size() < children_max_) {
      Waiting job = std::move(waiting_.front());
      waiting_.pop_front();
      HPVMD_RETURN_IF_ERROR(Start(std::move(job)));
    }
  }
}

// A rehearsal makes each later compile shorter, but whoever waits for the first one must not wait for both.
Status Zygote::WarmUpIfIdle() {
  if (is_warm_ || !children_.empty() || !waiting_.empty()) {
    return absl::OkStatus();
  }
  pollfd fd{options_.socket, POLLIN, 0};
  if (poll(&fd, 1, 0) > 0) {
    return absl::OkStatus();
  }
  is_warm_ = true;
  return WarmUp(target_);
}

Status Zygote::Poll() {
  std::vector<pollfd> fds;
  Time wake = kNever;
  for (const Child& child : children_) {
    fds.push_back({child.pipe.get(), POLLIN, 0});
    wake = std::min(wake, child.deadline);
  }
  fds.push_back({options_.socket, static_cast<short>(waiting_.size() < kWaitingMax ? POLLIN : 0), 0});
  int timeout_ms = -1;
  if (wake != kNever) {
    Duration left = std::max(Duration{0}, wake - RealClock().Now());
    timeout_ms = static_cast<int>(std::chrono::ceil<std::chrono::milliseconds>(left).count());
  }
  if (!killed_.empty()) {
    constexpr int kReapPauseMs = 5;
    timeout_ms = timeout_ms < 0 ? kReapPauseMs : std::min(timeout_ms, kReapPauseMs);
  }
  if (poll(fds.data(), fds.size(), timeout_ms) < 0 && errno != EINTR) {
    return FromErrno(errno, "Waiting for compiles");
  }
  ReapKilled();
  Time now = RealClock().Now();
  // From the last to the first, since those that ended are removed.
  for (size_t i = children_.size(); i-- > 0;) {
    bool ended = false;
    if (fds[i].revents != 0) {
      HPVMD_RETURN_IF_ERROR(Read(children_[i], &ended));
    }
    if (!ended && now >= children_[i].deadline) {
      ended = true;
      HPVMD_RETURN_IF_ERROR(EndLate(children_[i]));
    }
    if (ended) {
      children_.erase(children_.begin() + static_cast<ptrdiff_t>(i));
    }
  }
  return fds.back().revents != 0 ? Receive() : absl::OkStatus();
}

Status Zygote::Receive() {
  HPVMD_ASSIGN_OR_RETURN(Frame frame,
                         ReceiveFrame(options_.socket, kZygoteFrameLimits, RealClock().Now() + kMessageMax));
  if (IsCancel(HeadBytes(frame))) {
    return Cancel(frame);
  }
  return IsKeep(HeadBytes(frame)) ? Keep(frame) : ReceiveRequest(std::move(frame));
}

Status Zygote::Cancel(const Frame& frame) {
  HPVMD_ASSIGN_OR_RETURN(const ZygoteCancel cancel, DecodeCancel(HeadBytes(frame)));
  std::erase_if(waiting_, [&](const Waiting& job) { return job.request.id == cancel.id; });
  for (const Child& child : children_) {
    if (child.job.request.id == cancel.id) {
      Kill(child);
    }
  }
  std::erase_if(children_, [&](const Child& child) { return child.job.request.id == cancel.id; });
  return absl::OkStatus();
}

void Zygote::Kill(const Child& child) {
  SendKill(child.process);
  killed_.push_back(child.process.pid);
}

void Zygote::ReapKilled() {
  std::erase_if(killed_, [](pid_t pid) { return waitpid(pid, nullptr, WNOHANG) != 0; });
}

// The client runs tenants' code: it may fill no folder with files, nor keep the disk busy.
Status Zygote::Keep(const Frame& frame) {
  HPVMD_ASSIGN_OR_RETURN(const ZygoteKeep keep, DecodeKeep(HeadBytes(frame)));
  const auto delivered = delivered_.find(keep.name);
  if (delivered == delivered_.end()) {
    return absl::OkStatus();
  }
  uint32_t& kept = keep.is_costs ? delivered->second.costs : delivered->second.learnt;
  if (kept < kKeepsMax) {
    ++kept;
    cache_.Write(keep.name, keep.is_costs ? kCosts : kLearnt, key_, keep.record);
  }
  return absl::OkStatus();
}

// Adds to the delivery of an artifact what it is called, what was learnt of it, and what its launches took.
void Zygote::Name(ZygoteResponse& response, const Sha256& name) {
  if (delivered_.size() < kDeliveredMax) {
    delivered_.try_emplace(name);
  }
  response.name = name;
  response.learnt = cache_.Read(name, kLearnt, key_, kLearntBytesMax).value_or(std::vector<uint8_t>());
  response.costs = cache_.Read(name, kCosts, key_, kCostRecordBytesMax).value_or(std::vector<uint8_t>());
}

Status Zygote::ReceiveRequest(Frame frame) {
  Waiting job;
  HPVMD_ASSIGN_OR_RETURN(job.request, DecodeRequest(HeadBytes(frame)));
  if (frame.fds.size() != 1) {
    return InvalidArgument("A compile request carries " + std::to_string(frame.fds.size()) +
                           " descriptors instead of 1.");
  }
  job.module = std::move(frame.fds[0]);
  HPVMD_ASSIGN_OR_RETURN(job.module_bytes, CheckSealedMemfd(job.module.get()));
  if (job.request.remaining_ns != 0) {
    // A remaining time beyond the cap is as good as none, and adds without overflow.
    uint64_t remaining = std::min<uint64_t>(job.request.remaining_ns, 1'000'000'000'000'000);
    job.deadline = RealClock().Now() + Duration(static_cast<int64_t>(remaining));
  }
  return Admit(std::move(job));
}

// Compilers with and without the libraries for OpenCL share a folder, and all they do without them.
const Sha256& Zygote::BuildFor(const CompileRequest& request) const {
  const bool is_native = request.module_kind != ModuleKind::kWasm;
  return is_native && request.target == ArtifactKind::kOpenCl ? opencl_build_ : build_;
}

Status Zygote::Admit(Waiting job) {
  if (job.module_bytes == 0 || job.module_bytes > limits::kModuleBytesMax) {
    return Refuse(job.request, "The module's size (" + std::to_string(job.module_bytes) + " bytes) is not in [1, " +
                                   std::to_string(limits::kModuleBytesMax) + "].");
  }
  if (job.request.compile.explain) {
    waiting_.push_back(std::move(job));
    return absl::OkStatus();
  }
  job.cache_name = CacheKeyOf(job.request.compile, target_.level, BuildFor(job.request.compile));
  if (std::optional<std::vector<uint8_t>> found =
          cache_.Read(job.cache_name, kArtifacts, key_, limits::kArtifactBytesMax)) {
    ZygoteResponse response;
    response.id = job.request.id;
    response.from_cache = true;
    response.has_artifact = true;
    Name(response, job.cache_name);
    return Respond(response, *found);
  }
  waiting_.push_back(std::move(job));
  return absl::OkStatus();
}

Status Zygote::Start(Waiting job) {
  Time now = RealClock().Now();
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) {
    return FromErrno(errno, "Creating a pipe");
  }
  Child child;
  child.pipe.reset(ends[0]);
  UniqueFd write_end(ends[1]);
  child.deadline = std::min(job.deadline, now + std::chrono::seconds(options_.wall_seconds_max));
  pid_t parent = getpid();
  child.process = Fork();
  if (child.process.pid < 0) {
    return Refuse(job.request, "The compile cannot be started: " + std::string(std::strerror(errno)) + ".");
  }
  if (child.process.pid == 0) {
    // The parameters of RunChild outlive nothing: it ends the process.
    RunChild({.request = job.request.compile,
              .module_fd = job.module.get(),
              .module_bytes = job.module_bytes,
              .result_fd = write_end.get(),
              .parent = parent,
              .target = target_,
              .limits = {.data_bytes = options_.memory_bytes_max,
                         .address_bytes = options_.memory_bytes_max,
                         .cpu_seconds = options_.seconds_max,
                         .writes_files = false},  // Its result goes into a pipe, of which so much is read.
              .filter = child_filter_.has_value() ? &*child_filter_ : nullptr});
  }
  child.job = std::move(job);
  child.job.module.reset();
  children_.push_back(std::move(child));
  return absl::OkStatus();
}

Status Zygote::Read(Child& child, bool* ended) {
  uint8_t buffer[64 * 1024];
  ssize_t count = read(child.pipe.get(), buffer, sizeof(buffer));
  if (count < 0) {
    return errno == EINTR ? absl::OkStatus() : FromErrno(errno, "Reading a compile's result");
  }
  *ended = count == 0 || child.received.size() + static_cast<size_t>(count) > kResultBytesMax;
  if (*ended) {
    return Finish(child, count == 0 ? End::kExited : End::kTooLarge);
  }
  child.received.insert(child.received.end(), buffer, buffer + count);
  return absl::OkStatus();
}

Status Zygote::Finish(Child& child, End end) {
  // A child that closed its pipe has nothing more to do, whatever it may be up to.
  SendKill(child.process);
  int wait_status = 0;
  rusage used{};
  while (wait4(child.process.pid, &wait_status, 0, &used) < 0 && errno == EINTR) {
  }
  ZygoteResponse response;
  response.cpu_ns = Nanoseconds(used.ru_utime) + Nanoseconds(used.ru_stime);
  response.id = child.job.request.id;
  WireReader in(child.received);
  response.has_artifact = in.Flag();
  response.diagnostics = ReadDiagnostics(in);
  std::span<const uint8_t> bytes = in.Bytes();
  // A child's bytes are believed no further than their form; the tag says only that they came from here.
  if (end != End::kExited || !in.AtEnd() || response.has_artifact == bytes.empty() ||
      bytes.size() > limits::kArtifactBytesMax || (!response.has_artifact && !HasErrors(response.diagnostics))) {
    return RefuseDead(child, end, wait_status, response.cpu_ns);
  }
  std::vector<uint8_t> artifact(bytes.begin(), bytes.end());
  if (response.has_artifact) {
    TagArtifact(artifact, key_);
    if (!ParseArtifact(artifact, key_).ok()) {
      return Refuse(child.job.request, "The compiler gave a malformed artifact.", response.cpu_ns);
    }
    if (!child.job.request.compile.explain) {
      cache_.Write(child.job.cache_name, kArtifacts, key_, artifact);
      Name(response, child.job.cache_name);
    }
  }
  return Respond(response, artifact);
}

// The client's deadline, or the limit by the clock.
Status Zygote::EndLate(const Child& child) {
  const auto cpu_ns = static_cast<uint64_t>(ProcessorTimeOf(child.process.pid).count());
  Kill(child);
  if (child.deadline == child.job.deadline) {
    return Refuse(child.job.request, "Compiling did not end before the request's deadline.", cpu_ns,
                  CompileEnd::kDeadline);
  }
  return Refuse(child.job.request,
                "Compiling was given up after " + std::to_string(options_.wall_seconds_max) +
                    " s, this server's limit by the clock; it got " + Seconds(cpu_ns) +
                    " of processor time in them. The machine may be too busy; trying again may help.",
                cpu_ns, CompileEnd::kLimit);
}

Status Zygote::RefuseDead(const Child& child, End end, int wait_status, uint64_t cpu_ns) {
  const auto by_limit = [&](const std::string& what) {
    return Refuse(child.job.request, what, cpu_ns, CompileEnd::kLimit);
  };
  if (end == End::kTooLarge) {
    return by_limit("The compiled module is larger than this server's limit (" +
                    std::to_string(limits::kArtifactBytesMax) + " bytes).");
  }
  if (WIFSIGNALED(wait_status) && WTERMSIG(wait_status) == SIGXCPU) {
    return by_limit("Compiling takes more processor time than this server's limit (" +
                    std::to_string(options_.seconds_max) + " s).");
  }
  if (WIFEXITED(wait_status) && WEXITSTATUS(wait_status) == kOutOfMemoryStatus) {
    return by_limit("Compiling needs more memory than this server's limit (" +
                    std::to_string(options_.memory_bytes_max) + " bytes).");
  }
  if (WIFEXITED(wait_status)) {
    return Refuse(child.job.request,
                  "The compiler gave up on this module (exit status " + std::to_string(WEXITSTATUS(wait_status)) + ").",
                  cpu_ns);
  }
  // How abort() ends under the filter.
  const int signal = WTERMSIG(wait_status) == SIGSYS ? SIGABRT : WTERMSIG(wait_status);
  return Refuse(
      child.job.request,
      "The compiler crashed on this module (signal " + std::to_string(signal) + ", " + strsignal(signal) + ").",
      cpu_ns);
}

Status Zygote::Refuse(const ZygoteRequest& request, std::string message, uint64_t cpu_ns, CompileEnd end) {
  ZygoteResponse response;
  response.end = end;
  response.cpu_ns = cpu_ns;
  response.id = request.id;
  response.diagnostics.push_back(
      {Severity::kError, "module \"" + request.compile.module_name + "\"", {}, std::move(message)});
  return Respond(response, {});
}

Status Zygote::Respond(const ZygoteResponse& response, std::span<const uint8_t> artifact) {
  return SendFrame(options_.socket, EncodeResponse(response), artifact, {}, RealClock().Now() + kMessageMax);
}

}  // namespace

int RunZygote(const ZygoteOptions& options) {
  signal(SIGPIPE, SIG_IGN);
  signal(SIGXFSZ, SIG_IGN);  // Children may write no file, standard error being one included.
  Zygote zygote(options);
  Status status = zygote.Prepare();
  if (status.ok()) {
    status = zygote.Serve();
    if (absl::IsUnavailable(status)) {
      return 0;  // The client went away: how a zygote ends.
    }
  }
  std::fprintf(stderr, "hpvm-compiler: %s\n", Message(status).c_str());
  return 1;
}

}  // namespace hpvm
