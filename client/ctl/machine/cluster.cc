// SPDX-License-Identifier: Apache-2.0
// hpvmctl cluster: the hosts that share jobs, and whether each of them takes some.
#include <stdio.h>
#include <time.h>
#include <unistd.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "client/ctl/job/follow.h"
#include "client/ctl/machine/cluster_hosts.h"
#include "client/ctl/options.h"
#include "client/ctl/report.h"
#include "client/ctl/text/parse_args.h"
#include <nlohmann/json.hpp>

#include "base/clock.h"
#include "base/status.h"
#include "hpvm/admin.h"

namespace hpvm::ctl {
namespace {

struct Options {
  std::string host, timeout;
  bool wait = false;
  bool yes = false;
};

StatusOr<Duration> TimeoutOf(const Options& options) {
  return options.timeout.empty() ? kNever : While(ParseDuration(options.timeout), "reading --timeout");
}

bool IsText(const Format& format) { return format == Format::kTable || format == Format::kWide; }

Status ShowStatus(const Globals& globals) {
  HPVMD_ASSIGN_OR_RETURN(const std::unique_ptr<Client> client, globals.Connect());
  HPVMD_ASSIGN_OR_RETURN(const std::vector<v1::Host> hosts, Admin(*client).ListHosts());
  if (IsText(globals.format)) {
    fputs(SummaryText(hosts).c_str(), stdout);
  } else if (globals.format == Format::kJson) {
    PrintData(SummaryJson(hosts), globals.format);
  } else {
    puts(Printable(SummaryJson(hosts)["self"].get<std::string>()).c_str());
  }
  return absl::OkStatus();
}

Status Hosts(const Globals& globals) {
  HPVMD_ASSIGN_OR_RETURN(const std::unique_ptr<Client> client, globals.Connect());
  HPVMD_ASSIGN_OR_RETURN(const std::vector<v1::Host> hosts, Admin(*client).ListHosts());
  PrintList(hosts, globals.format, &v1::Host::name,
            [&] { return Table(HostRows(hosts, globals.format == Format::kWide)); });
  return absl::OkStatus();
}

void PrintIntake(const v1::Host& host, const Format& format) {
  PrintOne(host, format, host.name(), [&] { return Printable(IntakeSentences(host)) + "\n"; });
}

Status Set(const Globals& globals, const Options& options, v1::HostIntake intake) {
  HPVMD_ASSIGN_OR_RETURN(const std::unique_ptr<Client> client, globals.Connect());
  HPVMD_ASSIGN_OR_RETURN(const v1::Host host, Admin(*client).SetHostIntake(options.host, intake));
  PrintIntake(host, globals.format);
  return absl::OkStatus();
}

Status Cordon(const Globals& globals, const Options& options) {
  return Set(globals, options, v1::HOST_INTAKE_CORDONED);
}
Status Uncordon(const Globals& globals, const Options& options) { return Set(globals, options, v1::HOST_INTAKE_OPEN); }

// Waits until the host, which drains, holds no job, or the time is over. Returns the host as it is then. kAborted when
// somebody has changed its setting meanwhile.
StatusOr<v1::Host> AwaitNoJobs(const Globals& globals, Admin& admin, const std::string& name, Duration timeout) {
  const Time start = RealClock().Now();
  uint64_t shown = UINT64_MAX;
  for (;;) {
    HPVMD_ASSIGN_OR_RETURN(const std::vector<v1::Host> hosts, admin.ListHosts());
    const v1::Host* host = FindHost(hosts, name);
    if (host == nullptr) {
      return NotFound("The cluster has no host \"" + name + "\" any more.");
    }
    if (host->jobs() == 0 || RealClock().Now() - start >= timeout) {
      return *host;
    }
    if (host->intake() != v1::HOST_INTAKE_DRAINING) {
      return MakeStatus(absl::StatusCode::kAborted, "Somebody has set host \"" + name + "\" to " +
                                                        IntakeText(host->intake()) + " while it was drained; it has " +
                                                        JobsText(host->jobs()) + ".");
    }
    if (host->jobs() != shown && globals.ShowsProgress()) {
      fprintf(stderr, "%s has %s\n", Printable(name).c_str(), JobsText(host->jobs()).c_str());
    }
    shown = host->jobs();
    const timespec pause{0, 500'000'000};
    nanosleep(&pause, nullptr);
  }
}

Status Drain(const Globals& globals, const Options& options, ExitCode* code) {
  HPVMD_ASSIGN_OR_RETURN(const Duration timeout, TimeoutOf(options));
  if (!options.wait) {
    return Set(globals, options, v1::HOST_INTAKE_DRAINING);
  }
  HPVMD_ASSIGN_OR_RETURN(const std::unique_ptr<Client> client, globals.Connect());
  Admin admin(*client);
  HPVMD_ASSIGN_OR_RETURN(v1::Host host, admin.SetHostIntake(options.host, v1::HOST_INTAKE_DRAINING));
  if (IsText(globals.format)) {
    PrintIntake(host, globals.format);
  }
  SayWhenInterrupted("\nhpvmctl: the host goes on giving its jobs back; `hpvmctl cluster uncordon " + options.host +
                     "` opens it again.\n");
  HPVMD_ASSIGN_OR_RETURN(host, AwaitNoJobs(globals, admin, options.host, timeout));
  if (host.jobs() > 0) {
    fprintf(stderr, "hpvmctl: after %s the host still has %s; it stays DRAINING.\n", options.timeout.c_str(),
            JobsText(host.jobs()).c_str());
    *code = kTimedOut;
  }
  if (!IsText(globals.format)) {
    PrintIntake(host, globals.format);
  } else if (host.jobs() == 0) {
    printf("Host %s has no job.\n", Printable(host.name()).c_str());
  }
  return absl::OkStatus();
}

// Has the host give its jobs back and opens it again, unless it holds no longer too many. Returns the host as it was
// before it was opened again.
StatusOr<v1::Host> Relieve(const Globals& globals, Admin& admin, const std::string& name, Duration timeout) {
  HPVMD_ASSIGN_OR_RETURN(const std::vector<v1::Host> hosts, admin.ListHosts());
  const v1::Host* now = FindHost(hosts, name);
  if (now == nullptr || !HoldsTooMany(*now, AverageJobs(hosts))) {
    return v1::Host();
  }
  const std::string remedy = "`hpvmctl cluster uncordon " + name + "` opens it again";
  SayWhenInterrupted("\nhpvmctl: interrupted while host " + name + " gave its jobs back; " + remedy + ".\n");
  HPVMD_RETURN_IF_ERROR(admin.SetHostIntake(name, v1::HOST_INTAKE_DRAINING).status());
  StatusOr<v1::Host> relieved = AwaitNoJobs(globals, admin, name, timeout);
  if (absl::IsAborted(relieved.status())) {
    return relieved;  // The setting is somebody else's now.
  }
  const Status opened = admin.SetHostIntake(name, v1::HOST_INTAKE_OPEN).status();
  HPVMD_RETURN_IF_ERROR(While(opened, "opening host " + name + " again; it may still be DRAINING, and " + remedy));
  SayWhenInterrupted("\nhpvmctl: interrupted; every host that gave its jobs back is open again.\n");
  return relieved;
}

// Asks on the terminal, if there is one.
Status Confirm(const std::vector<v1::Host>& hosts, double average) {
  const std::string what = "Attempts that run there start again on other hosts, and are not counted";
  if (isatty(STDIN_FILENO) != 1) {
    return InvalidArgument(what + "; give --yes to confirm.");
  }
  for (const v1::Host& host : hosts) {
    fprintf(stderr, "%s has %s, and an open host %.1f on average.\n", Printable(host.name()).c_str(),
            JobsText(host.jobs()).c_str(), average);
  }
  fprintf(stderr, "Shall these hosts give their jobs back, one after the other? %s. [y/N] ", what.c_str());
  char answer[8] = {};
  const bool is_yes = fgets(answer, sizeof(answer), stdin) != nullptr && (answer[0] == 'y' || answer[0] == 'Y');
  return is_yes ? absl::OkStatus() : MakeStatus(absl::StatusCode::kCancelled, "Nothing was changed.");
}

Status Rebalance(const Globals& globals, const Options& options, ExitCode* code) {
  HPVMD_ASSIGN_OR_RETURN(const Duration timeout, TimeoutOf(options));
  HPVMD_ASSIGN_OR_RETURN(const std::unique_ptr<Client> client, globals.Connect());
  Admin admin(*client);
  HPVMD_ASSIGN_OR_RETURN(const std::vector<v1::Host> all, admin.ListHosts());
  const std::vector<v1::Host> hosts = HostsWithTooMany(all);
  if (hosts.empty()) {
    fputs("hpvmctl: no host has over one job more than the average, so nothing is changed.\n", stderr);
  } else if (!options.yes) {
    HPVMD_RETURN_IF_ERROR(Confirm(hosts, AverageJobs(all)));
  }
  std::vector<v1::Host> relieved;
  for (const v1::Host& host : hosts) {
    HPVMD_ASSIGN_OR_RETURN(const v1::Host done, Relieve(globals, admin, host.name(), timeout));
    const std::string name = Printable(host.name());
    if (done.name().empty()) {
      fprintf(stderr, "hpvmctl: host %s no longer has too many jobs.\n", name.c_str());
      continue;
    }
    relieved.push_back(done);
    if (done.jobs() > 0) {
      fprintf(stderr, "hpvmctl: after %s host %s still had %s; it is open again, and the others are left alone.\n",
              options.timeout.c_str(), name.c_str(), JobsText(done.jobs()).c_str());
      *code = kTimedOut;
      break;
    }
    if (IsText(globals.format)) {
      printf("Host %s gave %s back, and is open again.\n", name.c_str(), JobsText(host.jobs()).c_str());
    }
  }
  if (!IsText(globals.format)) {
    PrintList(relieved, globals.format, &v1::Host::name, [] { return std::string(); });
  }
  return absl::OkStatus();
}

Options& WithHost(CLI::App& app, Options& options) {
  app.add_option("host", options.host, "Name of the host, as `hpvmctl cluster hosts` lists it")->required();
  return options;
}

void AddLists(Commands commands, CLI::App& cluster) {
  SetWork(commands,
          AddCommand(cluster, "status", "Show a summary of the cluster: hosts, jobs, and versions that differ",
                     "For operators. Intake, memory and versions are those of live hosts.\n"
                     "Example:\n  hpvmctl cluster status"),
          ShowStatus);
  SetWork(commands,
          AddCommand(cluster, "hosts", "List the hosts of the cluster",
                     "For operators. A * marks the host that answers. -o wide shows all words of a host, which "
                     "`hpvmctl submit --needs`\ntakes. MEMORY is what jobs with --host-memory have claimed.\n"
                     "Examples:\n  hpvmctl cluster hosts\n  hpvmctl cluster hosts -o wide"),
          Hosts);
}

void AddIntakes(Commands commands, CLI::App& cluster) {
  CLI::App& cordon = AddCommand(cluster, "cordon", "Let a host take no more jobs; those that it has go on",
                                "For administrators. The host stays so over restarts; uncordon opens it again.\n"
                                "Example:\n  hpvmctl cluster cordon lab-a");
  WithHost(cordon, SetWork(commands, cordon, Cordon));
  CLI::App& uncordon = AddCommand(cluster, "uncordon", "Let a host take jobs again, after cordon or drain",
                                  "For administrators.\nExample:\n  hpvmctl cluster uncordon lab-a");
  WithHost(uncordon, SetWork(commands, uncordon, Uncordon));
  CLI::App& drain =
      AddCommand(cluster, "drain", "As cordon, and give the host's jobs back, so that other hosts run them",
                 "For administrators. Attempts that run on the host start again elsewhere, and are not counted.\n"
                 "Examples:\n  hpvmctl cluster drain lab-a\n  hpvmctl cluster drain lab-a --wait --timeout 10m");
  Options& options = WithHost(drain, SetWork(commands, drain, Drain));
  CLI::Option* wait = drain.add_flag("--wait", options.wait, "Wait until the host has no job");
  AddWord(drain, "--timeout", options.timeout, "With --wait: wait at most this long (exit code 124); the host stays so")
      ->needs(wait);
}

void AddRebalance(Commands commands, CLI::App& cluster) {
  CLI::App& rebalance = AddCommand(
      cluster, "rebalance", "Have hosts with too many jobs give theirs back, so that free hosts take them",
      "For administrators. One after the other, each live host that takes jobs and has over one job more than such "
      "hosts have\non average gives all of its jobs back, and is opened again. Hosts claim them anew, this one too "
      "once "
      "it is open.\nAttempts that run on such a host start again from their beginning, and are not counted.\n"
      "Example:\n  hpvmctl cluster rebalance --yes");
  Options& options = SetWork(commands, rebalance, Rebalance);
  rebalance.add_flag("--yes", options.yes, "Confirm that running attempts start again; without it the command asks");
  AddWord(rebalance, "--timeout", options.timeout,
          "Wait at most this long for a host (exit code 124); the host is opened again");
}

}  // namespace

void AddCluster(Commands commands) {
  CLI::App& cluster =
      *commands.app.add_subcommand("cluster", "Show the hosts that share jobs, and decide which of them take some");
  cluster.require_subcommand(1);
  AddLists(commands, cluster);
  AddIntakes(commands, cluster);
  AddRebalance(commands, cluster);
}

}  // namespace hpvm::ctl
