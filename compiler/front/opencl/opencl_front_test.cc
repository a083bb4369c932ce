// SPDX-License-Identifier: Apache-2.0
// Tests which OpenCL C is accepted and how the rest is refused.
#include "compiler/front/opencl/opencl_front.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "compiler/front/opencl/lexer.h"
#include "compiler/front/opencl/program.h"

namespace hpvm::opencl {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr char kText[] = R"(// Scales.
#pragma OPENCL EXTENSION cl_khr_fp64 : enable
#ifndef WIDTH
#define WIDTH 1
#endif
__attribute__((reqd_work_group_size(64, 1, 1)))
__kernel void scale(__global const float *restrict in, __global float *out, const int n, unsigned int m, float factor) {
  int i = get_global_id(0);
  if (i < n) out[i] = in[i] * factor * WIDTH + m;
}
kernel void other(global int* data) { data[0] = 'a' + sizeof("#include \" // "); }
)";

struct Input {
  std::string entry = "scale";
  std::string options;
  std::vector<ParamSpec> params = {{.name = "x", .is_writable = false},
                                   {.name = "y"},
                                   {.name = "n", .is_buffer = false},
                                   {.name = "m", .is_buffer = false},
                                   {.name = "f", .is_buffer = false, .scalar = ir::Type::kF32}};
  uint32_t api_version = 120;
  bool has_fp64 = true;
  Diagnostics diagnostics;

  // Returns the accepted options.
  std::optional<std::string> Vet(std::string_view text) {
    std::optional<Vetted> vetted = VetAll(text);
    return vetted.has_value() ? std::optional(vetted->options) : std::nullopt;
  }
  std::optional<Vetted> VetAll(std::string_view text) {
    HPVMD_CHECK(PrepareOpenCl().ok());
    GpuTarget target;
    target.api_version = api_version;
    target.local_bytes_max = 32768;
    target.has_fp64 = has_fp64;
    return VetOpenCl({reinterpret_cast<const uint8_t*>(text.data()), text.size()},
                     {.module_name = "m", .entry = entry, .params = params, .options = options, .target = &target},
                     diagnostics);
  }
};

// Ordinary kernels pass; their options are separated by one space.
TEST(OpenClFrontTest, TakesKernels) {
  Input input;
  input.options = " -DWIDTH=4\t-D  NAME=f(1,2) -cl-std=CL1.2  -cl-mad-enable ";
  EXPECT_EQ(input.Vet(kText), "-cl-std=CL1.2 -cl-mad-enable");
  EXPECT_THAT(input.diagnostics, IsEmpty());
}

// Files, assembly and similar constructs are refused wherever they hide, with the position.
TEST(OpenClFrontTest, RefusesFilesAndAssembly) {
  struct Case {
    const char* name;
    const char* text;  // Precedes a kernel.
    const char* want;
  };
  const Case kCases[] = {
      {"include", "#include \"/etc/passwd\"\n",
       "Line 1, column 1: \"#include\" is refused: modules may not ask for files"},
      {"indented", "\n  \t# include <x>\n", "Line 2, column 4: \"#include\""},
      {"behind a comment", "/* a\n b */ #include <x>\n", "Line 2, column 7: \"#include\""},
      {"comment inside", "#/**/include/**/<x>\n", "Line 1, column 1: \"#include\""},
      {"splice inside", "#inc\\\nlude <x>\n", "Line 1, column 1: \"#include\""},
      {"splice with a carriage return", "#inc\\\r\nlude <x>\r\n", "Line 1, column 1: \"#include\""},
      {"digraph", "%:include <x>\n", "Line 1, column 1: \"#include\""},
      {"spliced digraph", "%\\\n:include <x>\n", "Line 1, column 1: \"#include\""},
      {"trigraph",
       "?"
       "?=include <x>\n",
       "Line 1, column 1: A trigraph (?"
       "?=)"},
      {"trigraph splice",
       "// ?"
       "?/\n",
       "Line 1, column 4: A trigraph (?"
       "?/)"},
      {"blank splice", "// \\ \n#include <x>\n", "Line 1, column 4: A backslash with white space"},
      {"carriage return", "// a\r#include <x>\n", "Line 1, column 5: A carriage return"},
      {"not compiled", "#if 0\n#include <x>\n#endif\n", "Line 2, column 1: \"#include\""},
      {"import", "#import <x>\n", "\"#import\" is refused: modules may not ask for files"},
      {"embed", "#embed <x>\n", "\"#embed\" is refused: modules may not ask for files"},
      {"include_next", "#include_next <x>\n", "\"#include_next\" is refused"},
      {"has include", "#if __has_include(<x>)\n#endif\n", "Line 1, column 5: \"__has_include\" is refused"},
      {"pasted", "#define A __has_inc ## lude\n", "Line 1, column 24: \"__has_include\" is refused"},
      {"line", "#line 1 \"/etc/passwd\"\n", "\"#line\" is refused: it is not on the list"},
      {"line marker", "# 1 \"/etc/passwd\"\n", "\"#1\" is refused: it is not on the list"},
      {"pragma", "#pragma GCC dependency \"x\"\n", "\"#pragma GCC\" is refused"},
      {"operator", "_Pragma(\"x\")\n", "\"_Pragma\" is refused"},
      {"assembly", "void f() { __asm__(\".incbin \\\"x\\\"\"); }\n",
       "Line 1, column 12: \"__asm__\" is refused: inline assembly"},
      {"asm", "void f() { asm volatile(\"\"); }\n", "\"asm\" is refused"},
      {"pasted asm", "#define A __a ## sm ## __\n", "\"__asm__\" is refused"},
      {"printf", "void f() { printf(\"x\"); }\n", "\"printf\" is refused"},
      {"open comment", "/* a\n", "Line 1, column 1: A comment does not end."},
  };
  for (const Case& item : kCases) {
    Input input;
    EXPECT_FALSE(input.Vet(item.text + std::string(kText)).has_value()) << item.name;
    EXPECT_THAT(ToString(input.diagnostics), HasSubstr(item.want)) << item.name;
  }
}

// Text that only looks like a forbidden directive is accepted.
TEST(OpenClFrontTest, TakesWhatIsNoDirective) {
  for (const char* text : {"// #include <x>\n", "/*\n#include <x>\n*/\n", "// a \\\n#include <x>\n",
                           "constant char c[] = \"\\\n#include <x>\";\n", "#define INCLUDE(x) #x\n", "#\n", "#pragma\n",
                           "constant int asm_count = '\\'', a = '#';\n", "#if 0\ndon't\n#endif\n",
                           "#define CAT(a, b) a##b\n", "constant float f = 1.e+3f;\n"}) {
    Input input;
    EXPECT_TRUE(input.Vet(text + std::string(kText)).has_value()) << text << ToString(input.diagnostics);
  }
}

// Empty texts, oversized texts and zero bytes are refused.
TEST(OpenClFrontTest, RefusesWhatIsNoText) {
  Input empty, large, zero;
  EXPECT_FALSE(empty.Vet("").has_value());
  EXPECT_THAT(ToString(empty.diagnostics), HasSubstr("has 0 bytes; 1 to 1048576 is allowed"));
  EXPECT_FALSE(large.Vet(std::string(2'000'000, ' ')).has_value());
  EXPECT_THAT(ToString(large.diagnostics), HasSubstr("has 2000000 bytes"));
  EXPECT_FALSE(zero.Vet(std::string(kText) + '\0').has_value());
  EXPECT_THAT(ToString(zero.diagnostics), HasSubstr("Line 12, column 1: A zero byte"));
}

// Only options from the list are accepted.
TEST(OpenClFrontTest, RefusesOptions) {
  struct Case {
    const char* options;
    const char* want;
  };
  for (const Case& item :
       {Case{"-I /etc", "\"-I\" is refused: modules may not name files"},
        Case{"-I/etc", "\"-I/etc\" is refused: modules may not name files"},
        Case{"-include x", "\"-include\" is refused: modules may not name files"},
        Case{"-x spir", "\"-x\" is refused: it is not on the list"}, Case{"-- x", "\"--\" is refused"},
        Case{"@file", "\"@file\" is refused: options may not contain quotes"},
        Case{"file.cl", "\"file.cl\" is refused: it is not on the list"}, Case{"-o /tmp/x", "\"-o\" is refused"},
        Case{"-Xclang -load", "\"-Xclang\" is refused"}, Case{"-fplugin=x", "\"-fplugin=x\" is refused"},
        Case{"-DX=\"a\"", "is refused: options may not contain quotes"}, Case{"-D", "-D takes NAME"},
        Case{"-D1=2", "-D takes NAME"}, Case{"-DX(a)=a", "-D takes NAME"},
        Case{"-DX=asm", "In the build options \"asm\" is refused"},
        Case{"-cl-std=CL3.0", "is refused: the device has OpenCL 1.2"}, Case{"-cl-std=CLC++", "languages are CL1.0"},
        Case{"-cl-nv-verbose", "is refused: it is not on the list"}}) {
    Input input;
    input.options = item.options;
    EXPECT_FALSE(input.Vet(kText).has_value()) << item.options;
    EXPECT_THAT(ToString(input.diagnostics), HasSubstr(item.want)) << item.options;
  }
  Input modern, many;
  modern.options = "-cl-std=CL3.0";
  modern.api_version = 300;
  EXPECT_TRUE(modern.Vet(kText).has_value());
  many.options.assign(5000, '-');
  EXPECT_FALSE(many.Vet(kText).has_value());
  EXPECT_THAT(ToString(many.diagnostics), HasSubstr("5000 bytes; the limit is 4096"));
}

// A missing entry is reported before the driver is called.
TEST(OpenClFrontTest, FindsTheEntry) {
  Input input;
  input.entry = "scales";
  EXPECT_FALSE(input.Vet(kText).has_value());
  EXPECT_THAT(ToString(input.diagnostics), HasSubstr("no kernel \"scales\"; it has \"scale\", \"other\"."));
  // A kernel that a macro defines is found.
  Input made;
  made.entry = "scale_float";
  made.params = {{.name = "x"}};
  EXPECT_TRUE(made.Vet("#define K(t) kernel void scale_##t(global t* x) {}\nK(float)\n").has_value());
  // A kernel in a comment, in a branch that is not taken, or without a body is not found.
  for (const char* text : {"// kernel void scale(global int* x) {}\n kernel void a() {}",
                           "#if 0\nkernel void scale(global int* x) {}\n#endif\nkernel void a() {}",
                           "kernel void scale(global int* x);\nkernel void a() {}"}) {
    Input absent;
    EXPECT_FALSE(absent.Vet(text).has_value()) << text;
    EXPECT_THAT(ToString(absent.diagnostics), HasSubstr("no kernel \"scale\"; it has \"a\".")) << text;
  }
}

// The fault for a parameter that does not fit names both types and the line.
TEST(OpenClFrontTest, RefusesParametersThatDoNotFit) {
  struct Case {
    const char* parameter;  // The only parameter of a kernel, on line 5.
    ParamSpec param;
    const char* want;  // Empty when the parameter fits.
  };
  const ParamSpec buffer{.name = "b"}, i32{.name = "i", .is_buffer = false},
      f32{.name = "f", .is_buffer = false, .scalar = ir::Type::kF32},
      f64{.name = "d", .is_buffer = false, .scalar = ir::Type::kF64};
  const Case kCases[] = {
      {"global float* x", buffer, ""},
      {"float __global x[]", buffer, ""},
      {"constant float* x", buffer, ""},
      {"buffer_of_floats x", buffer, ""},
      {"unsigned x", i32, ""},
      {"const uint", i32, ""},
      {"number x", i32, ""},
      {"double x", f64, ""},
      {"global float* x", i32,
       "Line 5, column 29: Parameter 0 is the scalar of type i32 \"i\" of the node, but has the type "
       "\"__global float *\" in the kernel."},
      {"float x", i32, "\"i\" of the node, but has the type \"float\" in the kernel"},
      {"long x", i32, "but has the type \"long\" in the kernel"},
      {"float x", f64, "but has the type \"float\" in the kernel"},
      {"int x", buffer, "is the port \"b\" of the node, but has the type \"int\""},
      {"local float* x", buffer, "local memory has to be declared inside"},
      {"float4 x", i32, "\"float4\" in the kernel; buffers and 32-bit"},
      {"color x", f32,
       "Line 5, column 21: Parameter 0 is the scalar of type f32 \"f\" of the node, but has the type "
       "\"color (that is, float4)\" in the kernel; buffers and 32-bit and 64-bit numbers can be passed."},
      {"image2d_t x", buffer, "\"__read_only image2d_t\" in the kernel; buffers and 32-bit"},
      {"picture x", buffer, "\"picture (that is, __read_only image2d_t)\" in the kernel; buffers and 32-bit"},
      {"sampler_t x", i32, "\"sampler_t\""},
      {"struct thing x", i32, "\"struct thing\" in the kernel; buffers"},
      {"thing_by_value x", i32, "\"thing_by_value (that is, struct thing)\" in the kernel; buffers"},
      {"short x", i32, "but has the type \"short\" in the kernel"},
      {"size_t x", i32, "cannot be used as the type of a kernel parameter"},
      {"bool x", i32, "cannot be used as the type of a kernel parameter"},
      {"global int* global* x", buffer, "cannot be declared as a pointer to a pointer"},
      {"float* x", buffer, "must reside in"},
      {"FLOAT* x", buffer, "Line 5, column 15: Unknown type name 'FLOAT'."},
      {"global float* x, int n", buffer, "takes 2 arguments, and the node has 1 parameters"},
      {"void", buffer, "takes 0 arguments"},
  };
  constexpr char kTypes[] =
      "typedef float4 color; typedef image2d_t picture; typedef uint number;\n"
      "struct thing { int a; float b; };\n"
      "typedef struct thing thing_by_value;\n"
      "typedef global float* buffer_of_floats;\n";
  for (const Case& item : kCases) {
    Input input;
    input.entry = "k";
    input.params = {item.param};
    const bool passes = input.Vet(kTypes + ("kernel void k(" + std::string(item.parameter) + ") {}")).has_value();
    EXPECT_EQ(passes, *item.want == 0) << item.parameter << ToString(input.diagnostics);
    EXPECT_THAT(ToString(input.diagnostics), HasSubstr(item.want)) << item.parameter;
  }
  // A port that is only read and a pointer that the kernel can write through give a warning.
  Input warned;
  warned.entry = "k";
  warned.params = {{.name = "b", .is_writable = false}};
  EXPECT_TRUE(warned.Vet("kernel void k(global float* x) {}").has_value());
  EXPECT_THAT(ToString(warned.diagnostics), HasSubstr("Declare the parameter const"));
}

// The driver reads exactly the text that was checked: its own macros choose no other kernel.
TEST(OpenClFrontTest, LeavesDriversNoChoice) {
  Input input;
  input.entry = "k";
  input.params = {{.name = "b"}};
  input.options = "-DN=3";
  const std::optional<Vetted> vetted = input.VetAll(
      "#pragma OPENCL EXTENSION cl_khr_fp64 : enable\n"
      "#ifdef __SOME_DRIVER__\n"
      "kernel void k(image2d_t a) {}\n"
      "#else\n"
      "kernel void k(global int* a) {\n"
      "#pragma unroll 2\n"
      "  for (int i = 0; i < N; ++i) a[i] = CLK_LOCAL_MEM_FENCE; }\n"
      "#endif\n");
  ASSERT_TRUE(vetted.has_value()) << ToString(input.diagnostics);
  EXPECT_THAT(vetted->text, testing::Not(HasSubstr("image2d_t")));
  EXPECT_THAT(vetted->text, testing::Not(HasSubstr("#if")));
  EXPECT_THAT(vetted->text, HasSubstr("i < 3"));
  // Constants whose values the driver defines stay names, pragmas stay, and lines keep their numbers.
  EXPECT_THAT(vetted->text, HasSubstr("CLK_LOCAL_MEM_FENCE"));
  EXPECT_THAT(vetted->text, HasSubstr("#pragma unroll 2"));
  EXPECT_THAT(vetted->text, HasSubstr("# 1 \"module.cl\""));
  EXPECT_THAT(vetted->text, testing::Not(HasSubstr("built-in")));
}

// Conditions depend on the device's features and on options.
TEST(OpenClFrontTest, KnowsTheDevice) {
  const char kBranches[] =
      "#if defined(cl_khr_fp64) && __OPENCL_C_VERSION__ == 120\nkernel void scale(global double* x) {}\n"
      "#elif __OPENCL_VERSION__ == 120\nkernel void scale(global float* x) {}\n#endif\n";
  for (const bool has_fp64 : {true, false}) {
    Input input;
    input.params = {{.name = "x"}};
    input.has_fp64 = has_fp64;
    const std::optional<Vetted> vetted = input.VetAll(kBranches);
    ASSERT_TRUE(vetted.has_value()) << ToString(input.diagnostics);
    EXPECT_THAT(vetted->text, HasSubstr(has_fp64 ? "global double*" : "global float*"));
  }
}

// A text that needs more memory than any device has never reaches a driver; some drivers abort on such texts.
TEST(OpenClFrontTest, LimitsMemory) {
  struct Case {
    const char* text;
    const char* want;
  };
  for (const Case& item : {
           Case{"kernel void k(global int* a) {\n  local float s[1 << 28];\n}",
                "Line 2, column 15: With \"s\" the local memory of the kernel \"k\" takes 1073741824 bytes; the limit "
                "is 32768."},
           Case{"typedef float big[1ul << 40];\nkernel void k(global int* a) {\n  local big s;\n}",
                "the local memory of the kernel \"k\" takes 1099511627776 bytes"},
           Case{"kernel void other() {\n  local int s[8000];\n  local int t[8000];\n}\nkernel void k(global int* a) {}",
                "Line 3, column 13: With \"t\" the local memory of the kernel \"other\" takes 64000 bytes"},
           Case{"int f() {\n  int s[20000];\n  return s[1];\n}\nkernel void k(global int* a) { a[0] = f(); }",
                "Line 2, column 7: With \"s\" the private memory of the function \"f\" takes 80000 bytes; the limit is "
                "65536."},
           Case{"constant int t[2000000] = {1};\nkernel void k(global int* a) { a[0] = t[1]; }",
                "Line 1, column 14: With \"t\" constant memory of the text takes 8000000 bytes"},
       }) {
    Input input;
    input.entry = "k";
    input.params = {{.name = "b"}};
    EXPECT_FALSE(input.Vet(item.text).has_value()) << item.text;
    EXPECT_THAT(ToString(input.diagnostics), HasSubstr(item.want)) << item.text;
  }
}

// Macros cannot hide a refused construct.
TEST(OpenClFrontTest, SeesThroughMacros) {
  struct Case {
    const char* text;
    const char* want;
  };
  for (const Case& item : {
           Case{"#define J(a, b) a##b\nkernel void k(global int* a) {\n  J(__as, m__)(\"int3\");\n}",
                "Line 3, column 3: Inline assembly is not accepted."},
           Case{"#define J(a, b) a##b\nkernel void k(global int* a) {\n  J(pri, ntf)(\"x\");\n}",
                "Line 3, column 3: \"printf\" is refused"},
           Case{"#define J(a, b) a##b\nint f(void) J(__as, m__)(\"system\");\nkernel void k(global int* a) { f(); }",
                "Inline assembly is not accepted."},
       }) {
    Input input;
    input.entry = "k";
    input.params = {{.name = "b"}};
    EXPECT_FALSE(input.Vet(item.text).has_value()) << item.text;
    EXPECT_THAT(ToString(input.diagnostics), HasSubstr(item.want)) << item.text;
  }
}

// Splices and comments vanish from tokens, but positions count them.
TEST(OpenClFrontTest, ReadsTokens) {
  std::vector<std::string> texts;
  std::string places;
  for (const Token& token : Lex("a\\\nb/**/ 1.5e-3f \"x\\\"y\" ->\n c%:d").tokens) {
    texts.push_back(token.text);
    places += std::to_string(token.place.line) + ":" + std::to_string(token.place.column) + " ";
  }
  EXPECT_THAT(texts, ElementsAre("ab", "1.5e-3f", "\"", "-", ">", "c", "#", "d"));
  EXPECT_EQ(places, "1:1 2:7 2:15 2:22 2:23 3:2 3:3 3:5 ");
}

}  // namespace
}  // namespace hpvm::opencl
