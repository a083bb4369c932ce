// SPDX-License-Identifier: Apache-2.0
#include "client/ctl/kernel/compile_service.h"

#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include <filesystem>
#include <string>

#include "client/local/executor_files.h"

#include "base/io/child_process.h"
#include "base/io/fd.h"

namespace hpvm::ctl {
namespace {

namespace fs = std::filesystem;

// The compiler ends a compile that exceeds its own limit; this timeout is for a compiler that does not answer at all.
constexpr Duration kAnswerMax = std::chrono::seconds(kCompileWallSecondsMax + 20);

StatusOr<std::string> CompilerProgram() {
  if (const char* named = getenv("HPVM_COMPILER"); named != nullptr) {
    return std::string(named);
  }
  std::error_code error;
  const fs::path self = fs::read_symlink("/proc/self/exe", error);
  const fs::path program = self.parent_path() / "hpvm-compiler";
  if (error || access(program.c_str(), X_OK) != 0) {
    return NotFound("The program \"" + program.string() +
                    "\" is missing or cannot be executed; set HPVM_COMPILER to its path.");
  }
  return program.string();
}

class CompilerProcess {
 public:
  ~CompilerProcess() {
    if (process_.pid > 0) {
      KillAndReap(process_);
    }
  }

  // Starts the compiler and returns this end of its socket.
  StatusOr<UniqueFd> Start(bool has_opencl) {
    HPVMD_ASSIGN_OR_RETURN(const std::string program, CompilerProgram());
    int ends[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) {
      return FromErrno(errno, "Creating a socket pair");
    }
    UniqueFd ours(ends[0]), theirs(ends[1]);
    SpawnOptions spawn;
    spawn.arguments = {program, "--socket", "3", "--children", "1"};
    if (has_opencl) {
      spawn.arguments.push_back("--opencl");
    }
    spawn.socket = theirs.get();
    spawn.stderr_fd = STDERR_FILENO;
    HPVMD_ASSIGN_OR_RETURN(process_, Spawn(spawn));
    return ours;
  }

 private:
  SpawnedProcess process_;
};

// Returns true for module kinds that OpenCL devices take natively.
bool IsNativeOpenCl(const CompileRequest& request) {
  return request.module_kind != ModuleKind::kWasm && request.target == ArtifactKind::kOpenCl;
}

// Asks for the kernel as a run does, because the measurements come with the artifact. Failures are ignored.
std::optional<TuningRecord> FindTuning(CompilerService& service, const CompileRequest& request) {
  CompileRequest plain = request;
  plain.explain = false;
  plain.listing = Listing::kNone;
  const StatusOr<CompileOutcome> outcome = service.Compile(plain, RealClock().Now() + kAnswerMax);
  if (!outcome.ok() || !outcome->artifact.has_value() || outcome->artifact->tuning.empty()) {
    return std::nullopt;
  }
  StatusOr<TuningRecord> record = DecodeTuning(outcome->artifact->tuning);
  return record.ok() ? std::optional(*std::move(record)) : std::nullopt;
}

}  // namespace

StatusOr<CompileOutcome> CompileHere(const CompileRequest& request, std::optional<TuningRecord>* tuning) {
  std::optional<LocalCache> cache;
  if (tuning != nullptr) {
    cache = OpenLocalCache();
  }
  CompilerProcess process;
  HPVMD_ASSIGN_OR_RETURN(UniqueFd socket, process.Start(IsNativeOpenCl(request)));
  // Without a cache nothing is stored, so the key does not matter.
  const std::unique_ptr<CompilerService> service =
      ConnectCompiler(std::move(socket), cache.has_value() ? cache->key : ArtifactKey{},
                      cache.has_value() ? cache->folder : std::string());
  StatusOr<CompileOutcome> outcome = service->Compile(request, RealClock().Now() + kAnswerMax);
  if (cache.has_value() && outcome.ok() && outcome->artifact.has_value()) {
    *tuning = FindTuning(*service, request);
  }
  return outcome;
}

struct LocalCompiler::Parts {
  CompilerProcess process;
  std::unique_ptr<CompilerService> service;  // Destroyed before the process.
};

LocalCompiler::LocalCompiler() : parts_(std::make_unique<Parts>()) {}
LocalCompiler::~LocalCompiler() = default;

StatusOr<std::unique_ptr<LocalCompiler>> LocalCompiler::Start() {
  std::unique_ptr<LocalCompiler> compiler(new LocalCompiler());
  HPVMD_ASSIGN_OR_RETURN(UniqueFd socket, compiler->parts_->process.Start(false));
  compiler->parts_->service = ConnectCompiler(std::move(socket), ArtifactKey{}, "");
  return compiler;
}

StatusOr<CompileOutcome> LocalCompiler::Compile(const CompileRequest& request) {
  return parts_->service->Compile(request, RealClock().Now() + kAnswerMax);
}

}  // namespace hpvm::ctl
