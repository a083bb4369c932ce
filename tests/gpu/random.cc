// SPDX-License-Identifier: Apache-2.0
// hpvm-gpu-random: runs the random kernels of tests/spmd on a device behind a driver, each variant separately, and
// compares with the interpreter.
//
//   hpvm-gpu-random --device opencl:0 --seeds 0..99          exit status 1 if anything differs
//   hpvm-gpu-random --device vulkan:0 --seeds 0..99999 --seconds 600 --jobs 16
//   hpvm-gpu-random --device opencl:0 --seeds 7..7 --text    also prints the kernel and the program
//   hpvm-gpu-random --device opencl:0 --seeds 7..7 --shrink  makes what differs small, and prints it
//   hpvm-gpu-random --device opencl:0 --replay tests/gpu/found/*.ir   earlier findings
//   hpvm-gpu-random --device opencl:0 --records              kernels whose addresses wrap around on the way
//
// Kernels run in child processes, because a driver that crashes or hangs is a finding. Opening a driver takes longer
// than a kernel, so one child runs many seeds.
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cinttypes>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/strings/numbers.h"

#include "backends/opencl/pocl.h"
#include "tests/gpu/random_compare.h"
#include "tests/spmd/generate.h"
#include "tests/spmd/time_limit.h"

namespace hpvm::gpu_test {
namespace {

// Number of seeds a child runs, so that what a driver keeps of each program stays small.
constexpr uint64_t kBatch = 64;

struct Arguments {
  std::string device = "opencl:0", seeds = "0..49";
  uint32_t seconds = 0, findings_max = 1, jobs = 1;
  std::vector<std::string> replayed;  // Files to replay.
  std::vector<spmd::Kernel> kernels;  // Kernels of those files.
  bool has_text = false, has_records = false, has_rows = false, shrinks = false;
};

// Reads the files to replay; returns false, with a message, when one holds no kernel.
bool ReadKernels(Arguments* arguments) {
  for (const std::string& path : arguments->replayed) {
    std::ifstream file(path);
    StatusOr<spmd::Kernel> kernel = spmd::FromText({std::istreambuf_iterator<char>(file), {}});
    if (!kernel.ok()) {
      std::fprintf(stderr, "%s: %s\n", path.c_str(), Message(kernel.status()).c_str());
      return false;
    }
    arguments->kernels.push_back(*std::move(kernel));
  }
  return true;
}

// `seed` is a seed, or the position of a replayed file.
std::string NameOf(uint64_t seed, const Arguments& arguments) {
  return (arguments.replayed.empty() ? "seed " + std::to_string(seed) : arguments.replayed[seed]) + " on " +
         arguments.device;
}

spmd::Kernel Generate(uint64_t seed, const Arguments& arguments) {
  if (!arguments.kernels.empty()) {
    return arguments.kernels[seed];
  }
  return arguments.has_records ? spmd::GenerateRecords(seed)
         : arguments.has_rows  ? spmd::GenerateRows(seed)
                               : spmd::Generate(seed);
}

// A child writes one after each seed. It fits a pipe's atomic writes.
struct Answer {
  uint64_t seed = 0;
  int outcome = kSame;
};

// Runs in the child: seeds `first` to `last`, none after a finding, because the device may be lost. Does not return.
[[noreturn]] void RunSeeds(uint64_t first, uint64_t last, const Arguments& arguments, int answers) {
  const auto answer = [&](uint64_t seed, int outcome) {
    std::fflush(stdout);
    const Answer one{seed, outcome};
    if (write(answers, &one, sizeof one) != sizeof one) {
      _exit(kDiffers);
    }
  };
  spmd::LimitSeconds(kSecondsMax);
  // Only a child may load a driver, because drivers have threads.
  if (!HasDevice(arguments.device)) {
    answer(first, kNoDevice);
    _exit(0);
  }
  DeviceRun device(arguments.device);
  for (uint64_t seed = first; seed <= last; ++seed) {
    spmd::LimitSeconds(kSecondsMax);
    const std::string name = NameOf(seed, arguments);
    const Outcome outcome = Compare(Generate(seed, arguments), name, device, arguments.has_text);
    if (outcome == kDiffers && arguments.shrinks) {
      PrintShrunk(Generate(seed, arguments), name, device);
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

// A process that still has to run seeds `next` to `last`.
struct Child {
  pid_t id = -1;
  int answers = -1;
  uint64_t first = 0, next = 0, last = 0;
  bool has_found = false;
};

class Search {
 public:
  Search(uint64_t first, uint64_t last, const Arguments& arguments)
      : arguments_(arguments), first_(first), next_(first), last_(last) {}

  // Returns the program's exit status.
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
    children_.push_back({id, ends[0], first, first, last, false});
  }

  // Handles one message of each child that has sent one.
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

  // Returns false when the child sends no more.
  bool Read(Child& child) {
    Answer answer;
    if (read(child.answers, &answer, sizeof answer) != sizeof answer) {
      return false;
    }
    Count(answer.seed, answer.outcome);
    child.next = answer.seed + 1;
    child.has_found = answer.outcome == kDiffers;
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
    if (child.has_found) {
      Begin(child.next, child.last);
      return;
    }
    // A driver has ended it. Its current seed is not tried again.
    const std::string how = WIFSIGNALED(status) ? "signal " + std::to_string(WTERMSIG(status))
                                                : "exit status " + std::to_string(WEXITSTATUS(status));
    std::printf("FOUND %s: %s%s, in a process that began with %s\n", NameOf(child.next, arguments_).c_str(),
                how.c_str(),
                WIFSIGNALED(status) && WTERMSIG(status) == SIGALRM ? ", after two minutes of processor time" : "",
                NameOf(child.first, arguments_).c_str());
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
  if (!arguments.replayed.empty()) {
    last = arguments.replayed.size() - 1;
  } else if (dots == std::string::npos || !absl::SimpleAtoi(arguments.seeds.substr(0, dots), &first) ||
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
  app.add_option("--replay", arguments.replayed, "files with kernels, instead of seeds")->check(CLI::ExistingFile);
  app.add_flag("--text", arguments.has_text, "print kernels and programs");
  app.add_flag("--shrink", arguments.shrinks, "make the kernels that differ small");
  app.add_flag("--records", arguments.has_records, "fields of records instead of everything");
  app.add_flag("--rows", arguments.has_rows, "counted loops over rows instead of everything");
  CLI11_PARSE(app, argc, argv);
  return hpvm::gpu_test::ReadKernels(&arguments) ? hpvm::gpu_test::Run(arguments) : 2;
}
