// SPDX-License-Identifier: Apache-2.0
#include "compiler/back/gpu/buffer_fences.h"

#include <gtest/gtest.h>

#include "compiler/ir/text/text.h"
#include "compiler/ir/verify/verify.h"
#include "compiler/ir/walk.h"

namespace hpvm::gpu {
namespace {

struct Case {
  const char* name;
  const char* body;
  const char* want;  // One letter per barrier in program order: f if it must order buffers, else -.
};

std::string FencesOf(const std::string& body) {
  const StatusOr<ir::Module> module = ir::ParseModule(
      "module \"m\"\nuses barrier\nuses group_memory\nparam buffer inout \"a\"\nparam buffer in \"b\"\nparam i32 "
      "\"n\"\nentry f0\nfunc f0 \"f\" (%a: i32, %b: i32, %n: i32) -> () {\n%zero: i32 = const.i32 0\n%size: i32 = "
      "const.i32 64\n%id: i32 = local_id.i32 %zero\n%g: i32 = local_alloc %size\n%c: i32 = const.i32 4\n" +
      body + "\nreturn ()\n}\n");
  EXPECT_TRUE(module.ok()) << module.status();
  if (!module.ok()) {
    return "";
  }
  EXPECT_TRUE(ir::Verify(*module).empty()) << ToString(ir::Verify(*module));
  const std::vector<bool> fences = FindBufferFences(*module);
  const ir::Function& function = module->function(module->entry);
  std::string found;
  ir::ForEachOp(function, [&](ir::OpId id) {
    if (function.op(id).code == ir::Opcode::kBarrier) {
      found += fences[id.index] ? 'f' : '-';
    }
  });
  return found;
}

constexpr const char* kLoad = "%v: i32 = load.i32 param(1) %id\n";
constexpr const char* kKeep = "store.i32 group %g, %v\n";
constexpr const char* kStore = "store.i32 param(0) %id, %id\n";

// A barrier orders a buffer write before it with any buffer access after it.
TEST(BufferFencesTest, Writes) {
  const Case kCases[] = {
      {"GroupMemoryAlone", "store.i32 group %g, %id\nbarrier\n%w: i32 = load.i32 group %g\nbarrier", "--"},
      {"WriteAndRead", "store.i32 param(0) %id, %id\nbarrier\n%w: i32 = load.i32 param(1) %n", "f"},
      {"WriteAndWrite", "store.i32 param(0) %id, %id\nbarrier\nstore.i32 param(0) %n, %n", "f"},
      {"WriteAlone", "store.i32 param(0) %id, %id\nbarrier", "-"},
      {"WriteBehind", "barrier\nstore.i32 param(0) %id, %id", "-"},
      {"ReadAndRead", "%v: i32 = load.i32 param(1) %id\nbarrier\n%w: i32 = load.i32 param(0) %n", "-"},
      {"ReadAndWrite", "%v: i32 = load.i32 param(1) %id\nbarrier\nstore.i32 param(0) %n, %v", "f"},
      {"AnyAddress", "store.i32 flat %n, %id\nbarrier\n%w: i32 = load.i32 flat %n", "f"},
      {"Atomics", "%o: i32 = atomic_add.i32 param(0) %zero, %n\nbarrier\n%w: i32 = load.i32 param(1) %zero", "f"},
      {"AtomicsBehind", "%v: i32 = load.i32 param(1) %id\nbarrier\n%o: i32 = atomic_add.i32 param(0) %zero, %n", "f"},
      {"OneOfThem", "store.i32 param(0) %id, %id\nbarrier\nbarrier\n%w: i32 = load.i32 param(1) %n", "-f"},
      {"InALoop",
       "loop a () {\n %w: i32 = load.i32 param(0) %n\n store.i32 param(0) %id, %w\n barrier\n if b %w {\n  continue a "
       "()\n } else {\n  br b ()\n }\n br a ()\n}",
       "f"},
      {"OnOneWay",
       "if a %n {\n store.i32 param(0) %id, %id\n br a ()\n} else {\n br a ()\n}\nbarrier\nif b %n {\n br b "
       "()\n} else {\n %w: i32 = load.i32 param(1) %n\n br b ()\n}",
       "f"},
  };
  for (const Case& c : kCases) {
    EXPECT_EQ(FencesOf(c.body), c.want) << c.name;
  }
}

// A load has completed once its value is in group memory.
TEST(BufferFencesTest, LoadsThatAreDone) {
  const std::string load = kLoad, keep = kKeep, store = kStore;
  const std::string both = load + "%w: i32 = load.i32 param(1) %n\n";
  EXPECT_EQ(FencesOf(load + keep + "barrier\nbarrier\n" + store), "--");
  EXPECT_EQ(FencesOf(load + "barrier\n" + keep + "barrier\n" + store), "--");
  EXPECT_EQ(FencesOf(load + "store.i32 group %g, %n\nbarrier\n" + store), "f");
  EXPECT_EQ(FencesOf(load + "store.i32 group %v, %n\nbarrier\n" + store), "f");
  EXPECT_EQ(FencesOf(both + keep + "barrier\n" + store), "f");
  // On one of two paths the value is not stored.
  EXPECT_EQ(FencesOf(load + "if a %n {\n" + keep + "br a ()\n} else {\nbr a ()\n}\nbarrier\n" + store), "f");
  EXPECT_EQ(FencesOf(load + "if a %n {\n" + keep + "br a ()\n} else {\n" + keep + "br a ()\n}\nbarrier\n" + store),
            "-");
  // A sum needs each of its terms, unless a term cancels out.
  EXPECT_EQ(FencesOf(both + "%s: i32 = add.i32 %v, %w\nstore.i32 group %g, %s\nbarrier\n" + store), "-");
  EXPECT_EQ(FencesOf(both + "%s: i32 = and.i32 %v, %w\nstore.i32 group %g, %s\nbarrier\n" + store), "f");
  EXPECT_EQ(FencesOf(load + "%m: i32 = sub.i32 %zero, %v\n%s: i32 = add.i32 %v, %m\nstore.i32 group %g, %s\nbarrier\n" +
                     store),
            "f");
  EXPECT_EQ(FencesOf(load + "%s: i32 = add.i32 %v, %v\nstore.i32 group %g, %s\nbarrier\n" + store), "f");
  EXPECT_EQ(FencesOf("%v: f32 = load.f32 param(1) %id\n%w: f32 = load.f32 param(1) %n\n%s: f32 = fadd.f32 %v, %w\n"
                     "store.f32 group %g, %s\nbarrier\n" +
                     store),
            "-");
  // A store to a buffer proves nothing, because the barrier does not order it.
  EXPECT_EQ(FencesOf(load + "store.i32 param(0) %id, %v\nbarrier\n" + store), "f");
}

// Storing the value that a previous iteration loaded says nothing about this iteration's load.
TEST(BufferFencesTest, LoadsInLoops) {
  const std::string turn = std::string("if b %n {\n continue a ()\n} else {\n br b ()\n}\nbr a ()\n}\n");
  const std::string load = kLoad, keep = kKeep, store = kStore;
  EXPECT_EQ(FencesOf("loop a () {\n" + load + keep + "barrier\n" + turn + store), "-");
  EXPECT_EQ(FencesOf("loop a () {\n" + load + "barrier\n" + keep + turn + store), "f");
  EXPECT_EQ(FencesOf("loop a () {\n" + load + keep + "barrier\n" + store + turn), "f");
}

}  // namespace
}  // namespace hpvm::gpu
