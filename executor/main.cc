// SPDX-License-Identifier: Apache-2.0
// hpvm-executor: the process that runs one tenant's graphs. Started by hpvmd, or by hpvmctl --local with --standalone;
// not by people, except for --probe.
#include <stdio.h>
#include <unistd.h>

#include <string>
#include <string_view>

#include "executor/launcher.h"

namespace {

constexpr char kUsage[] =
    "usage: hpvm-executor [--standalone] | --probe=cpu|interp|null|opencl|vulkan\n"
    "Runs graphs for the process at the other end of descriptor 3, or prints the facts of a backend's device as "
    "JSON.\n";

int Report(const hpvm::Status& status) {
  if (status.ok()) {
    return 0;
  }
  const std::string line = "hpvm-executor: " + hpvm::Message(status) + "\n";
  const ssize_t put = write(STDERR_FILENO, line.data(), line.size());
  (void)put;
  return 1;
}

}  // namespace

int main(int argc, char** argv) {
  constexpr std::string_view kProbe = "--probe=";
  const std::string_view argument = argc == 2 ? argv[1] : "";
  if (argument.starts_with(kProbe)) {
    return Report(hpvm::RunProbe(std::string(argument.substr(kProbe.size()))));
  }
  if (argc == 1 || argument == "--standalone") {
    return Report(hpvm::RunExecutor());
  }
  const bool asked = argument == "--help";
  fputs(kUsage, asked ? stdout : stderr);
  return asked ? 0 : 2;
}
