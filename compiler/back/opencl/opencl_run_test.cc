// SPDX-License-Identifier: Apache-2.0
// Runs parts of the emitter's output that few kernels reach, on the OpenCL driver that is present. Tests of whole
// kernels on devices are in tests/conformance and tests/gpu.
#include <algorithm>
#include <bit>
#include <cmath>
#include <fstream>
#include <random>
#include <sstream>

#include "gtest/gtest.h"

#include "compiler/back/opencl/opencl_back.h"
#include "compiler/back/opencl/testing/program_runner.h"
#include "compiler/ir/interpret/interpret.h"
#include "compiler/ir/testing/wrap_kernels.h"
#include "compiler/ir/text/text.h"
#include "compiler/pass/pipeline.h"

namespace hpvm::opencl {
namespace {

using testing::ProgramRunner;

class OpenClRunTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string name;
    if (!testing::HasOpenClDevice(&target_, &name)) {
      GTEST_SKIP() << "There is no OpenCL device.";
    }
  }

  // Returns a kernel over `r` and `x` (in), 32-bit words each, whose body may use %id, %ra and %xa (addresses of its
  // words).
  static std::string Text(const std::string& body, const std::string& directives = "") {
    return "module \"m\"\n" + directives +
           "param buffer inout \"r\"\nparam buffer in \"x\"\nentry f0\nfunc f0 \"f\" (%r: i32, %x: i32) -> () {\n"
           "%zero: i32 = const.i32 0\n%one: i32 = const.i32 1\n%two: i32 = const.i32 2\n"
           "%id: i32 = instance_id.i32 %zero\n%at: i32 = shl.i32 %id, %two\n%ra: i32 = add.i32 %r, %at\n"
           "%xa: i32 = add.i32 %x, %at\n" +
           body + "\nreturn ()\n}\n";
  }

  // Runs the last variant, which needs no proof, or the variant `back` places before it.
  ir::TrapReport Run(const std::string& text, std::vector<uint32_t>& r, std::vector<uint32_t> x, uint64_t extent,
                     uint64_t group = 1, uint32_t back = 0) {
    StatusOr<ir::Module> module = ir::ParseModule(text);
    EXPECT_TRUE(module.ok()) << module.status();
    EXPECT_TRUE(pass::RunGpuPipeline(*module, {.verify_each = true}).ok());
    gpu::GpuOptions options;
    options.chooses_tiles = false;
    Diagnostics diagnostics;
    const std::optional<Artifact> artifact = EmitOpenCl(*module, target_, options, diagnostics);
    EXPECT_TRUE(artifact.has_value()) << ToString(diagnostics);
    StatusOr<ProgramRunner> runner = ProgramRunner::Build(*artifact);
    EXPECT_TRUE(runner.ok()) << runner.status();
    ir::Launch launch;
    launch.extent = {extent, 1, 1};
    launch.group = {group, 1, 1};
    launch.arguments = {{reinterpret_cast<uint8_t*>(r.data()), r.size() * 4, 0},
                        {reinterpret_cast<uint8_t*>(x.data()), x.size() * 4, 0}};
    const StatusOr<ir::AddressSpace> space = ir::AssignAddresses(*module, launch.arguments);
    const StatusOr<ir::TrapReport> trap =
        runner->Run(launch, *space, static_cast<uint32_t>(artifact->gpu.variants.size() - 1 - back), /*start=*/8);
    EXPECT_TRUE(trap.ok()) << trap.status();
    return trap.ok() ? *trap : ir::TrapReport();
  }

  GpuTarget target_;
};

// Returns bits of floats of all kinds, mostly of similar exponents.
std::vector<uint32_t> Floats(size_t count) {
  std::mt19937 random(7);
  const uint32_t kEdges[] = {0,           0x80000000u, 1,           0x007fffffu, 0x00800000u, 0x00800001u, 0x7f7fffffu,
                             0x7f800000u, 0xff800000u, 0x7fc00000u, 0x3f800000u, 0x3f800001u, 0x40000000u, 0x80000001u};
  std::vector<uint32_t> bits;
  for (size_t i = 0; i < count; ++i) {
    const uint32_t word = random();
    switch (random() % 4) {
      case 0:
        bits.push_back(kEdges[word % std::size(kEdges)]);
        break;
      case 1:
        bits.push_back((word & 0x807fffffu) | (word % 3 == 0 ? 0u : 0x00800000u));
        break;
      case 2:
        bits.push_back((word & 0x807fffffu) | 0x3f800000u);
        break;
      default:
        bits.push_back(word);
    }
  }
  return bits;
}

bool SameFloat(uint32_t a, uint32_t b) {
  return a == b || (std::isnan(std::bit_cast<float>(a)) && std::isnan(std::bit_cast<float>(b)));
}

// Division and square root by the device, by 64-bit floats and by integers are all correctly rounded.
TEST_F(OpenClRunTest, DivisionAndSquareRootAreExact) {
  constexpr size_t kCount = 200'000;
  const std::vector<uint32_t> operands = Floats(2 * kCount);
  const std::string divide = Text(
      "%a: f32 = load.f32 flat %ra\n%b: f32 = load.f32 flat %xa\n%q: f32 = fdiv.f32 %a, %b\nstore.f32 flat %ra, %q");
  const std::string root = Text("%a: f32 = load.f32 flat %ra\n%q: f32 = fsqrt.f32 %a\nstore.f32 flat %ra, %q");
  const GpuTarget full = target_;
  for (const int form : {0, 1, 2}) {
    target_ = full;
    target_.exact_divide = full.exact_divide && form == 0;
    target_.has_fp64 = full.has_fp64 && form < 2;
    std::vector<uint32_t> quotients(operands.begin(), operands.begin() + kCount), roots = quotients;
    const std::vector<uint32_t> divisors(operands.begin() + kCount, operands.end());
    Run(divide, quotients, divisors, kCount);
    Run(root, roots, divisors, kCount);
    for (size_t i = 0; i < kCount; ++i) {
      const auto a = std::bit_cast<float>(operands[i]), b = std::bit_cast<float>(divisors[i]);
      ASSERT_TRUE(SameFloat(quotients[i], std::bit_cast<uint32_t>(a / b))) << form << ": " << a << " / " << b;
      ASSERT_TRUE(SameFloat(roots[i], std::bit_cast<uint32_t>(std::sqrt(a)))) << form << ": root of " << a;
    }
  }
}

// An instance that traps between barriers ends its group without a hang; other groups run.
TEST_F(OpenClRunTest, TrapsBetweenBarriersEndTheGroup) {
  // The loop reads, in iteration i, the instance's word of x at a growing distance, which leaves the buffer in one.
  const std::string text = Text(
      "%size: i32 = const.i32 64\n%l: i32 = local_alloc %size\n%lid: i32 = local_id.i32 %zero\n"
      "%lo: i32 = shl.i32 %lid, %two\n%la: i32 = add.i32 %l, %lo\n%turns: i32 = const.i32 5\n"
      "loop b0 (%i: i32 = %zero) {\n"
      " %d: i32 = load.i32 flat %xa\n %far: i32 = mul.i32 %d, %i\n %p: i32 = add.i32 %xa, %far\n"
      " %v: i32 = load.i32 flat %p\n store.i32 flat %la, %v\n barrier\n %w: i32 = load.i32 flat %l\n barrier\n"
      " %old: i32 = load.i32 flat %ra\n %sum: i32 = add.i32 %old, %w\n store.i32 flat %ra, %sum\n"
      " %next: i32 = add.i32 %i, %one\n %more: i32 = lt_u.i32 %next, %turns\n"
      " if b1 %more {\n  continue b0 (%next)\n } else {\n  br b1 ()\n }\n br b0 ()\n}",
      "uses barrier\nuses group_memory\n");
  std::vector<uint32_t> r(32), x(32, 0);
  x[21] = 16;  // The third iteration reads beyond the end: 84 + 3 * 16 = 132.
  const ir::TrapReport trap = Run(text, r, x, 32, 16);
  EXPECT_EQ(trap.code, ir::TrapCode::kOutOfBounds);
  EXPECT_EQ(trap.instance[0], 21u);
  // The second group has done at most three iterations; the first one all.
  EXPECT_EQ(r[0], 0u);
  std::vector<uint32_t> y(32, 4);
  EXPECT_EQ(Run(text, r, std::vector<uint32_t>(32, 0), 32, 16).code, ir::TrapCode::kNone);
}

// Addresses that wrap around in between stay inside their buffers, with and without checks: the driver's compiler must
// not hoist a constant out of a sum that it has extended.
TEST_F(OpenClRunTest, SumsWrapBeforeTheyAreAddresses) {
  for (const ir::testing::WrapKernel& kernel : ir::testing::WrapKernels()) {
    SCOPED_TRACE(kernel.name);
    StatusOr<ir::Module> module = ir::ParseModule(kernel.text);
    ASSERT_TRUE(module.ok()) << module.status();
    ir::testing::WrapBuffers want;
    const StatusOr<ir::TrapReport> interpreted = ir::Interpret(*module, want.On());
    ASSERT_TRUE(interpreted.ok() && interpreted->code == ir::TrapCode::kNone) << interpreted.status();
    EXPECT_TRUE(pass::RunGpuPipeline(*module, {.verify_each = true}).ok());
    gpu::GpuOptions options;
    options.chooses_tiles = false;
    Diagnostics diagnostics;
    const std::optional<Artifact> artifact = EmitOpenCl(*module, target_, options, diagnostics);
    ASSERT_TRUE(artifact.has_value()) << ToString(diagnostics);
    StatusOr<ProgramRunner> runner = ProgramRunner::Build(*artifact);
    ASSERT_TRUE(runner.ok()) << runner.status();
    for (uint32_t variant = 0; variant < artifact->gpu.variants.size(); ++variant) {
      SCOPED_TRACE(artifact->gpu.variants[variant].entry);
      ir::testing::WrapBuffers found;
      const ir::Launch launch = found.On();
      const StatusOr<ir::AddressSpace> space = ir::AssignAddresses(*module, launch.arguments);
      const StatusOr<ir::TrapReport> trap = runner->Run(launch, *space, variant);
      ASSERT_TRUE(trap.ok()) << trap.status();
      EXPECT_EQ(trap->code, ir::TrapCode::kNone);
      EXPECT_EQ(found.r, want.r);
    }
  }
}

// Sorts in groups of 512 with barriers in nested loops: PoCL's compiler crashed on the loops' returns, and NVIDIA's
// driver must be told the group size.
TEST_F(OpenClRunTest, SortsInWideGroups) {
  constexpr uint32_t kGroup = 512;
  if (target_.group_size_max < kGroup) {
    GTEST_SKIP() << "The device's groups are smaller.";
  }
  std::ostringstream text;
  text << std::ifstream(HPVMD_SOURCE_DIR "/tests/golden/opencl/sort512.ir").rdbuf();
  StatusOr<ir::Module> module = ir::ParseModule(text.str());
  ASSERT_TRUE(module.ok()) << module.status();
  EXPECT_TRUE(pass::RunGpuPipeline(*module, {.verify_each = true}).ok());
  gpu::GpuOptions options;
  options.chooses_tiles = false;
  Diagnostics diagnostics;
  const std::optional<Artifact> artifact = EmitOpenCl(*module, target_, options, diagnostics);
  ASSERT_TRUE(artifact.has_value()) << ToString(diagnostics);
  std::vector<uint64_t> keys(3 * kGroup), sorted(keys.size()), want;
  std::mt19937_64 random(3);
  std::generate(keys.begin(), keys.end(), random);
  want = keys;
  for (size_t at = 0; at < want.size(); at += kGroup) {
    std::sort(want.begin() + static_cast<ptrdiff_t>(at), want.begin() + static_cast<ptrdiff_t>(at + kGroup));
  }
  ir::Launch launch;
  launch.extent = {keys.size(), 1, 1};
  launch.group = {kGroup, 1, 1};
  for (std::vector<uint64_t>* words : {&keys, &sorted}) {
    launch.arguments.push_back({reinterpret_cast<uint8_t*>(words->data()), words->size() * 8, 0});
  }
  const StatusOr<ir::AddressSpace> space = ir::AssignAddresses(*module, launch.arguments);
  for (const std::array<uint32_t, 3>& declared : {std::array<uint32_t, 3>{}, std::array<uint32_t, 3>{kGroup, 1, 1}}) {
    if (declared[0] == 0 && !target_.is_processor) {
      continue;
    }
    StatusOr<ProgramRunner> runner = ProgramRunner::Build(*artifact, declared);
    ASSERT_TRUE(runner.ok()) << runner.status();
    for (uint32_t variant = 0; variant < artifact->gpu.variants.size(); ++variant) {
      SCOPED_TRACE(artifact->gpu.variants[variant].entry);
      std::fill(sorted.begin(), sorted.end(), 0);
      const StatusOr<ir::TrapReport> trap = runner->Run(launch, *space, variant);
      ASSERT_TRUE(trap.ok()) << trap.status();
      EXPECT_EQ(trap->code, ir::TrapCode::kNone);
      EXPECT_EQ(sorted, want);
    }
  }
}

// Barriers are on some paths through a kernel only, and instances diverge after them: PoCL's compiler lets the first
// instance of a group choose for all where such paths end.
TEST_F(OpenClRunTest, InstancesPartBehindBarriers) {
  // Small ids add one; an instance that finds less than its id in its neighbour's word leaves; the others add that
  // word.
  const auto part = [](int number) {
    std::string text =
        "block p@ () {\n %o@: i32 = load.i32 flat %ra\n %s@: i32 = lt_u.i32 %lid, %three\n if a@ %s@ {\n"
        "  %i@: i32 = add.i32 %o@, %one\n  store.i32 flat %ra, %i@\n  br p@ ()\n } else {\n  br a@ ()\n }\n"
        " %w@: i32 = load.i32 flat %other\n %l@: i32 = lt_u.i32 %w@, %lid\n if c@ %l@ {\n  br p@ ()\n } else {\n"
        "  br c@ ()\n }\n %n@: i32 = add.i32 %o@, %w@\n store.i32 flat %ra, %n@\n br p@ ()\n}\n";
    for (size_t at; (at = text.find('@')) != std::string::npos;) {
      text.replace(at, 1, std::to_string(number));
    }
    return text;
  };
  const std::string head =
      "%size: i32 = const.i32 64\n%three: i32 = const.i32 3\n%last: i32 = const.i32 15\n%l: i32 = local_alloc %size\n"
      "%lid: i32 = local_id.i32 %zero\n%gid: i32 = group_id.i32 %zero\n%lo: i32 = shl.i32 %lid, %two\n"
      "%la: i32 = add.i32 %l, %lo\n%next: i32 = add.i32 %lid, %one\n%turned: i32 = and.i32 %next, %last\n"
      "%to: i32 = shl.i32 %turned, %two\n%other: i32 = add.i32 %l, %to\n%v: i32 = load.i32 flat %xa\n"
      "store.i32 flat %la, %v\n%is_odd: i32 = and.i32 %gid, %one\n";
  const std::pair<const char*, std::string> kernels[] = {
      {"at the end", "barrier\n" + part(1) + "barrier\n" + part(2)},
      {"in a branch", "if u %is_odd {\nbarrier\n" + part(1) + "br u ()\n} else {\n" + "br u ()\n}\n"},
      {"in one of two branches",
       "barrier\nif u %is_odd {\nbarrier\n" + part(1) + "br u ()\n} else {\n" + part(2) + "br u ()\n}\n" + part(3)},
      {"behind a return",
       "barrier\nif u %is_odd {\n" + part(1) + "return ()\n} else {\nbr u ()\n}\nbarrier\n" + part(2)},
      {"in a loop that is left in two places",
       "barrier\nloop b (%k: i32 = %zero) {\n %late: i32 = lt_u.i32 %gid, %k\n if e %late {\n" + part(1) +
           "  br b ()\n } else {\n  br e ()\n }\n barrier\n %r0: i32 = load.i32 flat %ra\n store.i32 flat %la, "
           "%r0\n"
           " barrier\n" +
           part(2) +
           " barrier\n %k2: i32 = add.i32 %k, %one\n %more: i32 = lt_u.i32 %k2, %three\n"
           " if g %more {\n" +
           part(3) + "  barrier\n  continue b (%k2)\n } else {\n" + part(4) +
           "  br b ()\n }\n"
           " br b ()\n}\n" +
           part(5)},
  };
  std::mt19937 random(4);
  std::vector<uint32_t> x(64), start(64);
  for (size_t i = 0; i < x.size(); ++i) {
    x[i] = random() % 24;
    start[i] = random() % 1000;
  }
  for (const auto& [name, body] : kernels) {
    const std::string text = Text(head + body, "uses barrier\nuses group_memory\n");
    StatusOr<ir::Module> module = ir::ParseModule(text);
    ASSERT_TRUE(module.ok()) << name << ": " << module.status() << "\n" << text;
    std::vector<uint32_t> want = start;
    ir::Launch launch;
    launch.extent = {x.size(), 1, 1};
    launch.group = {16, 1, 1};
    launch.arguments = {{reinterpret_cast<uint8_t*>(want.data()), want.size() * 4, 0},
                        {reinterpret_cast<uint8_t*>(x.data()), x.size() * 4, 0}};
    const StatusOr<ir::TrapReport> trap = ir::Interpret(*module, launch);
    ASSERT_TRUE(trap.ok()) << name << ": " << trap.status();
    EXPECT_EQ(trap->code, ir::TrapCode::kNone) << name;
    for (const uint32_t back : {0u, 1u}) {
      std::vector<uint32_t> r = start;
      EXPECT_EQ(Run(text, r, x, x.size(), 16, back).code, ir::TrapCode::kNone) << name;
      EXPECT_EQ(r, want) << name << ", variant " << back << " from the end";
    }
  }
}

// Covers every exit from nested constructs, at each depth: leaves, continues, tables, beyond the nesting of brackets.
TEST_F(OpenClRunTest, JumpsLeaveAnyDepth) {
  std::string body = "%v: i32 = load.i32 flat %xa\n%result: i32 = block out () {\n";
  for (int i = 0; i < 80; ++i) {
    const std::string n = std::to_string(i);
    body += "%c" + n + ": i32 = const.i32 " + n + "\n%e" + n + ": i32 = ne.i32 %v, %c" + n + "\nif d" + n + " %e" + n +
            " {\n";
  }
  std::string inner;
  for (int i = 79; i >= 0; --i) {
    const std::string n = std::to_string(i);
    inner += (i < 79 ? "br d" + n + " ()\n" : "") + "} else {\nbr out (%c" + n + ")\n}\n";
  }
  const std::string text = Text(body +
                                "%m: i32 = loop again (%k: i32 = %v) {\n %k2: i32 = sub.i32 %k, %one\n"
                                " br_table %k [again, out, continue again] (%k2)\n}\nbr out (%m)\n" +
                                inner + "br out (%two)\n}\nstore.i32 flat %ra, %result");
  std::vector<uint32_t> x, r(100);
  for (uint32_t i = 0; i < 100; ++i) {
    x.push_back(i);
  }
  std::vector<uint32_t> want(100);
  StatusOr<ir::Module> module = ir::ParseModule(text);
  ASSERT_TRUE(module.ok()) << module.status();
  ir::Launch launch;
  launch.extent = {100, 1, 1};
  launch.arguments = {{reinterpret_cast<uint8_t*>(want.data()), 400, 0},
                      {reinterpret_cast<uint8_t*>(x.data()), 400, 0}};
  const StatusOr<ir::TrapReport> trap = ir::Interpret(*module, launch);
  ASSERT_TRUE(trap.ok()) << trap.status();
  EXPECT_EQ(Run(text, r, x, 100).code, trap->code);
  EXPECT_EQ(r, want);
}

}  // namespace
}  // namespace hpvm::opencl
