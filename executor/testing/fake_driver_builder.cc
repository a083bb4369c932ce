// SPDX-License-Identifier: Apache-2.0
// A supervisor whose builders' "driver" does what a request's options say: for tests of everything around drivers.
//   fake_driver_builder MEMORY-MIB LOAD    LOAD: ok, fail, crash
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <map>
#include <string>
#include <vector>

#include "executor/driver_process.h"

namespace hpvm::executor {
namespace {

int RunLinker() {
  const pid_t child = vfork();
  if (child == 0) {
    execl("/usr/bin/ld", "ld", "--version", nullptr);
    _exit(127);
  }
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

// Each returns its outcome: 0 or an errno.
const std::map<std::string, int (*)()>& Attempts() {
  static const std::map<std::string, int (*)()> attempts = {
      {"read accounts", [] { return open("/etc/passwd", O_RDONLY) >= 0 ? 0 : errno; }},
      {"read libraries", [] { return open("/usr/lib", O_RDONLY | O_DIRECTORY) >= 0 ? 0 : errno; }},
      {"read itself", [] { return open("/proc/self/status", O_RDONLY) >= 0 ? 0 : errno; }},
      {"connect", [] { return socket(AF_INET, SOCK_STREAM, 0) >= 0 ? 0 : errno; }},
      {"leave a file in /tmp", [] { return open("/tmp/hpvm-left", O_CREAT | O_WRONLY, 0600) >= 0 ? 0 : errno; }},
      {"write its folder",
       [] {
         const std::string file = std::string(getenv("TMPDIR")) + "/f";
         return open(file.c_str(), O_CREAT | O_WRONLY, 0600) >= 0 ? 0 : errno;
       }},
      {"write the cache",
       [] {
         const std::string file = std::string(getenv("TMPDIR")) + "/../f";
         return open(file.c_str(), O_CREAT | O_WRONLY, 0600) >= 0 ? 0 : errno;
       }},
      {"run the linker", [] { return RunLinker(); }},
      {"run a shell",
       [] {
         execl("/bin/sh", "sh", "-c", "true", nullptr);
         return errno;
       }},
  };
  return attempts;
}

StatusOr<DriverBinary> Build(const DriverBuild& build) {
  static int served = 0;
  ++served;
  if (build.options == "crash") {
    abort();
  }
  if (build.options == "leave") {
    _exit(7);
  }
  if (build.options == "hang") {
    while (true) {
      poll(nullptr, 0, 1000);  // Not pause, which the filter refuses, so that it would spin.
    }
  }
  if (build.options == "spin") {
    while (true) {
      asm volatile("");
    }
  }
  if (build.options == "starve") {
    poll(nullptr, 0, 900);
  }
  if (build.options == "eat") {
    std::vector<void*> blocks;
    while (true) {
      void* block = malloc(16 << 20);
      if (block == nullptr) {
        abort();
      }
      memset(block, 1, 1 << 20);  // Touching all of it would take a slow machine longer than a build may.
      blocks.push_back(block);
    }
  }
  if (build.options == "refuse") {
    return InvalidArgument("line 3: the driver does not like it.");
  }
  if (const auto attempt = Attempts().find(build.options); attempt != Attempts().end()) {
    const int result = attempt->second();
    return DriverBinary{.bytes = {static_cast<uint8_t>(result)}, .log = {}};
  }
  // The code reversed, and the number of requests that this builder has served.
  DriverBinary binary;
  binary.bytes.assign(build.code.rbegin(), build.code.rend());
  binary.log = std::to_string(served) + " " + std::to_string(getpid()) + " " + build.device + " " +
               (build.entries.empty() ? "" : build.entries[0]);
  return binary;
}

}  // namespace
}  // namespace hpvm::executor

int main(int argc, char** argv) {
  if (argc != 3) {
    return 2;
  }
  hpvm::executor::DriverSupervisorOptions options;
  options.socket = 3;
  options.cache_bytes_max = 4096;
  options.memory_bytes_max = strtoull(argv[1], nullptr, 10) << 20;
  options.build_max = std::chrono::milliseconds(500);
  options.idle_max = std::chrono::milliseconds(300);
  const std::string load = argv[2];
  // "patient": only the runner's patience ends a build that hangs.
  options.build_wall_max = load == "patient" ? std::chrono::hours(1) : hpvm::Duration(std::chrono::milliseconds(1500));
  options.driver.load = [load]() -> hpvm::Status {
    if (load == "crash") {
      abort();
    }
    return load == "fail" ? hpvm::NotFound("There is no such driver.") : absl::OkStatus();
  };
  options.driver.build = hpvm::executor::Build;
  return hpvm::executor::RunDriverSupervisor(options);
}
