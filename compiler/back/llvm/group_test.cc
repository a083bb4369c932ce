// SPDX-License-Identifier: Apache-2.0
// Compares kernels with barriers and group memory, one group per call, with the interpreter.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "compiler/back/llvm/llvm_back.h"
#include "compiler/back/llvm/testing/gang_compare.h"
#include "compiler/back/llvm/testing/image_runner.h"
#include "compiler/ir/interpret/interpret.h"
#include "compiler/ir/testing/golden.h"
#include "compiler/ir/text/text.h"
#include "compiler/ir/verify/verify.h"
#include "compiler/pass/pipeline.h"

namespace hpvm::cpu {
namespace {

using testing::GangInput;
using testing::ImageRunner;
using testing::WordsOf;
using Extent = std::array<uint64_t, 3>;

constexpr pass::GangShape kShapes[] = {{.lanes = 4}, {.lanes = 16, .rows = 3}};

// Returns the module's image for a level with the variants that run groups; null, with failures, when there are none.
std::unique_ptr<ImageRunner> Compile(ir::Module module, const char* level, bool expect_groups = true) {
  KernelReport report;
  CpuOptions options;
  options.shapes.assign(std::begin(kShapes), std::end(kShapes));
  options.report = &report;
  const Status passed = pass::RunCpuPipeline(module, {.verify_each = true});
  EXPECT_TRUE(passed.ok()) << passed;
  StatusOr<Artifact> artifact = EmitCpuImage(module, {level}, options);
  EXPECT_TRUE(artifact.ok()) << artifact.status();
  if (!artifact.ok()) {
    return nullptr;
  }
  std::string remarks;
  for (const KernelRemark& remark : report.remarks) {
    remarks += remark.kind == KernelRemark::Kind::kRefused ? remark.text + "\n" : "";
  }
  EXPECT_EQ(!artifact->variants.empty(), expect_groups) << remarks << ir::Print(module);
  // A kernel that lost its barriers and has no group memory runs in tiles.
  const bool has_groups = module.uses_barrier || module.uses_group_memory;
  for (const CpuVariant& variant : artifact->variants) {
    EXPECT_EQ(variant.unit, has_groups ? CpuVariant::Unit::kGroup : CpuVariant::Unit::kTile);
  }
  return std::make_unique<ImageRunner>(*artifact);
}

// Run owns the buffers of a launch and runs an engine on them.
struct Run {
  Run(const GangInput& input, const ir::Module& module) : buffers(input.buffers) {
    buffers.resize(module.params.size());
    launch.extent = input.extent;
    launch.group = input.group;
    for (size_t k = 0; k < module.params.size(); ++k) {
      const uint64_t scalar = k < input.scalars.size() ? input.scalars[k] : 0;
      launch.arguments.push_back({buffers[k].data(), module.params[k].is_buffer ? buffers[k].size() : 0, scalar});
    }
  }
  std::vector<std::vector<uint8_t>> buffers;
  ir::Launch launch;
};

ir::Module Parse(const std::string& text) {
  StatusOr<ir::Module> module = ir::ParseModule(text);
  EXPECT_TRUE(module.ok()) << module.status() << text;
  if (!module.ok()) {
    return {};
  }
  EXPECT_TRUE(ir::Verify(*module).empty()) << ToString(ir::Verify(*module));
  return *std::move(module);
}

bool HasProof(const Artifact& artifact, const GangInput& input) {
  ir::BoundsFacts facts;
  facts.extent = input.extent;
  facts.group = input.group;
  for (size_t k = 0; k < artifact.params.size(); ++k) {
    const ir::KernelParam& param = artifact.params[k];
    const uint64_t scalar = k < input.scalars.size() ? input.scalars[k] : 0;
    const uint64_t bytes = k < input.buffers.size() ? input.buffers[k].size() : 0;
    facts.params.push_back({param.is_buffer, param.is_writable, param.is_buffer ? bytes : scalar,
                            static_cast<uint8_t>(8 * ir::Bytes(param.type))});
  }
  return ir::ProveBounds(artifact.bounds, facts);
}

// Runs the kernel in all shapes and levels on all inputs. Traps must be the same; with `same_instance` also their
// instance, of which there may be several candidates.
void Compare(const std::string& text, const std::vector<GangInput>& inputs, bool same_instance = false,
             ir::TrapCode expected_trap = ir::TrapCode::kNone) {
  const ir::Module module = Parse(text);
  const StatusOr<ir::Interpreter> interpreter = ir::Interpreter::Create(module);
  ASSERT_TRUE(interpreter.ok()) << interpreter.status();
  for (const char* level : {"x86-64-v2", "x86-64-v4"}) {
    if (std::string(level) == "x86-64-v4" && HostCpuTarget()->level != level) {
      continue;
    }
    const std::unique_ptr<ImageRunner> image = Compile(module, level);
    ASSERT_NE(image, nullptr);
    for (const GangInput& input : inputs) {
      Run want(input, module);
      StatusOr<ir::TrapReport> trap = interpreter->Run(want.launch);
      ASSERT_TRUE(trap.ok()) << trap.status();
      EXPECT_EQ(trap->code, expected_trap);
      for (const CpuVariant& variant : image->artifact().variants) {
        if (variant.needs_proof && !HasProof(image->artifact(), input)) {
          continue;
        }
        SCOPED_TRACE(::testing::Message() << level << " by " << variant.lanes << (variant.needs_proof ? " proven" : "")
                                          << " extent " << input.extent[0] << " " << input.extent[1] << " "
                                          << input.extent[2] << " group " << input.group[0] << " " << input.group[1]);
        Run got(input, module);
        const StatusOr<ir::AddressSpace> space = ir::AssignAddresses(module, got.launch.arguments);
        ASSERT_TRUE(space.ok()) << space.status();
        ir::TrapReport found = image->RunVariant(got.launch, *space, variant).trap;
        if (!same_instance) {
          found.instance = trap->instance;
        }
        ASSERT_EQ(ir::ToString(found, module), ir::ToString(*trap, module));
        if (trap->code == ir::TrapCode::kNone) {
          for (size_t k = 0; k < got.buffers.size(); ++k) {
            const auto differs =
                std::mismatch(got.buffers[k].begin(), got.buffers[k].end(), want.buffers[k].begin()).first;
            ASSERT_TRUE(differs == got.buffers[k].end())
                << "buffer " << k << " at byte " << differs - got.buffers[k].begin();
          }
        }
      }
    }
  }
}

// Returns a kernel with the buffers r (inout) and x (in), and the i32 n. The body may use ids %i, %l and %g, sizes %s,
// addresses %ra and %xa of the instance's words, %m (group memory of 4 bytes per instance for 1,024 instances) and
// %ma, the instance's word there.
std::string Kernel(const std::string& body) {
  return R"(module "group"
memory 65536 65536
uses barrier
uses group_memory
param buffer inout "r"
param buffer in "x"
param i32 "n"
entry f0
func f0 "group" (%r: i32, %x: i32, %n: i32) -> () {
  %zero: i32 = const.i32 0
  %one: i32 = const.i32 1
  %two: i32 = const.i32 2
  %four: i32 = const.i32 4
  %bytes: i32 = const.i32 4096
  %i: i32 = instance_id.i32 %zero
  %l: i32 = local_id.i32 %zero
  %g: i32 = group_id.i32 %zero
  %s: i32 = group_size.i32 %zero
  %at: i32 = shl.i32 %i, %two
  %ra: i32 = add.i32 %r, %at
  %xa: i32 = add.i32 %x, %at
  %m: i32 = local_alloc %bytes
  %la: i32 = shl.i32 %l, %two
  %ma: i32 = add.i32 %m, %la
)" + body +
         "}\n";
}

GangInput Input(uint64_t extent, uint64_t group, uint64_t n = 0) {
  return {{WordsOf(extent, [](size_t i) { return i; }), WordsOf(extent, [](size_t i) { return 3 * i * i + 7; }), {}},
          {0, 0, n},
          {extent, 1, 1},
          {group, 1, 1}};
}
std::vector<GangInput> Inputs(uint64_t n = 0) {
  return {Input(64, 16, n), Input(64, 64, n), Input(40, 16, n), Input(21, 7, n), Input(5, 8, n), Input(1, 1, n)};
}

// The loop halves the summed range, with a barrier in each round; partial groups see zeros (S46).
TEST(GroupTest, TreeReduction) {
  const std::string text = Kernel(R"(
  %v: f32 = load.f32 flat %xa
  store.f32 group %ma, %v
  %h: i32 = shr_u.i32 %s, %one
  barrier
  block all () {
    if some %h {
      br some ()
    } else {
      br all ()
    }
    loop again (%k: i32 = %h) {
      block add () {
        %is: i32 = lt_u.i32 %l, %k
        if mine %is {
          br mine ()
        } else {
          br add ()
        }
        %ko: i32 = shl.i32 %k, %two
        %oa: i32 = add.i32 %ma, %ko
        %a: f32 = load.f32 group %ma
        %b: f32 = load.f32 group %oa
        %t: f32 = fadd.f32 %a, %b
        store.f32 group %ma, %t
        br add ()
      }
      barrier
      %k2: i32 = shr_u.i32 %k, %one
      if last %k2 {
        continue again (%k2)
      } else {
        br last ()
      }
      br again ()
    }
    br all ()
  }
  if first %l {
    return ()
  } else {
    br first ()
  }
  %go: i32 = shl.i32 %g, %two
  %out: i32 = add.i32 %r, %go
  %sum: f32 = load.f32 group %m
  store.f32 flat %out, %sum
  return ()
)");
  std::vector<GangInput> inputs = {Input(64, 16), Input(64, 64), Input(40, 16), Input(1024, 1024)};
  for (GangInput& input : inputs) {
    for (size_t i = 0; i < input.buffers[1].size() / 4; ++i) {
      const float value = 1.0f / static_cast<float>(i + 1);
      std::memcpy(input.buffers[1].data() + 4 * i, &value, 4);
    }
  }
  Compare(text, inputs);
}

// Tiles of 16 x 16 are in group memory; each instance's running sum crosses two barriers per round.
TEST(GroupTest, TiledMatmul) {
  const std::string text = R"(module "matmul"
uses barrier
uses group_memory
param buffer in "a"
param buffer in "b"
param buffer inout "c"
param i32 "n"
entry f0
func f0 "matmul" (%a: i32, %b: i32, %c: i32, %n: i32) -> () {
  %zero: i32 = const.i32 0
  %one: i32 = const.i32 1
  %two: i32 = const.i32 2
  %tile: i32 = const.i32 16
  %bytes: i32 = const.i32 1024
  %zf: f32 = const.f32 0x0
  %x: i32 = instance_id.i32 %zero
  %y: i32 = instance_id.i32 %one
  %lx: i32 = local_id.i32 %zero
  %ly: i32 = local_id.i32 %one
  %as: i32 = local_alloc %bytes
  %bs: i32 = local_alloc %bytes
  %row: i32 = mul.i32 %ly, %tile
  %own: i32 = add.i32 %row, %lx
  %owno: i32 = shl.i32 %own, %two
  %asa: i32 = add.i32 %as, %owno
  %bsa: i32 = add.i32 %bs, %owno
  %yn: i32 = mul.i32 %y, %n
  %ya: i32 = add.i32 %yn, %lx
  %yao: i32 = shl.i32 %ya, %two
  %pa: i32 = add.i32 %a, %yao
  %lyn: i32 = mul.i32 %ly, %n
  %xb: i32 = add.i32 %lyn, %x
  %xbo: i32 = shl.i32 %xb, %two
  %pb: i32 = add.i32 %b, %xbo
  %sixty: i32 = const.i32 64
  %bstep: i32 = mul.i32 %n, %sixty
  %sum: f32 = loop tiles (%k: i32 = %zero, %s: f32 = %zf, %qa: i32 = %pa, %qb: i32 = %pb) {
    %av: f32 = load.f32 flat %qa
    store.f32 group %asa, %av
    %bv: f32 = load.f32 flat %qb
    store.f32 group %bsa, %bv
    barrier
    %rowo: i32 = shl.i32 %row, %two
    %ap: i32 = add.i32 %as, %rowo
    %lxo: i32 = shl.i32 %lx, %two
    %bp: i32 = add.i32 %bs, %lxo
    %t: f32 = loop inner (%j: i32 = %zero, %u: f32 = %s, %ai: i32 = %ap, %bi: i32 = %bp) {
      %p: f32 = load.f32 group %ai
      %q: f32 = load.f32 group %bi
      %pq: f32 = fmul.f32 %p, %q
      %u2: f32 = fadd.f32 %u, %pq
      %fourc: i32 = const.i32 4
      %ai2: i32 = add.i32 %ai, %fourc
      %bi2: i32 = add.i32 %bi, %sixty
      %j2: i32 = add.i32 %j, %one
      %more: i32 = lt_u.i32 %j2, %tile
      if over %more {
        continue inner (%j2, %u2, %ai2, %bi2)
      } else {
        br over ()
      }
      br inner (%u2)
    }
    barrier
    %qa2: i32 = add.i32 %qa, %sixty
    %qb2: i32 = add.i32 %qb, %bstep
    %k2: i32 = add.i32 %k, %tile
    %go: i32 = lt_u.i32 %k2, %n
    if end %go {
      continue tiles (%k2, %t, %qa2, %qb2)
    } else {
      br end ()
    }
    br tiles (%t)
  }
  %ca: i32 = add.i32 %yn, %x
  %cao: i32 = shl.i32 %ca, %two
  %cp: i32 = add.i32 %c, %cao
  store.f32 flat %cp, %sum
  return ()
}
)";
  std::vector<GangInput> inputs;
  for (uint64_t n : {16, 48}) {
    auto matrix = [&](uint32_t seed) {
      return WordsOf(n * n, [seed](size_t i) { return 0x3f000000u + (seed * (i + 3) * 7919u) % 0x800000u; });
    };
    inputs.push_back({{matrix(1), matrix(5), matrix(9), {}}, {0, 0, 0, n}, {n, n, 1}, {16, 16, 1}});
  }
  Compare(text, inputs);
}

// Each arm of a uniform if has a barrier; the value that an instance brings out stays live.
TEST(GroupTest, BothArms) {
  const std::string text = Kernel(R"(
  %v: i32 = load.i32 flat %xa
  store.i32 group %ma, %v
  %w: i32 = if way %n {
    barrier
    %a: i32 = load.i32 group %m
    %b: i32 = add.i32 %a, %v
    br way (%b)
  } else {
    store.i32 group %ma, %i
    barrier
    %c: i32 = load.i32 group %m
    br way (%c)
  }
  barrier
  store.i32 group %ma, %w
  barrier
  %d: i32 = load.i32 group %ma
  store.i32 flat %ra, %d
  return ()
)");
  std::vector<GangInput> inputs = Inputs(0);
  for (const GangInput& input : Inputs(1)) {
    inputs.push_back(input);
  }
  Compare(text, inputs);
}

// Neighbours exchange values in a loop; pointers and sums are carried across the barrier, and swapped.
TEST(GroupTest, BarrierInLoop) {
  const std::string text = Kernel(R"(
  %v: i32 = load.i32 flat %xa
  %p: i32, %q: i32 = loop again (%k: i32 = %zero, %a: i32 = %v, %b: i32 = %l, %o: i32 = %la) {
    store.i32 group %m + 0, %k
    barrier
    %na: i32 = add.i32 %m, %o
    store.i32 group %na, %a
    barrier
    %z: i32 = load.i32 group %m
    %b2: i32 = add.i32 %b, %z
    %o2: i32 = add.i32 %o, %four
    %k2: i32 = add.i32 %k, %one
    barrier
    %more: i32 = lt_u.i32 %k2, %n
    if last %more {
      continue again (%k2, %b2, %a, %o2)
    } else {
      br again (%b2, %o2)
    }
    trap 1
  }
  %t: i32 = mul.i32 %p, %q
  store.i32 flat %ra, %t
  return ()
)");
  Compare(text, Inputs(5));
}

// All instances of a group return early, or none does.
TEST(GroupTest, UniformReturn) {
  const std::string text = Kernel(R"(
  %odd: i32 = and.i32 %g, %one
  if skip %odd {
    return ()
  } else {
    br skip ()
  }
  store.i32 group %ma, %i
  barrier
  %v: i32 = load.i32 group %m
  store.i32 flat %ra, %v
  return ()
)");
  Compare(text, Inputs());
}

// A condition from memory on which all instances agree, and loops whose count comes from memory.
TEST(GroupTest, ConditionFromMemory) {
  const std::string text = Kernel(R"(
  %count: i32 = load.i32 param(1) %zero
  %sum: i32 = loop again (%k: i32 = %zero, %a: i32 = %i) {
    store.i32 group %ma, %a
    barrier
    %z: i32 = load.i32 group %m
    %b: i32 = add.i32 %a, %z
    %k2: i32 = add.i32 %k, %one
    barrier
    %more: i32 = lt_u.i32 %k2, %count
    if last %more {
      continue again (%k2, %b)
    } else {
      br last ()
    }
    br again (%b)
  }
  store.i32 flat %ra, %sum
  return ()
)");
  Compare(text, Inputs());
}

// Instances that diverge before a barrier trap there (S41, S42).
TEST(GroupTest, Divergence) {
  const std::string text = Kernel(R"(
  %v: i32 = load.i32 flat %xa
  %c: i32 = lt_u.i32 %v, %n
  if way %c @5 {
    store.i32 group %ma, %i
    barrier @11
    %w: i32 = load.i32 group %m
    store.i32 flat %ra, %w
    br way ()
  } else {
    br way ()
  }
  return ()
)");
  // x[i] is 3 i^2 + 7: the first `some` instances go to the barrier.
  auto inputs = [](uint64_t some) {
    std::vector<GangInput> made;
    for (const GangInput& input : {Input(16, 16), Input(21, 7), Input(64, 64)}) {
      made.push_back(input);
      made.back().scalars[2] = some == 0 ? 0 : 3 * (some - 1) * (some - 1) + 8;
    }
    return made;
  };
  for (uint64_t some : {1, 3, 6}) {
    SCOPED_TRACE(some);
    Compare(text, inputs(some), /*same_instance=*/true, ir::TrapCode::kBarrierDivergence);
  }
  Compare(text, inputs(0));
  Compare(text, inputs(100));
}

// Instances whose indices are beyond a table all take its last target, so they do not diverge.
TEST(GroupTest, IndicesBeyondATable) {
  const std::string text = Kernel(R"(
  store.i32 group %ma, %i
  %w: i32 = add.i32 %l, %two
  block out () {
    block in () {
      br_table %w [in, out] ()
    }
    barrier
    store.i32 flat %ra, %w
    br out ()
  }
  barrier
  %v: i32 = load.i32 group %m
  store.i32 flat %ra, %v
  return ()
)");
  Compare(text, Inputs());
}

// Atomics count what instances observe of each other on both sides of a barrier.
TEST(GroupTest, AtomicsAndBarriers) {
  const std::string text = Kernel(R"(
  %old: i32 = atomic_add.i32 group %m, %one
  barrier
  %all: i32 = atomic_load.i32 group %m
  %big: i32 = atomic_max_u.i32 group %m + 4, %l
  barrier
  %top: i32 = load.i32 group %m + 4
  %sum: i32 = add.i32 %all, %top
  store.i32 flat %ra, %sum
  return ()
)");
  Compare(text, Inputs());
}

// Traps within intervals name the instance, also in rows and after a barrier.
TEST(GroupTest, TrapsInIntervals) {
  const std::string text = Kernel(R"(
  store.i32 group %ma, %i
  barrier
  %v: i32 = load.i32 flat %xa
  %d: i32 = sub.i32 %i, %n
  %q: i32 = div_u.i32 %v, %d @33
  store.i32 flat %ra, %q
  return ()
)");
  Compare(text, {Input(64, 16, 3), Input(40, 16, 39), Input(21, 7, 20)}, true, ir::TrapCode::kDivideByZero);
}

// Covers groups of two and three dimensions: whole, partial, narrower than a vector and wider.
TEST(GroupTest, Dimensions) {
  const std::string text = R"(module "dimensions"
uses barrier
uses group_memory
param buffer inout "r"
entry f0
func f0 "dimensions" (%r: i32) -> () {
  %zero: i32 = const.i32 0
  %one: i32 = const.i32 1
  %two: i32 = const.i32 2
  %bytes: i32 = const.i32 4096
  %x: i32 = instance_id.i32 %zero
  %y: i32 = instance_id.i32 %one
  %z: i32 = instance_id.i32 %two
  %lx: i32 = local_id.i32 %zero
  %ly: i32 = local_id.i32 %one
  %lz: i32 = local_id.i32 %two
  %nx: i32 = instance_count.i32 %zero
  %ny: i32 = instance_count.i32 %one
  %sx: i32 = group_size.i32 %zero
  %sy: i32 = group_size.i32 %one
  %gy: i32 = group_id.i32 %one
  %m: i32 = local_alloc %bytes
  %lzy: i32 = mul.i32 %lz, %sy
  %lzy2: i32 = add.i32 %lzy, %ly
  %lzyx: i32 = mul.i32 %lzy2, %sx
  %own: i32 = add.i32 %lzyx, %lx
  %owno: i32 = shl.i32 %own, %two
  %ma: i32 = add.i32 %m, %owno
  %zy: i32 = mul.i32 %z, %ny
  %zy2: i32 = add.i32 %zy, %y
  %zyx: i32 = mul.i32 %zy2, %nx
  %id: i32 = add.i32 %zyx, %x
  %ido: i32 = shl.i32 %id, %two
  %ra: i32 = add.i32 %r, %ido
  %v: i32 = load.i32 flat %ra
  store.i32 group %ma, %v
  barrier
  %f: i32 = load.i32 group %m
  %t: i32 = add.i32 %f, %v
  barrier
  store.i32 group %ma, %t
  barrier
  %w: i32 = load.i32 group %ma
  %w2: i32 = add.i32 %w, %gy
  %w3: i32 = xor.i32 %w2, %t
  %w4: i32 = mul.i32 %w3, %v
  store.i32 flat %ra, %w4
  return ()
}
)";
  std::vector<GangInput> inputs;
  auto add = [&](Extent extent, Extent group) {
    const uint64_t count = extent[0] * extent[1] * extent[2];
    inputs.push_back({{WordsOf(count, [](size_t i) { return 17 * i + 5; })}, {}, extent, group});
  };
  add({16, 16, 1}, {16, 16, 1});
  add({24, 20, 1}, {8, 8, 1});
  add({33, 7, 1}, {32, 4, 1});
  add({9, 5, 3}, {4, 2, 2});
  add({1, 40, 2}, {1, 16, 2});
  Compare(text, inputs);
}

// The golden kernels about groups run by groups, except those that write memory private to an instance.
TEST(GroupTest, GoldenKernels) {
  size_t run = 0;
  for (const std::string& path : ir::testing::GoldenFiles(HPVMD_SOURCE_DIR "/tests/golden/ir")) {
    const std::string name = path.substr(path.rfind('/') + 1);
    if (name < "s39" || name >= "s49") {
      continue;
    }
    SCOPED_TRACE(name);
    ++run;
    ir::testing::CheckGoldenFile(
        path, [](const ir::Module& module, const ir::Launch& launch) -> StatusOr<ir::TrapReport> {
          const std::unique_ptr<ImageRunner> image = Compile(module, HostCpuTarget()->level.c_str());
          if (image == nullptr || image->artifact().variants.empty()) {
            return Internal("There is no code for groups.");
          }
          HPVMD_ASSIGN_OR_RETURN(const ir::AddressSpace space, ir::AssignAddresses(module, launch.arguments));
          return image->RunVariant(launch, space, image->artifact().variants.back()).trap;
        });
  }
  EXPECT_GE(run, 12u);
}

// A group cannot share memory that is private to an instance: fibers run such a kernel.
TEST(GroupTest, OwnMemoryIsLeftToFibers) {
  const ir::Module module = Parse(Kernel(R"(
  store.i32 module %zero, %i
  store.i32 group %ma, %i
  barrier
  %v: i32 = load.i32 module %zero
  %w: i32 = load.i32 group %m
  store.i32 flat %ra, %v
  return ()
)"));
  Compile(module, "x86-64-v2", /*expect_groups=*/false);
}

}  // namespace
}  // namespace hpvm::cpu
