// SPDX-License-Identifier: Apache-2.0
// hpvm-executor: the process that runs one tenant's graphs. Started by hpvmd, or by hpvmctl --local with --standalone;
// people use only --probe.
#include <stdio.h>
#include <unistd.h>

#include <string>
#include <string_view>

#include "backends/registry.h"
#include "executor/defect_probes.h"
#include "executor/driver_process.h"
#include "executor/launcher.h"

namespace hpvm::executor {
namespace {

constexpr char kUsage[] =
    "usage: hpvm-executor [--standalone] | --probe=FAMILY[:N] | --probe-defects=FAMILY:N\n"
    "Runs graphs for the process at the other end of descriptor 3, or prints as JSON the facts of a backend's devices "
    "or the known defects of a device's driver.\n";
constexpr std::string_view kProbe = "--probe=", kDefects = "--probe-defects=", kBuilder = "--driver-builder=";

int Report(const Status& status) {
  if (status.ok()) {
    return 0;
  }
  const std::string line = "hpvm-executor: " + Message(status) + "\n";
  const ssize_t put = write(STDERR_FILENO, line.data(), line.size());
  (void)put;
  return 1;
}

// hpvm-executor --driver-builder=FAMILY --socket 3 [--without-nodes], as the launcher starts it. The tenant's folder is
// sent by the socket.
int BuildForDriver(std::string_view family, int argc, char** argv) {
  DriverSupervisorOptions options;
  if (std::string_view(argv[argc - 1]) == "--without-nodes") {
    options.has_nodes = false;
    --argc;
  }
  for (int i = 2; i + 1 < argc; i += 2) {
    const std::string_view name = argv[i];
    if (name == "--socket" && std::string_view(argv[i + 1]) == std::to_string(kExecutorSocket)) {
      options.socket = kExecutorSocket;
    }
  }
  const DeviceFamily* const row = backends::FindFamily(family);
  if (options.socket < 0 || row == nullptr || !row->has_driver()) {
    fputs(kUsage, stderr);
    return 2;
  }
  options.driver.load = [family] { return backends::ListDevices(family).status(); };
  options.driver.build = row->build;
  return RunDriverSupervisor(options);
}

int Main(int argc, char** argv) {
  const std::string_view argument = argc >= 2 ? argv[1] : "";
  if (argument.starts_with(kBuilder)) {
    return BuildForDriver(argument.substr(kBuilder.size()), argc, argv);
  }
  if (argc == 2 && argument.starts_with(kProbe)) {
    return Report(RunProbe(std::string(argument.substr(kProbe.size()))));
  }
  if (argc == 2 && argument.starts_with(kDefects)) {
    return Report(RunDefectProbes(std::string(argument.substr(kDefects.size()))));
  }
  if (argc == 1 || (argc == 2 && argument == "--standalone")) {
    return Report(RunExecutor());
  }
  const bool asked = argument == "--help";
  fputs(kUsage, asked ? stdout : stderr);
  std::string families = "Families:";
  for (const std::string_view name : backends::BackendNames()) {
    families += " " + std::string(name);
  }
  fputs((families + "\n").c_str(), asked ? stdout : stderr);
  return asked ? 0 : 2;
}

}  // namespace
}  // namespace hpvm::executor

int main(int argc, char** argv) { return hpvm::executor::Main(argc, argv); }
