// SPDX-License-Identifier: Apache-2.0
// hpvmd: reads the command line and the configuration, serves until SIGTERM or SIGINT.
#include <google/protobuf/stubs/logging.h>
#include <malloc.h>
#include <signal.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <string>
#include <thread>
#include <vector>

#include "absl/synchronization/mutex.h"
#include <CLI/CLI.hpp>

#include "base/failpoint.h"
#include "base/io/disk.h"
#include "base/io/secret_file.h"
#include "server/accounts/account_store.h"
#include "server/audit/audit_log.h"
#include "server/check_files.h"
#include "server/check_online.h"
#include "server/config/config_print.h"
#include "server/daemon.h"
#include "server/executors/nvml.h"
#include "server/hosts/shared_identity.h"
#include "server/identity/identity.h"
#include "server/identity/identity_database.h"
#include "server/jobs/job_admin.h"
#include "server/process/heap_trim.h"
#include "server/process/log.h"
#include "server/process/service_notifier.h"
#include "server/process/spent_file.h"
#include "server/rename_tenant.h"

namespace hpvm::server {
namespace {

constexpr int kExitOk = 0, kExitFailed = 1, kExitUsage = 2, kExitNoRoom = 3;
// Time for a daemon whose store is broken to end in order.
constexpr auto kBrokenMax = std::chrono::seconds(5);
// Signal that this process sends itself.
constexpr int kBrokenSignal = SIGUSR1;

struct Arguments {
  std::string config, listen, state, devices, backup, token_tenant, token_role = "user", token_output;
  std::string health_library;
  uint64_t interval_ms = 1'000, readings = 0;
  std::string grant_agent;
  std::vector<std::string> rename;  // Old and new name.
  bool dev = false, check = false, online = false, print = false, check_jobs = false, revoke_all = false;
};

int Fail(int code, const std::string& text) {
  std::fprintf(stderr, "hpvmd: %s\n", text.c_str());
  return code;
}

// Applies the file, then --dev, then --listen, --state and --devices.
StatusOr<Config> MakeConfig(const Arguments& arguments) {
  Config config;
  if (!arguments.config.empty()) {
    HPVMD_ASSIGN_OR_RETURN(config, LoadConfig(arguments.config));
  }
  if (arguments.dev) {
    config.server_reflection = true;
    config.tenants_from_metadata = true;
    if (arguments.config.empty()) {
      config.server_listen = "127.0.0.1:50061";
    }
  }
  if (!arguments.listen.empty()) {
    config.server_listen = arguments.listen;
  }
  if (!arguments.state.empty()) {
    config.server_state_dir = arguments.state;
  }
  if (!arguments.devices.empty()) {
    config.devices_backends = arguments.devices;
  }
  HPVMD_RETURN_IF_ERROR(ToStatus(CheckConfig(config)));
  return config;
}

// Returns the sources of MakeConfig's values.
ConfigOrigin OriginOf(const Arguments& arguments) {
  const std::pair<const char*, bool> by_command[] = {
      {"server.listen", !arguments.listen.empty() || (arguments.dev && arguments.config.empty())},
      {"server.state_dir", !arguments.state.empty()},
      {"server.reflection", arguments.dev},
      {"tenants.from_metadata", arguments.dev},
      {"devices.backends", !arguments.devices.empty()}};
  ConfigOrigin origin;
  origin.file = arguments.config;
  for (const auto& [key, is_set] : by_command) {
    if (is_set) {
      origin.by_command.emplace_back(key);
    }
  }
  return origin;
}

// Blocks the signals in every thread; the main thread receives them synchronously.
sigset_t BlockSignals() {
  signal(SIGPIPE, SIG_IGN);
  sigset_t set;
  sigemptyset(&set);
  for (const int number : {SIGTERM, SIGINT, SIGHUP, kBrokenSignal}) {
    sigaddset(&set, number);
  }
  pthread_sigmask(SIG_BLOCK, &set, nullptr);
  return set;
}

// Signals of a serving daemon.
class Signals {
 public:
  Signals() : set_(BlockSignals()) {}
  int Next() {
    int number = 0;
    while (sigwait(&set_, &number) != 0) {
    }
    return number;
  }
  // Returns true when another signal asks to hurry.
  bool IsUrgent() {
    const timespec none{};
    const int number = sigtimedwait(&set_, nullptr, &none);
    return number > 0 && number != SIGHUP;
  }

 private:
  sigset_t set_;
};

// Runs on a thread of the store. Tries to end in order, but any end is safe, because nothing was acknowledged that is
// not on disk.
void EndBroken(std::atomic<bool>& is_broken) {
  is_broken.store(true);
  kill(getpid(), kBrokenSignal);
  std::thread([] {
    std::this_thread::sleep_for(kBrokenMax);
    FlushLog(std::chrono::milliseconds(500));
    _exit(kExitFailed);
  }).detach();
}

void Reload(Daemon& daemon, const Arguments& arguments, ServiceNotifier& notifier) {
  notifier.Reloading();
  if (!arguments.config.empty() && !daemon.Reload(MakeConfig(arguments)).ok()) {
    notifier.Ready("Serves with the old configuration: the new one was rejected, see the log");
    return;
  }
  LogInfo("Looking for devices again");
  daemon.Rediscover();
  notifier.Ready("Serves");
}

// Logs protobuf's messages about clients' requests under the log's limits.
void LogProtobuf(google::protobuf::LogLevel, const char*, int, const std::string& message) {
  LogDebug("A message could not be read", {{"error", message}});
}

// Checks everything that the daemon opens and prints all faults at once.
int CheckMachine(const Config& config) {
  const Status files = ToStatus(CheckFiles(config));
  return files.ok() ? kExitOk : Fail(kExitUsage, Message(files));
}

int Run(const Config& config, const Arguments& arguments) {
  if (const int code = CheckMachine(config); code != kExitOk) {
    return code;  // A restart would not help.
  }
  Signals signals;
  StartLog(config.log_level, config.log_format);
  google::protobuf::SetLogHandler(LogProtobuf);
  ServiceNotifier notifier;
  std::atomic<bool> is_broken{false};
  DaemonOptions options;
  options.config = config;
  options.origin = OriginOf(arguments);
  options.on_broken = [&is_broken](const Status&) { EndBroken(is_broken); };
  options.alive_every = notifier.watchdog();
  if (notifier.watchdog() != kNever) {
    options.on_alive = [&notifier] { notifier.Alive(); };
  }
  StatusOr<std::unique_ptr<Daemon>> daemon = Daemon::Start(std::move(options));
  if (!daemon.ok()) {
    if (config.log_format == "json") {  // Programs that read the log read this as well.
      LogError("The daemon did not start", {{"error", Message(daemon.status())}});
    }
    FlushLog(std::chrono::seconds(1));
    // A full disk is still full a second later: the service manager need not retry.
    return Fail(absl::IsResourceExhausted(daemon.status()) ? kExitNoRoom : kExitFailed, Message(daemon.status()));
  }
  const std::unique_ptr<RoundThread> heap_trim = StartHeapTrim();
  for (const std::string& address : (*daemon)->addresses()) {
    LogInfo("Serving", {{"address", address}});
  }
  notifier.Ready("Serves");
  while (signals.Next() == SIGHUP) {
    Reload(**daemon, arguments, notifier);
  }
  LogInfo(is_broken ? "Stopping, because the job store is broken" : "Stopping; a second signal stops at once");
  notifier.Stopping("Waits for work in progress to end");
  (*daemon)->Stop([&] { return is_broken || signals.IsUrgent(); });
  daemon->reset();
  LogInfo("Stopped");
  return is_broken ? kExitFailed : kExitOk;
}

// Returns true when the state folder is deleted with the daemon.
bool IsStateTemporary(const Arguments& arguments) {
  return arguments.dev && arguments.config.empty() && arguments.state.empty();
}

int Serve(Config config, Arguments arguments) {
  if (!IsStateTemporary(arguments)) {
    return Run(config, arguments);
  }
  const StatusOr<std::string> folder = MakeTemporaryStateFolder();
  if (!folder.ok()) {
    return Fail(kExitFailed, Message(folder.status()));
  }
  arguments.state = config.server_state_dir = *folder;
  const int code = Run(config, arguments);
  RemoveTemporaryStateFolder(*folder);
  return code;
}

int Check(Config config, const Arguments& arguments) {
  if (IsStateTemporary(arguments)) {
    config.server_state_dir = "/tmp/hpvmd-dev";  // Only a placeholder for the temporary folder of a start.
  }
  if (const int code = CheckMachine(config); code != kExitOk) {
    return code;
  }
  std::printf("The configuration is valid, and the files, folders and programs that it names can be used.\n");
  if (!arguments.online) {
    return kExitOk;
  }
  const OnlineCheck online = CheckOnline(config);
  for (const std::string& line : online.lines) {
    std::printf("%s\n", line.c_str());
  }
  return online.is_ready ? kExitOk : kExitFailed;
}

Status GrantAgent(const Config& config, const std::string& user) {
  if (config.cluster_database.empty()) {
    return FailedPrecondition("The configuration names no database of a cluster (cluster.database).");
  }
  HPVMD_RETURN_IF_ERROR(GrantToAgent(config, user));
  std::printf("The database's user \"%s\" may claim jobs and record their ends.\n", user.c_str());
  return absl::OkStatus();
}

// A host of a cluster has no jobs, tenants and tokens of its own.
StatusOr<JobBackup> BackUpJobsOf(const Config& config, const std::string& target) {
  if (config.cluster_database.empty()) {
    return BackUpJobs(config.server_state_dir, target);
  }
  if (RealDisk().List(target).ok()) {
    return AlreadyExists("\"" + target + "\" exists already.");
  }
  HPVMD_RETURN_IF_ERROR(RealDisk().MakeFolder(target));
  JobBackup backup;
  backup.notes.push_back(
      "The cluster's jobs, tenants and tokens are not in this backup: they are in its database (cluster.database) and "
      "its folder of files (cluster.blob_dir), which are backed up by their own means.");
  return backup;
}

Status BackUp(const Config& config, const std::string& target) {
  HPVMD_ASSIGN_OR_RETURN(const JobBackup backup, BackUpJobsOf(config, target));
  HPVMD_RETURN_IF_ERROR(BackUpIdentity(config.server_state_dir, target));
  HPVMD_RETURN_IF_ERROR(BackUpAccounts(config.server_state_dir, target));
  HPVMD_ASSIGN_OR_RETURN(const uint64_t audit, BackUpAudit(RealDisk(), config.server_state_dir, target));
  const StatusOr<SpentByTenant> spent = ReadSpent(config.server_state_dir + "/spent.json");
  if (spent.ok()) {
    HPVMD_RETURN_IF_ERROR(WriteSpent(target + "/spent.json", *spent));
  } else {
    std::printf("The backup does not hold the tenants' spent quotas: %s\n", Message(spent.status()).c_str());
  }
  for (const std::string& note : backup.notes) {
    std::printf("%s\n", note.c_str());
  }
  std::printf("\"%s\" holds %llu jobs and %llu files of these jobs (%llu bytes).\n", target.c_str(),
              static_cast<unsigned long long>(backup.jobs), static_cast<unsigned long long>(backup.blobs),
              static_cast<unsigned long long>(backup.blob_bytes));
  std::printf(
      "The backup also holds tenants, tokens, accounts and %llu files of the audit. It does not hold the "
      "configuration, TLS files, or compiled kernels, which are compiled again. Tokens that are revoked from now on "
      "stay valid in the backup.\n",
      static_cast<unsigned long long>(audit));
  return absl::OkStatus();
}

Status RevokeAllTokens(const Config& config) {
  HPVMD_ASSIGN_OR_RETURN(const uint64_t revoked, RevokeAllTokensOffline(config, SharedIdentityOf(config)));
  std::printf("%llu tokens of \"%s\" were revoked.\n", static_cast<unsigned long long>(revoked),
              config.server_state_dir.c_str());
  return absl::OkStatus();
}

Status RenameTenant(const Config& config, const std::string& tenant, const std::string& name) {
  HPVMD_ASSIGN_OR_RETURN(const uint64_t jobs, RenameTenantOffline(config, tenant, name));
  std::printf("The tenant \"%s\" has the name \"%s\" from now on, with its %llu jobs.\n", tenant.c_str(), name.c_str(),
              static_cast<unsigned long long>(jobs));
  return absl::OkStatus();
}

Status CheckStoredJobs(const Config& config, int* code) {
  HPVMD_ASSIGN_OR_RETURN(const std::vector<std::string> faults, CheckJobs(config.server_state_dir));
  for (const std::string& fault : faults) {
    std::printf("%s\n", fault.c_str());
  }
  std::printf("The jobs of \"%s\": %zu faults.\n", config.server_state_dir.c_str(), faults.size());
  *code = faults.empty() ? kExitOk : kExitFailed;
  return absl::OkStatus();
}

// Prints only the secret on standard output, so that a script can store it.
Status CreateToken(const Config& config, const Arguments& arguments) {
  const bool has_output = !arguments.token_output.empty();
  SecretFile file(arguments.token_output, /*may_replace=*/false);
  HPVMD_RETURN_IF_ERROR(has_output ? file.Open() : absl::OkStatus());
  HPVMD_ASSIGN_OR_RETURN(
      const Directory::NewToken made,
      CreateTokenOffline(config, arguments.token_tenant, arguments.token_role, SharedIdentityOf(config)));
  if (const Status kept = has_output ? file.Finish(made.secret) : absl::OkStatus(); !kept.ok()) {
    return MakeStatus(kept.code(), "Token " + made.token.id() +
                                       " was created, but its secret could not be written: revoke the token. " +
                                       Message(kept));
  }
  std::fprintf(stderr, "Token %s of tenant %s, role %s, valid for 90 days. %s\n", made.token.id().c_str(),
               made.token.tenant().c_str(), arguments.token_role.c_str(),
               has_output ? "Its secret is in the file." : "The secret is shown only once:");
  if (!has_output) {
    std::printf("%s\n", made.secret.c_str());
  }
  return absl::OkStatus();
}

void AddOptions(CLI::App& app, Arguments& arguments) {
  app.footer(
      "Examples:\n  hpvmd --dev\n  hpvmd --dev --listen unix:/tmp/hpvmd.sock --state /tmp/hpvmd\n"
      "  hpvmd --config /etc/hpvm/hpvmd.toml\n  hpvmd --config hpvmd.toml --check-config --online\n"
      "  hpvmd --config hpvmd.toml --print-config\n"
      "  hpvmd --config /etc/hpvm/hpvmd.toml --backup /var/backups/hpvmd-monday\n"
      "  hpvmd --config /etc/hpvm/hpvmd.toml --create-token local --role admin --output admin.token\n"
      "Signals: SIGHUP reads the configuration again and looks for devices; SIGTERM and SIGINT stop the daemon, a "
      "second signal at once.\n"
      "Exit codes: 0 stopped as asked, 1 failed, 2 wrong usage or configuration, 3 no room on the disk for a start.");
  app.add_option("--config", arguments.config, "Configuration file (TOML)")->type_name("FILE");
  app.add_flag("--dev", arguments.dev,
               "For development: 127.0.0.1:50061, a state folder that ends with the daemon, reflection, tenants by the "
               "metadata hpvm-tenant");
  app.add_option("--listen", arguments.listen,
                 "Addresses instead of the configuration's: unix:/path or host:port, separated by commas")
      ->type_name("ADDRESS");
  app.add_option("--state", arguments.state, "Folder for jobs and caches, instead of the configuration's")
      ->type_name("DIR");
  app.add_option("--devices", arguments.devices,
                 "Devices instead of the configuration's: auto, or cpu,opencl,vulkan:0 ...")
      ->type_name("LIST");
  app.add_flag("--check-config", arguments.check,
               "Check the configuration, and the files, folders and programs that it names, and exit; a daemon may be "
               "running");
  app.add_flag("--online", arguments.online,
               "With --check-config: also compare with the running daemon, or without one try the addresses that it "
               "would need")
      ->needs("--check-config");
  app.add_flag(
      "--print-config", arguments.print,
      "Print every key of the configuration with its value, as a configuration file with the same meaning, and exit");
  app.add_option("--backup", arguments.backup,
                 "Copy the jobs, tenants, tokens, accounts and audit of the state folder into a new folder and exit; a "
                 "daemon may be "
                 "running on it")
      ->type_name("DIR");
  app.add_flag("--check-jobs", arguments.check_jobs,
               "Read every job of the state folder, say what is damaged and exit; a daemon may be running on it");
  app.add_option("--create-token", arguments.token_tenant,
                 "Create a token of this tenant in the state folder of a stopped daemon, print its secret and exit: "
                 "for the first administrator")
      ->type_name("TENANT");
  app.add_flag("--revoke-all-tokens", arguments.revoke_all,
               "Revoke every token in the state folder of a stopped daemon, and exit: for a restored backup, in which "
               "tokens are valid that were revoked since");
  app.add_option("--grant-agent", arguments.grant_agent,
                 "Let a user of the cluster's database run jobs and nothing else, and exit: for hosts whose role is "
                 "agent")
      ->type_name("USER");
  app.add_option("--rename-tenant", arguments.rename,
                 "Give a tenant another name in the state folder of a stopped daemon, and exit: FROM TO")
      ->type_name("FROM TO")
      ->expected(2);
  app.add_option("--role", arguments.token_role, "With --create-token: user, operator or admin")
      ->type_name("ROLE")
      ->check(CLI::IsMember({"user", "operator", "admin"}));
  app.add_option(
         "--output", arguments.token_output,
         "With --create-token: a new file for the secret, readable by its owner alone, instead of standard output")
      ->type_name("FILE")
      ->needs("--create-token");
  app.add_option("--device-health", arguments.health_library,
                 "Print the health of the GPUs as NVIDIA's management library reports it, as a line of JSON each "
                 "second, until nobody reads the output; the daemon runs this for itself")
      ->type_name("LIBRARY")
      ->expected(0, 1)
      ->default_str("libnvidia-ml.so.1");
  app.add_option("--interval-ms", arguments.interval_ms, "With --device-health: milliseconds between two lines")
      ->check(CLI::Range(100, 60'000))
      ->needs("--device-health");
  app.add_option("--readings", arguments.readings, "With --device-health: the number of lines; 0: no end")
      ->needs("--device-health");
  app.set_version_flag("--version", "hpvmd " HPVMD_VERSION);
}

int Main(int argc, char** argv) {
  // Merges freed chunks at once. Otherwise a later allocation merges tens of thousands of them (the rows of an array)
  // in ten milliseconds, under whatever lock is held then.
  mallopt(M_MXFAST, 0);
  // Debian builds Abseil with its lock-order checker enabled, which slows every lock inside gRPC.
  absl::SetMutexDeadlockDetectionMode(absl::OnDeadlockCycle::kIgnore);
  if (const Status failpoints = SetFailpointsFromEnvironment(); !failpoints.ok()) {
    return Fail(kExitUsage, Message(failpoints));
  }
  Arguments arguments;
  CLI::App app{"hpvmd: runs graphs of kernels on the devices of this machine, for clients over gRPC."};
  AddOptions(app, arguments);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {  // CLI11 reports errors by exceptions, which end here.
    return app.exit(error) == 0 ? kExitOk : kExitUsage;
  }
  if (!arguments.health_library.empty()) {
    return WatchNvml(arguments.health_library, arguments.interval_ms, arguments.readings);
  }
  const StatusOr<Config> config = MakeConfig(arguments);
  if (!config.ok()) {
    return Fail(kExitUsage, Message(config.status()));
  }
  if (arguments.check) {
    return Check(*config, arguments);
  }
  if (arguments.print) {
    std::fputs(PrintConfig(*config, OriginOf(arguments)).c_str(), stdout);
    return std::fflush(stdout) == 0 ? kExitOk
                                    : Fail(kExitFailed, "The configuration could not be written to standard output.");
  }
  int code = kExitOk;
  Status done;
  if (!arguments.token_tenant.empty()) {
    done = CreateToken(*config, arguments);
  } else if (arguments.revoke_all) {
    done = RevokeAllTokens(*config);
  } else if (!arguments.grant_agent.empty()) {
    done = GrantAgent(*config, arguments.grant_agent);
  } else if (!arguments.rename.empty()) {
    done = RenameTenant(*config, arguments.rename[0], arguments.rename[1]);
  } else if (!arguments.backup.empty()) {
    done = BackUp(*config, arguments.backup);
  } else if (arguments.check_jobs) {
    done = CheckStoredJobs(*config, &code);
  } else {
    code = Serve(*config, std::move(arguments));
  }
  return done.ok() ? code : Fail(kExitFailed, Message(done));
}

}  // namespace
}  // namespace hpvm::server

int main(int argc, char** argv) { return hpvm::server::Main(argc, argv); }
