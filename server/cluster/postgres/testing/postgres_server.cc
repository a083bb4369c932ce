// SPDX-License-Identifier: Apache-2.0
#include "server/cluster/postgres/testing/postgres_server.h"

#include <fcntl.h>
#include <grp.h>
#include <pwd.h>
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
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
constexpr char kStandbyName[] = "standby";  // A standby asks for the log by this name.

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

// Returns the states of a process's children, as /proc shows them ('Z': it has ended), by their ids.
std::map<pid_t, char> ChildrenOf(pid_t parent) {
  std::error_code ignored;
  std::map<pid_t, char> children;
  for (const fs::directory_entry& entry : fs::directory_iterator("/proc", ignored)) {
    const pid_t process = std::atoi(entry.path().filename().c_str());
    std::string line;
    if (process <= 0 || !std::getline(std::ifstream(entry.path() / "stat"), line)) {
      continue;
    }
    char state = 'Z';
    pid_t of = 0;
    // The name in front stands in parentheses, and may contain some.
    std::istringstream(line.substr(std::min(line.size(), line.rfind(')') + 1))) >> state >> of;
    if (of == parent) {
      children[process] = state;
    }
  }
  return children;
}

Status WriteFile(const std::string& path, const std::string& text, std::ios::openmode mode) {
  std::ofstream file(path, mode);
  file << text;
  file.close();
  return file.good() ? absl::OkStatus() : Unavailable("The file \"" + path + "\" cannot be written.");
}

}  // namespace

bool PostgresServer::IsInstalled() { return !FindPrograms().empty(); }

StatusOr<std::unique_ptr<PostgresServer>> PostgresServer::MakeFolder() {
  char folder[] = "/tmp/hpvmd-postgres-XXXXXX";  // Short, because the path of a socket has a limit of 107 bytes.
  if (mkdtemp(folder) == nullptr) {
    return FromErrno(errno, "Making a folder in /tmp");
  }
  std::unique_ptr<PostgresServer> server(new PostgresServer(folder, FindPrograms()));
  if (geteuid() == 0) {
    const passwd* const user = FindUser();
    if (user == nullptr || chown(folder, user->pw_uid, user->pw_gid) != 0) {
      return Unavailable("The folder \"" + server->folder_ + "\" cannot be given to the user postgres or nobody.");
    }
  }
  return server;
}

StatusOr<std::unique_ptr<PostgresServer>> PostgresServer::Make(const PostgresServerOptions& options) {
  HPVMD_ASSIGN_OR_RETURN(std::unique_ptr<PostgresServer> server, MakeFolder());
  if (options.disk_bytes > 0) {
    HPVMD_RETURN_IF_ERROR(server->MakeDisk(options.disk_bytes));
  }
  HPVMD_RETURN_IF_ERROR(server->MakeData(options));
  HPVMD_RETURN_IF_ERROR(server->Start());
  return server;
}

StatusOr<std::unique_ptr<PostgresServer>> PostgresServer::MakeStandby() {
  HPVMD_ASSIGN_OR_RETURN(std::unique_ptr<PostgresServer> standby, MakeFolder());
  HPVMD_RETURN_IF_ERROR(standby->CopyData(*this));
  HPVMD_RETURN_IF_ERROR(standby->Start());
  return standby;
}

StatusOr<PostgresServer*> PostgresServer::Shared() {
  static const StatusOr<std::unique_ptr<PostgresServer>> shared = Make();
  HPVMD_RETURN_IF_ERROR(shared.status());
  HPVMD_RETURN_IF_ERROR((*shared)->Start());
  return shared->get();
}

PostgresServer::~PostgresServer() {
  End(SIGQUIT);
  if (has_disk_) {
    umount2(data().c_str(), MNT_DETACH);
  }
  std::error_code ignored;
  fs::remove_all(folder_, ignored);
}

Status PostgresServer::MakeDisk(uint64_t bytes) {
  const passwd* const user = FindUser();
  std::string options = "mode=0700,size=" + std::to_string(bytes);
  if (user != nullptr) {
    options += ",uid=" + std::to_string(user->pw_uid) + ",gid=" + std::to_string(user->pw_gid);
  }
  // In a name space of its own the disk goes away with the last process that sees it.
  has_disk_ = geteuid() == 0 && unshare(CLONE_NEWNS) == 0 &&
              mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0 && mkdir(data().c_str(), 0700) == 0 &&
              mount("tmpfs", data().c_str(), "tmpfs", MS_NOSUID | MS_NODEV, options.c_str()) == 0;
  return has_disk_ ? absl::OkStatus()
                   : FailedPrecondition("This process is not permitted to mount a disk in memory; root usually is.");
}

Status PostgresServer::MakeData(const PostgresServerOptions& options) {
  std::vector<std::string> initdb = {
      programs_ + "/initdb", "--pgdata=" + data(), "--username=postgres", "--auth=trust", "--encoding=UTF8",
      "--no-locale",         "--no-sync"};
  if (options.disk_bytes > 0) {
    initdb.emplace_back("--wal-segsize=1");
  }
  HPVMD_RETURN_IF_ERROR(RunProgram(initdb, "initdb fails"));
  std::string settings = "listen_addresses = ''\nport = 5432\nunix_socket_directories = '" + folder_ +
                         "'\nshared_buffers = '16MB'\nmax_connections = 60\nlog_line_prefix = '%m '\n";
  settings += options.has_fsync ? "fsync = on\n" : "fsync = off\n";
  for (const auto& [name, value] : options.settings) {
    settings += name + " = '" + value + "'\n";
  }
  HPVMD_RETURN_IF_ERROR(WriteFile(data() + "/postgresql.conf", settings, std::ios::app));
  return WriteFile(data() + "/pg_hba.conf",
                   "local all guarded scram-sha-256\nlocal all all trust\nlocal replication all trust\n",
                   std::ios::trunc);
}

Status PostgresServer::CopyData(const PostgresServer& primary) {
  HPVMD_RETURN_IF_ERROR(RunProgram({programs_ + "/pg_basebackup", "--pgdata=" + data(), "--host=" + primary.folder_,
                                    "--port=5432", "--username=postgres", "--checkpoint=fast", "--no-sync"},
                                   "pg_basebackup fails"));
  const std::string settings =
      "unix_socket_directories = '" + folder_ + "'\nprimary_conninfo = 'host=" + primary.folder_ +
      " port=5432 user=postgres application_name=" + kStandbyName + "'\nwal_retrieve_retry_interval = '100ms'\n";
  HPVMD_RETURN_IF_ERROR(WriteFile(data() + "/postgresql.conf", settings, std::ios::app));
  return WriteFile(data() + "/standby.signal", "", std::ios::trunc);
}

Status PostgresServer::RunProgram(const std::vector<std::string>& arguments, std::string_view what) const {
  const pid_t process = Spawn(arguments);
  int status = 0;
  if (process > 0 && !WaitForEnd(process, kStartMax, &status)) {
    kill(process, SIGKILL);
    waitpid(process, &status, 0);
  }
  return process < 0 || status != 0 ? Failed(what) : absl::OkStatus();
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
  int ended = 0;
  if (is_running() && waitpid(process_, &ended, WNOHANG) == 0) {
    return absl::OkStatus();
  }
  process_ = Spawn({programs_ + "/postgres", "-D", data()});
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

void PostgresServer::KillAll() {
  if (!is_running()) {
    return;
  }
  int status = 0;
  kill(process_, SIGSTOP);  // It starts and buries no child from now on.
  if (waitpid(process_, &status, WUNTRACED) == process_ && WIFSTOPPED(status)) {
    for (bool are_gone = false; !are_gone;) {
      are_gone = true;
      for (const auto& [child, state] : ChildrenOf(process_)) {
        if (state != 'Z') {
          kill(child, SIGKILL);
          are_gone = false;
        }
      }
    }
    kill(process_, SIGKILL);
    waitpid(process_, &status, 0);
  }
  process_ = -1;
}

Status PostgresServer::WaitForStandby(bool is_synchronous) {
  if (is_synchronous) {
    HPVMD_RETURN_IF_ERROR(Run({std::string("ALTER SYSTEM SET synchronous_standby_names = '") + kStandbyName + "'",
                               "SELECT pg_reload_conf()"}));
  }
  return WaitUntil(std::string("SELECT EXISTS(SELECT FROM pg_stat_replication WHERE state = 'streaming'") +
                   (is_synchronous ? " AND sync_state = 'sync')" : ")"));
}

Status PostgresServer::StopReceiving() {
  HPVMD_RETURN_IF_ERROR(Run({"ALTER SYSTEM SET primary_conninfo = ''", "SELECT pg_reload_conf()"}));
  return WaitUntil("SELECT NOT EXISTS(SELECT FROM pg_stat_wal_receiver)");
}

Status PostgresServer::Promote() {
  const std::string seconds = std::to_string(std::chrono::seconds(kStartMax).count());
  HPVMD_ASSIGN_OR_RETURN(const std::string promoted, Ask("SELECT pg_promote(true, " + seconds + ")"));
  return promoted == "t" ? absl::OkStatus() : Failed("it was not promoted in time");
}

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
  for (const std::string& statement : statements) {
    HPVMD_RETURN_IF_ERROR(Ask(statement).status());
  }
  return absl::OkStatus();
}

StatusOr<std::string> PostgresServer::Ask(const std::string& statement) {
  const std::unique_ptr<PGconn, void (*)(PGconn*)> connection(PQconnectdb(dsn().c_str()), PQfinish);
  PQsetNoticeReceiver(
      connection.get(), [](void*, const PGresult*) {}, nullptr);
  const std::unique_ptr<PGresult, void (*)(PGresult*)> result(PQexec(connection.get(), statement.c_str()), PQclear);
  const ExecStatusType status = PQresultStatus(result.get());
  if (status != PGRES_COMMAND_OK && status != PGRES_TUPLES_OK) {
    return Unavailable("PostgreSQL refuses \"" + statement + "\": " + PQerrorMessage(connection.get()));
  }
  return std::string(PQntuples(result.get()) > 0 ? PQgetvalue(result.get(), 0, 0) : "");
}

Status PostgresServer::WaitUntil(const std::string& statement) {
  const auto deadline = std::chrono::steady_clock::now() + kStartMax;
  while (true) {
    HPVMD_ASSIGN_OR_RETURN(const std::string answer, Ask(statement));
    if (answer == "t") {
      return absl::OkStatus();
    }
    if (std::chrono::steady_clock::now() > deadline) {
      return Failed("\"" + statement + "\" does not become true in time");
    }
    std::this_thread::sleep_for(kStep);
  }
}

void PostgresServer::Signal(int signal) const {
  if (is_running()) {
    kill(process_, signal);
  }
}

}  // namespace hpvm::server::cluster
