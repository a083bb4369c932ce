// SPDX-License-Identifier: Apache-2.0
// Tests the default output of clang, rustc and AssemblyScript: the committed modules, and fresh modules from
// installed compilers, with and without wasm-opt.
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <iterator>
#include <numeric>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "compiler/front/wasm/testing/files.h"
#include "compiler/front/wasm/wasm_front.h"
#include "compiler/ir/interpret/interpret.h"
#include "compiler/ir/verify/verify.h"

namespace hpvm::wasm {
namespace {

const std::string kFolder = HPVMD_SOURCE_DIR "/tests/golden/compilers/";
constexpr int kCount = 8;

std::vector<int32_t> Curves() { return {3, 93, 7, 79, 19, 65, 39, 51}; }
std::vector<int32_t> Saxpy() {
  std::vector<int32_t> want(kCount);
  for (int i = 0; i < kCount; ++i) {
    want[i] = 3 * i + 0x01010101;
  }
  return want;
}
std::vector<int32_t> Counts() { return {2 * 5, 1 + 2 * 6, 2 + 2 * 7, 3 + 2 * 8, 4, 5, 6, 7}; }

struct Row {
  const char* file;
  const char* entry;
  std::vector<int32_t> (*want)();
};
constexpr Row kRows[] = {
    {"curves_cc", "curves", Curves},    {"curves_cc_opt", "curves", Curves}, {"curves_cc64", "curves", Curves},
    {"curves_rust", "curves", Curves},  {"curves_as", "curves", Curves},     {"saxpy_simd", "saxpy", Saxpy},
    {"saxpy_simd_opt", "saxpy", Saxpy}, {"count_threads", "count", Counts},  {"count_atomics64", "count", Counts},
};

// `x` and `out` begin as 0, 1, 2 ...; each instance handles one element.
void ExpectRuns(const Row& row, const std::string& path) {
  SCOPED_TRACE(path);
  const WasmOptions options{
      .entry = row.entry,
      .params = {{.name = "x", .is_writable = false}, {.name = "out"}, {.name = "count", .is_buffer = false}},
      .module_name = row.file};
  const ReadOutcome outcome = ReadWasm(ReadBytes(path), options);
  ASSERT_TRUE(outcome.module) << ToString(outcome.diagnostics);
  const Diagnostics faults = ir::Verify(*outcome.module);
  ASSERT_TRUE(faults.empty()) << ToString(faults);
  std::vector<int32_t> x(kCount), out(kCount);
  std::iota(x.begin(), x.end(), 0);
  std::iota(out.begin(), out.end(), 0);
  ir::Launch launch;
  launch.extent = {kCount, 1, 1};
  launch.arguments = {{reinterpret_cast<uint8_t*>(x.data()), sizeof(int32_t) * kCount, 0},
                      {reinterpret_cast<uint8_t*>(out.data()), sizeof(int32_t) * kCount, 0},
                      {nullptr, 0, kCount}};
  const auto report = ir::Interpret(*outcome.module, launch);
  ASSERT_TRUE(report.ok()) << report.status();
  ASSERT_EQ(report->code, ir::TrapCode::kNone) << ir::ToString(*report, *outcome.module);
  EXPECT_EQ(out, row.want());
}

TEST(CompilersTest, CommittedModules) {
  for (const Row& row : kRows) {
    ExpectRuns(row, kFolder + row.file + ".wasm");
  }
  for (const auto& entry : std::filesystem::directory_iterator(kFolder)) {  // Each file is in the table.
    const std::string stem = entry.path().stem();
    EXPECT_TRUE(entry.path().extension() != ".wasm" ||
                std::any_of(std::begin(kRows), std::end(kRows), [&](const Row& row) { return row.file == stem; }))
        << stem;
  }
}

TEST(CompilersTest, FreshModules) {
  const auto folder = std::filesystem::temp_directory_path() / ("hpvm_compilers_test_" + std::to_string(getpid()));
  std::filesystem::create_directories(folder);
  const std::string command = kFolder + "build.sh " + folder.string() + " > " + (folder / "log").string() + " 2>&1";
  const bool is_built = std::system(command.c_str()) == 0;
  int count = 0;
  for (const Row& row : kRows) {
    const std::string path = folder / (std::string(row.file) + ".wasm");
    if (std::filesystem::exists(path)) {
      ExpectRuns(row, path);
      ++count;
    }
  }
  const std::string log = ReadText(folder / "log");
  std::filesystem::remove_all(folder);
  if (count == 0) {
    GTEST_SKIP() << "No compiler is installed.";
  }
  EXPECT_TRUE(is_built) << log;
}

}  // namespace
}  // namespace hpvm::wasm
