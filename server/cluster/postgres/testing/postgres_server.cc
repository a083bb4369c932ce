// SPDX-License-Identifier: Apache-2.0
#include "server/cluster/postgres/testing/postgres_server.h"

#include <fcntl.h>
#include <grp.h>
#include <pwd.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <thread>
#include <utility>

#include <postgresql/libpq-fe.h>

// Asked by LeakSanitizer: libpqxx 6.4 does not free the last result of a connection that was lost.
extern "C" const char* __lsan_default_suppressions() { return "leak:libpqxx\n"; }

namespace hpvm::server::cluster {
namespace {

namespace fs = std::filesystem;

constexpr char kVersions[] = "/usr/lib/postgresql";
constexpr auto kStartMax = std::chrono::seconds(60);
constexpr auto kStopMax = std::chrono::seconds(20);
constexpr auto kStep = std::chrono::milliseconds(5);
constexpr size_t kLogShown = 1500;

// Returns the programs' folder of the latest version; empty when there is none.
std::string FindPrograms() {
  std::error_code ignored;
  int latest = 0;
  std::string found;
  for (const fs::directory_entry& entry : fs::directory_iterator(kVersions, ignored)) {
    const fs::path programs = entry.path() / "bin";
    const int version = std::atoi(entry.path().filename().c_str());
    if (version > latest && fs::exists(programs / "initdb", ignored) && fs::exists(programs / "postgres", ignored)) {
      latest = version;
      found = programs;
    }
  }
  return found;
}

// The user of the server, when the tests run as root.
const passwd* FindUser() {
  const passwd* const user = getpwnam("postgres");
  return user != nullptr ? user : getpwnam("nobody");
}

// Waits for the end of a process; false when it has not ended in time.
bool WaitForEnd(pid_t process, std::chrono::milliseconds timeout, int* status) {
  const auto deadline = std::chrono::steady_clock::now() + timeout;
  while (waitpid(process, status, WNOHANG) == 0) {
    if (std::chrono::steady_clock::now() > deadline) {
      return false;
    }
    std::this_thread::sleep_for(kStep);
  }
  return true;
}

// Becomes the program. Runs in the child of a fork of a process with threads, so it calls only the system.
[[noreturn]] void BecomeProgram(char* const* arguments, const passwd* user, const char* folder, int log, pid_t parent) {
  char path[] = "PATH=/usr/bin:/bin", language[] = "LC_ALL=C";
  char* const environment[] = {path, language, nullptr};
  const bool is_user =
      user == nullptr || (setgroups(0, nullptr) == 0 && setgid(user->pw_gid) == 0 && setuid(user->pw_uid) == 0);
  // After setuid, which clears it. SIGQUIT ends the server's other processes too.
  const bool is_bound = is_user && prctl(PR_SET_PDEATHSIG, SIGQUIT) == 0 && getppid() == parent;
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  if (is_bound && chdir(folder) == 0 && dup2(log, STDOUT_FILENO) >= 0 && dup2(log, STDERR_FILENO) >= 0 &&
      close_range(STDERR_FILENO + 1, ~0u, 0) == 0) {
    execve(arguments[0], arguments, environment);
  }
  _exit(127);
}

Status WriteFile(const std::string& path, const std::string& text, std::ios::openmode mode) {
  std::ofstream file(path, mode);
  file << text;
  file.close();
  return file.good() ? absl::OkStatus() : Unavailable("The file \"" + path + "\" cannot be written.");
}

}  // namespace

bool PostgresServer::IsInstalled() { return !FindPrograms().empty(); }

StatusOr<std::unique_ptr<PostgresServer>> PostgresServer::Make(const PostgresServerOptions& options) {
  char folder[] = "/tmp/hpvmd-postgres-XXXXXX";  // Short, because the path of a socket has a limit of 107 bytes.
  if (mkdtemp(folder) == nullptr) {
    return FromErrno(errno, "Making a folder in /tmp");
  }
  std::unique_ptr<PostgresServer> server(new PostgresServer(folder, FindPrograms()));
  HPVMD_RETURN_IF_ERROR(server->MakeFolder(options));
  HPVMD_RETURN_IF_ERROR(server->Start());
  return server;
}

StatusOr<PostgresServer*> PostgresServer::Shared() {
  static const StatusOr<std::unique_ptr<PostgresServer>> shared = Make();
  HPVMD_RETURN_IF_ERROR(shared.status());
  HPVMD_RETURN_IF_ERROR((*shared)->Start());
  return shared->get();
}

PostgresServer::~PostgresServer() {
  End(SIGQUIT);
  std::error_code ignored;
  fs::remove_all(folder_, ignored);
}

Status PostgresServer::MakeFolder(const PostgresServerOptions& options) {
  if (geteuid() == 0) {
    const passwd* const user = FindUser();
    if (user == nullptr || chown(folder_.c_str(), user->pw_uid, user->pw_gid) != 0) {
      return Unavailable("The folder \"" + folder_ + "\" cannot be given to the user postgres or nobody.");
    }
  }
  const pid_t process = Spawn({programs_ + "/initdb", "--pgdata=" + folder_ + "/data", "--username=postgres",
                               "--auth=trust", "--encoding=UTF8", "--no-locale", "--no-sync"});
  int status = 0;
  if (process < 0 || !WaitForEnd(process, kStartMax, &status) || status != 0) {
    return Failed("initdb fails");
  }
  std::string settings = "listen_addresses = ''\nport = 5432\nunix_socket_directories = '" + folder_ +
                         "'\nshared_buffers = '16MB'\nmax_connections = 60\nlog_line_prefix = '%m '\n";
  settings += options.has_fsync ? "fsync = on\n" : "fsync = off\n";
  for (const auto& [name, value] : options.settings) {
    settings += name + " = '" + value + "'\n";
  }
  HPVMD_RETURN_IF_ERROR(WriteFile(folder_ + "/data/postgresql.conf", settings, std::ios::app));
  return WriteFile(folder_ + "/data/pg_hba.conf", "local all guarded scram-sha-256\nlocal all all trust\n",
                   std::ios::trunc);
}

pid_t PostgresServer::Spawn(const std::vector<std::string>& arguments) const {
  std::vector<char*> pointers;
  for (const std::string& argument : arguments) {
    pointers.push_back(const_cast<char*>(argument.c_str()));
  }
  pointers.push_back(nullptr);
  const passwd* const user = geteuid() == 0 ? FindUser() : nullptr;
  const int log = open((folder_ + "/log").c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  const pid_t parent = getpid();
  const pid_t process = fork();
  if (process == 0) {
    BecomeProgram(pointers.data(), user, folder_.c_str(), log, parent);
  }
  close(log);
  return process;
}

Status PostgresServer::Failed(std::string_view what) const {
  std::ostringstream log;
  log << std::ifstream(folder_ + "/log").rdbuf();
  const std::string text = log.str();
  return Unavailable("The test's PostgreSQL does not run, because " + std::string(what) +
                     ". Its log ends with: " + text.substr(text.size() - std::min(text.size(), kLogShown)));
}

Status PostgresServer::Start() {
  if (is_running()) {
    return absl::OkStatus();
  }
  process_ = Spawn({programs_ + "/postgres", "-D", folder_ + "/data"});
  if (process_ < 0) {
    return FromErrno(errno, "Starting PostgreSQL");
  }
  const auto deadline = std::chrono::steady_clock::now() + kStartMax;
  while (PQping(dsn().c_str()) != PQPING_OK) {
    int status = 0;
    if (waitpid(process_, &status, WNOHANG) == process_) {
      process_ = -1;
      return Failed("it ended at once");
    }
    if (std::chrono::steady_clock::now() > deadline) {
      return Failed("it accepts no connections in time");
    }
    std::this_thread::sleep_for(kStep);
  }
  return absl::OkStatus();
}

void PostgresServer::End(int signal) {
  if (!is_running()) {
    return;
  }
  int status = 0;
  kill(process_, SIGCONT);
  kill(process_, signal);
  if (!WaitForEnd(process_, kStopMax, &status)) {
    kill(process_, SIGKILL);
    waitpid(process_, &status, 0);
  }
  process_ = -1;
}

void PostgresServer::StopFast() { End(SIGINT); }

void PostgresServer::Kill() { End(SIGQUIT); }

Status PostgresServer::Restart() {
  StopFast();
  return Start();
}

std::string PostgresServer::dsn(std::string_view database) const {
  return "host=" + folder_ + " port=5432 user=postgres dbname=" + std::string(database);
}

Status PostgresServer::CreateDatabase(const std::string& name) {
  const std::string quoted = "\"" + name + "\"";
  return Run({"DROP DATABASE IF EXISTS " + quoted + " WITH (FORCE)", "CREATE DATABASE " + quoted});
}

Status PostgresServer::Run(const std::vector<std::string>& statements) {
  const std::unique_ptr<PGconn, void (*)(PGconn*)> connection(PQconnectdb(dsn().c_str()), PQfinish);
  PQsetNoticeReceiver(
      connection.get(), [](void*, const PGresult*) {}, nullptr);
  for (const std::string& statement : statements) {
    const std::unique_ptr<PGresult, void (*)(PGresult*)> result(PQexec(connection.get(), statement.c_str()), PQclear);
    const ExecStatusType status = PQresultStatus(result.get());
    if (status != PGRES_COMMAND_OK && status != PGRES_TUPLES_OK) {
      return Unavailable("PostgreSQL refuses \"" + statement + "\": " + PQerrorMessage(connection.get()));
    }
  }
  return absl::OkStatus();
}

void PostgresServer::Signal(int signal) const {
  if (is_running()) {
    kill(process_, signal);
  }
}

}  // namespace hpvm::server::cluster
