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

// The compiler stops a compile that takes longer than its own limit; this is for one that does not answer at all.
constexpr Duration kAnswerMax = std::chrono::seconds(kCompileWallSecondsMax + 20);

StatusOr<std::string> CompilerProgram() {
  if (const char* named = getenv("HPVM_COMPILER"); named != nullptr) {
    return std::string(named);
  }
  std::error_code error;
  const fs::path self = fs::read_symlink("/proc/self/exe", error);
  const fs::path program = self.parent_path() / "hpvm-compiler";
  if (error || access(program.c_str(), X_OK) != 0) {
    return NotFound("The program \"" + program.string() + "\" is not there; HPVM_COMPILER can name it.");
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

  // The end of the socket that the service takes.
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

// Modules that are native to OpenCL devices.
bool IsNativeOpenCl(const CompileRequest& request) {
  return request.module_kind != ModuleKind::kWasm && request.target == ArtifactKind::kOpenCl;
}

// By asking for the kernel as a run would: what was learnt comes with it. Nothing of it is worth a failure.
std::optional<LearntRecord> FindLearnt(CompilerService& service, const CompileRequest& request) {
  CompileRequest plain = request;
  plain.explain = false;
  plain.listing = Listing::kNone;
  const StatusOr<CompileOutcome> outcome = service.Compile(plain, RealClock().Now() + kAnswerMax);
  if (!outcome.ok() || !outcome->artifact.has_value() || outcome->artifact->learnt.empty()) {
    return std::nullopt;
  }
  StatusOr<LearntRecord> record = DecodeLearnt(outcome->artifact->learnt);
  return record.ok() ? std::optional(*std::move(record)) : std::nullopt;
}

}  // namespace

StatusOr<CompileOutcome> CompileHere(const CompileRequest& request, std::optional<LearntRecord>* learnt) {
  std::optional<LocalCache> cache;
  if (learnt != nullptr) {
    cache = OpenLocalCache();
  }
  CompilerProcess process;
  HPVMD_ASSIGN_OR_RETURN(UniqueFd socket, process.Start(IsNativeOpenCl(request)));
  // Without a cache nothing is kept, so that any key will do.
  const std::unique_ptr<CompilerService> service =
      ConnectCompiler(std::move(socket), cache.has_value() ? cache->key : ArtifactKey{},
                      cache.has_value() ? cache->folder : std::string());
  StatusOr<CompileOutcome> outcome = service->Compile(request, RealClock().Now() + kAnswerMax);
  if (cache.has_value() && outcome.ok() && outcome->artifact.has_value()) {
    *learnt = FindLearnt(*service, request);
  }
  return outcome;
}

}  // namespace hpvm::ctl
