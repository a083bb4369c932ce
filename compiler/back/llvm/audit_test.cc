// SPDX-License-Identifier: Apache-2.0
// Tests audits of proofs (compiler/api/audit.h): unchecked code, run as if a launch had a proof that it does not have,
// detects the mistake before it touches memory outside the buffers.
#include <gtest/gtest.h>

#include "compiler/back/llvm/llvm_back.h"
#include "compiler/back/llvm/testing/image_runner.h"
#include "compiler/ir/text/text.h"
#include "compiler/pass/pipeline.h"

namespace hpvm::cpu {
namespace {

using testing::ImageRunner;

constexpr char kHead[] =
    "module \"m\"\nparam buffer in \"x\"\nparam buffer inout \"r\"\nentry f0\n"
    "func f0 \"k\" (%x: i32, %r: i32) -> () {\n %c0: i32 = const.i32 0\n %c1: i32 = const.i32 1\n"
    " %c2: i32 = const.i32 2\n %i: i32 = instance_id.i32 %c0\n %o: i32 = shl.i32 %i, %c2\n";
constexpr char kTail[] = " return ()\n}\n";

struct Case {
  const char* name;
  std::string body;
  std::string uses = "";
};
const Case kCases[] = {
    {"Contiguous", " %v: i32 = load.i32 param(0) %o\n store.i32 param(1) %o, %v\n"},
    {"Reversed",
     " %ones: i32 = const.i32 -1\n %n: i32 = instance_count.i32 %c0\n %j: i32 = xor.i32 %i, %ones\n"
     " %k: i32 = add.i32 %n, %j\n %p: i32 = shl.i32 %k, %c2\n store.i32 param(1) %p, %i\n"},
    {"Strided", " %s: i32 = shl.i32 %o, %c1\n %v: i32 = load.i32 param(0) %s\n store.i32 param(1) %c0, %v\n"},
    {"Scattered", " %s: i32 = mul.i32 %o, %i\n store.i32 param(1) %s, %i\n"},
    {"Uniform", " %n: i32 = instance_count.i32 %c0\n %s: i32 = shl.i32 %n, %c2\n store.i32 param(1) %s, %n\n"},
    {"Masked",
     " %odd: i32 = and.i32 %i, %c1\n if g0 %odd {\n store.i32 param(1) %o, %i\n br g0 ()\n} else {\n br g0 ()\n"
     "}\n"},
    {"Atomic", " %v: i32 = atomic_add.i32 param(1) %o, %i\n"},
    {"InALoop",
     " loop l (%j: i32 = %c0) {\n %p: i32 = shl.i32 %j, %c2\n store.i32 param(1) %p, %i\n %k: i32 = add.i32 %j, %c1\n"
     " %n: i32 = instance_count.i32 %c0\n %g: i32 = lt_u.i32 %k, %n\n if h0 %g {\n continue l (%k)\n} else {\n"
     " br h0 ()\n}\n br l ()\n}\n"},
    {"Group",
     " %b: i32 = const.i32 64\n %g: i32 = local_alloc %b\n %l: i32 = local_id.i32 %c0\n %s: i32 = shl.i32 %l, %c2\n"
     " %p: i32 = add.i32 %g, %s\n %v: i32 = load.i32 param(0) %o\n store.i32 group %p, %v\n barrier\n"
     " %w: i32 = load.i32 group %g\n store.i32 param(1) %o, %w\n",
     "uses barrier\nuses group_memory\n"},
};

class AuditTest : public ::testing::TestWithParam<Case> {
 protected:
  StatusOr<Artifact> Compile(bool audits) {
    std::string text = std::string(kHead) + GetParam().body + kTail;
    text.insert(text.find('\n') + 1, GetParam().uses);
    HPVMD_ASSIGN_OR_RETURN(module_, ir::ParseModule(text));
    HPVMD_RETURN_IF_ERROR(pass::RunCpuPipeline(module_, {.verify_each = true}));
    InitializeLlvm();
    HPVMD_ASSIGN_OR_RETURN(const CpuTarget target, HostCpuTarget());
    return EmitCpuImage(module_, target,
                        {.shapes = {{.lanes = 8, .columns = 2}, {.lanes = 4}}, .audits_proofs = audits});
  }
  // Runs 64 instances; each buffer has room for `count` of them, and as much again behind it that must not change.
  ir::TrapReport Run(const Artifact& artifact, const CpuVariant& variant, uint64_t count) {
    std::vector<uint32_t> x(1 << 16, 1), r(1 << 16, 2);
    ir::Launch launch;
    launch.extent = {64, 1, 1};
    launch.group = {module_.uses_barrier ? 16u : 1u, 1, 1};
    launch.arguments = {{reinterpret_cast<uint8_t*>(x.data()), 4 * count, 0},
                        {reinterpret_cast<uint8_t*>(r.data()), 4 * count, 0}};
    const StatusOr<ir::AddressSpace> space = ir::AssignAddresses(module_, launch.arguments);
    EXPECT_TRUE(space.ok());
    ImageRunner image(artifact);
    const ir::TrapReport trap = image.RunVariant(launch, *space, variant).trap;
    EXPECT_TRUE(std::all_of(r.begin() + static_cast<ptrdiff_t>(count), r.end(), [](uint32_t v) { return v == 2; }));
    return trap;
  }

  ir::Module module_;
};

TEST_P(AuditTest, WrongProofsTrap) {
  const StatusOr<Artifact> artifact = Compile(true);
  ASSERT_TRUE(artifact.ok()) << artifact.status();
  EXPECT_EQ(ir::RunsByGroups(module_), !GetParam().uses.empty());
  uint32_t unchecked = 0;
  for (const CpuVariant& variant : artifact->variants) {
    SCOPED_TRACE(variant.lanes);
    const ir::TrapReport trap = Run(*artifact, variant, 37);
    EXPECT_EQ(trap.code, variant.needs_proof ? ir::TrapCode::kWrongProof : ir::TrapCode::kOutOfBounds);
    EXPECT_EQ(Run(*artifact, variant, 1 << 14).code, ir::TrapCode::kNone);
    unchecked += variant.needs_proof ? 1 : 0;
  }
  EXPECT_GT(unchecked, 0u);
}

// Delivered code has no such checks.
TEST_P(AuditTest, OnlyWhereItIsAskedFor) {
  const StatusOr<Artifact> audited = Compile(true), delivered = Compile(false);
  ASSERT_TRUE(audited.ok() && delivered.ok());
  EXPECT_LT(delivered->code.size(), audited->code.size());
  EXPECT_EQ(CpuOptions().audits_proofs, kAuditsProofs);
}

INSTANTIATE_TEST_SUITE_P(All, AuditTest, ::testing::ValuesIn(kCases),
                         [](const ::testing::TestParamInfo<Case>& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace hpvm::cpu
