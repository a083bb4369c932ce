// SPDX-License-Identifier: Apache-2.0
// hpvm-gpu-random: the random kernels of tests/spmd on a device behind a driver, each variant by itself, against the
// interpreter.
//
//   hpvm-gpu-random --device opencl:0 --seeds 0..99          exit status 1 if anything differs
//   hpvm-gpu-random --device vulkan:0 --seeds 0..99999 --seconds 600 --jobs 16
//   hpvm-gpu-random --device opencl:0 --seeds 7..7 --text    also prints the kernel and the program
//   hpvm-gpu-random --device opencl:0 --seeds 7..7 --shrink  makes what differs small, and prints it
//   hpvm-gpu-random --device opencl:0 --records              kernels whose addresses wrap around on the way
//
// Kernels run in child processes, since a driver that crashes or hangs is a finding. Opening a driver takes longer than
// a kernel, so that one child runs many seeds.
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cinttypes>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/strings/numbers.h"

#include "backends/opencl/pocl.h"
#include "compiler/ir/check.h"
#include "compiler/ir/interpret/interpret.h"
#include "compiler/ir/text/text.h"
#include "tests/gpu/device_run.h"
#include "tests/spmd/generate.h"
#include "tests/spmd/memory.h"
#include "tests/spmd/shrink.h"
#include "tests/spmd/time_limit.h"

namespace hpvm::gpu_test {
namespace {

constexpr uint64_t kStepsMax = 400'000;
// Of processor time a seed. Drivers compile some hundred milliseconds a variant; machines may be busy.
constexpr unsigned kSecondsMax = 120;
// Seeds a child runs: what a driver keeps of each program stays small.
constexpr uint64_t kBatch = 64;
constexpr uint32_t kShrinkTries = 3000;

enum Outcome : int { kSame = 0, kDiffers = 1, kRefused = 2, kTooLong = 3, kNoDevice = 4 };

struct Arguments {
  std::string device = "opencl:0", seeds = "0..49";
  uint32_t seconds = 0, findings_max = 1, jobs = 1;
  bool has_text = false, has_records = false, has_rows = false, shrinks = false;
};

class Comparison {
 public:
  Comparison(spmd::Kernel kernel, const Arguments& arguments, DeviceRun& device, bool is_quiet = false)
      : kernel_(std::move(kernel)), arguments_(arguments), device_(device), is_quiet_(is_quiet) {}

  Outcome Run() {
    const GpuTile tile = ChooseTile();
    const spmd::Buffers expected(kernel_, /*at_end=*/false);
    const StatusOr<ir::TrapReport> want =
        ir::Interpret(kernel_.module, spmd::LaunchOf(kernel_, expected), {.steps_max = kStepsMax});
    if (!want.ok()) {
      return Report("interpreter", Message(want.status()));
    }
    if (want->code == ir::TrapCode::kStopped) {
      return kTooLong;
    }
    const std::vector<GpuTile> tiles(tile.size == GpuTile().size ? 0 : 1, tile);
    const StatusOr<Artifact> artifact = device_.Compile(kernel_.module, tiles);
    if (!artifact.ok()) {
      const bool is_refusal = artifact.status().code() == absl::StatusCode::kFailedPrecondition;
      return is_refusal ? kRefused : Report("compiler", Message(artifact.status()));
    }
    if (arguments_.has_text && !is_quiet_) {
      std::printf("%s%s\n", spmd::ToText(kernel_).c_str(),
                  std::string(artifact->code.begin(), artifact->code.end()).c_str());
    }
    Outcome outcome = kSame;
    for (size_t i = 0; i < artifact->gpu.variants.size() && outcome == kSame; ++i) {
      outcome = RunVariant(*artifact, i, expected, *want);
    }
    return outcome;
  }

  // The first word of what Run() found: "Buffer" for values, "out" for accesses out of bounds.
  std::string KindOfDifference() const { return what_.substr(0, what_.find(' ')); }

 private:
  // By the seed; the extent is cut so that all of it can run in tiles.
  GpuTile ChooseTile() {
    GpuTile tile;
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

  Outcome Report(const std::string& where, const std::string& what) {
    what_ = what;
    if (is_quiet_) {
      return kDiffers;
    }
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
    if ((got->code == ir::TrapCode::kNone) != (want.code == ir::TrapCode::kNone) && !MissesItsBuffer(*got)) {
      return Report(name, ir::ToString(*got, kernel_.module) + "; interpreted: " + ir::ToString(want, kernel_.module));
    }
    if (got->code != ir::TrapCode::kNone) {
      return artifact.gpu.variants[index].tile == GpuTile().size ? CompareTrap(name, *got) : kSame;
    }
    const std::string difference = found.FindDifference(expected);
    return difference.empty() ? kSame : Report(name, difference);
  }

  // Any instance that traps may be reported, but with its own trap. In groups they depend on each other.
  Outcome CompareTrap(const std::string& name, const ir::TrapReport& got) {
    if (ir::RunsByGroups(kernel_.module)) {
      return kSame;
    }
    const auto& [x, y, z] = got.instance;
    if (x >= kernel_.extent[0] || y >= kernel_.extent[1] || z >= kernel_.extent[2]) {
      return Report(name, "the instance does not exist: " + ir::ToString(got, kernel_.module));
    }
    const uint64_t instance = IndexOf(got);
    const spmd::Buffers buffers(kernel_, /*at_end=*/false);
    StatusOr<ir::TrapReport> alone = ir::Interpret(kernel_.module, spmd::LaunchOf(kernel_, buffers),
                                                   {.begin = instance, .end = instance + 1, .steps_max = kStepsMax});
    if (!alone.ok()) {
      return Report(name, Message(alone.status()));
    }
    alone->address &= 0xffffffffu;  // A record holds the low half.
    // A copy or fill is compiled as loads and stores, which trap as those do (docs/KERNELS.md, "Addresses").
    if (alone->code == got.code && alone->source == got.source && got.bytes < alone->bytes &&
        got.address >= alone->address && got.address - alone->address <= alone->bytes - got.bytes) {
      return kSame;
    }
    const std::string wanted = ir::ToString(*alone, kernel_.module), reported = ir::ToString(got, kernel_.module);
    return wanted == reported || MissesItsBuffer(got)
               ? kSame
               : Report(name, reported + "; that instance alone, interpreted: " + wanted);
  }

  uint64_t IndexOf(const ir::TrapReport& report) const {
    const auto& [x, y, z] = report.instance;
    return x + kernel_.extent[0] * (y + kernel_.extent[1] * z);
  }

  // Whether the instance's access misses the buffer whose address it was computed from and lands in another one: on
  // GPUs alone it traps (docs/KERNELS.md, "On GPUs").
  bool MissesItsBuffer(const ir::TrapReport& got) const {
    if (got.code != ir::TrapCode::kOutOfBounds) {
      return false;
    }
    ir::Checker checker;
    const spmd::Buffers buffers(kernel_, /*at_end=*/false);
    ir::Launch launch = spmd::LaunchOf(kernel_, buffers);
    launch.checker = &checker;
    ir::InterpretOptions options{.steps_max = kStepsMax};
    if (!ir::RunsByGroups(kernel_.module)) {
      options.begin = IndexOf(got);
      options.end = options.begin + 1;
    }
    const StatusOr<ir::TrapReport> checked = ir::Interpret(kernel_.module, launch, options);
    return checked.ok() &&
           std::any_of(checker.findings().begin(), checker.findings().end(), [&](const ir::Finding& finding) {
             return finding.kind == ir::FindingKind::kWrongBuffer && finding.first.source == got.source;
           });
  }

  spmd::Kernel kernel_;
  const Arguments& arguments_;
  DeviceRun& device_;
  const bool is_quiet_;
  std::string what_;
};

// What is cut off may be what kept instances from each other's places.
bool HasRace(const spmd::Kernel& kernel) {
  ir::Checker checker;
  const spmd::Buffers buffers(kernel, /*at_end=*/false);
  ir::Launch launch = spmd::LaunchOf(kernel, buffers);
  launch.checker = &checker;
  const StatusOr<ir::TrapReport> checked = ir::Interpret(kernel.module, launch, {.steps_max = kStepsMax});
  return !checked.ok() || std::any_of(checker.findings().begin(), checker.findings().end(),
                                      [](const auto& finding) { return finding.kind == ir::FindingKind::kRace; });
}

void PrintShrunk(spmd::Kernel kernel, const Arguments& arguments, DeviceRun& device) {
  Comparison first(kernel, arguments, device, /*is_quiet=*/true);
  first.Run();
  const auto differs = [&](const spmd::Kernel& smaller) {
    spmd::LimitSeconds(kSecondsMax);
    Comparison again(smaller, arguments, device, /*is_quiet=*/true);
    return again.Run() == kDiffers && again.KindOfDifference() == first.KindOfDifference() && !HasRace(smaller);
  };
  kernel = spmd::Shrink(std::move(kernel), differs, kShrinkTries);
  Comparison(kernel, arguments, device).Run();
  std::printf("%s", spmd::ToText(kernel).c_str());
}

spmd::Kernel Generate(uint64_t seed, const Arguments& arguments) {
  return arguments.has_records ? spmd::GenerateRecords(seed)
         : arguments.has_rows  ? spmd::GenerateRows(seed)
                               : spmd::Generate(seed);
}

// What a child writes after each seed. Fits a pipe's atomic writes.
struct Answer {
  uint64_t seed = 0;
  int outcome = kSame;
};

// The child: seeds `first` to `last`, none after a finding, since the device may be lost. Does not return.
[[noreturn]] void RunSeeds(uint64_t first, uint64_t last, const Arguments& arguments, int answers) {
  const auto answer = [&](uint64_t seed, int outcome) {
    std::fflush(stdout);
    const Answer one{seed, outcome};
    if (write(answers, &one, sizeof one) != sizeof one) {
      _exit(kDiffers);
    }
  };
  spmd::LimitSeconds(kSecondsMax);
  // Drivers have threads, so that only a child may load one.
  if (!HasDevice(arguments.device)) {
    answer(first, kNoDevice);
    _exit(0);
  }
  DeviceRun device(arguments.device);
  for (uint64_t seed = first; seed <= last; ++seed) {
    spmd::LimitSeconds(kSecondsMax);
    const Outcome outcome = Comparison(Generate(seed, arguments), arguments, device).Run();
    if (outcome == kDiffers && arguments.shrinks) {
      PrintShrunk(Generate(seed, arguments), arguments, device);
    }
    answer(seed, outcome);
    if (outcome == kDiffers) {
      break;
    }
  }
  spmd::LimitSeconds(kSecondsMax);
  std::fflush(stdout);
  _exit(0);
}

// A process with seeds `next` to `last` before it.
struct Child {
  pid_t id = -1;
  int answers = -1;
  uint64_t first = 0, next = 0, last = 0;
};

class Search {
 public:
  Search(uint64_t first, uint64_t last, const Arguments& arguments)
      : arguments_(arguments), first_(first), next_(first), last_(last) {}

  // The program's exit status.
  int Run() {
    do {
      while (children_.size() < arguments_.jobs && MayBegin()) {
        const uint64_t batch = std::min(kBatch, std::max<uint64_t>((last_ - first_ + 1) / arguments_.jobs, 1));
        const uint64_t last = last_ - next_ < batch ? last_ : next_ + batch - 1;
        Begin(next_, last);
        is_done_ = last == last_;
        next_ = last + 1;
      }
      Await();
    } while (!children_.empty() || MayBegin());
    if (has_no_device_) {
      std::printf("There is no %s; nothing is run.\n", arguments_.device.c_str());
      return 0;
    }
    std::printf("%s: seeds %" PRIu64 "..%" PRIu64 ": %" PRIu64 " kernels, %" PRIu64 " refused, %" PRIu64
                " too long; %" PRIu64 " findings; %.1f s\n",
                arguments_.device.c_str(), first_, highest_, kernels_, refused_, too_long_, findings_, Seconds());
    return findings_ == 0 ? 0 : 1;
  }

 private:
  double Seconds() const { return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count(); }
  bool IsOver() const {
    return has_no_device_ || findings_ >= arguments_.findings_max ||
           (arguments_.seconds != 0 && Seconds() > arguments_.seconds);
  }
  bool MayBegin() const { return !is_done_ && !IsOver(); }

  void Begin(uint64_t first, uint64_t last) {
    std::fflush(stdout);
    int ends[2];
    HPVMD_CHECK(pipe(ends) == 0);
    const pid_t id = fork();
    HPVMD_CHECK(id >= 0);
    if (id == 0) {
      close(ends[0]);
      RunSeeds(first, last, arguments_, ends[1]);
    }
    close(ends[1]);
    children_.push_back({id, ends[0], first, first, last});
  }

  // One step of each child that has something to say.
  void Await() {
    std::vector<pollfd> polled;
    for (const Child& child : children_) {
      polled.push_back({child.answers, POLLIN, 0});
    }
    if (polled.empty() || poll(polled.data(), polled.size(), -1) <= 0) {
      return;
    }
    for (size_t i = polled.size(); i-- > 0;) {
      if (polled[i].revents != 0 && !Read(children_[i])) {
        const Child ended = children_[i];
        children_.erase(children_.begin() + static_cast<std::ptrdiff_t>(i));
        End(ended);
      }
    }
  }

  // False: the child says no more.
  bool Read(Child& child) {
    Answer answer;
    if (read(child.answers, &answer, sizeof answer) != sizeof answer) {
      return false;
    }
    Count(answer.seed, answer.outcome);
    child.next = answer.seed + 1;
    if (IsOver()) {
      kill(child.id, SIGKILL);
      return false;
    }
    return true;
  }

  void Count(uint64_t seed, int outcome) {
    has_no_device_ |= outcome == kNoDevice;
    ++kernels_;
    highest_ = std::max(highest_, seed);
    refused_ += outcome == kRefused ? 1 : 0;
    too_long_ += outcome == kTooLong ? 1 : 0;
    findings_ += outcome == kDiffers ? 1 : 0;
  }

  void End(const Child& child) {
    close(child.answers);
    int status = 0;
    while (waitpid(child.id, &status, 0) < 0 && errno == EINTR) {
    }
    if (child.next > child.last || IsOver()) {
      return;
    }
    if (!WIFSIGNALED(status)) {
      Begin(child.next, child.last);  // Behind a finding.
      return;
    }
    std::printf("FOUND seed %" PRIu64 " on %s: signal %d%s, in a process that began with seed %" PRIu64 "\n",
                child.next, arguments_.device.c_str(), WTERMSIG(status),
                WTERMSIG(status) == SIGALRM ? ", after two minutes of processor time" : "", child.first);
    Count(child.next, kDiffers);
    if (child.next < child.last && !IsOver()) {
      Begin(child.next + 1, child.last);
    }
  }

  const Arguments& arguments_;
  const std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
  const uint64_t first_;
  uint64_t next_;
  const uint64_t last_;
  bool is_done_ = false, has_no_device_ = false;
  uint64_t kernels_ = 0, refused_ = 0, too_long_ = 0, findings_ = 0, highest_ = 0;
  std::vector<Child> children_;
};

int Run(const Arguments& arguments) {
  uint64_t first = 0, last = 0;
  const size_t dots = arguments.seeds.find("..");
  if (dots == std::string::npos || !absl::SimpleAtoi(arguments.seeds.substr(0, dots), &first) ||
      !absl::SimpleAtoi(arguments.seeds.substr(dots + 2), &last) || first > last) {
    std::fprintf(stderr, "--seeds takes FIRST..LAST.\n");
    return 2;
  }
  if (arguments.jobs == 0) {
    std::fprintf(stderr, "--jobs takes at least 1.\n");
    return 2;
  }
  return Search(first, last, arguments).Run();
}

}  // namespace
}  // namespace hpvm::gpu_test

int main(int argc, char** argv) {
  hpvm::opencl::SetPoclEnvironment(/*keeps=*/true);  // As executors do.
  hpvm::gpu_test::Arguments arguments;
  CLI::App app("Random kernels on a GPU, against the interpreter.");
  app.add_option("--device", arguments.device, "opencl:N or vulkan:N");
  app.add_option("--seeds", arguments.seeds, "FIRST..LAST, both run");
  app.add_option("--seconds", arguments.seconds, "end after so many; 0 is when all seeds are done");
  app.add_option("--findings", arguments.findings_max, "end after so many");
  app.add_option("--jobs", arguments.jobs, "processes at once");
  app.add_flag("--text", arguments.has_text, "print kernels and programs");
  app.add_flag("--shrink", arguments.shrinks, "make the kernels that differ small");
  app.add_flag("--records", arguments.has_records, "fields of records instead of everything");
  app.add_flag("--rows", arguments.has_rows, "counted loops over rows instead of everything");
  CLI11_PARSE(app, argc, argv);
  return hpvm::gpu_test::Run(arguments);
}
