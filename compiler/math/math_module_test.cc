// SPDX-License-Identifier: Apache-2.0
#include "compiler/math/math_module.h"

#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace hpvm::math {
namespace {

const std::string kFolder = HPVMD_SOURCE_DIR "/compiler/math/";

std::vector<uint8_t> ReadBytes(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}

// The embedded bytes are the committed file.
TEST(MathModuleTest, IsTheFile) {
  const std::span<const uint8_t> bytes = MathModule();
  ASSERT_FALSE(bytes.empty());
  EXPECT_EQ(std::vector<uint8_t>(bytes.begin(), bytes.end()), ReadBytes(kFolder + "math.wasm"));
}

// Building the module again gives the same bytes. The test is skipped where the tools are missing.
TEST(MathModuleTest, RebuildsToTheSameBytes) {
  const std::string output =
      std::filesystem::temp_directory_path() / ("hpvm_math_" + std::to_string(getpid()) + ".wasm");
  const int status = std::system((kFolder + "build.sh " + output).c_str());
  ASSERT_TRUE(WIFEXITED(status));
  if (WEXITSTATUS(status) == 3) {
    GTEST_SKIP() << "clang-22, lld-22 or wasi-libc is not installed.";
  }
  ASSERT_EQ(WEXITSTATUS(status), 0);
  const std::vector<uint8_t> rebuilt = ReadBytes(output);
  std::filesystem::remove(output);
  ASSERT_FALSE(rebuilt.empty());
  EXPECT_TRUE(rebuilt == ReadBytes(kFolder + "math.wasm"))
      << rebuilt.size() << " bytes; the packages may have changed: README.md names the version.";
}

// hpvm.h declares every function of the library, and no form is missing.
TEST(MathModuleTest, HeaderDeclaresEveryFunction) {
  const std::vector<uint8_t> bytes = ReadBytes(HPVMD_SOURCE_DIR "/client/kernel/hpvm.h");
  const std::string header(bytes.begin(), bytes.end());
  for (const MathFunction& function : MathFunctions()) {
    const std::string stem(function.name.substr(0, function.name.size() - 4));
    EXPECT_THAT(header, testing::HasSubstr("HPVM_MATH_" + std::to_string(function.arguments) + "_(" + stem + ");"));
    EXPECT_EQ(function.name.substr(stem.size()), function.is_f64 ? "_f64" : "_f32");
  }
  EXPECT_EQ(MathFunctions().size(), 62u);
}

// Each line of fast.def belongs to a function of functions.def.
TEST(MathModuleTest, FastFormsHaveAFunction) {
  size_t fast = 0;
  for (const MathFunction& function : MathFunctions()) {
    fast += function.fast_name.empty() ? 0 : 1;
    EXPECT_TRUE(function.fast_name.empty() || function.fast_name == std::string(function.name) + ".fast");
  }
  const std::vector<uint8_t> bytes = ReadBytes(kFolder + "fast.def");
  const std::string text(bytes.begin(), bytes.end());
  size_t lines = 0;
  for (size_t at = text.find("\nHPVM_FAST_"); at != std::string::npos; at = text.find("\nHPVM_FAST_", at + 1)) {
    ++lines;
  }
  EXPECT_EQ(fast, lines);
}

}  // namespace
}  // namespace hpvm::math
