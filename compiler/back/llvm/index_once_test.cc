// SPDX-License-Identifier: Apache-2.0
// An index that other threads write is read once: the checked value is the used one.
#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "compiler/back/llvm/testing/gang_compare.h"

namespace hpvm::cpu {
namespace {

using testing::ImageRunner;

// Returns a kernel with buffers r (inout), x (inout, words) and y (in, 64 floats). The body may use the instance's
// address in each: %ra, %xa, %ya.
std::string Text(const std::string& body) {
  return "module \"m\"\nparam buffer inout \"r\"\nparam buffer inout \"x\"\nparam buffer in \"y\"\nentry f0\n"
         "func f0 \"f\" (%r: i32, %x: i32, %y: i32) -> () {\n%zero: i32 = const.i32 0\n%two: i32 = const.i32 2\n"
         "%id: i32 = instance_id.i32 %zero\n%o: i32 = shl.i32 %id, %two\n%ra: i32 = add.i32 %r, %o\n"
         "%xa: i32 = add.i32 %x, %o\n%ya: i32 = add.i32 %y, %o\n" +
         body + "\nreturn ()\n}\n";
}

// Counts LLVM's `freeze` instructions in the optimised IR of all functions.
size_t Freezes(const std::string& text, const std::vector<pass::GangShape>& shapes) {
  StatusOr<ir::Module> module = ir::ParseModule(text);
  EXPECT_TRUE(module.ok()) << module.status();
  EXPECT_TRUE(pass::RunCpuPipeline(*module, {.verify_each = true}).ok());
  CpuOptions options;
  options.vectorise = !shapes.empty();
  options.shapes = shapes;
  const StatusOr<std::string> llvm = EmitCpuText(*module, {"x86-64-v3"}, CpuText::kLlvm, options);
  EXPECT_TRUE(llvm.ok()) << llvm.status();
  size_t count = 0;
  for (size_t at = llvm->find("= freeze "); at != std::string::npos; at = llvm->find("= freeze ", at + 1)) {
    ++count;
  }
  return count;
}

TEST(IndexOnceTest, OnlyIndicesAreFrozen) {
  const std::string gather = Text(
      "%i: i32 = load.i32 flat %xa\n%io: i32 = shl.i32 %i, %two\n%p: i32 = add.i32 %y, %io\n"
      "%v: f32 = load.f32 flat %p\nstore.f32 flat %ra, %v");
  const std::string plain = Text(
      "%a: f32 = load.f32 flat %xa\n%b: f32 = load.f32 flat %ya\n%v: f32 = fadd.f32 %a, %b\n"
      "%k: i32 = load.i32 flat %ra\n%j: i32 = add.i32 %k, %id\nstore.i32 flat %ra, %j\nstore.f32 flat %xa, %v");
  EXPECT_GE(Freezes(gather, {}), 1u);
  EXPECT_EQ(Freezes(plain, {}), 0u);
  EXPECT_GT(Freezes(gather, {{8, 1, 1}}), Freezes(gather, {}));
  EXPECT_EQ(Freezes(plain, {{8, 1, 1}}), 0u);
}

// The kernel itself compares an index while another thread keeps changing it: a second read would lead out of the
// buffer, which traps.
TEST(IndexOnceTest, ARaceLeadsNowhere) {
  StatusOr<ir::Module> module = ir::ParseModule(Text(
      "%turns: i32 = const.i32 2000\n%one: i32 = const.i32 1\n%most: i32 = const.i32 64\n%none: f32 = const.f32 0\n"
      "%sum: f32 = loop again (%n: i32 = %zero, %so_far: f32 = %none) {\n"
      " %i: i32 = load.i32 flat %x\n %fits: i32 = lt_u.i32 %i, %most\n"
      " %v: f32 = if here %fits {\n  %io: i32 = shl.i32 %i, %two\n  %p: i32 = add.i32 %y, %io\n"
      "  %w: f32 = load.f32 flat %p\n  br here (%w)\n } else {\n  br here (%none)\n }\n"
      " %more: f32 = fadd.f32 %so_far, %v\n %n1: i32 = add.i32 %n, %one\n %c: i32 = lt_u.i32 %n1, %turns\n"
      " if on %c {\n  continue again (%n1, %more)\n } else {\n  br on ()\n }\n br again (%more)\n}\n"
      "store.f32 flat %ra, %sum"));
  ASSERT_TRUE(module.ok()) << module.status();
  ASSERT_TRUE(pass::RunCpuPipeline(*module, {.verify_each = true}).ok());
  CpuOptions options;
  options.shapes = {{8, 1, 1}};
  const StatusOr<CpuTarget> target = HostCpuTarget();
  ASSERT_TRUE(target.ok()) << target.status();
  const StatusOr<Artifact> artifact = EmitCpuImage(*module, *target, options);
  ASSERT_TRUE(artifact.ok()) << artifact.status();
  std::vector<uint32_t> r(256), x(1), y(64);
  ir::Launch launch;
  launch.extent = {256, 1, 1};
  for (std::vector<uint32_t>* words : {&r, &x, &y}) {
    launch.arguments.push_back({reinterpret_cast<uint8_t*>(words->data()), words->size() * 4, 0});
  }
  const StatusOr<ir::AddressSpace> space = ir::AssignAddresses(*module, launch.arguments);
  ASSERT_TRUE(space.ok()) << space.status();
  std::atomic<bool> ends{false};
  std::thread others([&] {
    std::atomic_ref<uint32_t> index(x[0]);
    while (!ends) {
      index.store(0x10000000u, std::memory_order_relaxed);
      index.store(3, std::memory_order_relaxed);
    }
  });
  ImageRunner image(*artifact);
  EXPECT_EQ(image.Run(launch, *space, 0, 256).trap.code, ir::TrapCode::kNone);
  for (const CpuVariant& variant : artifact->variants) {
    EXPECT_EQ(image.RunVariant(launch, *space, variant).trap.code, ir::TrapCode::kNone) << variant.needs_proof;
  }
  ends = true;
  others.join();
}

}  // namespace
}  // namespace hpvm::cpu
