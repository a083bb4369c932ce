// SPDX-License-Identifier: Apache-2.0
// Tests kernels that clang compiled from C: compares the IR with the text beside the kernel, and the results with C++
// written for the test. HPVMD_BLESS=1 rewrites the texts.
#include <algorithm>
#include <array>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <random>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "compiler/front/wasm/testing/files.h"
#include "compiler/front/wasm/wasm_front.h"
#include "compiler/ir/interpret/interpret.h"
#include "compiler/ir/text/text.h"
#include "compiler/ir/verify/verify.h"

namespace hpvm::wasm {
namespace {

const std::string kFolder = HPVMD_SOURCE_DIR "/tests/golden/front_wasm/";

template <typename T>
ir::Argument Buffer(std::vector<T>& values) {
  return {reinterpret_cast<uint8_t*>(values.data()), values.size() * sizeof(T), 0};
}
ir::Argument Scalar(int32_t value) { return {nullptr, 0, static_cast<uint32_t>(value)}; }
ParamSpec In(const char* name) { return {.name = name, .is_writable = false}; }
ParamSpec Out(const char* name) { return {.name = name}; }
ParamSpec Int(const char* name) { return {.name = name, .is_buffer = false}; }

class GoldenTest : public testing::Test {
 protected:
  // Reads and verifies a module, and compares its IR with the expected text.
  void Load(const std::string& file, const std::string& entry, std::vector<ParamSpec> params) {
    const WasmOptions options{.entry = entry, .params = std::move(params), .module_name = file};
    ReadOutcome outcome = ReadWasm(ReadBytes(kFolder + file + ".wasm"), options);
    ASSERT_TRUE(outcome.module) << ToString(outcome.diagnostics);
    ASSERT_EQ(ToString(outcome.diagnostics), "");
    const Diagnostics faults = ir::Verify(*outcome.module);
    ASSERT_TRUE(faults.empty()) << ToString(faults);
    const std::string text = ir::Print(*outcome.module);
    const std::string expected = kFolder + file + ".expected.ir";
    if (std::getenv("HPVMD_BLESS") != nullptr) {
      std::ofstream(expected, std::ios::binary) << text;
    }
    EXPECT_EQ(text, ReadText(expected)) << "HPVMD_BLESS=1 with this test rewrites " << expected;
    module_ = std::move(*outcome.module);
  }

  void Run(std::array<uint64_t, 3> extent, std::array<uint64_t, 3> group, std::vector<ir::Argument> arguments) {
    ir::Launch launch;
    launch.extent = extent;
    launch.group = group;
    launch.arguments = std::move(arguments);
    const auto report = ir::Interpret(module_, launch);
    ASSERT_TRUE(report.ok()) << report.status();
    ASSERT_EQ(report->code, ir::TrapCode::kNone) << ir::ToString(*report, module_);
  }

  std::mt19937 random_{42};
  ir::Module module_;
};

// Sums are exact, because the elements are small integers.
TEST_F(GoldenTest, MatmulUnrolled) {
  ASSERT_NO_FATAL_FAILURE(Load("matmul_unrolled", "matmul", {In("a"), In("b"), Out("c"), Int("n"), Int("k")}));
  constexpr int kM = 5, kN = 8, kK = 12;
  std::vector<float> a(kM * kK), b(kK * kN), c(kM * kN), want(kM * kN);
  std::generate(a.begin(), a.end(), [&] { return static_cast<float>(random_() % 17) - 8; });
  std::generate(b.begin(), b.end(), [&] { return static_cast<float>(random_() % 17) - 8; });
  for (int row = 0; row < kM; ++row) {
    for (int i = 0; i < kK; ++i) {
      for (int column = 0; column < kN; ++column) {
        want[row * kN + column] += a[row * kK + i] * b[i * kN + column];
      }
    }
  }
  ASSERT_NO_FATAL_FAILURE(Run({kN / 4, kM, 1}, {1, 1, 1}, {Buffer(a), Buffer(b), Buffer(c), Scalar(kN), Scalar(kK)}));
  EXPECT_EQ(c, want);
}

TEST_F(GoldenTest, EarlyReturn) {
  ASSERT_NO_FATAL_FAILURE(
      Load("early_return", "find", {In("matrix"), Out("where"), Int("rows"), Int("columns"), Int("value")}));
  constexpr int kRows = 40, kColumns = 21;
  std::vector<int32_t> matrix(kRows * kColumns), where(kRows), want(kRows, -1);
  std::generate(matrix.begin(), matrix.end(), [&] { return static_cast<int32_t>(random_() % 40) - 2; });
  for (int row = 0; row < kRows; ++row) {
    int skip_to = 0;  // A negative element hides the rest of its block of eight.
    for (int i = 0; i < kColumns && want[row] < 0; ++i) {
      const int32_t element = matrix[row * kColumns + i];
      if (i < skip_to) {
        continue;
      }
      if (element == 5) {
        want[row] = i;
      } else if (element < 0) {
        skip_to = (i / 8 + 1) * 8;
      }
    }
  }
  ASSERT_NO_FATAL_FAILURE(
      Run({kRows + 9, 1, 1}, {1, 1, 1}, {Buffer(matrix), Buffer(where), Scalar(kRows), Scalar(kColumns), Scalar(5)}));
  EXPECT_EQ(where, want);
  EXPECT_THAT(where, testing::Contains(-1));
  EXPECT_THAT(where, testing::Contains(testing::Gt(8)));
}

TEST_F(GoldenTest, ShadowStack) {
  ASSERT_NO_FATAL_FAILURE(Load("shadow_stack", "median", {In("image"), Out("out"), Int("width"), Int("height")}));
  constexpr int kWidth = 13, kHeight = 7;
  std::vector<uint16_t> image(kWidth * kHeight), out(image.size()), want(image.size());
  std::generate(image.begin(), image.end(), [&] { return static_cast<uint16_t>(random_()); });
  for (int y = 0; y < kHeight; ++y) {
    for (int x = 0; x < kWidth; ++x) {
      std::vector<uint16_t> near;
      for (int v = std::max(y - 1, 0); v <= std::min(y + 1, kHeight - 1); ++v) {
        for (int u = std::max(x - 1, 0); u <= std::min(x + 1, kWidth - 1); ++u) {
          near.push_back(image[v * kWidth + u]);
        }
      }
      std::sort(near.begin(), near.end());
      want[y * kWidth + x] = near[near.size() / 2];
    }
  }
  ASSERT_NO_FATAL_FAILURE(
      Run({kWidth, kHeight, 1}, {1, 1, 1}, {Buffer(image), Buffer(out), Scalar(kWidth), Scalar(kHeight)}));
  EXPECT_EQ(out, want);
}

TEST_F(GoldenTest, DataTable) {
  ASSERT_NO_FATAL_FAILURE(Load("data_table", "checksum", {In("bytes"), Out("out"), Int("length"), Int("which")}));
  constexpr int kCount = 6, kLength = 33;
  std::vector<uint8_t> bytes(kCount * kLength);
  std::vector<uint32_t> out(2 * kCount), want;
  std::generate(bytes.begin(), bytes.end(), [&] { return static_cast<uint8_t>(random_()); });
  for (int i = 0; i < kCount; ++i) {
    uint32_t crc = 0xffffffff;  // The reflected CRC-32, one bit at a time.
    for (int j = 0; j < kLength; ++j) {
      crc ^= bytes[i * kLength + j];
      for (int bit = 0; bit < 8; ++bit) {
        crc = (crc >> 1) ^ ((crc & 1) != 0 ? 0xedb88320 : 0);
      }
    }
    const std::array last{crc, ~crc, __builtin_bswap32(crc)};
    want.push_back(last[(1 + i) % 3]);
    want.push_back(7 + kLength);  // The table is not shared between instances.
  }
  ASSERT_NO_FATAL_FAILURE(Run({kCount, 1, 1}, {1, 1, 1}, {Buffer(bytes), Buffer(out), Scalar(kLength), Scalar(1)}));
  EXPECT_EQ(out, want);
}

TEST_F(GoldenTest, BarrierLoop) {
  ASSERT_NO_FATAL_FAILURE(Load("barrier_loop", "reduce", {In("in"), Out("out"), Int("n")}));
  EXPECT_TRUE(module_.uses_barrier);
  EXPECT_TRUE(module_.uses_group_memory);
  constexpr int kGroups = 5, kSize = 16, kCount = 71;
  std::vector<double> in(kCount), out(kGroups), want(kGroups);
  std::generate(in.begin(), in.end(), [&] { return static_cast<double>(random_() % 1000); });
  for (int i = 0; i < kCount; ++i) {
    want[i / kSize] += in[i];
  }
  ASSERT_NO_FATAL_FAILURE(Run({kGroups * kSize, 1, 1}, {kSize, 1, 1}, {Buffer(in), Buffer(out), Scalar(kCount)}));
  EXPECT_EQ(out, want);
}

TEST_F(GoldenTest, Histogram) {
  ASSERT_NO_FATAL_FAILURE(Load("histogram", "histogram", {In("bytes"), Out("bins"), Out("largest"), Out("sum")}));
  std::vector<uint8_t> bytes(1001);
  std::vector<int32_t> bins(256), want(256);
  std::vector<uint32_t> largest(1);
  std::vector<int64_t> sum(1);
  int64_t want_sum = 0;
  std::generate(bytes.begin(), bytes.end(), [&] { return static_cast<uint8_t>(random_() % 251); });
  for (uint8_t byte : bytes) {
    ++want[byte];
    want_sum += byte;
  }
  ASSERT_NO_FATAL_FAILURE(Run({37, 1, 1}, {1, 1, 1}, {Buffer(bytes), Buffer(bins), Buffer(largest), Buffer(sum)}));
  EXPECT_EQ(bins, want);
  EXPECT_EQ(largest[0], *std::max_element(bytes.begin(), bytes.end()));
  EXPECT_EQ(sum[0], want_sum);
}

// A file that no test reads would appear to be tested.
TEST(GoldenFolderTest, HasNoOrphans) {
  const std::vector<std::string> stems = {"matmul_unrolled", "early_return", "shadow_stack",
                                          "data_table",      "barrier_loop", "histogram"};
  std::vector<std::string> want = {"build.sh", "control"};
  for (const std::string& stem : stems) {
    want.insert(want.end(), {stem + ".c", stem + ".wasm", stem + ".expected.ir"});
  }
  std::vector<std::string> found;
  for (const auto& entry : std::filesystem::directory_iterator(kFolder)) {
    found.push_back(entry.path().filename());
  }
  EXPECT_THAT(found, testing::UnorderedElementsAreArray(want));
}

}  // namespace
}  // namespace hpvm::wasm
