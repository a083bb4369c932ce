// SPDX-License-Identifier: Apache-2.0
#include "executor/driver_process.h"

#include <errno.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <utility>
#include <vector>

#include "base/io/build_id.h"
#include "base/io/cache_folder.h"
#include "builder/supervisor.h"
#include "executor/driver_environment.h"
#include "executor/driver_message.h"
#include "executor/driver_worker.h"
#include "sandbox/sandbox.h"

namespace hpvm::executor {
namespace {

// The time limit for one message of a builder.
constexpr Duration kMessageMax = std::chrono::seconds(10);
// Suffix of a driver's result in the cache: a log and a binary.
constexpr char kBinaries[] = ".hpvd";
constexpr uint64_t kBinaryFileBytesMax = limits::kArtifactBytesMax + 2 * kDriverLogBytesMax;

// Hashes everything on which a result depends: this program's build, since it determines the requests to drivers, the
// driver, the request and the code.
Sha256 CacheKeyOf(const DriverRequest& request, const Sha256& build) {
  Hasher hasher;
  hasher.Add(build.bytes);
  hasher.AddField(PayloadOf(request));
  hasher.Add(request.build.code);
  return hasher.Finish();
}

struct DriverBuild : builder::BuildJob {
  std::string device;
  bool is_kept = false;
  Sha256 name;  // Name in the cache.
};

struct Builder : builder::BuildWorker {
  ~Builder() override { RemoveFolder(folder.path); }
  PrivateFolder folder;
  Status load_failure;
};

std::string Seconds(Duration duration) {
  const auto ms = std::chrono::duration_cast<std::chrono::milliseconds>(duration).count();
  return ms % 1000 == 0 ? std::to_string(ms / 1000) + " s" : std::to_string(ms) + " ms";
}

class Supervisor final : public builder::BuildSupervisor {
 public:
  explicit Supervisor(const DriverSupervisorOptions& options)
      : builder::BuildSupervisor({.socket = options.socket,
                                  .limits = kDriverFrameLimits,
                                  .program = "hpvm-executor: a driver builder's supervisor ends",
                                  .workers_max = options.builders_max,
                                  .wall_max = options.build_wall_max,
                                  .keeps_workers = true,
                                  .processor_max = options.build_max,
                                  .load_max = options.load_max,
                                  .idle_max = options.idle_max}),
        options_(options) {}

 protected:
  Status Begin(const builder::BuildHello& hello) override {
    folder_ = hello.cache_folder;
    cache_ = CacheFolder({.folder = folder_,
                          .bytes_max = options_.cache_bytes_max,
                          .build = build_,
                          .suffixes = {kBinaries},
                          .partial = ".driver-",
                          .program = "hpvm-executor"});
    if (!options_.is_sandboxed) {
      return absl::OkStatus();
    }
    // The paths that its builders need, since they can only lock themselves down further. Their own entries below /proc
    // have other numbers than this process's.
    std::vector<sandbox::PathRule> paths = DriverPaths(folder_, /*is_builder=*/true, options_.has_nodes);
    paths.push_back({"/proc", sandbox::PathAccess::kRead});
    if (folder_.empty()) {
      paths.push_back({"/tmp", sandbox::PathAccess::kPrivate});
    }
    sandbox::SandboxReport report;
    return sandbox::Confine(&report, {sandbox::SandboxRole::kSupervisor, std::move(paths)});
  }

  StatusOr<std::unique_ptr<builder::BuildJob>> Admit(uint64_t id, std::string_view payload, Frame& frame) override {
    HPVMD_ASSIGN_OR_RETURN(const DriverRequest request, ReadDriverRequest(payload, frame.body));
    auto job = std::make_unique<DriverBuild>();
    job->device = request.build.device;
    job->is_kept = !request.identity.empty() && !folder_.empty();
    if (!job->is_kept) {
      return job;
    }
    job->name = CacheKeyOf(request, build_);
    const auto found = cache_.Read(job->name, kBinaries, key(), kBinaryFileBytesMax);
    if (!found.has_value()) {
      return job;
    }
    const StatusOr<DriverBinary> kept = ReadKept(*found);
    if (!kept.ok()) {
      return job;
    }
    HPVMD_RETURN_IF_ERROR(Answer(id, AnswerOf({}, kept->log).SerializeAsString(), kept->bytes));
    return nullptr;
  }

  StatusOr<std::unique_ptr<builder::BuildWorker>> StartWorker(const builder::BuildJob*) override {
    auto builder = std::make_unique<Builder>();
    HPVMD_ASSIGN_OR_RETURN(builder->folder, MakePrivateFolder(folder_));
    HPVMD_ASSIGN_OR_RETURN(auto ends, CreateSocketPair());
    const pid_t parent = getpid();
    builder->process.pid = fork();  // fork, because drivers may need the C library's work in a child.
    if (builder->process.pid < 0) {
      return FromErrno(errno, "Forking");
    }
    if (builder->process.pid == 0) {
      RunDriverWorker({.socket = ends.second.get(),
                       .parent = parent,
                       .private_folder = builder->folder.path,
                       .supervisor = &options_});
    }
    builder->channel = std::move(ends.first);
    return builder;
  }

  StatusOr<bool> Read(builder::BuildWorker& worker) override {
    auto& builder = static_cast<Builder&>(worker);
    const StatusOr<Frame> frame =
        ReceiveFrame(builder.channel.get(), kDriverFrameLimits, RealClock().Now() + kMessageMax);
    const StatusOr<builder::BuildMessage> message = frame.ok() ? builder::ReadMessage(*frame) : frame.status();
    const StatusOr<internal::DriverAnswer> answer =
        message.ok() ? ReadDriverAnswer(message->answer(), frame->body) : message.status();
    const uint64_t id = builder.job != nullptr ? builder.job->id : 0;
    const bool is_expected =
        answer.ok() && message->has_answer() && message->id() == id && (id != 0) == builder.is_ready;
    if (!is_expected) {
      return true;  // It has closed its socket, or sent a message that no genuine builder sends.
    }
    if (!builder.is_ready) {
      builder.load_failure = StatusOf(*answer);
    } else {
      const DriverBuild& job = static_cast<const DriverBuild&>(*builder.job);
      if (answer->code() == 0 && job.is_kept) {
        cache_.Write(job.name, kBinaries, key(), KeptOf(answer->log(), frame->body));
      }
      HPVMD_RETURN_IF_ERROR(Answer(job.id, message->answer(), frame->body));
    }
    if (builder.load_failure.ok()) {
      BecomeIdle(builder);
    }
    return !builder.load_failure.ok();
  }

  Status Ended(builder::BuildWorker& worker, builder::BuildEnd end, int wait_status, Duration) override {
    const std::string how = WIFSIGNALED(wait_status) ? "signal " + std::to_string(WTERMSIG(wait_status))
                                                     : "exit status " + std::to_string(WEXITSTATUS(wait_status));
    if (worker.job != nullptr) {
      const std::string compiler =
          "The compiler of device " + static_cast<const DriverBuild&>(*worker.job).device + "'s driver ";
      if (end == builder::BuildEnd::kItself) {
        return Refuse(*worker.job, InvalidArgument(compiler + "crashed on the module (" + how + ")."));
      }
      const std::string limit = end == builder::BuildEnd::kProcessor
                                    ? "of processor time (" + Seconds(options_.build_max)
                                    : "of wall time (" + Seconds(options_.build_wall_max);
      return Refuse(*worker.job, ResourceExhausted(compiler + "takes longer than this server's limit " + limit +
                                                   ") for the module."));
    }
    if (worker.is_ready) {
      return absl::OkStatus();
    }
    const Status failure = static_cast<const Builder&>(worker).load_failure;
    return RefuseFirst(!failure.ok() ? While(Unavailable(Message(failure)), "loading the driver into the build process")
                       : end == builder::BuildEnd::kItself
                           ? Unavailable("The build process crashed while it loaded the driver (" + how + ").")
                           : Unavailable("The build process takes longer than the limit (" +
                                         Seconds(options_.load_max) + ") to load the driver."));
  }

  Status Refuse(const builder::BuildJob& job, const Status& why) override {
    return Answer(job.id, AnswerOf(why).SerializeAsString());
  }

  // Also kills the programs that it started; its group's number is not reused before it is waited for.
  void Kill(const builder::BuildWorker& worker) override {
    kill(-worker.process.pid, SIGKILL);
    kill(worker.process.pid, SIGKILL);  // It may not have its own group yet.
  }

 private:
  const DriverSupervisorOptions& options_;
  std::string folder_;  // Belongs to the tenant.
  // Includes no driver, because none is loaded here.
  const Sha256 build_ = BuildIdentityOf(MappedObjects());
  CacheFolder cache_{{}};
};

}  // namespace

int RunDriverSupervisor(const DriverSupervisorOptions& options) { return Supervisor(options).Run(); }

}  // namespace hpvm::executor
