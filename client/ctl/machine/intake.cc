// SPDX-License-Identifier: Apache-2.0
// hpvmctl cordon|drain|readmit: stops the server from starting work, or allows it again.
#include <stdio.h>
#include <time.h>

#include <string>

#include "client/ctl/options.h"
#include "client/ctl/report.h"
#include "client/ctl/text/parse_args.h"

#include "hpvm/admin.h"

namespace hpvm::ctl {
namespace {

struct Options {
  std::string reason, timeout;
};

void Say(const Globals& globals, const v1::SetIntakeResponse& response) {
  if (globals.format == Format::kJson) {
    PrintData(response, globals.format);
    return;
  }
  const std::string running = std::to_string(response.running_jobs()) + " jobs and " +
                              std::to_string(response.running_runs()) + " runs are in progress";
  if (response.intake().closed()) {
    printf(
        "No work is started from now on; new jobs are accepted and wait. %s. `hpvmctl readmit` opens the server "
        "again.\n",
        running.c_str());
  } else {
    printf("Work is started again. %s.\n", running.c_str());
  }
}

Status Cordon(const Globals& globals, const Options& options) {
  HPVMD_ASSIGN_OR_RETURN(std::unique_ptr<Client> client, globals.Connect());
  HPVMD_ASSIGN_OR_RETURN(const v1::SetIntakeResponse response, Admin(*client).SetIntake(true, options.reason));
  Say(globals, response);
  return absl::OkStatus();
}

Status Readmit(const Globals& globals) {
  HPVMD_ASSIGN_OR_RETURN(std::unique_ptr<Client> client, globals.Connect());
  HPVMD_ASSIGN_OR_RETURN(const v1::SetIntakeResponse response, Admin(*client).SetIntake(false, ""));
  Say(globals, response);
  return absl::OkStatus();
}

struct Running {
  uint64_t jobs = 0, runs = 0;
  bool operator==(const Running&) const = default;
};

StatusOr<Running> CountRunning(Admin& admin) {
  HPVMD_ASSIGN_OR_RETURN(const v1::GetOverviewResponse now, admin.GetOverview(0));
  Running running;
  for (const v1::TenantLoad& tenant : now.tenants()) {
    running.jobs += tenant.jobs_running();
    running.runs += tenant.runs();
  }
  return running;
}

Status Drain(const Globals& globals, const Options& options, ExitCode* code) {
  Duration timeout = Duration::max();
  if (!options.timeout.empty()) {
    HPVMD_ASSIGN_OR_RETURN(timeout, While(ParseDuration(options.timeout), "reading --timeout"));
  }
  HPVMD_ASSIGN_OR_RETURN(std::unique_ptr<Client> client, globals.Connect());
  Admin admin(*client);
  HPVMD_ASSIGN_OR_RETURN(const v1::SetIntakeResponse response, admin.SetIntake(true, options.reason));
  Say(globals, response);
  const Time start = RealClock().Now();
  Running shown{UINT64_MAX, 0};
  for (;;) {
    HPVMD_ASSIGN_OR_RETURN(const Running running, CountRunning(admin));
    if (running == Running{}) {
      puts("Nothing runs any more.");
      return absl::OkStatus();
    }
    if (running != shown && globals.ShowsProgress()) {
      fprintf(stderr, "%llu jobs and %llu runs are in progress\n", static_cast<unsigned long long>(running.jobs),
              static_cast<unsigned long long>(running.runs));
    }
    shown = running;
    if (RealClock().Now() - start >= timeout) {
      fprintf(stderr, "hpvmctl: after %s %llu jobs and %llu runs are still in progress; the server stays closed.\n",
              options.timeout.c_str(), static_cast<unsigned long long>(running.jobs),
              static_cast<unsigned long long>(running.runs));
      *code = kTimedOut;
      return absl::OkStatus();
    }
    const timespec pause{0, 250'000'000};
    nanosleep(&pause, nullptr);
  }
}

}  // namespace

void AddIntake(Commands commands) {
  CLI::App& cordon =
      AddCommand(commands.app, "cordon",
                 "Let the server start no more work: jobs wait, runs are refused, work in progress goes on to its end",
                 "For administrators. The server stays closed over restarts; `hpvmctl readmit` opens it again.\n"
                 "Example:\n  hpvmctl cordon --reason \"new disks\"");
  AddWord(cordon, "--reason", SetWork(commands, cordon, Cordon).reason,
          "Reason, which every tenant sees; at most 255 bytes");
  CLI::App& drain = AddCommand(commands.app, "drain", "As cordon, and wait until nothing runs any more",
                               "Examples:\n  hpvmctl drain --reason maintenance\n  hpvmctl drain --timeout 10m");
  Options& options = SetWork(commands, drain, Drain);
  AddWord(drain, "--reason", options.reason, "Reason, which every tenant sees; at most 255 bytes");
  AddWord(drain, "--timeout", options.timeout, "Wait at most this long (exit code 124); the server stays closed");
  SetWork(commands,
          AddCommand(commands.app, "readmit", "Let the server start work again, after cordon or drain",
                     "Example:\n  hpvmctl readmit"),
          Readmit);
}

}  // namespace hpvm::ctl
