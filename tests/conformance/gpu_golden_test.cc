// SPDX-License-Identifier: Apache-2.0
// Every sentence of docs/KERNELS.md on every device behind a driver: the golden kernels of tests/golden/ir, compiled
// for the device, each variant separately (checked and unchecked, coarse and not), against the interpreter: the same
// bits in every buffer, or the same trap. The device chooses which instance's trap is reported, and buffer contents
// after a trap are undefined there.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <map>
#include <span>
#include <sstream>
#include <tuple>

#include "gtest/gtest.h"

#include "backends/gpu/forced_variant.h"
#include "backends/opencl/pocl.h"
#include "backends/registry.h"
#include "base/hash.h"
#include "base/limits.h"
#include "compiler/ir/interpret/interpret.h"
#include "compiler/ir/testing/golden.h"
#include "tests/conformance/conformance.h"

namespace hpvm::conformance {
namespace {

// Differences of devices behind drivers from the interpreter, as in docs/KERNELS.md. A listed file without a
// difference fails the test.
struct Known {
  const char* file;
  const char* reason;
  uint64_t local_bytes = 0;       // Only on devices with less group memory; on all when 0.
  const char* backend = nullptr;  // Only on this backend's devices; on all when null.
};
constexpr const char* kGrows = "Memory of an instance cannot grow.";
constexpr const char* kCalls = "There is no call stack: recursion and indirect calls.";
constexpr const char* kVaries = "A barrier that not every instance may reach.";
// Refused when they are compiled.
constexpr Known kRefused[] = {
    {"s13-zero-bytes-outside.ir", "A fill of an instance's own memory at an address that is not known."},
    {"s17-private-restored.ir", "More memory of an instance's own than Vulkan drivers compile.", 0, "vulkan"},
    {"s19-grow.ir", kGrows},
    {"s20-grow-private.ir", kGrows},
    {"s36-table.ir", kCalls},
    {"s37-depth-100.ir", kCalls},
    {"s37-recursion.ir", kCalls},
    {"s41-alone.ir", kVaries},
    {"s41-some-end.ir", kVaries},
    {"s42-elsewhere.ir", kVaries},
    {"s48-exhausted.ir", "More group memory than there is."},
    {"s48-most.ir", "More group memory than the device has.", 64 * 1024},
    {"s57-call.ir", kCalls},
    {"s57-first.ir", kCalls},
    {"s58-alike.ir", kCalls},
};
constexpr const char* kMisses = "An access computed from a buffer, or from local_alloc, that misses it traps.";
// Compiled, with a different outcome.
constexpr Known kDifferent[] = {
    {"s10-negative-offset.ir", kMisses},
    {"s10-other-buffer.ir", kMisses},
    {"s12-group-first.ir", kMisses},
};

const Known* Find(std::span<const Known> list, std::string_view file, const DeviceInfo& device) {
  const GpuTarget& target = device.gpu;
  for (const Known& known : list) {
    const bool has_less = known.local_bytes == 0 || target.local_bytes_max < known.local_bytes;
    const bool is_meant = known.backend == nullptr || device.id.starts_with(known.backend);
    if (file == known.file && has_less && is_meant) {
      return &known;
    }
  }
  return nullptr;
}

// Builds each program once, because every variant is a separate device here.
class KeepingBuilder final : public DriverBuilder {
 public:
  StatusOr<DriverBinary> Build(const DriverBuild& build, const Patience&) override {
    std::string key = build.device + "\n" + build.options + "\n";
    key.append(reinterpret_cast<const char*>(build.code.data()), build.code.size());
    const auto found = kept_.find(key);
    if (found != kept_.end()) {
      return found->second;
    }
    HPVMD_ASSIGN_OR_RETURN(DriverBinary binary, backends::FindFamily(build.device)->build(build));
    return kept_.emplace(std::move(key), std::move(binary)).first->second;
  }

 private:
  std::map<std::string, DriverBinary> kept_;
};

// One device, opened once for each variant that a launch can be restricted to.
class Devices {
 public:
  explicit Devices(std::string name) : name_(std::move(name)) {}
  const std::string& name() const { return name_; }

  Device& Of(uint32_t variant) {
    std::unique_ptr<Device>& device = devices_[variant];
    if (device == nullptr) {
      DeviceOptions options;
      options.builder = &builder_;
      options.gpu_forced = &forced_.try_emplace(variant, variant).first->second;
      StatusOr<std::unique_ptr<Device>> created = backends::CreateDevice(name_, hub_, options);
      if (!created.ok()) {
        std::fprintf(stderr, "%s\n", Message(created.status()).c_str());
      }
      HPVMD_CHECK(created.ok());
      device = *std::move(created);
    }
    return *device;
  }

 private:
  const std::string name_;
  std::map<uint32_t, gpu::ForcedVariant> forced_;
  KeepingBuilder builder_;
  Hub hub_;
  std::map<uint32_t, std::unique_ptr<Device>> devices_;
};

using Bytes = std::vector<uint8_t>;

// The buffers of a launch; a view names the buffer that contains it.
struct Memory {
  explicit Memory(const ir::Launch& launch) {
    for (size_t i = 0; i < launch.arguments.size(); ++i) {
      const ir::Argument& a = launch.arguments[i];
      contents.emplace_back(a.data, a.data + a.bytes);
      of.push_back(i);
      offset.push_back(0);
      for (size_t k = 0; k < launch.arguments.size(); ++k) {
        const ir::Argument& b = launch.arguments[k];
        const bool is_smaller = a.bytes < b.bytes || (a.bytes == b.bytes && k < i);
        const bool is_inside =
            a.bytes != 0 && k != i && is_smaller && a.data >= b.data && a.data + a.bytes <= b.data + b.bytes;
        if (is_inside) {
          of[i] = k;
          offset[i] = static_cast<uint64_t>(a.data - b.data);
        }
      }
    }
  }
  std::vector<Bytes> contents;  // Initial contents, indexed by argument.
  std::vector<size_t> of;       // The argument whose buffer contains it; itself if it is no view.
  std::vector<uint64_t> offset;
};

struct Outcome {
  Status status;
  ir::TrapReport trap;
  std::vector<Bytes> contents;
};

Outcome RunOnDevice(Device& device, const Artifact& artifact, const ir::Launch& launch, const Memory& memory) {
  Outcome outcome;
  Bench bench(device);
  StatusOr<std::unique_ptr<Executable>> executable = device.Load(artifact);
  if (!executable.ok()) {
    outcome.status = While(executable.status(), "Loading");
    return outcome;
  }
  std::vector<std::unique_ptr<Buffer>> buffers(launch.arguments.size());
  for (size_t i = 0; i < buffers.size(); ++i) {
    if (artifact.params[i].is_buffer && memory.of[i] == i) {
      buffers[i] = bench.Upload(memory.contents[i]);
    }
  }
  Work work;
  work.stop = launch.stop;
  std::vector<Arg> args;
  for (size_t i = 0; i < buffers.size(); ++i) {
    args.push_back(artifact.params[i].is_buffer
                       ? Arg::View(*buffers[memory.of[i]], memory.offset[i], memory.contents[i].size())
                       : Arg::Scalar(launch.arguments[i].scalar));
  }
  work.Dispatch(**executable, launch.extent, launch.group, args);
  outcome.status = bench.Run(work);
  outcome.trap = work.failure.trap;
  for (size_t i = 0; i < buffers.size(); ++i) {
    outcome.contents.push_back(buffers[i] == nullptr ? Bytes() : bench.Download<uint8_t>(*buffers[i]));
  }
  return outcome;
}

std::string Sentence(const Outcome& outcome) {
  return outcome.status.ok() ? "every instance ended" : Message(outcome.status);
}

bool IsNan(uint32_t bits) { return (bits & 0x7fffffffu) > 0x7f800000u; }
bool IsNan(uint64_t bits) { return (bits & 0x7fffffffffffffffu) > 0x7ff0000000000000u; }

// Returns true when byte `at` lies in a value that is a NaN on both sides.
template <typename Bits>
bool IsNanAt(const Bytes& found, const uint8_t* wanted, size_t at) {
  const size_t first = at / sizeof(Bits) * sizeof(Bits);
  if (first + sizeof(Bits) > found.size()) {
    return false;
  }
  Bits a, b;
  std::memcpy(&a, &found[first], sizeof(a));
  std::memcpy(&b, wanted + first, sizeof(b));
  return IsNan(a) && IsNan(b);
}

// Returns the first byte that differs; the payload and sign of a NaN are the device's choice (S54).
size_t FirstDifference(const Bytes& found, const uint8_t* wanted) {
  size_t at = 0;
  while (at < found.size() &&
         (found[at] == wanted[at] || IsNanAt<uint32_t>(found, wanted, at) || IsNanAt<uint64_t>(found, wanted, at))) {
    ++at;
  }
  return at;
}

// Describes the difference between the device's outcome and the interpreter's; empty when there is none.
std::string Differs(const Outcome& device, const StatusOr<ir::TrapReport>& wanted, const ir::Launch& launch,
                    const Memory& memory) {
  if (!wanted.ok()) {
    return device.status.ok() ? "runs, but is refused: " + Message(wanted.status()) : "";
  }
  if (wanted->code == ir::TrapCode::kStopped) {
    return device.status.code() == absl::StatusCode::kCancelled ? "" : "is not cancelled: " + Sentence(device);
  }
  if (wanted->code != ir::TrapCode::kNone) {
    return device.trap.code == wanted->code
               ? ""
               : "wanted: " + std::string(ir::Name(wanted->code)) + "; found: " + Sentence(device);
  }
  if (!device.status.ok()) {
    return "fails: " + Message(device.status);
  }
  for (size_t i = 0; i < device.contents.size(); ++i) {
    const ir::Argument& want = launch.arguments[i];
    if (memory.of[i] != i || device.contents[i].empty()) {
      continue;
    }
    const size_t at = FirstDifference(device.contents[i], want.data);
    if (at != device.contents[i].size()) {
      return "argument " + std::to_string(i) + " differs at byte " + std::to_string(at) + ": found " +
             std::to_string(device.contents[i][at]) + ", wanted " + std::to_string(want.data[at]);
    }
  }
  return "";
}

// Result of one file on one device.
struct Verdict {
  std::string refused;    // The compile's message.
  std::string different;  // One line per run and variant.
  uint32_t runs = 0;
};

StatusOr<ir::TrapReport> RunBoth(Devices& devices, const ir::Module& module, const ir::Launch& launch,
                                 Verdict* verdict) {
  const Memory memory(launch);
  HPVMD_ASSIGN_OR_RETURN(const ir::Interpreter interpreter, ir::Interpreter::Create(module));
  const StatusOr<ir::TrapReport> wanted = interpreter.Run(launch);
  const StatusOr<Artifact> artifact = CompileModule(module, devices.Of(kAutoVariant));
  if (!artifact.ok()) {
    verdict->refused = Message(artifact.status());
    return wanted;
  }
  std::vector<uint32_t> variants = {kAutoVariant};
  for (uint32_t i = 0; i < artifact->gpu.variants.size(); ++i) {
    variants.push_back(i);
  }
  for (const uint32_t variant : variants) {
    const Outcome outcome = RunOnDevice(devices.Of(variant), *artifact, launch, memory);
    const std::string difference = Differs(outcome, wanted, launch, memory);
    ++verdict->runs;
    if (!difference.empty()) {
      verdict->different +=
          "  variant " + (variant == kAutoVariant ? "chosen" : std::to_string(variant)) + ": " + difference + "\n";
    }
  }
  return wanted;
}

std::string TextOf(const std::string& path) {
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

void CheckFile(const std::string& path, Devices& devices) {
  const std::string file = path.substr(path.rfind('/') + 1);
  SCOPED_TRACE(file + " on " + devices.name());
  const DeviceInfo& device = devices.Of(kAutoVariant).info();
  Verdict verdict;
  const StatusOr<std::string> ran = ir::testing::RunGoldenText(
      TextOf(path),
      [&](const ir::Module& module, const ir::Launch& launch) { return RunBoth(devices, module, launch, &verdict); });
  ASSERT_TRUE(ran.ok()) << ran.status();
  const Known* refused = Find(kRefused, file, device);
  const Known* different = Find(kDifferent, file, device);
  EXPECT_EQ(verdict.refused.empty(), refused == nullptr)
      << (refused == nullptr ? verdict.refused : std::string("Compiles, although it is listed: ") + refused->reason);
  if (verdict.refused.empty()) {
    EXPECT_EQ(verdict.different.empty(), different == nullptr)
        << (different == nullptr ? verdict.different
                                 : std::string("Does the same, although it is listed: ") + different->reason);
  }
}

std::vector<std::string> Present() {
  hpvm::opencl::SetPoclEnvironment(/*keeps=*/true);  // As executors do.
  std::vector<std::string> all;
  for (const char* driver : {"opencl", "vulkan"}) {
    const StatusOr<std::vector<std::string>> devices = backends::ListDevices(driver);
    HPVMD_CHECK(devices.ok());
    all.insert(all.end(), devices->begin(), devices->end());
    if (devices->empty()) {
      std::printf("SKIPPED: no device of backend %s is present.\n", driver);
    }
  }
  return all;
}

// One of each for the whole program: opening a device takes longer than most kernels. They are destroyed before main
// ends, because drivers have statics of their own.
class AllDevices final : public testing::Environment {
 public:
  void TearDown() override { all_.clear(); }
  Devices& Of(const std::string& name) {
    std::unique_ptr<Devices>& devices = all_[name];
    if (devices == nullptr) {
      devices = std::make_unique<Devices>(name);
    }
    return *devices;
  }

 private:
  std::map<std::string, std::unique_ptr<Devices>> all_;
};
AllDevices& all_devices = static_cast<AllDevices&>(*testing::AddGlobalTestEnvironment(new AllDevices));

std::vector<std::string> Files() {
  std::vector<std::string> files;
  for (const std::string& path : ir::testing::GoldenFiles(HPVMD_SOURCE_DIR "/tests/golden/ir")) {
    // The 4 GiB buffers of these files are only claimed, not allocated.
    if (path.find("/s16-") == std::string::npos) {
      files.push_back(path);
    }
  }
  return files;
}

class GpuGolden : public testing::TestWithParam<std::tuple<std::string, std::string>> {};

TEST_P(GpuGolden, DoesWhatTheInterpreterDoes) {
  Devices& devices = all_devices.Of(std::get<0>(GetParam()));
  if (!CanCompile(devices.Of(kAutoVariant).artifact_kind())) {
    GTEST_SKIP() << "This build has no compiler for the device.";
  }
  CheckFile(std::get<1>(GetParam()), devices);
}

// Names in the lists without a file are errors.
TEST(GpuGoldenLists, NameFiles) {
  std::vector<std::string> files;
  for (const std::string& path : ir::testing::GoldenFiles(HPVMD_SOURCE_DIR "/tests/golden/ir")) {
    files.push_back(path.substr(path.rfind('/') + 1));
  }
  for (const std::span<const Known> list : {std::span<const Known>(kRefused), std::span<const Known>(kDifferent)}) {
    for (const Known& known : list) {
      EXPECT_NE(std::find(files.begin(), files.end(), known.file), files.end()) << known.file;
      EXPECT_NE(std::string_view(known.reason), "") << known.file;
    }
  }
}

GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(GpuGolden);
INSTANTIATE_TEST_SUITE_P(Present, GpuGolden, testing::Combine(testing::ValuesIn(Present()), testing::ValuesIn(Files())),
                         [](const auto& info) {
                           const std::string& path = std::get<1>(info.param);
                           const std::string file = path.substr(path.rfind('/') + 1);
                           std::string name = std::get<0>(info.param) + "_" + file.substr(0, file.rfind('.'));
                           std::replace(name.begin(), name.end(), ':', '_');
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

}  // namespace
}  // namespace hpvm::conformance
