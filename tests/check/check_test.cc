// SPDX-License-Identifier: Apache-2.0
// Tests checked launches of kernels in C (kernels.c), compiled by clang in several ways: they find the faults of
// faulty kernels, and none in the others. Skipped when clang 22 is missing.
#include "compiler/ir/check.h"

#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <set>
#include <string>
#include <vector>

#include "gtest/gtest.h"

#include "compiler/front/wasm/testing/files.h"
#include "compiler/front/wasm/wasm_front.h"
#include "compiler/ir/interpret/interpret.h"

namespace hpvm {
namespace {

struct Case {
  const char* kernel;
  std::set<std::string> want;  // Kinds of findings.
  ir::TrapCode trap = ir::TrapCode::kNone;
  bool y_is_output = true;
};

const std::vector<Case>& Cases() {
  static const std::vector<Case>* cases = new std::vector<Case>{
      {"stencil", {}},
      {"structs", {}},
      {"copies", {}},
      {"strides", {}},
      {"differences", {}},
      {"pointers", {}},
      {"lengths", {}},
      {"recursion", {}},
      {"variadic", {}},
      {"sorting", {}},
      {"statics", {}},
      {"histogram", {}},
      {"reduction", {}},
      {"scan", {}},
      {"tiles", {}},
      {"bad_tiles", {"race"}},
      {"bad_halves", {"race"}},
      {"bad_in_place", {"race"}},
      {"bad_mixed_atomics", {"race"}, ir::TrapCode::kNone, /*y_is_output=*/false},
      {"bad_unset", {"uninitialised read"}},
      {"bad_output_read", {"uninitialised read"}},
      {"bad_group_read", {"uninitialised read"}},
      {"bad_far", {"wrong buffer"}},
      {"bad_near", {"wrong buffer"}},
      {"bad_barrier", {"missed barrier"}, ir::TrapCode::kBarrierDivergence},
  };
  return *cases;
}

class CheckKernelsTest : public testing::TestWithParam<const char*> {};

wasm::ReadOutcome Read(const std::vector<uint8_t>& bytes, const std::string& kernel) {
  wasm::WasmOptions options;
  options.entry = kernel;
  options.module_name = "check";
  options.params = {{.name = "x", .is_writable = false}, {.name = "y"}, {.name = "n", .is_buffer = false}};
  return wasm::ReadWasm(bytes, options);
}

void ExpectFindings(const std::vector<uint8_t>& bytes, const Case& c) {
  const wasm::ReadOutcome read = Read(bytes, c.kernel);
  ASSERT_TRUE(read.module.has_value()) << ToString(read.diagnostics);
  std::vector<uint64_t> x(64), y(64);
  for (size_t i = 0; i < 128; ++i) {
    reinterpret_cast<float*>(x.data())[i] = static_cast<float>(i % 17);
  }
  ir::Checker checker({.is_output = {false, c.y_is_output}});
  ir::Launch launch;
  launch.extent = {64, 1, 1};
  launch.group = {8, 1, 1};
  launch.checker = &checker;
  launch.arguments = {
      {reinterpret_cast<uint8_t*>(x.data()), 512, 0}, {reinterpret_cast<uint8_t*>(y.data()), 512, 0}, {nullptr, 0, 64}};
  const StatusOr<ir::TrapReport> report = ir::Interpret(*read.module, launch);
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_EQ(report->code, c.trap) << ir::ToString(*report, *read.module);
  std::set<std::string> found;
  std::string sentences;
  for (const ir::Finding& finding : checker.findings()) {
    found.insert(std::string(ir::Name(finding.kind)));
    sentences += ir::ToString(finding, *read.module) + '\n';
  }
  EXPECT_EQ(found, c.want) << sentences;
  EXPECT_TRUE(checker.is_complete());
}

// With and without optimisation, with and without vectors and bulk memory, with either address type.
TEST_P(CheckKernelsTest, FindsFaultsAndNothingElse) {
  if (std::system("clang-22 --version > /dev/null 2>&1") != 0) {
    GTEST_SKIP() << "clang-22 is not installed.";
  }
  const std::filesystem::path module =
      std::filesystem::temp_directory_path() / ("hpvm_check_test_" + std::to_string(getpid()) + ".wasm");
  const std::string command = std::string("clang-22 ") + GetParam() +
                              " -nostdlib -ffreestanding -fno-math-errno --no-wasm-opt -I" HPVMD_SOURCE_DIR
                              "/client/kernel -Wl,--no-entry -Wl,--export-dynamic -o " +
                              module.string() + " " HPVMD_SOURCE_DIR "/tests/check/kernels.c";
  ASSERT_EQ(std::system(command.c_str()), 0) << command;
  const std::vector<uint8_t> bytes = wasm::ReadBytes(module);
  std::filesystem::remove(module);
  for (const Case& c : Cases()) {
    SCOPED_TRACE(c.kernel);
    ExpectFindings(bytes, c);
  }
}

INSTANTIATE_TEST_SUITE_P(Options, CheckKernelsTest,
                         testing::Values("--target=wasm32 -O0", "--target=wasm32 -O1", "--target=wasm32 -O2",
                                         "--target=wasm32 -O3 -msimd128", "--target=wasm32 -Os -mbulk-memory",
                                         "--target=wasm32 -Oz -mno-bulk-memory", "--target=wasm64 -O1",
                                         "--target=wasm64 -O3"));

}  // namespace
}  // namespace hpvm
