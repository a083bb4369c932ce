// SPDX-License-Identifier: Apache-2.0
#include "client/ctl/compile_service.h"

#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include <filesystem>
#include <string>

#include "base/fd.h"
#include "base/hash.h"
#include "base/limits.h"
#include "proto/internal/executor_process.h"

namespace hpvm::ctl {
namespace {

namespace fs = std::filesystem;

// The compiler stops a compile that takes longer than its own limit; this is for one that does not answer at all.
constexpr Duration kAnswerMax = std::chrono::seconds(limits::kCompileSecondsMax + 20);

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
  StatusOr<UniqueFd> Start() {
    HPVMD_ASSIGN_OR_RETURN(const std::string program, CompilerProgram());
    int ends[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) {
      return FromErrno(errno, "Creating a socket pair");
    }
    UniqueFd ours(ends[0]), theirs(ends[1]);
    HPVMD_ASSIGN_OR_RETURN(process_, Spawn({.arguments = {program, "--socket", "3", "--children", "1"},
                                            .socket = theirs.get(),
                                            .stderr_fd = STDERR_FILENO}));
    return ours;
  }

 private:
  SpawnedProcess process_;
};

}  // namespace

StatusOr<CompileOutcome> CompileHere(const CompileRequest& request) {
  CompilerProcess process;
  HPVMD_ASSIGN_OR_RETURN(UniqueFd socket, process.Start());
  // Nothing is kept, so that any key will do.
  const std::unique_ptr<CompilerService> service = ConnectCompiler(std::move(socket), ArtifactKey{});
  return service->Compile(request, RealClock().Now() + kAnswerMax);
}

}  // namespace hpvm::ctl
