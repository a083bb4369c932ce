// SPDX-License-Identifier: Apache-2.0
// Tests client/kernel/hpvm.h with the real compiler: the front end knows every function that the header declares.
// Skipped when clang 22 is missing.
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "compiler/front/wasm/testing/files.h"
#include "compiler/front/wasm/wasm_front.h"
#include "compiler/ir/interpret/interpret.h"
#include "compiler/ir/verify/verify.h"
#include "compiler/math/math_module.h"

namespace hpvm::wasm {
namespace {

class HeaderTest : public testing::Test {
 protected:
  void SetUp() override {
    if (std::system("clang-22 --version > /dev/null 2>&1") != 0) {
      GTEST_SKIP() << "clang-22 is not installed.";
    }
    folder_ = std::filesystem::temp_directory_path() / ("hpvm_header_test_" + std::to_string(getpid()));
    std::filesystem::create_directories(folder_);
  }
  void TearDown() override {
    if (!folder_.empty()) {
      std::filesystem::remove_all(folder_);
    }
  }

  // Returns true when clang accepts the source; Log() holds its messages.
  bool Build(const std::string& source, const std::string& name, const std::string& flags) {
    std::ofstream(folder_ / name) << source;
    const std::string command =
        "clang-22 -O2 " + flags +
        " -nostdlib -ffreestanding --no-wasm-opt -Wall -Wextra -pedantic -Werror -I" HPVMD_SOURCE_DIR
        "/client/kernel -Wl,--no-entry -Wl,--export-dynamic -o " +
        (folder_ / "out.wasm").string() + " " + (folder_ / name).string() + " 2> " + (folder_ / "log").string();
    return std::system(command.c_str()) == 0;
  }
  std::string Log() const { return ReadText(folder_ / "log"); }

  void ExpectAccepted() {
    const WasmOptions options{.entry = "run", .params = {{.name = "a"}, {.name = "b"}}, .module_name = "header"};
    const ReadOutcome outcome = ReadWasm(ReadBytes(folder_ / "out.wasm"), options);
    ASSERT_TRUE(outcome.module) << ToString(outcome.diagnostics);
    EXPECT_TRUE(ir::Verify(*outcome.module).empty());
  }

  std::filesystem::path folder_;
};

// Returns calls of every library function and of every math function that is an instruction.
std::string Mathematics() {
  std::string source = "  float x = (float)b[2];\n  double y = b[3];\n";
  const auto add = [&](const std::string& name, uint32_t arguments, bool is_f64) {
    const std::string value = is_f64 ? "y" : "x";
    source += "  *b++ = hpvm_" + name + "(" + value;
    for (uint32_t i = 1; i < arguments; ++i) {
      source += ", " + value + " + " + std::to_string(i);
    }
    source += ");\n";
  };
  for (const math::MathFunction& function : math::MathFunctions()) {
    add(std::string(function.name), function.arguments, function.is_f64);
  }
  for (const bool is_f64 : {false, true}) {
    const std::string type = is_f64 ? "_f64" : "_f32";
    for (const char* name : {"sqrt", "rsqrt", "floor", "ceil", "trunc", "nearest", "abs"}) {
      add(name + type, 1, is_f64);
    }
    for (const char* name : {"copysign", "min", "max"}) {
      add(name + type, 2, is_f64);
    }
  }
  return source;
}

std::string EveryFunction() {
  std::string source =
      "#include \"hpvm.h\"\nHPVM_KERNEL void run(int64_t* a, double* b) {\n  int32_t* w = (int32_t*)a;\n  int64_t* out "
      "= a + 1;\n";
  for (const char* query : {"instance_id", "instance_count", "group_id", "group_size", "local_id", "buffer_size",
                            "instance_id64", "instance_count64", "buffer_size64"}) {
    source += std::string("  *out++ = hpvm_") + query + "(0);\n";
  }
  for (const char* bits : {"32", "64"}) {
    const std::string at = bits == std::string("32") ? "w" : "a";
    for (const char* update : {"add", "sub", "and", "or", "xor", "xchg", "min_s", "max_s"}) {
      source += std::string("  *out++ = hpvm_atomic_") + update + "_i" + bits + "(" + at + ", 3);\n";
    }
    for (const char* update : {"min_u", "max_u"}) {
      source += std::string("  *out++ = (int64_t)hpvm_atomic_") + update + "_i" + bits + "((uint" + bits + "_t*)" + at +
                ", 3);\n";
    }
    source +=
        std::string("  hpvm_atomic_store_i") + bits + "(" + at + ", hpvm_atomic_load_i" + bits + "(" + at + "));\n";
    source += std::string("  *out++ = hpvm_atomic_cmpxchg_i") + bits + "(" + at + ", 1, 2);\n";
  }
  for (const std::string bits : {"32", "64"}) {
    const std::string at = "(uint" + bits + "_t*)a", real = bits == "32" ? "(float*)a" : "(double*)a";
    for (const char* update : {"add", "sub", "and", "or", "xor", "xchg", "min", "max"}) {
      source += std::string("  *out++ = (int64_t)hpvm_atomic_") + update + "_u" + bits + "(" + at + ", 3);\n";
    }
    source += "  hpvm_atomic_store_u" + bits + "(" + at + ", hpvm_atomic_load_u" + bits + "(" + at + "));\n";
    source += "  *out++ = (int64_t)hpvm_atomic_cmpxchg_u" + bits + "(" + at + ", 1, 2);\n";
    for (const char* update : {"min", "max", "xchg"}) {
      source += std::string("  *b++ = hpvm_atomic_") + update + "_f" + bits + "(" + real + ", 3);\n";
    }
    source += "  hpvm_atomic_store_f" + bits + "(" + real + ", hpvm_atomic_load_f" + bits + "(" + real + "));\n";
    source += "  *b++ = hpvm_atomic_cmpxchg_f" + bits + "(" + real + ", 1, 2);\n";
  }
  source +=
      "  b[0] = hpvm_atomic_add_f32((float*)a, 1) + hpvm_atomic_add_f64(b, 1);\n"
      "  int* shared = (int*)hpvm_local_alloc(64);\n  shared[hpvm_x()] = hpvm_y() + hpvm_z();\n  hpvm_barrier();\n"
      "  b[1] = shared[0];\n  hpvm_assert(b[1] > 0);\n  hpvm_assert(a != 0);\n"
      "  hpvm_print(\"%d %s %5.2f %lld %zu %p\\n\", 1, \"two\", b[1], (long long)a[0], sizeof(int), (void*)a);\n"
      "  hpvm_print(\"nothing\");\n";
  return source + Mathematics() + "}\n";
}

// Compiles without warnings as C and C++, old and new, with both address widths, with and without optimisation and
// atomic instructions.
TEST_F(HeaderTest, EveryFunctionIsKnown) {
  const std::string source = EveryFunction();
  for (const std::string flags :
       {"--target=wasm32", "--target=wasm64", "--target=wasm32 -matomics -mbulk-memory", "--target=wasm32 -O0 -g"}) {
    const bool is_old = flags == "--target=wasm64";
    for (const std::string name : {"kernel.c", "kernel.cc"}) {
      const std::string standard = name == "kernel.c" ? (is_old ? "c99" : "c17") : (is_old ? "c++11" : "c++20");
      SCOPED_TRACE(flags + " " + name);
      ASSERT_TRUE(Build(source, name, flags + " -std=" + standard)) << Log();
      ASSERT_NO_FATAL_FAILURE(ExpectAccepted());
    }
  }
}

// Atomics on reals work through their bits: each pair of signs, both directions. Vectors work, too.
TEST_F(HeaderTest, RealAtomicsAndVectorsCompute) {
  const std::string source =
      "#include \"hpvm.h\"\n"
      R"(
HPVM_KERNEL void run(float* a, double* b) {
  static const float values[] = {1.5f, -2.5f, 0.0f, -0.0f, 1e30f, -1e-30f};
  float* out = a;
  for (int i = 0; i < 6; ++i) {
    for (int k = 0; k < 6; ++k) {
      out[0] = values[i];
      out[1] = values[i];
      float old = hpvm_atomic_min_f32(out, values[k]);
      hpvm_assert(old == values[i]);
      hpvm_atomic_max_f32(out + 1, values[k]);
      hpvm_assert(out[0] == hpvm_min_f32(values[i], values[k]) && out[1] == hpvm_max_f32(values[i], values[k]));
      hpvm_assert(hpvm_copysign_f32(1, out[0]) == hpvm_copysign_f32(1, hpvm_min_f32(values[i], values[k])));
      hpvm_assert(hpvm_copysign_f32(1, out[1]) == hpvm_copysign_f32(1, hpvm_max_f32(values[i], values[k])));
      out += 2;
    }
  }
  b[0] = -3;
  hpvm_assert(hpvm_atomic_min_f64(b, -4) == -3 && b[0] == -4);
  hpvm_assert(hpvm_atomic_max_f64(b, 2) == -4 && b[0] == 2);
  hpvm_assert(hpvm_atomic_cmpxchg_f64(b, 1, 9) == 2 && b[0] == 2);
  hpvm_assert(hpvm_atomic_cmpxchg_f64(b, 2, 9) == 2 && b[0] == 9);
  hpvm_assert(hpvm_atomic_xchg_f64(b, 1) == 9 && hpvm_atomic_load_f64(b) == 1);
  unsigned* u = (unsigned*)(b + 1);
  *u = 5;
  hpvm_assert(hpvm_atomic_max_u32(u, 0xffffffffu) == 5 && *u == 0xffffffffu);
  hpvm_assert(hpvm_atomic_sub_u32(u, 1) == 0xffffffffu && hpvm_atomic_load_u32(u) == 0xfffffffeu);
  hpvm_f32x4 v = *(hpvm_f32x4*)values * 2 + 1;
  hpvm_assert(v.x == 4 && v.y == -4 && v.z == 1 && v[3] == 1 && sizeof(v) == 16);
  hpvm_u8x4 bytes = {250, 1, 2, 3};
  bytes += (unsigned char)10;
  hpvm_assert(bytes.x == 4 && bytes.w == 13);
  b[2] = 1;
}
)";
  for (const char* flags : {"--target=wasm32", "--target=wasm32 -O3 -msimd128"}) {
    SCOPED_TRACE(flags);
    ASSERT_TRUE(Build(source, "kernel.c", flags)) << Log();
    const WasmOptions options{.entry = "run", .params = {{.name = "a"}, {.name = "b"}}, .module_name = "header"};
    const ReadOutcome outcome = ReadWasm(ReadBytes(folder_ / "out.wasm"), options);
    ASSERT_TRUE(outcome.module) << ToString(outcome.diagnostics);
    std::vector<float> a(72);
    std::vector<double> b(3);
    ir::Launch launch;
    launch.extent = {1, 1, 1};
    launch.arguments = {{reinterpret_cast<uint8_t*>(a.data()), a.size() * sizeof(float), 0},
                        {reinterpret_cast<uint8_t*>(b.data()), b.size() * sizeof(double), 0}};
    const auto report = ir::Interpret(*outcome.module, launch);
    ASSERT_TRUE(report.ok()) << report.status();
    EXPECT_EQ(report->code, ir::TrapCode::kNone) << ir::ToString(*report, *outcome.module);
    EXPECT_EQ(b[2], 1);
  }
}

// Atomics that clang would compile to plain accesses are refused; with the atomic instructions they are accepted.
TEST_F(HeaderTest, RefusesAtomicsThatAreNone) {
  const std::string kernel = "HPVM_KERNEL void run(int64_t* a, double* b) { __atomic_fetch_add(a, 1, 5); *b = 0; }\n";
  EXPECT_FALSE(Build("#include \"hpvm.h\"\n" + kernel, "kernel.c", "--target=wasm32"));
  EXPECT_THAT(Log(), testing::HasSubstr("poisoned"));
  EXPECT_FALSE(Build("#include \"hpvm.h\"\n_Atomic int x;\n", "kernel.c", "--target=wasm32"));
  EXPECT_THAT(Log(), testing::HasSubstr("poisoned"));
  EXPECT_FALSE(Build("#include <stdatomic.h>\n#include \"hpvm.h\"\n", "kernel.c", "--target=wasm32"));
  EXPECT_THAT(Log(), testing::HasSubstr("Use hpvm_atomic_ functions"));
  ASSERT_TRUE(Build("#include \"hpvm.h\"\n" + kernel, "kernel.c", "--target=wasm32 -matomics -mbulk-memory")) << Log();
  ExpectAccepted();
}

// A wrapper's format parameter is refused, and clang checks the values.
TEST_F(HeaderTest, PrintTakesLiterals) {
  ASSERT_TRUE(
      Build("#include \"hpvm.h\"\n"
            "static __attribute__((noinline)) void say(const char* text) { hpvm_print(text, 1); }\n"
            "HPVM_KERNEL void run(int64_t* a, double* b) { say(a == 0 ? \"%d\" : \"%x\"); *b = 0; }\n",
            "kernel.c", "--target=wasm32 -Wno-format-nonliteral -Wno-format-security"))
      << Log();
  const WasmOptions options{.entry = "run", .params = {{.name = "a"}, {.name = "b"}}, .module_name = "header"};
  const ReadOutcome outcome = ReadWasm(ReadBytes(folder_ / "out.wasm"), options);
  EXPECT_FALSE(outcome.module);
  EXPECT_THAT(ToString(outcome.diagnostics), testing::HasSubstr("not known at compile time"));
  EXPECT_FALSE(
      Build("#include \"hpvm.h\"\nHPVM_KERNEL void run(int64_t* a, double* b) { hpvm_print(\"%d\", *b); *a = 0; }\n",
            "kernel.c", "--target=wasm32"));
  EXPECT_THAT(Log(), testing::HasSubstr("-Wformat"));
}

// The header supports only kernel targets.
TEST_F(HeaderTest, RefusesOtherTargets) {
  EXPECT_FALSE(
      Build("#include \"hpvm.h\"\n", "kernel.c", "--target=x86_64-linux-gnu -Wno-unused-command-line-argument"));
  EXPECT_THAT(Log(), testing::HasSubstr("hpvm.h is for kernels"));
}

}  // namespace
}  // namespace hpvm::wasm
