// SPDX-License-Identifier: Apache-2.0
// The corpus behaves the same however it was built, before the passes and after those for CPUs and for GPUs.
#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <fstream>
#include <iterator>
#include <span>
#include <string>
#include <vector>

#include "compiler/front/wasm/wasm_front.h"
#include "compiler/ir/interpret/interpret.h"
#include "compiler/ir/walk.h"
#include "compiler/pass/pipeline.h"

namespace hpvm {
namespace {

constexpr uint32_t kWidth = 24, kHeight = 5;
constexpr const char* kBuilds[] = {"O2", "O0", "O3", "Os", "simd128", "bulk", "wasm64"};

struct Kernel {
  const char* entry;
  // One letter per parameter: f and i are read-only buffers of floats and integers, F and I are writable ones, s is a
  // scalar of 7, w and h are the width and height, x is a float of 1.5.
  const char* params;
  std::array<uint64_t, 3> extent;
  uint64_t group = 1;  // Along x.
};
constexpr Kernel kKernels[] = {
    {"axpy", "fFx", {kWidth, 1, 1}},
    {"records", "fF", {kWidth, 1, 1}},
    {"copied_record", "fF", {3, 1, 1}},
    {"sort_in_registers", "F", {kWidth, 1, 1}},
    {"stack_histogram", "iIs", {kWidth, 1, 1}},
    {"stack_variable_length", "iIs", {kWidth, 1, 1}},
    {"stack_passed_on", "iI", {kWidth, 1, 1}},
    {"stack_bytes", "iI", {kWidth, 1, 1}},
    {"along_y", "fFs", {1, kWidth, 1}},
    {"strided_store", "fF", {kWidth, 1, 1}},
    {"clamped", "fFs", {7, 7, 1}},
    {"guarded", "fFs", {9, 9, 1}},
    {"grouped", "fF", {192, 1, 1}, 96},
    {"complex_product", "ffF", {kWidth, 1, 1}},
    {"periodic", "fFw", {kWidth, 1, 1}},
    {"next_or_first", "fFw", {kWidth, 1, 1}},
    {"clamped_window", "fFwhs", {kWidth, kHeight, 1}},
    {"coordinates", "ffFs", {kWidth, 1, 1}},
    {"printed", "fF", {kWidth, 1, 1}},
};

// Contents of the buffers after a run, and its output.
struct Outcome {
  std::vector<std::vector<uint32_t>> buffers;
  std::vector<uint64_t> printed;
  friend bool operator==(const Outcome&, const Outcome&) = default;
};

struct Prints final : ir::PrintSink {
  void Print(const std::array<uint64_t, 3>& instance, uint32_t, std::span<const uint64_t> operands) override {
    values.insert(values.end(), instance.begin(), instance.end());
    values.insert(values.end(), operands.begin(), operands.end());
  }
  std::vector<uint64_t> values;
};

uint64_t ScalarOf(char letter) {
  constexpr uint64_t kOneAndAHalf = 0x3fc00000;
  return letter == 's' ? 7 : letter == 'w' ? kWidth : letter == 'h' ? kHeight : kOneAndAHalf;
}

Outcome Interpreted(const ir::Module& module, const Kernel& kernel) {
  constexpr size_t kWords = 1024;
  Outcome outcome;
  Prints prints;
  ir::Launch launch;
  launch.extent = kernel.extent;
  launch.group = {kernel.group, 1, 1};
  launch.print = &prints;
  const std::string letters = kernel.params;
  outcome.buffers.resize(letters.size());
  for (size_t k = 0; k < letters.size(); ++k) {
    if (std::strchr("fFiI", letters[k]) == nullptr) {
      launch.arguments.push_back({nullptr, 0, ScalarOf(letters[k])});
      continue;
    }
    for (size_t i = 0; i < kWords; ++i) {
      const float number = static_cast<float>((i * 7919 + k) % 1009) - 500;
      uint32_t bits = static_cast<uint32_t>(i * 2654435761u >> 7);
      if (letters[k] == 'f' || letters[k] == 'F') {
        std::memcpy(&bits, &number, sizeof(bits));
      }
      outcome.buffers[k].push_back(bits);
    }
    launch.arguments.push_back({reinterpret_cast<uint8_t*>(outcome.buffers[k].data()), 4 * kWords, 0});
  }
  const StatusOr<ir::TrapReport> trap = ir::Interpret(module, launch);
  EXPECT_TRUE(trap.ok()) << trap.status();
  if (trap.ok()) {
    EXPECT_EQ(trap->code, ir::TrapCode::kNone) << ToString(*trap, module);
  }
  outcome.printed = std::move(prints.values);
  return outcome;
}

ir::Module Read(const std::string& build, const Kernel& kernel) {
  std::ifstream file(HPVMD_CORPUS "/corpus_" + build + ".wasm", std::ios::binary);
  const std::vector<uint8_t> bytes{std::istreambuf_iterator<char>(file), {}};
  wasm::WasmOptions options;
  options.entry = kernel.entry;
  for (const char letter : std::string(kernel.params)) {
    ParamSpec param;
    param.name = std::string("p") + std::to_string(options.params.size());
    param.is_buffer = std::strchr("fFiI", letter) != nullptr;
    param.is_writable = letter == 'F' || letter == 'I';
    param.scalar = letter == 'x' ? ir::Type::kF32 : ir::Type::kI32;
    options.params.push_back(param);
  }
  wasm::ReadOutcome outcome = wasm::ReadWasm(bytes, options);
  EXPECT_TRUE(outcome.module.has_value()) << ToString(outcome.diagnostics);
  return outcome.module.has_value() ? *std::move(outcome.module) : ir::Module();
}

bool MovesStack(const ir::Module& module) {
  const ir::Function& f = module.function(module.entry);
  bool moves = false;
  ir::ForEachOp(f, [&](ir::OpId id) { moves = moves || f.op(id).code == ir::Opcode::kGlobalSet; });
  return moves;
}

TEST(BuildsTest, EachDoesTheSame) {
  size_t plain = 0;
  for (const Kernel& kernel : kKernels) {
    const Outcome want = Interpreted(Read(kBuilds[0], kernel), kernel);
    for (const std::string build : kBuilds) {
      SCOPED_TRACE(build + " " + kernel.entry);
      const ir::Module module = Read(build, kernel);
      EXPECT_EQ(Interpreted(module, kernel), want);
      ir::Module cpu = module, gpu = module;
      ASSERT_TRUE(pass::RunCpuPipeline(cpu, {.verify_each = true}).ok());
      EXPECT_EQ(Interpreted(cpu, kernel), want);
      ASSERT_TRUE(pass::RunGpuPipeline(gpu, {.verify_each = true}).ok());
      EXPECT_EQ(Interpreted(gpu, kernel), want);
      plain += build == "O0" && !MovesStack(cpu) ? 1 : 0;
    }
  }
  EXPECT_GE(plain, 14u) << "Kernels that were built without optimisation keep their stacks.";
}

}  // namespace
}  // namespace hpvm
