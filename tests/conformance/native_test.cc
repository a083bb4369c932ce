// SPDX-License-Identifier: Apache-2.0
// Modules written for a device, on every device behind a driver: OpenCL C, SPIR-V kernels in the form that the driver
// takes, SPIR-V shaders; compiled by hpvm-compiler as in executors, because a driver's LLVM and ours conflict in one
// process.
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <bit>
#include <cstdio>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "backends/registry.h"
#include "base/hash.h"
#include "base/io/frame_socket.h"
#include "compiler/api/service.h"
#include "compiler/front/spirv/testing/assemble.h"
#include "compiler/front/spirv/testing/modules.h"
#include "tests/conformance/conformance.h"

namespace hpvm::conformance {
namespace {

using ::testing::HasSubstr;

constexpr char kScale[] =
    "__kernel void scale(__global const float* in, __global float* out, float factor) {\n"
    "  __local float tile[64];\n"
    "  const size_t i = get_global_id(0);\n"
    "  tile[get_local_id(0) % 64] = in[i];\n"
    "  barrier(CLK_LOCAL_MEM_FENCE);\n"
    "  out[i] = tile[get_local_id(0) % 64] * factor * WIDTH;\n"
    "}\n";

// The process that compiles.
class Compiler {
 public:
  Compiler() {
    StatusOr<std::pair<UniqueFd, UniqueFd>> pair = CreateSocketPair();
    HPVMD_CHECK(pair.ok());
    std::string arguments[] = {HPVMD_BINARY_DIR "/hpvm-compiler", "--socket", "20", "--opencl"};
    char* argv[] = {arguments[0].data(), arguments[1].data(), arguments[2].data(), arguments[3].data(), nullptr};
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, pair->second.get(), 20);
    HPVMD_CHECK(posix_spawn(&pid_, argv[0], &actions, nullptr, argv, environ) == 0);
    posix_spawn_file_actions_destroy(&actions);
    service_ = ConnectCompiler(std::move(pair->first), ArtifactKey{});
  }
  ~Compiler() {
    service_.reset();
    waitpid(pid_, nullptr, 0);
  }

  CompileRequest RequestFor(const Device& device, ModuleKind kind, std::span<const uint8_t> module) const {
    CompileRequest request;
    request.module_kind = kind;
    request.module_name = "native";
    request.module = module;
    request.module_hash = HashOf(module);
    request.entry = "scale";
    request.params = {{.name = "in", .is_writable = false},
                      {.name = "out"},
                      {.name = "factor", .is_buffer = false, .scalar = ir::Type::kF32}};
    request.target = device.artifact_kind();
    request.gpu = device.info().gpu;
    return request;
  }
  // Returns null after a reported failure.
  std::unique_ptr<Executable> Load(Device& device, const CompileRequest& request) {
    StatusOr<CompileOutcome> outcome = service_->Compile(request, Soon());
    if (!outcome.ok() || !outcome->artifact.has_value()) {
      ADD_FAILURE() << outcome.status() << (outcome.ok() ? ToString(outcome->diagnostics) : "");
      return nullptr;
    }
    StatusOr<std::unique_ptr<Executable>> executable = device.Load(*std::move(outcome->artifact));
    if (!executable.ok()) {
      ADD_FAILURE() << executable.status();
      return nullptr;
    }
    return *std::move(executable);
  }
  CompilerService& service() { return *service_; }

 private:
  pid_t pid_ = -1;
  std::unique_ptr<CompilerService> service_;
};

std::vector<uint8_t> BytesOf(std::string_view text) { return {text.begin(), text.end()}; }

// Runs `executable` over 1024 work items: out[i] = in[i] * factor + constant.
void ExpectScales(Bench& bench, Executable& executable, std::array<uint64_t, 3> group, std::vector<Arg> scalars,
                  float factor, float constant) {
  std::vector<float> in(1024);
  for (size_t i = 0; i < in.size(); ++i) {
    in[i] = static_cast<float>(i) * 0.25f - 3;
  }
  const std::unique_ptr<Buffer> from = bench.Upload(in), to = bench.Allocate(in.size() * sizeof(float));
  std::vector<Arg> args{Arg::Of(*from), Arg::Of(*to)};
  args.insert(args.end(), scalars.begin(), scalars.end());
  Work work;
  work.Dispatch(executable, {in.size(), 1, 1}, group, args);
  const Status run = bench.Run(work);
  ASSERT_TRUE(run.ok()) << run;
  const std::vector<float> out = bench.Download<float>(*to);
  for (size_t i = 0; i < in.size(); ++i) {
    ASSERT_EQ(out[i], in[i] * factor + constant) << i;
  }
}

class NativeTest : public ::testing::TestWithParam<std::string> {
 protected:
  static bool IsOpenCl(const std::string& device) { return device.starts_with("opencl"); }
  Compiler compiler_;
};

// OpenCL C with a build option, arguments in order, group memory and a barrier.
TEST_P(NativeTest, RunsOpenClC) {
  Bench bench(GetParam());
  const std::vector<uint8_t> text = BytesOf(kScale);
  CompileRequest request = compiler_.RequestFor(bench.device(), ModuleKind::kOpenCl, text);
  request.options = "-D WIDTH=2";
  if (!IsOpenCl(GetParam())) {
    const StatusOr<CompileOutcome> outcome = compiler_.service().Compile(request, Soon());
    ASSERT_TRUE(outcome.ok());
    EXPECT_THAT(ToString(outcome->diagnostics), HasSubstr("OpenCL C runs on OpenCL devices only"));
    return;
  }
  const std::unique_ptr<Executable> executable = compiler_.Load(bench.device(), request);
  ASSERT_NE(executable, nullptr);
  ExpectScales(bench, *executable, {64, 1, 1}, {Arg::Scalar(1.5f)}, 3, 0);
}

// An error of the driver's compiler comes back with its log: for a text that the preceding clang accepts, because it
// knows more built-in functions than current drivers.
TEST_P(NativeTest, ReportsTheDriversLog) {
  Bench bench(GetParam());
  if (!IsOpenCl(GetParam())) {
    return;
  }
  const std::vector<uint8_t> text =
      BytesOf("kernel void scale(global const float* in, global float* out, float factor) {\n"
              "  out[0] = __builtin_elementwise_popcount(7);\n}\n");
  const CompileRequest request = compiler_.RequestFor(bench.device(), ModuleKind::kOpenCl, text);
  StatusOr<CompileOutcome> outcome = compiler_.service().Compile(request, Soon());
  ASSERT_TRUE(outcome.ok() && outcome->artifact.has_value());
  const auto executable = bench.device().Load(*std::move(outcome->artifact));
  EXPECT_EQ(executable.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(Message(executable.status()), HasSubstr("__builtin_elementwise_popcount"));
}

// SPIR-V of the device's own flavour; the other flavour is refused.
TEST_P(NativeTest, RunsSpirv) {
  Bench bench(GetParam());
  const std::vector<uint8_t> kernel = spirv::Assemble(spirv::kKernel, 0), shader = spirv::Assemble(spirv::kShader, 3);
  CompileRequest request =
      compiler_.RequestFor(bench.device(), ModuleKind::kSpirv, IsOpenCl(GetParam()) ? kernel : shader);
  if (IsOpenCl(GetParam())) {
    const std::unique_ptr<Executable> executable = compiler_.Load(bench.device(), request);
    ASSERT_NE(executable, nullptr);
    ExpectScales(bench, *executable, {1, 1, 1}, {Arg::Scalar(1.5f)}, 1.5f, 0);
    return;
  }
  request.entry = "main";
  request.params.insert(request.params.begin() + 2, {.name = "n", .is_buffer = false});
  request.constants = {{.id = 7, .is_float = true, .bits = std::bit_cast<uint64_t>(0.5)}};
  const std::unique_ptr<Executable> executable = compiler_.Load(bench.device(), request);
  ASSERT_NE(executable, nullptr);
  ExpectScales(bench, *executable, {1, 1, 1}, {Arg::Scalar(uint64_t{1024}), Arg::Scalar(1.5f)}, 1.5f, 0.5f);
}

std::vector<std::string> Devices() {
  std::vector<std::string> all;
  for (const char* driver : {"opencl", "vulkan"}) {
    const StatusOr<std::vector<std::string>> devices = backends::ListDevices(driver);
    HPVMD_CHECK(devices.ok());
    if (devices->empty()) {
      std::printf("No %s device is here: its native modules are skipped.\n", driver);
    }
    all.insert(all.end(), devices->begin(), devices->end());
  }
  return all;
}

std::string NameOf(const ::testing::TestParamInfo<std::string>& info) {
  std::string name = info.param;
  std::replace(name.begin(), name.end(), ':', '_');
  return name;
}

INSTANTIATE_TEST_SUITE_P(Devices, NativeTest, ::testing::ValuesIn(Devices()), NameOf);
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(NativeTest);

}  // namespace
}  // namespace hpvm::conformance
