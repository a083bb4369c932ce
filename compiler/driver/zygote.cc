// SPDX-License-Identifier: Apache-2.0
// The zygote's handling of requests and of children's results. builder/supervisor.h has the loop.
#include "compiler/driver/zygote.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <map>
#include <thread>

#include "base/io/build_id.h"
#include "base/io/cache_folder.h"
#include "base/io/child_process.h"
#include "base/io/memfd.h"
#include "builder/supervisor.h"
#include "compiler/api/compile_message.h"
#include "compiler/api/cost_record.h"
#include "compiler/back/back_ends.h"
#include "compiler/back/llvm/llvm_back.h"
#include "compiler/driver/cache_key.h"
#include "compiler/driver/zygote_child.h"
#include "compiler/front/opencl/program.h"
#include "sandbox/sandbox.h"
#if HPVMD_HAS_KERNEL_IL
#include "compiler/back/kernel_il/kernel_il.h"
#endif

namespace hpvm::compile {
namespace {

// The largest frame that a child may write.
constexpr size_t kResultBytesMax =
    sizeof(FrameHeader) + kZygoteFrameLimits.head_bytes_max + kZygoteFrameLimits.body_bytes_max;
// Limits on the records that the client may store for one artifact, a few per class of launches, and on the number of
// artifacts.
constexpr uint32_t kKeepsMax = 200;
constexpr size_t kDeliveredMax = 10'000;
// Suffixes of cache files: artifacts, and beside them device measurements of them and the costs of their launches.
constexpr char kArtifacts[] = ".hpva", kTuning[] = ".hpvl", kCosts[] = ".hpvc";

using internal::CompileAnswer;
using End = CompileAnswer::End;

struct CompileJob : builder::BuildJob {
  ZygoteRequest request;
  uint64_t module_bytes = 0;
  Sha256 cache_name;
};

struct CompileWorker : builder::BuildWorker {
  std::vector<uint8_t> received;
  bool is_too_large = false;  // It wrote more than any result has.
};

const CompileJob& JobOf(const builder::BuildWorker& worker) { return static_cast<const CompileJob&>(*worker.job); }

std::string Seconds(uint64_t ns) {
  const uint64_t tenths = ns / 100'000'000;
  return std::to_string(tenths / 10) + "." + std::to_string(tenths % 10) + " s";
}

// Returns the frame that a child wrote, if it is valid and nothing follows it.
StatusOr<CompileAnswer> ReadResult(std::span<uint8_t> bytes, std::span<uint8_t>* artifact) {
  FrameHeader header{};
  if (bytes.size() < sizeof(header)) {
    return InvalidArgument("The result is cut short.");
  }
  std::memcpy(&header, bytes.data(), sizeof(header));
  HPVMD_RETURN_IF_ERROR(CheckFrameHeader(header, kZygoteFrameLimits));
  bytes = bytes.subspan(sizeof(header));
  if (bytes.size() != uint64_t{header.head_bytes} + header.body_bytes) {
    return InvalidArgument("The result is cut short or followed by other bytes.");
  }
  *artifact = bytes.subspan(header.head_bytes);
  return ReadCompileAnswer({reinterpret_cast<const char*>(bytes.data()), header.head_bytes});
}

builder::SupervisorOptions SupervisionOf(const ZygoteOptions& options) {
  builder::SupervisorOptions supervision;
  supervision.socket = options.socket;
  supervision.limits = kZygoteFrameLimits;
  supervision.program = "hpvm-compiler";
  supervision.workers_max =
      options.children_max != 0 ? options.children_max : std::max(1u, std::thread::hardware_concurrency());
  supervision.wall_max = std::chrono::seconds(options.wall_seconds_max);
  return supervision;
}

// Runs before the sandbox forbids opening files. If a library is missing, requests that need it get an error; other
// requests still compile.
void LoadWhatOpenClNeeds() {
  const auto tell = [](const Status& ready) {
    if (!ready.ok()) {
      std::fprintf(stderr, "hpvm-compiler: %s\n", Message(ready).c_str());
    }
  };
  tell(opencl::PrepareOpenCl());
#if HPVMD_HAS_KERNEL_IL
  tell(kernel_il::PrepareKernelIl());
#endif
}

class Zygote final : public builder::BuildSupervisor {
 public:
  explicit Zygote(const ZygoteOptions& options) : builder::BuildSupervisor(SupervisionOf(options)), options_(options) {}

 protected:
  Status Prepare() override {
    HPVMD_ASSIGN_OR_RETURN(target_, cpu::HostCpuTarget());
    cpu::InitializeLlvm();
    if (options_.has_opencl) {
      LoadWhatOpenClNeeds();
    }
    opencl_build_ = BuildIdentityOf(MappedObjects());
    if (options_.is_sandboxed) {
      HPVMD_ASSIGN_OR_RETURN(child_filter_, sandbox::CallFilter::For(sandbox::SandboxRole::kCompileChild));
    }
    return options_.cache_folder.empty() ? absl::OkStatus() : LockDown(options_.cache_folder);
  }
  Status Begin(const builder::BuildHello& hello) override {
    return is_locked_down_ ? absl::OkStatus() : LockDown(hello.cache_folder);
  }
  // A rehearsal shortens each later compile, but a client must not wait for the rehearsal before its first compile. A
  // zygote that starts before its tenant arrives has time for it here.
  Status Rest() override {
    pollfd fd{options_.socket, POLLIN, 0};
    if (is_warm_ || HasWork() || poll(&fd, 1, 0) > 0) {
      return absl::OkStatus();
    }
    is_warm_ = true;
    return WarmUp(target_);
  }
  StatusOr<std::unique_ptr<builder::BuildJob>> Admit(uint64_t id, std::string_view payload, Frame& frame) override {
    auto job = std::make_unique<CompileJob>();
    job->id = id;
    HPVMD_ASSIGN_OR_RETURN(job->request, ReadCompileRequest(payload));
    if (frame.fds.size() != 1) {
      return InvalidArgument("A compile request carries " + std::to_string(frame.fds.size()) +
                             " descriptors instead of 1.");
    }
    HPVMD_ASSIGN_OR_RETURN(job->module_bytes, CheckSealedMemfd(frame.fds[0].get()));
    if (job->request.remaining_ns != 0) {
      // A remaining time beyond the cap has no effect, and the capped value adds without overflow.
      const uint64_t remaining = std::min<uint64_t>(job->request.remaining_ns, 1'000'000'000'000'000);
      job->deadline = RealClock().Now() + Duration(static_cast<int64_t>(remaining));
    }
    if (job->module_bytes == 0 || job->module_bytes > limits::kModuleBytesMax) {
      HPVMD_RETURN_IF_ERROR(Refuse(*job, "The module's size (" + std::to_string(job->module_bytes) +
                                             " bytes) is not in [1, " + std::to_string(limits::kModuleBytesMax) +
                                             "]."));
      return nullptr;
    }
    CompileRequest& compile = job->request.compile;
    if (IsGpuCode(compile.target) && !compile.level.empty()) {
      StatusOr<GpuTarget> profile = gpu::FindProfile(compile.target, compile.level);
      if (!profile.ok()) {
        HPVMD_RETURN_IF_ERROR(Refuse(*job, Message(profile.status())));
        return nullptr;
      }
      compile.gpu = *std::move(profile);
      compile.level.clear();
    }
    if (compile.explain) {
      return job;
    }
    job->cache_name = CacheKeyOf(compile, target_.level, BuildFor(compile));
    const auto found = cache_.Read(job->cache_name, kArtifacts, key(), limits::kArtifactBytesMax);
    if (!found.has_value()) {
      return job;
    }
    CompileAnswer answer;
    answer.set_from_cache(true);
    answer.set_has_artifact(true);
    Name(answer, job->cache_name);
    HPVMD_RETURN_IF_ERROR(Answer(id, answer.SerializeAsString(), *found));
    return nullptr;
  }
  // The client runs tenants' code: it must not fill a folder with files, nor keep the disk busy.
  Status TakeNote(std::string_view payload) override {
    HPVMD_ASSIGN_OR_RETURN(const internal::CompileNote note, ReadCompileNote(payload));
    const Sha256 name = GetHash(note.name());
    const auto delivered = delivered_.find(name);
    if (delivered == delivered_.end()) {
      return absl::OkStatus();
    }
    uint32_t& kept = note.has_costs() ? delivered->second.costs : delivered->second.tuning;
    if (kept < kKeepsMax) {
      ++kept;
      const std::string& record = note.has_costs() ? note.costs() : note.tuning();
      cache_.Write(name, note.has_costs() ? kCosts : kTuning, key(),
                   {reinterpret_cast<const uint8_t*>(record.data()), record.size()});
    }
    return absl::OkStatus();
  }
  StatusOr<std::unique_ptr<builder::BuildWorker>> StartWorker(const builder::BuildJob* job) override {
    const auto& compile = static_cast<const CompileJob&>(*job);
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0) {
      return FromErrno(errno, "Creating a pipe");
    }
    auto worker = std::make_unique<CompileWorker>();
    worker->channel.reset(ends[0]);
    UniqueFd write_end(ends[1]);
    const pid_t parent = getpid();
    worker->process = Fork();
    if (worker->process.pid < 0) {
      return FromErrno(errno, "Forking");
    }
    if (worker->process.pid == 0) {
      // RunChild's arguments may be temporaries, because it ends the process.
      RunChild({.request = compile.request.compile,
                .module_fd = compile.frame.fds[0].get(),
                .module_bytes = compile.module_bytes,
                .result_fd = write_end.get(),
                .parent = parent,
                .target = target_,
                .limits = {.data_bytes = options_.memory_bytes_max,
                           .address_bytes = options_.memory_bytes_max,
                           .cpu_seconds = options_.seconds_max,
                           .writes_files = false},  // Its result goes to a pipe, whose reader limits its size.
                .filter = child_filter_.has_value() ? &*child_filter_ : nullptr});
    }
    return worker;
  }
  StatusOr<bool> Read(builder::BuildWorker& worker) override {
    auto& child = static_cast<CompileWorker&>(worker);
    uint8_t buffer[64 * 1024];
    const ssize_t count = read(child.channel.get(), buffer, sizeof(buffer));
    if (count < 0) {
      return errno == EINTR ? StatusOr<bool>(false) : FromErrno(errno, "Reading a compile's result");
    }
    child.is_too_large = child.received.size() + static_cast<size_t>(count) > kResultBytesMax;
    if (!child.is_too_large) {
      child.received.insert(child.received.end(), buffer, buffer + count);
    }
    return count == 0 || child.is_too_large;
  }
  Status Ended(builder::BuildWorker& worker, builder::BuildEnd end, int wait_status, Duration processor) override {
    const auto cpu_ns = static_cast<uint64_t>(processor.count());
    if (end == builder::BuildEnd::kItself) {
      return Finish(static_cast<CompileWorker&>(worker), wait_status, cpu_ns);
    }
    if (end == builder::BuildEnd::kDeadline) {
      return Refuse(JobOf(worker), "Compiling did not end before the request's deadline.", cpu_ns,
                    CompileAnswer::END_DEADLINE);
    }
    return Refuse(JobOf(worker),
                  "Compiling was stopped after " + std::to_string(options_.wall_seconds_max) +
                      " s of wall time, this server's limit; it got " + Seconds(cpu_ns) +
                      " of processor time meanwhile. The machine may be too busy; try again later.",
                  cpu_ns, CompileAnswer::END_LIMIT);
  }
  Status Refuse(const builder::BuildJob& job, const Status& why) override {
    return Refuse(static_cast<const CompileJob&>(job), Message(why));
  }

 private:
  // Opens the folder of the cache; nothing outside it can be opened afterwards.
  Status LockDown(const std::string& cache_folder) {
    cache_ = CacheFolder({.folder = cache_folder,
                          .bytes_max = options_.cache_bytes_max,
                          .build = build_,
                          .suffixes = {kArtifacts, kTuning, kCosts},
                          .partial = ".partial-",
                          .program = "hpvm-compiler"});
    is_locked_down_ = true;
    if (!options_.is_sandboxed) {
      return absl::OkStatus();
    }
    sandbox::ConfineOptions confine;
    confine.role = sandbox::SandboxRole::kCompiler;
    confine.level_min = options_.needs_landlock ? sandbox::SandboxLevel::kFiles : sandbox::SandboxLevel::kSyscalls;
    if (!cache_folder.empty()) {
      confine.paths = {{cache_folder, sandbox::PathAccess::kPrivate}};  // A missing folder is an empty cache.
    }
    sandbox::SandboxReport report;
    HPVMD_RETURN_IF_ERROR(sandbox::Confine(&report, confine));
    if (report.level < sandbox::SandboxLevel::kFiles) {
      std::fprintf(stderr, "hpvm-compiler: only the filter of system calls keeps this process from files (%s)\n",
                   report.detail.c_str());
    }
    return absl::OkStatus();
  }
  // Compilers with and without the OpenCL libraries share a folder, and share all artifacts that do not need them.
  const Sha256& BuildFor(const CompileRequest& request) const {
    const bool is_native = request.module_kind != ModuleKind::kWasm;
    return is_native && request.target == ArtifactKind::kOpenCl ? opencl_build_ : build_;
  }
  // Adds an artifact's name, device measurements and launch costs to its delivery.
  void Name(CompileAnswer& answer, const Sha256& name) {
    if (delivered_.size() < kDeliveredMax) {
      delivered_.try_emplace(name);
    }
    SetHash(name, answer.mutable_name());
    if (const auto tuning = cache_.Read(name, kTuning, key(), kTuningBytesMax); tuning.has_value()) {
      answer.set_tuning(tuning->data(), tuning->size());
    }
    if (const auto costs = cache_.Read(name, kCosts, key(), kCostRecordBytesMax); costs.has_value()) {
      answer.set_costs(costs->data(), costs->size());
    }
  }
  Status Finish(CompileWorker& worker, int wait_status, uint64_t cpu_ns) {
    const CompileJob& job = JobOf(worker);
    // Only the form of a child's bytes is validated; the tag says only that they came from this process.
    std::span<uint8_t> artifact;  // Part of `received`.
    const StatusOr<CompileAnswer> said = ReadResult(worker.received, &artifact);
    if (worker.is_too_large || !said.ok() || said->has_artifact() == artifact.empty()) {
      return RefuseDead(worker, wait_status, cpu_ns);
    }
    const Diagnostics diagnostics = GetDiagnostics(*said);
    if (!said->has_artifact() && !HasErrors(diagnostics)) {
      return RefuseDead(worker, wait_status, cpu_ns);
    }
    CompileAnswer answer;
    answer.set_cpu_ns(cpu_ns);
    answer.set_has_artifact(said->has_artifact());
    SetDiagnostics(diagnostics, &answer);
    if (answer.has_artifact()) {
      TagArtifact(artifact, key());
      if (!ParseArtifact(artifact, key()).ok()) {
        return Refuse(job, "The compiler gave a malformed artifact.", cpu_ns);
      }
      if (!job.request.compile.explain) {
        cache_.Write(job.cache_name, kArtifacts, key(), artifact);
        Name(answer, job.cache_name);
      }
    }
    return Answer(job.id, answer.SerializeAsString(), artifact);
  }
  Status Refuse(const CompileJob& job, std::string message, uint64_t cpu_ns = 0, End end = CompileAnswer::END_ITSELF) {
    CompileAnswer answer;
    answer.set_end(end);
    answer.set_cpu_ns(cpu_ns);
    SetDiagnostics({{Severity::kError, "module \"" + job.request.compile.module_name + "\"", {}, std::move(message)}},
                   &answer);
    return Answer(job.id, answer.SerializeAsString());
  }
  Status RefuseDead(const CompileWorker& worker, int wait_status, uint64_t cpu_ns) {
    const CompileJob& job = JobOf(worker);
    const auto by_limit = [&](const std::string& what) { return Refuse(job, what, cpu_ns, CompileAnswer::END_LIMIT); };
    if (worker.is_too_large) {
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
      return Refuse(
          job, "The compiler gave up on this module (exit status " + std::to_string(WEXITSTATUS(wait_status)) + ").",
          cpu_ns);
    }
    // Under the filter abort() ends by SIGSYS.
    const int signal = WTERMSIG(wait_status) == SIGSYS ? SIGABRT : WTERMSIG(wait_status);
    return Refuse(
        job, "The compiler crashed on this module (signal " + std::to_string(signal) + ", " + strsignal(signal) + ").",
        cpu_ns);
  }

  const ZygoteOptions& options_;
  const Sha256 build_ = BuildIdentityOf(MappedObjects());
  Sha256 opencl_build_;  // Includes the objects that LoadWhatOpenClNeeds loaded.
  CacheFolder cache_{{}};
  bool is_locked_down_ = false;
  cpu::CpuTarget target_;
  std::optional<sandbox::CallFilter> child_filter_;
  bool is_warm_ = false;
  // Artifacts for which the client may store records, and how often it did.
  struct Kept {
    uint32_t tuning = 0, costs = 0;
  };
  std::map<Sha256, Kept> delivered_;
};

}  // namespace

int RunZygote(const ZygoteOptions& options) { return Zygote(options).Run(); }

}  // namespace hpvm::compile
