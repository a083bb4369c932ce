// SPDX-License-Identifier: Apache-2.0
// Tests that emitted modules are valid SPIR-V, and for a few kernels word for word as expected. tests/gpu runs them.
#include "compiler/back/vulkan/vulkan_back.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <regex>
#include <set>
#include <sstream>

#include "compiler/back/vulkan/spirv_tools.h"
#include "compiler/front/spirv/spirv_front.h"
#include "compiler/ir/testing/golden.h"
#include "compiler/ir/text/text.h"
#include "compiler/ir/verify/verify.h"
#include "compiler/pass/pipeline.h"

namespace hpvm::vulkan {
namespace {

using ir::Opcode;
using ir::Type;

// Two devices: one with every feature, and one with only Vulkan's guarantees and 64-bit integers.
GpuTarget FullTarget() {
  GpuTarget target;
  target.has_int64 = target.has_fp64 = target.has_8_bit_storage = target.has_16_bit_storage = true;
  target.has_int64_atomics = target.has_f32_atomic_add = target.has_f64_atomic_add = true;
  target.exact_fma = target.keeps_denormals = target.rounds_to_even = true;
  target.group_size_max = 1024;
  target.group_extent_max = {1024, 1024, 64};
  target.group_count_max = {0x7fffffff, 65535, 65535};
  target.local_bytes_max = 65536 + 64;
  target.buffer_bytes_max = 0xffffffff;
  target.buffers_max = 1024;
  target.push_bytes_max = 256;
  target.subgroup_size = 32;
  target.api_version = 13;
  return target;
}
GpuTarget PlainTarget() {
  GpuTarget target = FullTarget();
  target.has_fp64 = target.has_8_bit_storage = target.has_16_bit_storage = target.has_int64_atomics = false;
  target.has_f32_atomic_add = target.has_f64_atomic_add = target.keeps_denormals = target.keeps_nan_and_zero = false;
  target.exact_fma = false;
  target.push_bytes_max = 16;
  target.api_version = 12;
  return target;
}

std::string Slurp(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

// Returns the artifact, or nothing where the kernel is refused; `why` receives the reason.
std::optional<Artifact> Compile(const ir::Module& source, const GpuTarget& target, std::string* why,
                                const gpu::GpuOptions& options = {}) {
  ir::Module module = source;
  const Status passed = pass::RunGpuPipeline(module, {.verify_each = true});
  EXPECT_TRUE(passed.ok()) << passed;
  Diagnostics diagnostics;
  std::optional<Artifact> artifact = EmitVulkan(module, target, options, diagnostics);
  *why = ToString(diagnostics);
  EXPECT_EQ(artifact.has_value(), !HasErrors(diagnostics)) << *why;
  EXPECT_EQ(why->find("not valid"), std::string::npos) << *why;
  if (artifact.has_value()) {
    EXPECT_TRUE(ValidateGpuCode(artifact->gpu, artifact->params.size()).ok());
  }
  return artifact;
}

// Every kernel that illustrates a sentence of the specification is valid SPIR-V, or refused with a reason, on both
// devices.
TEST(VulkanBackTest, GoldenKernelsAreValid) {
  size_t compiled = 0;
  for (const std::string& path : ir::testing::GoldenFiles(HPVMD_SOURCE_DIR "/tests/golden/ir")) {
    SCOPED_TRACE(path);
    const StatusOr<ir::Module> module = ir::ParseModule(Slurp(path));
    ASSERT_TRUE(module.ok()) << module.status();
    for (const GpuTarget& target : {FullTarget(), PlainTarget()}) {
      std::string why;
      compiled += Compile(*module, target, &why).has_value();
      if (std::getenv("HPVMD_SHOW") != nullptr && !why.empty()) {
        std::fprintf(stderr, "%s: %s\n", path.c_str(), why.c_str());
      }
    }
  }
  EXPECT_GE(compiled, 120u);
}

// Returns the parts of the disassembly that show decisions: capabilities, modes and functions. Types and constants get
// descriptive names; other ids are renumbered in order of appearance.
std::string Listing(const Artifact& artifact) {
  const StatusOr<std::string> text = spirv::Disassemble(artifact.code);
  EXPECT_TRUE(text.ok()) << text.status();
  std::istringstream lines(text.ok() ? *text : "");
  std::string out;
  bool is_function = false;
  std::map<std::string, std::string> names;
  const std::regex number("%[0-9]+");
  for (std::string line; std::getline(lines, line);) {
    is_function = is_function || line.find("OpFunction ") != std::string::npos;
    if (!is_function && line.find("OpCapability") == std::string::npos &&
        line.find("OpExecutionMode") == std::string::npos) {
      continue;
    }
    std::string renamed;
    auto last = line.cbegin();
    for (std::sregex_iterator i(line.begin(), line.end(), number), end; i != end; ++i) {
      const std::string name = i->str();
      const auto known = names.try_emplace(name, "%" + std::to_string(names.size() + 1)).first;
      renamed.append(last, line.cbegin() + i->position());
      renamed += known->second;
      last = line.cbegin() + i->position() + i->length();
    }
    renamed.append(last, line.cend());
    const size_t first = renamed.find_first_not_of(' ');
    out += renamed.substr(first == std::string::npos ? 0 : first) + "\n";
  }
  return out;
}

// Compares the words emitted for a few kernels with golden files. HPVMD_BLESS=1 rewrites them.
TEST(VulkanBackTest, GoldenListings) {
  const std::string folder = HPVMD_SOURCE_DIR "/tests/golden/vulkan/";
  std::set<std::string> left;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    left.insert(entry.path().filename().string());
  }
  for (const char* name : {"saxpy", "leave_two", "barrier_trap", "barrier_loop", "float_sum", "quotient"}) {
    SCOPED_TRACE(name);
    const StatusOr<ir::Module> module = ir::ParseModule(Slurp(folder + name + ".ir"));
    ASSERT_TRUE(module.ok()) << module.status();
    std::string why;
    gpu::GpuOptions options;
    options.chooses_tiles = false;
    const std::optional<Artifact> artifact = Compile(*module, FullTarget(), &why, options);
    ASSERT_TRUE(artifact.has_value()) << why;
    const std::string listing = Listing(*artifact), path = folder + name + ".expected.spvasm";
    const char* bless = std::getenv("HPVMD_BLESS");
    if (bless != nullptr && std::string_view(bless) == "1") {
      std::ofstream(path) << listing;
    }
    EXPECT_EQ(ir::testing::Diff(Slurp(path), listing), "") << "HPVMD_BLESS=1 vulkan_back_test rewrites it, if meant.";
    left.erase(std::string(name) + ".ir");
    left.erase(std::string(name) + ".expected.spvasm");
  }
  EXPECT_TRUE(left.empty()) << *left.begin() << " belongs to no test.";
}

// Covers loads, stores and atomics of every width at every known alignment, in written and read-only buffers, and
// where the address is searched.
TEST(VulkanBackTest, AccessesAreValid) {
  for (const char* op : {"load.i32 w1 ", "load.i32 w1 signed ", "load.i32 w2 ", "load.i32 w2 signed ", "load.i32 ",
                         "load.i64 w1 signed ", "load.i64 w2 ", "load.i64 w4 signed ", "load.i64 ", "load.f32 ",
                         "load.f64 ", "atomic_load.i32 ", "atomic_load.i32 w1 ", "atomic_load.i64 "}) {
    for (const char* space : {"flat %x", "flat %o", "param(0) %o", "param(0) %o + 3", "module %o"}) {
      for (const uint32_t shift : {0, 1, 2, 3, 4}) {
        const std::string text = op;
        const std::string type = text.substr(text.find('.') + 1, 3);
        const std::string kernel =
            "module \"m\"\nmemory 65536 65536\ndata 16 \"0102030405\"\nparam buffer in \"x\"\nparam buffer inout "
            "\"y\"\nparam i32 \"i\"\nentry f0\nfunc f0 \"f\" (%x: i32, %y: i32, %i: i32) -> () {\n  %s: i32 = "
            "const.i32 " +
            std::to_string(shift) + "\n  %o: i32 = shl.i32 %i, %s\n  %v: " + type + " = " + text + space +
            "\n  store." + type + " flat %y, %v\n  return ()\n}\n";
        SCOPED_TRACE(kernel);
        const StatusOr<ir::Module> module = ir::ParseModule(kernel);
        ASSERT_TRUE(module.ok()) << module.status();
        std::string why;
        EXPECT_TRUE(Compile(*module, FullTarget(), &why).has_value()) << why;
        Compile(*module, PlainTarget(), &why);
      }
    }
  }
}

// A contraction of the math library is one operation that drivers neither split nor contract further.
TEST(VulkanBackTest, ContractsTheLibraryItself) {
  const StatusOr<ir::Module> module = ir::ParseModule(R"(module "m"
param buffer inout "y"
param f32 "x"
entry f0
func f0 "f" (%y: i32, %x: f32) -> () {
  %w: f32 = fmul.f32 %x, %x
  %s: f32 = call f1(%w)
  store.f32 flat %y, %s
  return ()
}
func f1 "device_cos_f32" contract (%x: f32) -> (f32) {
  %turn: f32 = const.f32 0x40c90fdb
  %product: f32 = fmul.f32 %x, %turn
  %angle: f32 = fsub.f32 %x, %product
  %rounded: f32 = fadd.f32 %angle, %turn
  %cosine: f32 = approx_cos.f32 %rounded
  return (%cosine)
}
)");
  ASSERT_TRUE(module.ok()) << module.status();
  gpu::GpuOptions options;
  options.fast_math = true;
  std::string why;
  const std::optional<Artifact> artifact = Compile(*module, FullTarget(), &why, options);
  ASSERT_TRUE(artifact.has_value()) << why;
  const StatusOr<std::string> listed = spirv::Disassemble(artifact->code);
  ASSERT_TRUE(listed.ok()) << listed.status();
  const std::string& text = *listed;
  // The author's product may be contracted; in the library, the product's own value, the fma and the sum may not.
  const auto count = [&](std::string_view what) {
    size_t found = 0;
    for (size_t at = text.find(what); at != std::string::npos; at = text.find(what, at + 1)) {
      ++found;
    }
    return found;
  };
  EXPECT_EQ(count(" Fma "), count(" Cos "));
  EXPECT_GE(count(" Fma "), 1u);
  EXPECT_EQ(count("NoContraction"), 3 * count(" Fma "));
  options.fast_math = false;
  const std::optional<Artifact> exact = Compile(*module, FullTarget(), &why, options);
  ASSERT_TRUE(exact.has_value()) << why;
  EXPECT_EQ(Listing(*exact).find(" Fma "), std::string::npos);
}

// 1 / sqrt(x) of f32 is one operation in fast math.
TEST(VulkanBackTest, FastMathTakesReciprocalRoots) {
  const StatusOr<ir::Module> module = ir::ParseModule(
      "module \"m\"\nparam buffer inout \"y\"\nparam f32 \"x\"\nentry f0\nfunc f0 \"f\" (%y: i32, %x: f32) -> () {\n"
      "%one: f32 = const.f32 1\n%s: f32 = fsqrt.f32 %x\n%q: f32 = fdiv.f32 %one, %s\nstore.f32 flat %y, %q\n"
      "return ()\n}\n");
  ASSERT_TRUE(module.ok()) << module.status();
  GpuTarget target = FullTarget();
  target.exact_fma = false;  // Else exact roots begin with it, too.
  for (const bool is_fast : {true, false}) {
    std::string why;
    gpu::GpuOptions options;
    options.fast_math = is_fast;
    const std::optional<Artifact> artifact = Compile(*module, target, &why, options);
    ASSERT_TRUE(artifact.has_value()) << why;
    EXPECT_EQ(Listing(*artifact).find("InverseSqrt") != std::string::npos, is_fast);
  }
}

// Returns the listing of a kernel with an atomic sum, in a buffer or in group memory.
std::string SumListing(const std::string& type, bool is_group, const GpuTarget& target, bool fast_math) {
  const std::string text =
      std::string("module \"m\"\n") + (is_group ? "uses group_memory\n" : "") + "param buffer inout \"y\"\nparam " +
      type + " \"x\"\nentry f0\nfunc f0 \"f\" (%y: i32, %x: " + type + ") -> () {\n" +
      (is_group ? "%n: i32 = const.i32 8\n%g: i32 = local_alloc %n\n" : "") + "%v: " + type + " = atomic_fadd." + type +
      (is_group ? " group %g" : " flat %y") + ", %x\nstore." + type + " flat %y + 8, %v\nreturn ()\n}\n";
  const StatusOr<ir::Module> module = ir::ParseModule(text);
  EXPECT_TRUE(module.ok()) << module.status();
  std::string why;
  gpu::GpuOptions options;
  options.fast_math = fast_math;
  const std::optional<Artifact> artifact = Compile(*module, target, &why, options);
  EXPECT_TRUE(artifact.has_value()) << why;
  return artifact.has_value() ? Listing(*artifact) : "";
}

// Sign masks are hidden from compilers that flush denormals to zero, where the bits are used; so is -0.
TEST(VulkanBackTest, SignsAreHidden) {
  const auto hides = [](const std::string& body, const GpuTarget& target) {
    const StatusOr<ir::Module> module = ir::ParseModule(
        "module \"m\"\nuses separate_buffers\nparam buffer inout \"a\"\nentry f0\n"
        "func f0 \"f\" (%a: i32) -> () {\n%zero: i32 = const.i32 0\n%x: f32 = load.f32 param(0) %zero\n" +
        body + "\nstore.f32 param(0) %zero, %y\nreturn ()\n}\n");
    EXPECT_TRUE(module.ok()) << module.status();
    std::string why;
    const std::optional<Artifact> artifact = Compile(*module, target, &why);
    EXPECT_TRUE(artifact.has_value()) << why;
    return artifact.has_value() && Listing(*artifact).find("OpShiftRightArithmetic") != std::string::npos;
  };
  GpuTarget target = FullTarget();
  target.keeps_denormals = false;
  for (const char* body : {"%y: f32 = fneg.f32 %x", "%y: f32 = fabs.f32 %x", "%y: f32 = fcopysign.f32 %x, %x"}) {
    SCOPED_TRACE(body);
    EXPECT_TRUE(hides(body, target));
    EXPECT_FALSE(hides(body, FullTarget()));
  }
  EXPECT_FALSE(hides("%n: f32 = fneg.f32 %x\n%y: f32 = fadd.f32 %n, %x", target)) << "Sums keep denormals.";
  EXPECT_TRUE(hides("%y: f32 = const.f32 0x80000000", target));
  EXPECT_FALSE(hides("%y: f32 = const.f32 0", target));
}

// Float sums in buffers are native where the device has them. Exact ones exchange small operands; in group memory all
// are exchanged.
TEST(VulkanBackTest, SumsAtomicallyAsTheDeviceDoes) {
  const auto has = [](const std::string& text, const char* part) { return text.find(part) != std::string::npos; };
  GpuTarget lacking = FullTarget();
  lacking.has_f32_atomic_add = lacking.has_f64_atomic_add = false;
  for (const char* type : {"f32", "f64"}) {
    SCOPED_TRACE(type);
    const std::string exact = SumListing(type, false, FullTarget(), false);
    const std::string fast = SumListing(type, false, FullTarget(), true);
    EXPECT_TRUE(has(exact, type[1] == '3' ? "AtomicFloat32AddEXT" : "AtomicFloat64AddEXT")) << exact;
    EXPECT_TRUE(has(exact, "OpAtomicFAddEXT") && has(exact, "OpLoopMerge")) << exact;
    EXPECT_TRUE(has(fast, "OpAtomicFAddEXT") && !has(fast, "OpLoopMerge")) << fast;
    EXPECT_FALSE(has(SumListing(type, false, lacking, true), "AddEXT"));
  }
  EXPECT_FALSE(has(SumListing("f32", true, FullTarget(), true), "AddEXT"));
}

// In fast math work items that add to one address add up their operands first, where the device can and the old value
// is not used.
TEST(VulkanBackTest, SubgroupsAddUpFirst) {
  const StatusOr<ir::Module> module = ir::ParseModule(
      "module \"m\"\nparam buffer inout \"y\"\nparam f32 \"x\"\nentry f0\nfunc f0 \"f\" (%y: i32, %x: f32) -> () {\n"
      "%one: i32 = const.i32 1\n%two: i32 = const.i32 2\n%row: i32 = instance_id.i32 %one\n%o: i32 = shl.i32 %row, "
      "%two\n"
      "%at: i32 = add.i32 %y, %o\n%v: f32 = atomic_fadd.f32 flat %y, %x\n"
      "%w: f32 = atomic_fadd.f32 flat %at + 64, %x\nreturn ()\n}\n");
  ASSERT_TRUE(module.ok()) << module.status();
  const auto has = [](const std::string& text, const char* part) { return text.find(part) != std::string::npos; };
  for (const bool has_sums : {true, false}) {
    for (const bool is_fast : {true, false}) {
      GpuTarget target = FullTarget();
      target.has_subgroup_sums = has_sums;
      std::string why;
      gpu::GpuOptions options;
      options.fast_math = is_fast;
      const std::optional<Artifact> artifact = Compile(*module, target, &why, options);
      ASSERT_TRUE(artifact.has_value()) << why;
      const std::string text = Listing(*artifact);
      EXPECT_EQ(has(text, "OpGroupNonUniformFAdd") && has(text, "OpGroupNonUniformElect") &&
                    has(text, "OpGroupNonUniformAllEqual"),
                has_sums && is_fast);
      EXPECT_EQ(has(text, "GroupNonUniform"), has_sums && is_fast);
    }
  }
}

// Whole vectors are loaded where buffers are known to begin at multiples of 16 bytes, and the variant says so.
TEST(VulkanBackTest, TilesSayThatBuffersAreAligned) {
  const StatusOr<ir::Module> module = ir::ParseModule(Slurp(HPVMD_SOURCE_DIR "/tests/golden/coarsen/triad.ir"));
  ASSERT_TRUE(module.ok()) << module.status();
  std::string why;
  gpu::GpuOptions options;
  options.tiles = {pass::GpuTile{{4, 1, 1}}};
  const std::optional<Artifact> artifact = Compile(*module, FullTarget(), &why, options);
  ASSERT_TRUE(artifact.has_value()) << why;
  EXPECT_GE(artifact->gpu.variants.size(), 3u);
  for (const GpuVariant& variant : artifact->gpu.variants) {
    EXPECT_EQ(variant.needs_alignment, variant.tile[0] != 1) << variant.entry;
  }
}

// A table is in group memory where there is room for it beside the kernel's own, and never beyond the device's limit.
TEST(VulkanBackTest, TablesLeaveTheKernelItsGroupMemory) {
  const auto group_bytes = [](const std::string& asked, uint64_t limit) {
    const StatusOr<ir::Module> module = ir::ParseModule(
        "module \"m\"\nmemory 65536 65536\nuses separate_buffers\nuses group_memory\n"
        "data 1024 \"0102030405060708090a0b0c0d0e0f10\"\nparam buffer inout \"r\"\nentry f0\n"
        "func f0 \"f\" (%r: i32) -> () {\n%zero: i32 = const.i32 0\n%id: i32 = instance_id.i32 %zero\n"
        "%mask: i32 = const.i32 12\n%place: i32 = and.i32 %id, %mask\n%base: i32 = const.i32 1024\n"
        "%at: i32 = add.i32 %base, %place\n%v: i32 = load.i32 flat %at\n%size: i32 = const.i32 " +
        asked +
        "\n%g: i32 = local_alloc %size\nstore.i32 flat %g, %v\n%w: i32 = load.i32 flat %g\n"
        "store.i32 flat %r, %w\nreturn ()\n}\n");
    EXPECT_TRUE(module.ok()) << module.status();
    GpuTarget target = FullTarget();
    target.local_bytes_max = limit;
    std::string why;
    const std::optional<Artifact> artifact = Compile(*module, target, &why);
    EXPECT_TRUE(artifact.has_value()) << why;
    return artifact.has_value() ? artifact->gpu.variants.back().local_bytes : 0;
  };
  EXPECT_EQ(group_bytes("64", 16384), 64u + 16u);
  EXPECT_EQ(group_bytes("16352", 16384), 16352u + 16u);
  EXPECT_EQ(group_bytes("16368", 16384), 16368u);
  EXPECT_EQ(group_bytes("16384", 16384), 16384u);
}

// The validator works: a module whose last word is cut off is refused with its message.
TEST(VulkanBackTest, ValidatorSpeaks) {
  const StatusOr<ir::Module> module = ir::ParseModule(Slurp(HPVMD_SOURCE_DIR "/tests/golden/vulkan/saxpy.ir"));
  ASSERT_TRUE(module.ok());
  std::string why;
  const std::optional<Artifact> artifact = Compile(*module, FullTarget(), &why);
  ASSERT_TRUE(artifact.has_value()) << why;
  std::vector<uint32_t> words(artifact->code.size() / 4);
  std::memcpy(words.data(), artifact->code.data(), artifact->code.size());
  EXPECT_TRUE(ValidateSpirv(words, 13).ok());
  words.pop_back();
  const Status cut = ValidateSpirv(words, 13);
  EXPECT_EQ(cut.code(), absl::StatusCode::kInternal);
  EXPECT_NE(cut.message().find("not valid"), std::string::npos);
}

}  // namespace
}  // namespace hpvm::vulkan
