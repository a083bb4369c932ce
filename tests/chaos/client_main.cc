// SPDX-License-Identifier: Apache-2.0
// hpvm-chaos-client: one tenant's load against a daemon that is killed meanwhile, controlled by chaos.py.
//
//   hpvm-chaos-client ENDPOINT TENANT JOURNAL MODULE SEED [THREADS [LIVE_MAX [PAUSE_US]]]
//
// Commands on standard input, each answered by a line: "go", "pause", "verify SECONDS" ("verified 1": every job was
// followed to its end), "info" (limits.queued_jobs_max as the daemon reports it), "forget" (handles), "quit".
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <iterator>
#include <sstream>
#include <string>

#include "tests/chaos/load.h"

namespace hpvm::chaos {
namespace {

int Main(int argc, char** argv) {
  if (argc < 6) {
    std::fputs("usage: hpvm-chaos-client ENDPOINT TENANT JOURNAL MODULE SEED [THREADS [LIVE_MAX [PAUSE_US]]]\n",
               stderr);
    return 2;
  }
  LoadOptions options;
  options.endpoint = argv[1];
  options.tenant = argv[2];
  options.journal = argv[3];
  std::ifstream module(argv[4], std::ios::binary);
  options.module = {std::istreambuf_iterator<char>(module), std::istreambuf_iterator<char>()};
  options.seed = std::strtoull(argv[5], nullptr, 10);
  options.threads = argc > 6 ? std::atoi(argv[6]) : options.threads;
  options.live_max = argc > 7 ? std::atoi(argv[7]) : options.live_max;
  options.pause_us = argc > 8 ? std::atoi(argv[8]) : options.pause_us;
  StatusOr<std::unique_ptr<Load>> load = Load::Start(options);
  if (!load.ok() || options.module.empty()) {
    std::fprintf(stderr, "hpvm-chaos-client: %s\n",
                 load.ok() ? "The module is empty." : Message(load.status()).c_str());
    return 1;
  }
  std::string line;
  while (std::getline(std::cin, line) && line != "quit") {
    std::istringstream words(line);
    std::string command;
    int64_t seconds = 60;
    words >> command >> seconds;
    std::string answer = command;
    if (command == "go") {
      (*load)->Go();
    } else if (command == "pause") {
      (*load)->Pause();
    } else if (command == "verify") {
      answer = (*load)->Verify(std::chrono::seconds(seconds)) ? "verified 1" : "verified 0";
    } else if (command == "forget") {
      (*load)->connection().ForgetHandles();
    } else if (command == "info") {
      v1::ServerInfoResponse info;
      const Status status = (*load)->connection().Info(&info);
      answer = status.ok() ? "info " + std::to_string(info.limits().queued_jobs_max()) : "info failed";
    } else {
      answer = "unknown";
    }
    std::cout << answer << std::endl;
  }
  return 0;
}

}  // namespace
}  // namespace hpvm::chaos

int main(int argc, char** argv) { return hpvm::chaos::Main(argc, argv); }
