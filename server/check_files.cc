// SPDX-License-Identifier: Apache-2.0
#include "server/check_files.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "server/config/address.h"
#include "server/executors/executor_confinement.h"
#include "server/executors/executor_spawner.h"
#include "server/front/tls.h"
#include "server/rpc/scrape_access.h"

namespace hpvm::server {
namespace {

void Report(Diagnostics* faults, const char* place, std::string message) {
  faults->push_back({Severity::kError, place, std::nullopt, std::move(message)});
}

// Expected kind of a path.
enum class Kind { kFile, kFolder };

std::string NameOf(Kind kind) { return kind == Kind::kFile ? "file" : "folder"; }

// Returns an error, as a sentence, when this process cannot use the path with those rights (R_OK ...); kNotFound when
// the path is missing.
Status CheckAccess(const std::string& path, Kind kind, int rights) {
  struct stat info {};
  if (stat(path.c_str(), &info) != 0) {
    return FromErrno(errno, "Looking at \"" + path + "\"");
  }
  if (kind == Kind::kFile ? !S_ISREG(info.st_mode) : !S_ISDIR(info.st_mode)) {
    return InvalidArgument("\"" + path + "\" is not a " + NameOf(kind) + ".");
  }
  if (faccessat(AT_FDCWD, path.c_str(), rights, AT_EACCESS) == 0) {
    return absl::OkStatus();
  }
  const int error = errno;
  return MakeStatus(absl::StatusCode::kPermissionDenied, "The " + NameOf(kind) + " \"" + path + "\" cannot be " +
                                                             ((rights & X_OK) != 0 && kind == Kind::kFile ? "executed"
                                                              : (rights & W_OK) != 0 ? "read and written"
                                                                                     : "read") +
                                                             " by the user id " + std::to_string(geteuid()) + ": " +
                                                             Message(FromErrno(error, "Access")));
}

std::string ParentOf(const std::string& path) {
  const size_t slash =
      path.find_last_not_of('/') == std::string::npos ? std::string::npos : path.rfind('/', path.find_last_not_of('/'));
  return slash == std::string::npos || slash == 0 ? "/" : path.substr(0, slash);
}

// For a folder that does not exist yet: checks that the first existing parent allows creating it.
void CheckPlaceOf(const std::string& folder, Diagnostics* faults) {
  std::string above = ParentOf(folder);
  Status status = CheckAccess(above, Kind::kFolder, W_OK | X_OK);
  while (absl::IsNotFound(status) && above != "/") {
    above = ParentOf(above);
    status = CheckAccess(above, Kind::kFolder, W_OK | X_OK);
  }
  if (!status.ok()) {
    Report(faults, "server.state_dir",
           "The folder \"" + folder + "\" is missing and cannot be created. " + Message(status));
  }
}

void CheckState(const Config& config, Diagnostics* faults) {
  const std::string& folder = config.server_state_dir;
  const Status status = CheckAccess(folder, Kind::kFolder, R_OK | W_OK | X_OK);
  if (absl::IsNotFound(status)) {
    CheckPlaceOf(folder, faults);
    return;
  }
  if (!status.ok()) {
    Report(faults, "server.state_dir", Message(status));
    return;
  }
  const struct {
    const char* name;
    Kind kind;
  } parts[] = {{"/lock", Kind::kFile},
               {"/executors", Kind::kFolder},
               {"/cache", Kind::kFolder},
               {"/blobs", Kind::kFolder},
               {"/audit", Kind::kFolder},
               {"/jobs.db", Kind::kFile},
               {"/jobs.db-wal", Kind::kFile},
               {"/jobs.db-shm", Kind::kFile},
               {"/identity.sqlite", Kind::kFile},
               {"/artifact.key", Kind::kFile},
               {"/spent.json", Kind::kFile},
               {"/accounts.sqlite", Kind::kFile},
               {"/accounts.sqlite-wal", Kind::kFile},
               {"/accounts.sqlite-shm", Kind::kFile},
               {"/reserve", Kind::kFile},
               {"/identity.sqlite-wal", Kind::kFile},
               {"/identity.sqlite-shm", Kind::kFile}};
  for (const auto& part : parts) {
    const Status one =
        CheckAccess(folder + part.name, part.kind, R_OK | W_OK | (part.kind == Kind::kFolder ? X_OK : 0));
    if (!one.ok() && !absl::IsNotFound(one)) {
      Report(faults, "server.state_dir", Message(one));
    }
  }
}

void CheckPrograms(const Config& config, Diagnostics* faults) {
  const std::string executor = ExecutorProgram(config);
  for (const std::string& program : {executor, ParentOf(executor) + "/hpvm-compiler"}) {
    if (const Status status = CheckAccess(program, Kind::kFile, X_OK); !status.ok()) {
      Report(faults, "executor.path", Message(status));
    }
  }
}

void CheckSockets(const Config& config, Diagnostics* faults) {
  const StatusOr<std::vector<ListenAddress>> addresses = ParseListen(config.server_listen);
  for (const ListenAddress& address : addresses.value_or(std::vector<ListenAddress>{})) {
    struct stat info {};
    if (!address.is_unix) {
      continue;
    }
    if (lstat(address.target.c_str(), &info) == 0 && !S_ISSOCK(info.st_mode)) {
      Report(faults, "server.listen", "The listen path \"" + address.target + "\" exists and is not a socket.");
    }
    const Status folder = CheckAccess(ParentOf(address.target), Kind::kFolder, W_OK | X_OK);
    if (!folder.ok() && !absl::IsNotFound(folder)) {
      Report(faults, "server.listen", Message(folder));
    }
  }
}

}  // namespace

Diagnostics CheckFiles(const Config& config) {
  Diagnostics faults;
  if (!config.tls_certificate.empty()) {
    ReadTlsFiles(config, &faults);
  }
  if (!config.metrics_token_file.empty()) {
    if (const Status secret = ReadScrapeSecret(config.metrics_token_file).status(); !secret.ok()) {
      Report(&faults, "metrics.token_file", Message(secret));
    }
  }
  if (const Status cpus = PartitionCpus(config).status(); !cpus.ok()) {
    Report(&faults, "cpu.reserved_cores", Message(cpus));
  }
  CheckState(config, &faults);
  CheckPrograms(config, &faults);
  CheckSockets(config, &faults);
  return faults;
}

}  // namespace hpvm::server
