// SPDX-License-Identifier: Apache-2.0
// hpvm-gpu-random: the random kernels of tests/spmd on a device behind a driver, each variant by itself, against the
// interpreter.
//
//   hpvm-gpu-random --device opencl:0 --seeds 0..99          exit status 1 if anything differs
//   hpvm-gpu-random --device vulkan:0 --seeds 0..99999 --seconds 600
//   hpvm-gpu-random --device opencl:0 --seeds 7..7 --text    also prints the kernel and the program
//   hpvm-gpu-random --device opencl:0 --records              kernels whose addresses wrap around on the way
//
// Every seed runs in a process of its own: a driver that crashes or hangs is a finding.
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cinttypes>
#include <cstdio>
#include <string>

#include "CLI/CLI.hpp"
#include "absl/strings/numbers.h"

#include "compiler/ir/interpret/interpret.h"
#include "compiler/ir/text/text.h"
#include "tests/gpu/device_run.h"
#include "tests/spmd/generate.h"
#include "tests/spmd/memory.h"
#include "tests/spmd/time_limit.h"

namespace hpvm::gpu_test {
namespace {

constexpr uint64_t kStepsMax = 400'000;
// Drivers compile some hundred milliseconds a variant; machines may be busy.
constexpr unsigned kSecondsMax = 120;

// How a seed's process ends.
enum Outcome : int { kSame = 0, kDiffers = 1, kRefused = 2, kTooLong = 3, kNoDevice = 4 };

struct Arguments {
  std::string device = "opencl:0", seeds = "0..49";
  uint32_t seconds = 0, findings_max = 1;
  bool has_text = false, has_records = false, has_rows = false;
};

class Comparison {
 public:
  Comparison(spmd::Kernel kernel, const Arguments& arguments)
      : kernel_(std::move(kernel)), arguments_(arguments), device_(arguments.device) {}

  Outcome Run() {
    const pass::GpuTile tile = ChooseTile();
    const spmd::Buffers expected(kernel_, /*at_end=*/false);
    const StatusOr<ir::TrapReport> want =
        ir::Interpret(kernel_.module, spmd::LaunchOf(kernel_, expected), {.steps_max = kStepsMax});
    if (!want.ok()) {
      return Report("interpreter", Message(want.status()));
    }
    if (want->code == ir::TrapCode::kStopped) {
      return kTooLong;
    }
    const std::vector<pass::GpuTile> tiles(tile.size == pass::GpuTile().size ? 0 : 1, tile);
    const StatusOr<Artifact> artifact = device_.Compile(kernel_.module, tiles);
    if (!artifact.ok()) {
      const bool is_refusal = artifact.status().code() == absl::StatusCode::kFailedPrecondition;
      return is_refusal ? kRefused : Report("compiler", Message(artifact.status()));
    }
    if (arguments_.has_text) {
      std::printf("%s%s\n", spmd::ToText(kernel_).c_str(),
                  std::string(artifact->code.begin(), artifact->code.end()).c_str());
    }
    Outcome outcome = kSame;
    for (size_t i = 0; i < artifact->gpu.variants.size() && outcome == kSame; ++i) {
      outcome = RunVariant(*artifact, i, expected, *want);
    }
    return outcome;
  }

 private:
  // By the seed; the extent is cut so that all of it can run in tiles.
  pass::GpuTile ChooseTile() {
    pass::GpuTile tile;
    if (ir::RunsByGroups(kernel_.module)) {
      return tile;
    }
    tile.size = {1u << kernel_.seed % 3, 1u << kernel_.seed / 3 % 3, 1};
    for (size_t d = 0; d < 3; ++d) {
      if (kernel_.extent[d] > tile.size[d]) {
        kernel_.extent[d] -= kernel_.extent[d] % tile.size[d];
      }
    }
    return tile;
  }

  Outcome Report(const std::string& where, const std::string& what) const {
    std::printf("FOUND seed %" PRIu64 " on %s, %s: %s\n", kernel_.seed, arguments_.device.c_str(), where.c_str(),
                what.c_str());
    return kDiffers;
  }

  // With the one that checks everything beside it, for launches that the variant cannot take.
  Outcome RunVariant(const Artifact& artifact, size_t index, const spmd::Buffers& expected,
                     const ir::TrapReport& want) {
    Artifact one = artifact;
    const std::string name = artifact.gpu.variants[index].entry;
    one.gpu.variants = {artifact.gpu.variants[index]};
    if (index + 1 != artifact.gpu.variants.size()) {
      one.gpu.variants.push_back(artifact.gpu.variants.back());
    }
    StatusOr<std::unique_ptr<Executable>> executable = device_.Load(std::move(one));
    if (!executable.ok()) {
      return Report(name, Message(executable.status()));
    }
    const spmd::Buffers found(kernel_, /*at_end=*/false);
    const StatusOr<ir::TrapReport> got = device_.Launch(**executable, spmd::LaunchOf(kernel_, found));
    if (!got.ok()) {
      return Report(name, Message(got.status()));
    }
    if ((got->code == ir::TrapCode::kNone) != (want.code == ir::TrapCode::kNone)) {
      return Report(name, ir::ToString(*got, kernel_.module) + "; interpreted: " + ir::ToString(want, kernel_.module));
    }
    if (got->code != ir::TrapCode::kNone) {
      return artifact.gpu.variants[index].tile == pass::GpuTile().size ? CompareTrap(name, *got) : kSame;
    }
    const std::string difference = found.FindDifference(expected);
    return difference.empty() ? kSame : Report(name, difference);
  }

  // Any instance that traps may be reported, but with its own trap. In groups they depend on each other.
  Outcome CompareTrap(const std::string& name, const ir::TrapReport& got) const {
    if (ir::RunsByGroups(kernel_.module)) {
      return kSame;
    }
    const auto& [x, y, z] = got.instance;
    if (x >= kernel_.extent[0] || y >= kernel_.extent[1] || z >= kernel_.extent[2]) {
      return Report(name, "the instance does not exist: " + ir::ToString(got, kernel_.module));
    }
    const uint64_t instance = x + kernel_.extent[0] * (y + kernel_.extent[1] * z);
    const spmd::Buffers buffers(kernel_, /*at_end=*/false);
    StatusOr<ir::TrapReport> alone = ir::Interpret(kernel_.module, spmd::LaunchOf(kernel_, buffers),
                                                   {.begin = instance, .end = instance + 1, .steps_max = kStepsMax});
    if (!alone.ok()) {
      return Report(name, Message(alone.status()));
    }
    alone->address &= 0xffffffffu;  // A record holds the low half.
    const std::string wanted = ir::ToString(*alone, kernel_.module), reported = ir::ToString(got, kernel_.module);
    return wanted == reported ? kSame : Report(name, reported + "; that instance alone, interpreted: " + wanted);
  }

  spmd::Kernel kernel_;
  const Arguments& arguments_;
  DeviceRun device_;
};

int RunSeed(uint64_t seed, const Arguments& arguments) {
  std::fflush(stdout);
  const pid_t child = fork();
  if (child == 0) {
    spmd::LimitSeconds(kSecondsMax);
    // Drivers have threads, so that only the child may load one.
    const std::vector<std::string> devices = Devices();
    if (std::find(devices.begin(), devices.end(), arguments.device) == devices.end()) {
      _exit(kNoDevice);
    }
    spmd::Kernel kernel = arguments.has_records ? spmd::GenerateRecords(seed)
                          : arguments.has_rows  ? spmd::GenerateRows(seed)
                                                : spmd::Generate(seed);
    const Outcome outcome = Comparison(std::move(kernel), arguments).Run();
    std::fflush(stdout);
    _exit(outcome);
  }
  int status = 0;
  while (child < 0 || (waitpid(child, &status, 0) < 0 && errno == EINTR)) {
  }
  if (WIFSIGNALED(status)) {
    std::printf("FOUND seed %" PRIu64 " on %s: signal %d%s\n", seed, arguments.device.c_str(), WTERMSIG(status),
                WTERMSIG(status) == SIGALRM ? ", after two minutes of processor time" : "");
    return kDiffers;
  }
  return WEXITSTATUS(status);
}

int Run(const Arguments& arguments) {
  uint64_t first = 0, last = 0;
  const size_t dots = arguments.seeds.find("..");
  if (dots == std::string::npos || !absl::SimpleAtoi(arguments.seeds.substr(0, dots), &first) ||
      !absl::SimpleAtoi(arguments.seeds.substr(dots + 2), &last) || first > last) {
    std::fprintf(stderr, "--seeds takes FIRST..LAST.\n");
    return 2;
  }
  const auto start = std::chrono::steady_clock::now();
  const auto seconds = [&] { return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count(); };
  uint64_t kernels = 0, refused = 0, too_long = 0, findings = 0, seed = first;
  for (; seed <= last && findings < arguments.findings_max; ++seed) {
    if (arguments.seconds != 0 && seconds() > arguments.seconds) {
      break;
    }
    const int outcome = RunSeed(seed, arguments);
    if (outcome == kNoDevice) {
      std::printf("There is no %s; nothing is run.\n", arguments.device.c_str());
      return 0;
    }
    ++kernels;
    refused += outcome == kRefused ? 1 : 0;
    too_long += outcome == kTooLong ? 1 : 0;
    findings += outcome == kDiffers ? 1 : 0;
  }
  std::printf("%s: seeds %" PRIu64 "..%" PRIu64 ": %" PRIu64 " kernels, %" PRIu64 " refused, %" PRIu64
              " too long; %" PRIu64 " findings; %.1f s\n",
              arguments.device.c_str(), first, seed - 1, kernels, refused, too_long, findings, seconds());
  return findings == 0 ? 0 : 1;
}

}  // namespace
}  // namespace hpvm::gpu_test

int main(int argc, char** argv) {
  setenv("POCL_WORK_GROUP_SPECIALIZATION", "0", /*overwrite=*/0);  // As executors do, before the driver is loaded.
  hpvm::gpu_test::Arguments arguments;
  CLI::App app("Random kernels on a GPU, against the interpreter.");
  app.add_option("--device", arguments.device, "opencl:N or vulkan:N");
  app.add_option("--seeds", arguments.seeds, "FIRST..LAST, both run");
  app.add_option("--seconds", arguments.seconds, "end after so many; 0 is when all seeds are done");
  app.add_option("--findings", arguments.findings_max, "end after so many");
  app.add_flag("--text", arguments.has_text, "print kernels and programs");
  app.add_flag("--records", arguments.has_records, "fields of records instead of everything");
  app.add_flag("--rows", arguments.has_rows, "counted loops over rows instead of everything");
  CLI11_PARSE(app, argc, argv);
  return hpvm::gpu_test::Run(arguments);
}
