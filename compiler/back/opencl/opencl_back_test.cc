// SPDX-License-Identifier: Apache-2.0
// Tests the emitter's text; opencl_run_test.cc tests its behaviour where there is a driver.
#include "compiler/back/opencl/opencl_back.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <regex>
#include <sstream>

#include "compiler/ir/testing/golden.h"
#include "compiler/ir/text/text.h"
#include "compiler/pass/pipeline.h"

namespace hpvm::opencl {
namespace {

using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;

const char kRoot[] = HPVMD_SOURCE_DIR "/tests/golden/";

GpuTarget Full() {
  GpuTarget target;
  target.has_int64 = target.has_fp64 = target.has_int64_atomics = true;
  target.has_8_bit_storage = target.has_16_bit_storage = true;
  target.exact_divide = target.keeps_denormals = true;
  target.local_bytes_max = 48 * 1024;
  target.buffers_max = 16;
  return target;
}

std::string Read(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

struct Emitted {
  std::optional<Artifact> artifact;
  Diagnostics diagnostics;
  std::string text() const {
    return artifact.has_value() ? std::string(artifact->code.begin(), artifact->code.end()) : ToString(diagnostics);
  }
  // Returns the text from that kernel's name to the next kernel.
  std::string Kernel(const std::string& name) const {
    const std::string all = text();
    const size_t begin = all.find(" void " + name + "(");
    return begin == std::string::npos ? "" : all.substr(begin, all.find("\n__kernel", begin) - begin);
  }
};

Emitted Emit(const std::string& ir, const GpuTarget& target = Full(), std::vector<pass::GpuTile> tiles = {},
             bool fast_math = false) {
  StatusOr<ir::Module> module = ir::ParseModule(ir);
  EXPECT_TRUE(module.ok()) << module.status();
  EXPECT_TRUE(pass::RunGpuPipeline(*module, {.verify_each = true}).ok());
  gpu::GpuOptions options;
  options.chooses_tiles = false;
  options.tiles = std::move(tiles);
  options.fast_math = fast_math;
  Emitted emitted;
  emitted.artifact = EmitOpenCl(*module, target, options, emitted.diagnostics);
  return emitted;
}

// Returns a kernel with the buffer %b, the read-only buffer %a and the number %n.
std::string Kernel(const std::string& body, const std::string& directives = "") {
  return "module \"m\"\n" + directives +
         "param buffer inout \"b\"\nparam buffer in \"a\"\nparam i32 \"n\"\nentry f0\n"
         "func f0 \"f\" (%b: i32, %a: i32, %n: i32) -> () {\n%zero: i32 = const.i32 0\n%two: i32 = const.i32 2\n"
         "%id: i32 = instance_id.i32 %zero\n%o: i32 = shl.i32 %id, %two\n%pa: i32 = add.i32 %a, %o\n"
         "%pb: i32 = add.i32 %b, %o\n" +
         body + "\nreturn ()\n}\n";
}

// Compares whole programs with readable golden files. HPVMD_BLESS=1 rewrites them.
TEST(OpenClBackTest, GoldenTexts) {
  const std::pair<const char*, const char*> kCases[] = {
      {"nstream", "bounds/nstream.ir"},
      {"tiled_matmul", "bounds/tiled_matmul.ir"},
      {"tree_sum", "bounds/tree_sum.ir"},
      {"histogram", "front_wasm/histogram.expected.ir"},
      {"data_table", "ir/s11-module-only.ir"},
      {"shadow_stack", "front_wasm/shadow_stack.expected.ir"},
      {"early_return", "front_wasm/early_return.expected.ir"},
  };
  for (const auto& [name, input] : kCases) {
    SCOPED_TRACE(name);
    const Emitted emitted = Emit(Read(std::string(kRoot) + input));
    ASSERT_TRUE(emitted.artifact.has_value()) << ToString(emitted.diagnostics);
    const std::string path = std::string(kRoot) + "opencl/" + name + ".cl";
    const std::string want = Read(path);
    if (want != emitted.text() && std::getenv("HPVMD_BLESS") != nullptr) {
      std::ofstream(path) << emitted.text();
      continue;
    }
    EXPECT_EQ(emitted.text(), want) << ir::testing::Diff(want, emitted.text());
  }
}

// In all golden kernels, with and without tiles, no variable occurs in a global pointer's arithmetic outside of AT:
// NVIDIA's compiler hoists constants out of such an offset although it wraps around.
TEST(OpenClBackTest, GlobalAddressesAreMadeByAt) {
  const std::regex bare("\\bp[0-9]+ \\+ (?!(0x)?[0-9a-f]+ul\\b)");
  size_t texts = 0;
  for (const char* folder : {"ir", "bounds", "coarsen", "front_wasm"}) {
    for (const auto& file : std::filesystem::directory_iterator(std::string(kRoot) + folder)) {
      StatusOr<ir::Module> module =
          file.path().extension() == ".ir" ? ir::ParseModule(Read(file.path())) : InvalidArgument("");
      if (!module.ok() || !pass::RunGpuPipeline(*module).ok()) {
        continue;
      }
      pass::GpuTile tile;
      tile.size = {2, 2, 1};
      gpu::GpuOptions options;
      options.tiles = {tile};
      Diagnostics diagnostics;
      const std::optional<Artifact> artifact = EmitOpenCl(*module, Full(), options, diagnostics);
      if (!artifact.has_value()) {
        continue;
      }
      ++texts;
      const std::string text(artifact->code.begin(), artifact->code.end());
      std::smatch found;
      EXPECT_FALSE(std::regex_search(text, found, bare))
          << file.path() << ": " << found.str() << found.suffix().str().substr(0, 80);
    }
  }
  EXPECT_GT(texts, 100u);
}

// A launch with a proof runs code without checks; other accesses keep theirs.
TEST(OpenClBackTest, ProvenAccessesHaveNoChecks) {
  const Emitted emitted = Emit(Kernel("%v: i32 = load.i32 flat %pa\nstore.i32 flat %pb, %v"));
  ASSERT_TRUE(emitted.artifact.has_value()) << ToString(emitted.diagnostics);
  ASSERT_EQ(emitted.artifact->gpu.variants.size(), 2u);
  EXPECT_TRUE(emitted.artifact->gpu.variants[0].needs_proof);
  EXPECT_FALSE(emitted.artifact->gpu.variants[0].can_trap);
  EXPECT_FALSE(emitted.artifact->gpu.variants[1].needs_proof);
  EXPECT_TRUE(emitted.artifact->gpu.variants[1].can_trap);
  EXPECT_THAT(emitted.Kernel("unchecked"), Not(HasSubstr("trap(")));
  EXPECT_THAT(emitted.Kernel("checked"), HasSubstr(">= places1_4"));
  const Emitted wild = Emit(Kernel("%v: i32 = load.i32 flat %pa\n%w: i32 = add.i32 %b, %v\nstore.i32 flat %w, %v"));
  EXPECT_THAT(wild.Kernel("unchecked"), HasSubstr(">= places0_4"));
  EXPECT_THAT(wild.Kernel("unchecked"), Not(HasSubstr("> n1")));
}

// The description lists each argument of the kernel, in order.
TEST(OpenClBackTest, ArgumentsAreDescribed) {
  const Emitted emitted = Emit(Kernel("%v: i32 = load.i32 flat %pa\nstore.i32 flat %pb, %v"));
  ASSERT_TRUE(emitted.artifact.has_value());
  for (const GpuVariant& variant : emitted.artifact->gpu.variants) {
    const std::string kernel = emitted.Kernel(variant.entry);
    const std::string head = kernel.substr(0, kernel.find(") {"));
    EXPECT_EQ(std::count(head.begin(), head.end(), ',') + 1, static_cast<ptrdiff_t>(variant.arguments.size())) << head;
    EXPECT_TRUE(ValidateGpuCode(emitted.artifact->gpu, emitted.artifact->params.size()).ok());
    // A buffer is followed by the offset at which its view begins.
    EXPECT_EQ(variant.arguments[0].kind, GpuArgument::Kind::kBuffer);
    EXPECT_TRUE(variant.arguments[0].is_writable);
  }
}

// The known alignment decides how bytes are read.
TEST(OpenClBackTest, AlignmentDecidesTheAccess) {
  const Emitted aligned = Emit(Kernel("%v: i32 = load.i32 flat %pa\nstore.i32 flat %pb, %v"));
  EXPECT_THAT(aligned.text(), HasSubstr("(__global const u32*)("));
  EXPECT_THAT(aligned.text(), Not(HasSubstr("load32_global")));
  const Emitted unknown = Emit(Kernel("%q: i32 = add.i32 %a, %n\n%v: i32 = load.i32 flat %q\nstore.i32 flat %pb, %v"));
  EXPECT_THAT(unknown.text(), HasSubstr("load32_global(AT(__global const, p1, "));
  const Emitted moved = Emit(Kernel("%v: i32 = load.i32 flat %pa + 2\nstore.i32 flat %pb, %v"));
  EXPECT_THAT(moved.text(), HasSubstr("load32_global(AT(__global const, p1, "));
}

// Whole vectors are loaded where buffers are known to begin at multiples of 16 bytes, and the variant says so.
TEST(OpenClBackTest, TilesSayThatBuffersAreAligned) {
  const std::string copy = Kernel("%v: i32 = load.i32 flat %pa\nstore.i32 flat %pb, %v");
  const std::string wide = Kernel(
      "%four: i32 = const.i32 4\n%q: i32 = shl.i32 %id, %four\n%p: i32 = add.i32 %a, %q\n%r: i32 = add.i32 %b, %q\n"
      "%c: i32, %d: i32, %e: i32, %f: i32 = load128 flat %p\nstore128 flat %r, %c, %d, %e, %f");
  for (const std::string& kernel : {copy, wide}) {
    const Emitted emitted = Emit(kernel, Full(), {pass::GpuTile{{4, 1, 1}}});
    ASSERT_TRUE(emitted.artifact.has_value()) << ToString(emitted.diagnostics);
    for (const GpuVariant& variant : emitted.artifact->gpu.variants) {
      const bool is_whole = emitted.Kernel(variant.entry).find(" u128*)(") != std::string::npos;
      EXPECT_EQ(is_whole, kernel == copy && variant.tile[0] == 4) << variant.entry;
      EXPECT_EQ(variant.needs_alignment, is_whole) << variant.entry;
    }
  }
}

// In a kernel with barriers a trapped instance meets the others; after the last barrier it just ends.
TEST(OpenClBackTest, TrapsMeetAtBarriers) {
  const std::string directives = "uses barrier\nuses group_memory\n";
  const Emitted before =
      Emit(Kernel("%l: i32 = local_alloc %two\n%q: i32 = add.i32 %a, %n\n%v: i32 = load.i32 flat %q\n"
                  "store.i32 flat %l, %v\nbarrier\n%w: i32 = load.i32 flat %l\nstore.i32 flat %pb, %w",
                  directives));
  EXPECT_THAT(before.Kernel("checked"), HasSubstr("stopped[meeting] = 1u; goto meet"));
  EXPECT_THAT(before.Kernel("checked"), HasSubstr("if (stopped[meeting] != 0u) return;"));
  EXPECT_THAT(before.Kernel("checked"), HasSubstr("); return; }"));
}

size_t Count(const std::string& text, std::string_view what) {
  size_t count = 0;
  for (size_t at = text.find(what); at != std::string::npos; at = text.find(what, at + 1)) {
    ++count;
  }
  return count;
}

// In a loop whose barrier is at its head, a trapped instance continues to the next barrier, after which all test the
// flag; no barrier is added. If the trapping operation decides about the path, a barrier is added.
TEST(OpenClBackTest, TrapsGoOnToTheNextBarrier) {
  const auto loop = [](const std::string& by) {
    return Emit(Kernel("%size: i32 = const.i32 64\n%l: i32 = local_alloc %size\n%c: i32 = const.i32 4\n"
                       "%end: i32 = loop a (%k: i32 = %c, %sum: i32 = %zero) {\nbarrier\n%at: i32 = add.i32 %l, %k\n"
                       "%w: i32 = load.i32 flat %at\nstore.i32 flat %l, %sum\n%next: i32 = shr_u.i32 %k, %two\n"
                       "if more %" +
                           by +
                           " {\ncontinue a (%next, %w)\n} else {\nbr more ()\n}\nbr a (%w)\n}\nbarrier\n"
                           "%v: i32 = load.i32 flat %l\n%all: i32 = add.i32 %v, %end\nstore.i32 flat %pb, %all",
                       "uses barrier\nuses group_memory\n"))
        .Kernel("checked");
  };
  const std::string known = loop("next"), unknown = loop("w");
  EXPECT_EQ(Count(known, "barrier("), 3u) << known;  // One follows the zeroing of group memory.
  EXPECT_EQ(Count(known, "barrier(CLK_LOCAL_MEM_FENCE);\n    if (stopped[meeting] != 0u) return;"), 1u) << known;
  EXPECT_EQ(Count(known, "barrier(CLK_LOCAL_MEM_FENCE);\n  if (stopped[meeting] != 0u) return;"), 1u) << known;
  EXPECT_EQ(Count(known, "meeting ^= 1u;"), 2u) << known;
  // All values that the trapped instance passes on are defined.
  const size_t load = known.find("*(__local u32*)");
  const size_t name = known.rfind("    v", load);
  ASSERT_NE(name, std::string::npos) << known;
  const std::string kept = known.substr(name + 4, known.find(' ', name + 4) - name - 4);
  EXPECT_LT(known.find("uint " + kept + " = 0u;"), known.find("goto meet")) << known;
  EXPECT_EQ(Count(unknown, "barrier("), 4u) << unknown;
  EXPECT_EQ(Count(unknown, "meeting ^= 1u;"), 1u) << unknown;
}

// A barrier orders only the memory that needs it: buffers where some are written, group memory where there is any.
TEST(OpenClBackTest, BarriersOrderWhatNeedsIt) {
  const std::string store = "store.i32 flat %pb, %n\n", read = "%v: i32 = load.i32 flat %pa\nstore.i32 flat %b, %v\n";
  const std::string group = "%l: i32 = local_alloc %two\nstore.i32 flat %l, %n\n", use = "%w: i32 = load.i32 flat %l\n";
  const auto barriers = [](const std::string& body, const char* directives) {
    return Emit(Kernel(body, directives)).Kernel("unchecked");
  };
  EXPECT_THAT(barriers(store + "barrier\n" + read, "uses barrier\n"), HasSubstr("barrier(CLK_GLOBAL_MEM_FENCE);"));
  const char* const both = "uses barrier\nuses group_memory\n";
  EXPECT_THAT(barriers(group + store + "barrier\n" + use + read, both),
              HasSubstr("barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);"));
  const std::string alone = barriers(group + "barrier\n" + use + "store.i32 flat %pb, %w\n", both);
  EXPECT_THAT(alone, HasSubstr("barrier(CLK_LOCAL_MEM_FENCE);"));
  EXPECT_THAT(alone, Not(HasSubstr("GLOBAL_MEM_FENCE")));
}

// A barrier that depends on a uniform result of a loop stays allowed, although a check before the loop would make the
// result look divergent.
TEST(OpenClBackTest, ChecksBeforeLoopsForbidNoBarrier) {
  const auto emit = [](const std::string& use) {
    return Emit(
        Kernel("%one: i32 = const.i32 1\n%four: i32 = const.i32 4\n"
               "%last: i32 = loop l (%i: i32 = %zero, %q: i32 = %o) {\n%at: i32 = add.i32 %a, %q\n"
               "%v: i32 = load.i32 flat %at\n%w: i32 = shl.i32 %v, %two\n%pw: i32 = add.i32 %a, %w\n"
               "%x: i32 = load.i32 flat %pw\n%j: i32 = add.i32 %i, %one\n%r: i32 = add.i32 %q, %four\n"
               "%c: i32 = lt_s.i32 %j, %n\nif k %c {\ncontinue l (%j, %r)\n} else {\nbr k ()\n}\n"
               "br l (%j)\n}\nstore.i32 flat %pb, %last\n" +
                   use,
               "uses barrier\n"));
  };
  EXPECT_THAT(emit("barrier").Kernel("checked"), HasSubstr("<= (long)"));
  const Emitted conditional = emit("if b %last {\nbarrier\nbr b ()\n} else {\nbr b ()\n}");
  ASSERT_TRUE(conditional.artifact.has_value()) << ToString(conditional.diagnostics);
}

// Drivers of processors get a kernel with conditional barriers in the form with one barrier, in one loop.
TEST(OpenClBackTest, ProcessorsGoByStepsWhereBarriersAreConditional) {
  const std::string directives = "uses barrier\nuses group_memory\n";
  const std::string body =
      "%size: i32 = const.i32 64\n%l: i32 = local_alloc %size\n%v: i32 = load.i32 flat %pa\nstore.i32 flat %l, "
      "%v\nbarrier\n"
      "%w: i32 = load.i32 flat %l\nstore.i32 flat %pb, %w\n";
  GpuTarget target = Full();
  target.is_processor = true;
  const Emitted straight = Emit(Kernel(body, directives), target);
  EXPECT_THAT(straight.Kernel("checked"), HasSubstr("step = 1u; goto wait;"));
  EXPECT_THAT(straight.Kernel("checked"), HasSubstr("stopped = 1u; goto done;"));
  EXPECT_EQ(Count(straight.Kernel("checked"), "barrier("), 2u);  // The other one follows the zeroing of group memory.
  const Emitted branch = Emit(Kernel(body + "if b %n {\nbarrier\nbr b ()\n} else {\nbr b ()\n}", directives), target);
  EXPECT_THAT(branch.Kernel("unchecked"), HasSubstr("goto wait;"));
  EXPECT_THAT(Emit(Kernel(body, directives)).Kernel("checked"), Not(HasSubstr("goto wait;")));
}

// NVIDIA's compiler assumes 0 / 0 is a number, and treats a counter compared with both signednesses as signed.
TEST(OpenClBackTest, GpusDoNotSeeWhatTheirCompilersGetWrong) {
  GpuTarget processor = Full();
  processor.is_processor = true;
  const std::string is_nan = Kernel("%v: f32 = load.f32 flat %pa\n%t: i32 = fne.f32 %v, %v\nstore.i32 flat %pb, %t");
  EXPECT_THAT(Emit(is_nan).Kernel("checked"), HasSubstr(") > 0x7f800000u)"));
  EXPECT_THAT(Emit(is_nan, processor).Kernel("checked"), Not(HasSubstr("0x7f800000u")));
  const std::string loop = Kernel(
      "%one: i32 = const.i32 1\nloop l0 (%i: i32 = %zero) {\n%x: i32 = lt_s.i32 %i, %two\n"
      "%y: i32 = lt_u.i32 %i, %n\nstore.i32 flat %pb, %y\n%next: i32 = add.i32 %i, %one\n"
      "if b %x {\ncontinue l0 (%next)\n} else {\nbr b ()\n}\nbr l0 ()\n}");
  EXPECT_THAT(Emit(loop).Kernel("checked"), HasSubstr("(uint)(once32("));
  EXPECT_THAT(Emit(loop, processor).Kernel("checked"), Not(HasSubstr("once32(")));
}

// Division and square root follow the device's guarantees.
TEST(OpenClBackTest, DivisionIsExactWhateverTheDevice) {
  const std::string kernel =
      Kernel("%v: f32 = load.f32 flat %pa\n%w: f32 = fdiv.f32 %v, %v\n%s: f32 = fsqrt.f32 %w\nstore.f32 flat %pb, %s");
  const Emitted exact = Emit(kernel);
  EXPECT_THAT(exact.artifact->gpu.options, HasSubstr("-cl-fp32-correctly-rounded-divide-sqrt"));
  GpuTarget target = Full();
  target.exact_divide = false;
  const Emitted doubled = Emit(kernel, target);
  EXPECT_THAT(doubled.artifact->gpu.options, Not(HasSubstr("divide")));
  EXPECT_THAT(doubled.text(), HasSubstr("(float)as_double(once64(as_ulong((double)"));
  target.has_fp64 = false;
  const Emitted integers = Emit(kernel, target);
  EXPECT_THAT(integers.text(), HasSubstr("= div_f32("));
  EXPECT_THAT(integers.text(), HasSubstr("= sqrt_f32("));
}

// With fast math the author's operations may have the device's accuracy, on GPUs.
TEST(OpenClBackTest, FastMathRoundsAsTheDeviceDoes) {
  const std::string kernel =
      Kernel("%v: f32 = load.f32 flat %pa\n%w: f32 = fdiv.f32 %v, %v\n%s: f32 = fsqrt.f32 %w\nstore.f32 flat %pb, %s");
  const Emitted fast = Emit(kernel, Full(), {}, /*fast_math=*/true);
  EXPECT_THAT(fast.Kernel("checked"), HasSubstr("= fast_divide("));
  EXPECT_THAT(fast.Kernel("checked"), HasSubstr("= fast_sqrt("));
  EXPECT_THAT(Emit(kernel).text(), Not(HasSubstr("fast_")));
  const std::string reciprocal = Kernel(
      "%v: f32 = load.f32 flat %pa\n%one: f32 = const.f32 1\n%s: f32 = fsqrt.f32 %v\n%w: f32 = fdiv.f32 %one, "
      "%s\nstore.f32 flat %pb, %w");
  EXPECT_THAT(Emit(reciprocal, Full(), {}, /*fast_math=*/true).Kernel("checked"), HasSubstr("= fast_rsqrt("));
  EXPECT_THAT(Emit(reciprocal).text(), Not(HasSubstr("rsqrt")));
  GpuTarget processor = Full();
  processor.is_processor = true;
  EXPECT_THAT(Emit(kernel, processor, {}, /*fast_math=*/true).text(), Not(HasSubstr("fast_")));
}

// Returns the remainder of %x by a turn, and its sine, as the math library computes them.
constexpr char kSine[] = R"(
func f1 "device_sin_f32" contract (%x: f32) -> (f32) {
  %turn: f32 = const.f32 0x40c90fdb
  %product: f32 = fmul.f32 %x, %turn
  %angle: f32 = fsub.f32 %x, %product
  %sine: f32 = approx_sin.f32 %angle
  return (%sine)
}
)";

// The library depends on the fusing of the product that it subtracts, not of one that its caller passes. NVIDIA's
// functions are used on its devices.
TEST(OpenClBackTest, DeviceFunctionsGetTheirReduction) {
  const std::string kernel =
      Kernel("%v: f32 = load.f32 flat %pa\n%w: f32 = fmul.f32 %v, %v\n%s: f32 = call f1(%w)\nstore.f32 flat %pb, %s") +
      kSine;
  const Emitted fast = Emit(kernel, Full(), {}, /*fast_math=*/true);
  EXPECT_THAT(fast.Kernel("checked"), ContainsRegex("= fma\\(-v[0-9]+, 6\\.2831855f, v[0-9]+\\);"));
  EXPECT_THAT(fast.Kernel("checked"), HasSubstr("= approx_sin("));
  EXPECT_THAT(fast.text(), HasSubstr("sin.approx.ftz.f32"));
  EXPECT_THAT(fast.text(), Not(HasSubstr("approx_cos")));
}

// NVIDIA's compilers would rematerialize the constants at each use.
TEST(OpenClBackTest, ConstantsOfLoopsAreHidden) {
  std::string sums = "%x0: f64 = fadd.f64 %s, %s\n";
  for (int i = 1; i <= 4; ++i) {
    const std::string now = std::to_string(i), before = std::to_string(i - 1);
    sums +=
        "%k" + now + ": f64 = const.f64 " + now + ".5\n%x" + now + ": f64 = fmul.f64 %x" + before + ", %k" + now + "\n";
  }
  const std::string kernel = Kernel(
      "%first: f64 = load.f64 flat %pa\n%ten: i32 = const.i32 10\n%less: i32 = const.i32 1\n"
      "%r: f64 = loop l0 (%i: i32 = %ten, %s: f64 = %first) {\n" +
      sums +
      "%j: i32 = sub.i32 %i, %less\nif e0 %j {\ncontinue l0 (%j, %x4)\n} else {\nbr e0 ()\n}\n"
      "br l0 (%x4)\n}\nstore.f64 flat %pb, %r");
  GpuTarget nvidia = Full();
  nvidia.device_math = true;
  const std::string text = Emit(kernel, nvidia).Kernel("checked");
  EXPECT_THAT(text, HasSubstr("const ulong no_bits = (ulong)((int)first_x >> 31);"));
  EXPECT_THAT(text, HasSubstr("const double k1 = as_double(0x4004000000000000ul ^ no_bits);")) << text;
  EXPECT_THAT(text, ContainsRegex("= v[0-9]+ \\* k1;"));
  EXPECT_THAT(Emit(kernel).text(), Not(HasSubstr("no_bits")));
}

// Atomic sums are native where the device has them: for operands with which no denormal number can be lost, for all
// operands in fast math, and in group memory. An unused old value is not fetched.
TEST(OpenClBackTest, SumsAtomicallyAsTheDeviceDoes) {
  const std::string kernel = Kernel(
      "%x: f32 = convert_s.i32 %id\n%y: f64 = const.f64 0x3ff8000000000000\n%eight: i32 = const.i32 8\n"
      "%g: i32 = local_alloc %eight\n%q: f32 = atomic_fadd.f32 flat %b, %x\n%r: f64 = atomic_fadd.f64 flat %b + 8, %y\n"
      "%s: f32 = atomic_fadd.f32 group %g, %x\n%t: f32 = atomic_fadd.f32 flat %b + 16, %x\nstore.f32 flat %pb + 32, %t",
      "uses group_memory\n");
  GpuTarget target = Full();
  EXPECT_THAT(Emit(kernel, target).text(), Not(HasSubstr("asm")));
  target.has_f32_atomic_add = target.has_f64_atomic_add = true;
  target.ptx_arch = "sm_90";
  const std::string exact = Emit(kernel, target).text();
  EXPECT_THAT(exact, HasSubstr(R"(
void add32_global(__global uchar* at, uint a) {
#if defined(__NV_CL_C_VERSION)
  const uint magnitude = a & 0x7fffffffu;
  if (magnitude == 0) {
    atomic_cmpxchg((volatile __global uint*)at, 0x80000000u, a);
    return;
  }
  if (magnitude >= 0xd000000u) {
    asm volatile("red.global.add.f32 [%0], %1;" : : "l"((ulong)at), "f"(as_float(a)) : "memory");
    return;
  }
#endif
  atomic_fadd32_global(at, a, 0);
}
)"));
  EXPECT_THAT(exact, HasSubstr(R"(
uint sum32_global(__global uchar* at, uint a) {
#if defined(__NV_CL_C_VERSION)
  const uint magnitude = a & 0x7fffffffu;
  if (magnitude == 0) {
    return atomic_cmpxchg((volatile __global uint*)at, 0x80000000u, a);
  }
  if (magnitude >= 0xd000000u) {
    float old;
    asm volatile("atom.global.add.f32 %0, [%1], %2;" : "=f"(old) : "l"((ulong)at), "f"(as_float(a)) : "memory");
    return as_uint(old);
  }
#endif
  return atomic_fadd32_global(at, a, 0);
}
)"));
  EXPECT_THAT(
      exact,
      HasSubstr("  {\n    asm volatile(\"red.global.add.f64 [%0], %1;\" : : \"l\"((ulong)at), \"d\"(as_double(a))"));
  EXPECT_THAT(exact, HasSubstr("  {\n    asm volatile(\"red.shared.add.f32 [%0], %1;\""));
  const std::string fast = Emit(kernel, target, {}, /*fast_math=*/true).text();
  EXPECT_THAT(fast, HasSubstr("void add32_global_fast("));
  EXPECT_THAT(fast, HasSubstr("uint sum32_global_fast("));
  EXPECT_THAT(fast, Not(HasSubstr("0xd000000u")));
}

// In fast math work items that add to one address add up their operands first, where the device can and the old value
// is not used.
TEST(OpenClBackTest, SubgroupsAddUpFirst) {
  const std::string kernel = Kernel(
      "%x: f32 = convert_s.i32 %id\n%q: f32 = atomic_fadd.f32 flat %b, %x\n%r: i32 = div_u.i32 %id, %n\n"
      "%row_o: i32 = shl.i32 %r, %two\n%at: i32 = add.i32 %b, %row_o\n%s: f32 = atomic_fadd.f32 flat %at + 64, %x");
  GpuTarget target = Full();
  target.has_f32_atomic_add = true;
  EXPECT_THAT(Emit(kernel, target, {}, /*fast_math=*/true).text(), Not(HasSubstr("total32")));
  target.has_subgroup_sums = true;
  EXPECT_THAT(Emit(kernel, target).text(), Not(HasSubstr("total32")));
  const std::string text = Emit(kernel, target, {}, /*fast_math=*/true).text();
  EXPECT_THAT(text, ContainsRegex("  if \\(total32\\(&total_0, lane_[0-9]+, here_[0-9]+\\)\\) add32_global_fast\\("));
  EXPECT_THAT(text,
              ContainsRegex("  if \\(differ32\\(v[0-9]+, (here_[0-9]+)\\) \\|\\| total32\\(&total_[0-9]+, lane_[0-9]+, "
                            "here_[0-9]+\\)\\) add32_global_fast\\("));
  EXPECT_THAT(text, HasSubstr("shfl.sync.idx.b32 %0, %1, %2, 31, %3;"));
}

// Constant memory serves one address at a time: lookups at varying addresses go through a generic address.
TEST(OpenClBackTest, TablesAreLookedUpByTheirGenericAddress) {
  const std::string directives =
      "memory 65536 65536\ndata 1024 \"0100000002000000030000000400000005000000060000000700000008000000\"\n";
  const Emitted emitted = Emit(
      Kernel("%seven: i32 = const.i32 7\n%few: i32 = and.i32 %n, %seven\n%off: i32 = shl.i32 %few, %two\n"
             "%v: i32 = load.i32 module %off + 1024\n%w: i32 = load.i32 module %zero + 1028\n%s: i32 = add.i32 %v, %w\n"
             "store.i32 flat %pb, %s",
             directives));
  EXPECT_THAT(emitted.Kernel("checked"), HasSubstr("table32("));
  EXPECT_THAT(emitted.Kernel("checked"), HasSubstr("*(__constant const u32*)("));
}

// An operation that the device lacks is refused by name.
TEST(OpenClBackTest, RefusesByName) {
  GpuTarget target = Full();
  target.has_fp64 = false;
  const Emitted emitted =
      Emit(Kernel("%v: f64 = load.f64 flat %pa @99\n%w: f64 = fadd.f64 %v, %v @107\nstore.f64 flat %pb, %w"), target);
  EXPECT_FALSE(emitted.artifact.has_value());
  EXPECT_THAT(emitted.text(), HasSubstr("at byte 99: The operation load cannot run on this device"));
}

// Compilers accept 256 nested brackets; kernels may nest deeper.
TEST(OpenClBackTest, DeepNestsHaveFewBrackets) {
  std::string body;
  for (int i = 0; i < 400; ++i) {
    body += "if d" + std::to_string(i) + " %n {\n";
  }
  std::string reversed;
  for (int i = 399; i >= 0; --i) {
    const std::string name = "d" + std::to_string(i);
    reversed += "br " + name + " ()\n} else {\nbr " + name + " ()\n}\n";
  }
  const Emitted emitted = Emit(Kernel(body + "store.i32 flat %pb, %n\n" + reversed));
  ASSERT_TRUE(emitted.artifact.has_value()) << ToString(emitted.diagnostics);
  int depth = 0, deepest = 0;
  for (const char c : emitted.text()) {
    depth += c == '{' ? 1 : c == '}' ? -1 : 0;
    deepest = std::max(deepest, depth);
  }
  EXPECT_EQ(depth, 0);
  EXPECT_LT(deepest, 100);
}

// A kernel twice as large takes about twice the time.
TEST(OpenClBackTest, TimeIsLinear) {
  const auto seconds = [](int count) {
    std::string body = "%v0: i32 = load.i32 flat %pa\n";
    for (int i = 0; i < count; ++i) {
      const std::string from = std::to_string(i), to = std::to_string(i + 1);
      body += "%v" + to + ": i32 = block k" + to + " () {\n%w" + to + ": i32 = add.i32 %v" + from + ", %n\nbr k" + to +
              " (%w" + to + ")\n}\n";
    }
    const std::string ir = Kernel(body + "store.i32 flat %pb, %v" + std::to_string(count));
    StatusOr<ir::Module> module = ir::ParseModule(ir);
    EXPECT_TRUE(pass::RunGpuPipeline(*module).ok());
    Diagnostics diagnostics;
    gpu::GpuOptions options;
    options.chooses_tiles = false;
    const auto begin = std::chrono::steady_clock::now();
    EXPECT_TRUE(EmitOpenCl(*module, Full(), options, diagnostics).has_value());
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  };
  const double small = seconds(2'000), large = seconds(16'000);
  EXPECT_LT(large, 40 * small + 0.5);
}

}  // namespace
}  // namespace hpvm::opencl
