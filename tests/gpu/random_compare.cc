// SPDX-License-Identifier: Apache-2.0
#include "tests/gpu/random_compare.h"

#include <algorithm>
#include <cstdio>
#include <string>
#include <utility>
#include <vector>

#include "compiler/ir/check.h"
#include "compiler/ir/interpret/interpret.h"
#include "compiler/ir/text/text.h"
#include "tests/spmd/memory.h"
#include "tests/spmd/shrink.h"
#include "tests/spmd/time_limit.h"

namespace hpvm::gpu_test {
namespace {

constexpr uint64_t kStepsMax = 400'000;
constexpr uint32_t kShrinkTries = 3000;

class Comparison {
 public:
  // Prints nothing when `name` is empty.
  Comparison(spmd::Kernel kernel, std::string name, DeviceRun& device, bool prints_text)
      : kernel_(std::move(kernel)), name_(std::move(name)), device_(device), prints_text_(prints_text) {}

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
    if (prints_text_) {
      std::printf("%s%s\n", spmd::ToText(kernel_).c_str(),
                  std::string(artifact->code.begin(), artifact->code.end()).c_str());
    }
    Outcome outcome = kSame;
    for (size_t i = 0; i < artifact->gpu.variants.size() && outcome == kSame; ++i) {
      outcome = RunVariant(*artifact, i, expected, *want);
    }
    return outcome;
  }

  // Returns the first word of what Run() found: "Buffer" for values, "out" for accesses out of bounds.
  std::string KindOfDifference() const { return what_.substr(0, what_.find(' ')); }

 private:
  // Chosen by the seed; the extent is cut so that all of it can run in tiles.
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

  Outcome Report(const std::string& where, const std::string& what) {
    what_ = what;
    if (!name_.empty()) {
      std::printf("FOUND %s, %s: %s\n", name_.c_str(), where.c_str(), what.c_str());
    }
    return kDiffers;
  }

  // Loaded together with the fully checked variant, for launches that the variant cannot take.
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
      return artifact.gpu.variants[index].tile == pass::GpuTile().size ? CompareTrap(name, *got) : kSame;
    }
    const std::string difference = found.FindDifference(expected);
    return difference.empty() ? kSame : Report(name, difference);
  }

  // Any instance that traps may be reported, but with its own trap. In groups the instances depend on each other.
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

  // Returns true when the instance's access misses the buffer whose address it was computed from and lands in another
  // one: that traps on GPUs only (docs/KERNELS.md, "On GPUs").
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
  const std::string name_;
  DeviceRun& device_;
  const bool prints_text_;
  std::string what_;
};

// Shrinking may remove what kept instances from each other's memory.
bool HasRace(const spmd::Kernel& kernel) {
  ir::Checker checker;
  const spmd::Buffers buffers(kernel, /*at_end=*/false);
  ir::Launch launch = spmd::LaunchOf(kernel, buffers);
  launch.checker = &checker;
  const StatusOr<ir::TrapReport> checked = ir::Interpret(kernel.module, launch, {.steps_max = kStepsMax});
  return !checked.ok() || std::any_of(checker.findings().begin(), checker.findings().end(),
                                      [](const auto& finding) { return finding.kind == ir::FindingKind::kRace; });
}

}  // namespace

Outcome Compare(const spmd::Kernel& kernel, const std::string& name, DeviceRun& device, bool prints_text) {
  return Comparison(kernel, name, device, prints_text).Run();
}

void PrintShrunk(spmd::Kernel kernel, const std::string& name, DeviceRun& device) {
  Comparison first(kernel, "", device, /*prints_text=*/false);
  first.Run();
  const auto differs = [&](const spmd::Kernel& smaller) {
    spmd::LimitSeconds(kSecondsMax);
    Comparison again(smaller, "", device, /*prints_text=*/false);
    return again.Run() == kDiffers && again.KindOfDifference() == first.KindOfDifference() && !HasRace(smaller);
  };
  kernel = spmd::Shrink(std::move(kernel), differs, kShrinkTries);
  Compare(kernel, name + ", made small", device);
  std::printf("%s", spmd::ToText(kernel).c_str());
}

}  // namespace hpvm::gpu_test
