// SPDX-License-Identifier: Apache-2.0
// spawn: the time from requesting a tenant's process until it can serve, without and with a waiting spare, compared
// with a plain fork and exec of /bin/true and the same in bubblewrap (both until they have ended). first_call: the
// time that a new tenant waits for its first graph, without and with spares.
#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <optional>

#include "bench/service/service_setup.h"
#include "bench/tenants/tenant_executor.h"
#include "bench/tenants/tenants.h"

extern char** environ;

namespace hpvm::bench {
namespace {

// Runs a command to its end. An error when it fails: then it is not a peer here.
StatusOr<double> TimeCommand(std::vector<std::string> words) {
  std::vector<char*> arguments;
  for (std::string& word : words) {
    arguments.push_back(word.data());
  }
  arguments.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
  const Time start = RealClock().Now();
  pid_t pid = -1;
  const int error = posix_spawn(&pid, arguments[0], &actions, nullptr, arguments.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  if (error != 0) {
    return FromErrno(error, "Starting \"" + words[0] + "\"");
  }
  int status = 0;
  waitpid(pid, &status, 0);
  if (status != 0) {
    return Unavailable("The command \"" + words[0] + "\" failed.");
  }
  return Milliseconds(RealClock().Now() - start);
}

StatusOr<double> TimeCold(supervisor::ExecutorHub& hub, Sandbox sandbox) {
  const Time start = RealClock().Now();
  HPVMD_ASSIGN_OR_RETURN(const std::unique_ptr<TenantExecutor> executor, TenantExecutor::Start(hub, sandbox));
  return Milliseconds(RealClock().Now() - start);
}

// Waits until a spare process is idle: its work before that is not time that a tenant waits for.
void AwaitRest(const supervisor::ExecutorLink& link) {
  std::optional<Duration> before;
  for (int i = 0; i < 200; ++i) {
    usleep(25'000);
    const std::optional<Duration> now = link.CpuTime();
    if (i > 3 && now == before) {
      return;
    }
    before = now;
  }
}

StatusOr<double> TimeWarm(supervisor::ExecutorHub& hub) {
  const supervisor::ExecutorOptions options = TenantOptions(Sandbox::kHighest);
  const auto ignore = [](const Status&) {};
  HPVMD_ASSIGN_OR_RETURN(const std::unique_ptr<supervisor::ExecutorLink> spare,
                         supervisor::ExecutorLink::StartSpare(hub, options, ignore));
  AwaitRest(*spare);
  const Time start = RealClock().Now();
  HPVMD_RETURN_IF_ERROR(spare->Greet(
      options, [](const supervisor::ExecutorReady&) {}, ignore));
  HPVMD_RETURN_IF_ERROR(spare->WaitReady(start + std::chrono::seconds(20)).status());
  return Milliseconds(RealClock().Now() - start);
}

StatusOr<ServiceResult> MeasureSpawn(const ServiceOptions& options) {
  struct Contender {
    std::string name;
    std::function<StatusOr<double>()> round;
    std::vector<double> values = {};
  };
  HPVMD_ASSIGN_OR_RETURN(const std::unique_ptr<supervisor::ExecutorHub> hub, supervisor::ExecutorHub::Create());
  std::vector<Contender> contenders = {
      {"cold", [&] { return TimeCold(*hub, Sandbox::kHighest); }},
      {"warm", [&] { return TimeWarm(*hub); }},
      {"sandbox_off_cold", [&] { return TimeCold(*hub, Sandbox::kOff); }},
      {"fork_exec", [] { return TimeCommand({"/bin/true"}); }},
  };
  const std::vector<std::string> bubblewrap = {"/usr/bin/bwrap", "--ro-bind",         "/",  "/",
                                               "--unshare-all",  "--die-with-parent", "--", "/bin/true"};
  const StatusOr<double> try_out = TimeCommand(bubblewrap);
  if (try_out.ok()) {
    contenders.push_back({"bubblewrap", [&] { return TimeCommand(bubblewrap); }});
  }
  const int rounds = options.quick ? 2 : 40;
  for (int round = -1; round < rounds; ++round) {
    for (Contender& contender : contenders) {
      HPVMD_ASSIGN_OR_RETURN(const double value, contender.round());
      if (round >= 0) {
        contender.values.push_back(value);
      }
    }
  }
  ServiceResult result;
  for (const Contender& contender : contenders) {
    result.Add(contender.name + "_p50_ms", Median(contender.values));
    std::vector<int64_t> sorted;
    for (const double value : contender.values) {
      sorted.push_back(static_cast<int64_t>(value * 1e6));
    }
    std::sort(sorted.begin(), sorted.end());
    result.Add(contender.name + "_p99_ms", Quantile(sorted, 990) / 1e6);
  }
  result.reach.push_back({.figure = "warm_p50_ms", .at_least = false, .bound = 5});
  HPVMD_ASSIGN_OR_RETURN(const std::unique_ptr<TenantExecutor> one, TenantExecutor::Start(*hub, Sandbox::kHighest));
  result.note = "Sandbox level " + std::to_string(one->ready().said.sandbox_level()) + " here" +
                (try_out.ok() ? "." : "; bubblewrap is not installed, or may not make namespaces here.");
  result.verified = true;
  return result;
}

// Times the first PrepareGraph of tenants that come one after the other, slowly enough for a spare to be ready again.
StatusOr<std::vector<double>> TimeFirstCalls(int spares, int count) {
  DaemonSettings settings = RoomySettings();
  settings.keys["tenants.from_metadata"] = "true";
  settings.keys["executor.spares"] = std::to_string(spares);
  HPVMD_ASSIGN_OR_RETURN(const std::unique_ptr<ServiceDaemon> daemon, ServiceDaemon::Start(settings));
  std::vector<double> values;
  for (int i = 0; i < count; ++i) {
    usleep(400'000);
    const Time start = RealClock().Now();
    HPVMD_RETURN_IF_ERROR(daemon->Prepare("copy", "t" + std::to_string(i)).status());
    values.push_back(Milliseconds(RealClock().Now() - start));
  }
  return values;
}

StatusOr<ServiceResult> MeasureFirstCall(const ServiceOptions& options) {
  ServiceResult result;
  const int count = options.quick ? 2 : 15;
  HPVMD_ASSIGN_OR_RETURN(const std::vector<double> cold, TimeFirstCalls(0, count));
  HPVMD_ASSIGN_OR_RETURN(const std::vector<double> warm, TimeFirstCalls(2, count));
  result.Add("cold_p50_ms", Median(cold));
  result.Add("warm_p50_ms", Median(warm));
  result.note =
      "Connecting, sending the module, and compiling one kernel, of which nothing is in the new tenant's cache, "
      "are in both.";
  result.verified = true;
  return result;
}

}  // namespace

void AddSpawnCases(std::vector<ServiceCase>& cases) {
  cases.push_back({"spawn", MeasureSpawn});
  cases.push_back({"first_call", MeasureFirstCall});
}

}  // namespace hpvm::bench
