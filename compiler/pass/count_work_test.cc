// SPDX-License-Identifier: Apache-2.0
#include "compiler/pass/count_work.h"

#include <gtest/gtest.h>

#include <cmath>

#include "compiler/pass/testing/access_trace.h"
#include "compiler/pass/testing/golden_kernel.h"
#include "compiler/pass/testing/random_kernel.h"

namespace hpvm::pass {
namespace {

struct Work {
  ir::WorkCount counted;
  double operations = 0, bytes = 0;  // As counted by the interpreter.
};

// Runs the launch with zeroed buffers.
Work WorkOf(const ir::Module& module, const ir::Launch& launch) {
  BoundsTrace trace;
  const ir::BoundsProgram bounds = FindBounds(module, &trace);
  Work work;
  work.counted = ir::CountWork(FindWork(module, trace), bounds, testing::FactsOf(module, launch));
  const StatusOr<std::vector<uint64_t>> times = testing::CountOperations(module, launch, 100'000'000);
  EXPECT_TRUE(times.ok()) << times.status();
  const ir::Function& f = module.function(module.entry);
  for (size_t i = 0; times.ok() && i < times->size(); ++i) {
    work.operations += OperationsOf(f.ops[i]) * static_cast<double>((*times)[i]);
    work.bytes += BufferBytesOf(f.ops[i]) * static_cast<double>((*times)[i]);
  }
  return work;
}

bool IsNear(double counted, double real, double factor) { return counted <= real * factor && real <= counted * factor; }

// Kernels of the benchmarks whose loop ends follow from the launch.
TEST(CountWorkTest, CompiledKernels) {
  int known = 0;
  for (const std::string& name : testing::GoldenKernelNames()) {
    SCOPED_TRACE(name);
    const testing::GoldenKernel golden = testing::ReadGoldenKernel(name);
    const Work work = WorkOf(golden.module, golden.launch);
    std::printf("%-13s operations %.3g of %.3g, bytes %.3g of %.3g%s\n", name.c_str(), work.counted.operations,
                work.operations, work.counted.bytes, work.bytes, work.counted.is_guess ? ", guessed" : "");
    EXPECT_GT(work.counted.operations, 0);
    if (work.counted.is_guess) {
      continue;
    }
    ++known;
    EXPECT_TRUE(IsNear(work.counted.operations, work.operations, 2));
    EXPECT_TRUE(IsNear(work.counted.bytes, work.bytes, 2));
  }
  EXPECT_GE(known, 8);
}

struct Case {
  const char* name;
  std::string body;
  testing::KernelLaunch launch;
  double factor;
  bool is_guess = false;
};

// Loops and branches whose iterations and directions follow from the launch.
TEST(CountWorkTest, KnownShapes) {
  const std::string at = " %o: i32 = shl.i32 %x, %c2\n";
  const std::string store = " store.i32 param(0) %o, %x\n";
  const auto loop = [&](const std::string& label, const std::string& bound, const std::string& inside) {
    const std::string i = label + "i", j = label + "j", g = label + "g";
    return " loop " + label + " (%" + i + ": i32 = %c0) {\n" + inside + " %" + j + ": i32 = add.i32 %" + i +
           ", %c1\n %" + g + ": i32 = lt_u.i32 %" + j + ", %" + bound + "\n if " + g + " %" + g + " {\n continue " +
           label + " (%" + j + ")\n} else {\n br " + g + " ()\n}\n br " + label + " ()\n}\n";
  };
  const auto tested_first = [&](const std::string& inside) {
    return " loop l (%i: i32 = %c0) {\n %g: i32 = lt_u.i32 %i, %n\n if t %g {\n br t ()\n} else {\n br l "
           "()\n}\n" +
           inside + " %j: i32 = add.i32 %i, %c1\n continue l (%j)\n}\n";
  };
  const auto branch = [&](const std::string& condition, const std::string& inside) {
    return condition + " if b %q {\n" + inside + " br b ()\n} else {\n br b ()\n}\n";
  };
  const testing::KernelLaunch launch{{16, 4, 1}, 4000, 40, 0};
  const Case kCases[] = {
      {"Straight", at + store, launch, 1},
      {"Loop", at + loop("l", "n", store), launch, 1},
      {"Nested", at + loop("l", "n", loop("k", "c7", store)), launch, 1},
      {"TestedFirst", at + tested_first(store), launch, 1},
      {"Triangle", at + loop("l", "n", loop("k", "li", store)), launch, 1.1},
      {"UpToTheId", at + " %e: i32 = add.i32 %x, %c1\n" + loop("l", "e", store), launch, 1.1},
      {"BranchTaken", at + branch(" %q: i32 = lt_u.i32 %x, %n\n", loop("l", "n", store)), launch, 1},
      {"BranchNotTaken", at + store + branch(" %q: i32 = gt_u.i32 %x, %n\n", loop("l", "n", store)), launch, 1.1},
      {"Edge", at + store + store + branch(" %q: i32 = eq.i32 %x, %c0\n", store), launch, 1.2},
      {"UpToMemory", at + " %e: i32 = load.i32 param(0) %o + 400\n" + loop("l", "e", store), launch, 1000, true},
      {"LeftByMemory",
       at + loop("l", "n",
                 " %e: i32 = load.i32 param(0) %o + 400\n if z %e {\n br l ()\n} else {\n br z ()\n}\n" + store),
       launch, 1000, true},
  };
  for (const Case& c : kCases) {
    SCOPED_TRACE(c.name);
    const ir::Module module = testing::BoundsKernel(c.body, true);
    std::vector<uint64_t> data(c.launch.bytes / 8);
    ir::Launch run;
    run.extent = c.launch.extent;
    run.arguments = {{reinterpret_cast<uint8_t*>(data.data()), c.launch.bytes, 0},
                     {nullptr, 0, c.launch.n},
                     {nullptr, 0, c.launch.m}};
    const Work work = WorkOf(module, run);
    SCOPED_TRACE(work.counted.operations);
    SCOPED_TRACE(work.operations);
    EXPECT_EQ(work.counted.is_guess, c.is_guess);
    EXPECT_TRUE(IsNear(work.counted.operations, work.operations, c.factor * 1.0001));
    EXPECT_TRUE(IsNear(work.counted.bytes, work.bytes, c.factor * 1.0001));
  }
}

// Counts never overflow, whatever the launch, and an empty program reports that it knows nothing.
TEST(CountWorkTest, ExtremeLaunches) {
  for (uint32_t seed = 0; seed < 500; ++seed) {
    testing::KernelGenerator generator(seed);
    const ir::Module module = testing::BoundsKernel(generator.Body());
    BoundsTrace trace;
    const ir::BoundsProgram bounds = FindBounds(module, &trace);
    ir::BoundsFacts facts;
    facts.extent = {~uint64_t{0}, ~uint64_t{0}, seed % 2 == 0 ? ~uint64_t{0} : 0};
    facts.group = {seed % 3, 1, 1};
    facts.params = {{true, true, ~uint64_t{0}, 32}, {false, false, 0xffffffff, 32}, {false, false, 0x80000000, 32}};
    const ir::WorkCount count = ir::CountWork(FindWork(module, trace), bounds, facts);
    EXPECT_TRUE(std::isfinite(count.operations) && count.operations >= 0 && std::isfinite(count.bytes));
    EXPECT_EQ(count.operations > 0, seed % 2 == 0);
  }
  EXPECT_TRUE(ir::CountWork({}, {}, {}).is_guess);
}

}  // namespace
}  // namespace hpvm::pass
