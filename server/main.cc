// SPDX-License-Identifier: Apache-2.0
// hpvmd: reads the command line and the configuration, serves until SIGTERM or SIGINT.
#include <signal.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include <cstdio>
#include <optional>
#include <string>

#include "absl/synchronization/mutex.h"
#include <CLI/CLI.hpp>

#include "server/daemon.h"
#include "server/log.h"

namespace hpvm {
namespace {

constexpr int kExitOk = 0, kExitFailed = 1, kExitUsage = 2;

struct Arguments {
  std::string config, listen, state, devices;
  bool dev = false, check = false;
};

int Fail(int code, const std::string& text) {
  std::fprintf(stderr, "hpvmd: %s\n", text.c_str());
  return code;
}

// The file, then --dev, then --listen, --state and --devices.
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
  } else if (arguments.dev && arguments.config.empty()) {
    char folder[] = "/tmp/hpvmd-dev-XXXXXX";
    if (mkdtemp(folder) == nullptr) {
      return FromErrno(errno, "Making a folder for the state");
    }
    config.server_state_dir = folder;
  }
  if (!arguments.devices.empty()) {
    config.devices_backends = arguments.devices;
  }
  HPVMD_RETURN_IF_ERROR(ToStatus(CheckConfig(config)));
  return config;
}

// Blocks the signals in every thread; the main thread fetches them.
sigset_t BlockSignals() {
  signal(SIGPIPE, SIG_IGN);
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGTERM);
  sigaddset(&set, SIGINT);
  sigaddset(&set, SIGHUP);
  pthread_sigmask(SIG_BLOCK, &set, nullptr);
  return set;
}

int Serve(const Config& config) {
  const sigset_t signals = BlockSignals();
  StartLog(config.log_level);
  StatusOr<std::unique_ptr<Daemon>> daemon = Daemon::Start(config);
  if (!daemon.ok()) {
    return Fail(kExitFailed, Message(daemon.status()));
  }
  for (const std::string& address : (*daemon)->addresses()) {
    LogInfo("Serving on " + address);
  }
  int signal_number = 0;
  while (sigwait(&signals, &signal_number) == 0 && signal_number == SIGHUP) {
    LogInfo("Looking for devices again.");
    (*daemon)->Rediscover();
  }
  LogInfo("Stopping; a second signal stops at once.");
  (*daemon)->Stop([&] {
    const timespec none{};
    const int another = sigtimedwait(&signals, nullptr, &none);
    return another > 0 && another != SIGHUP;
  });
  daemon->reset();
  LogInfo("Stopped.");
  return kExitOk;
}

int Main(int argc, char** argv) {
  // Debian builds Abseil with its lock-order checker on, which every lock inside gRPC then pays for.
  absl::SetMutexDeadlockDetectionMode(absl::OnDeadlockCycle::kIgnore);
  Arguments arguments;
  CLI::App app{"hpvmd: runs graphs of kernels on the devices of this machine, for clients over gRPC."};
  app.footer(
      "Examples:\n  hpvmd --dev\n  hpvmd --dev --listen unix:/tmp/hpvmd.sock --state /tmp/hpvmd\n"
      "  hpvmd --config /etc/hpvmd/hpvmd.toml\n  hpvmd --config hpvmd.toml --check-config\n"
      "Exit codes: 0 stopped as asked, 1 failed, 2 wrong usage or configuration.");
  app.add_option("--config", arguments.config, "Configuration file (TOML)")->type_name("FILE");
  app.add_flag(
      "--dev", arguments.dev,
      "For development: 127.0.0.1:50061, a temporary state folder, reflection, tenants by the metadata hpvm-tenant");
  app.add_option("--listen", arguments.listen,
                 "Addresses instead of the configuration's: unix:/path or host:port, by commas")
      ->type_name("ADDRESS");
  app.add_option("--state", arguments.state, "Folder for caches, instead of the configuration's")->type_name("DIR");
  app.add_option("--devices", arguments.devices,
                 "Devices instead of the configuration's: auto, or cpu,opencl,vulkan:0 ...")
      ->type_name("LIST");
  app.add_flag("--check-config", arguments.check, "Check the configuration and exit");
  app.set_version_flag("--version", "hpvmd " HPVMD_VERSION);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {  // The library's way; it ends here.
    return app.exit(error) == 0 ? kExitOk : kExitUsage;
  }
  const StatusOr<Config> config = MakeConfig(arguments);
  if (!config.ok()) {
    return Fail(kExitUsage, Message(config.status()));
  }
  if (arguments.check) {
    std::printf("The configuration is valid.\n");
    return kExitOk;
  }
  return Serve(*config);
}

}  // namespace
}  // namespace hpvm

int main(int argc, char** argv) { return hpvm::Main(argc, argv); }
