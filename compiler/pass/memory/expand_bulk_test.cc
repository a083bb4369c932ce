// SPDX-License-Identifier: Apache-2.0
#include "compiler/pass/memory/expand_bulk.h"

#include <gtest/gtest.h>

#include <numeric>

#include "compiler/ir/interpret/interpret.h"
#include "compiler/ir/text/text.h"
#include "compiler/ir/verify/verify.h"
#include "compiler/ir/walk.h"
#include "compiler/pass/memory/resolve_provenance.h"

namespace hpvm::pass {
namespace {

// Returns a kernel with buffers %a and %b and a number %n.
ir::Module Parse(const std::string& body) {
  StatusOr<ir::Module> module = ir::ParseModule(
      "module \"m\"\nmemory 65536 65536\nparam buffer in \"a\"\nparam buffer inout \"b\"\nparam i32 \"n\"\nentry f0\n"
      "func f0 \"f\" (%a: i32, %b: i32, %n: i32) -> () {\n" +
      body + "\n return ()\n}\n");
  EXPECT_TRUE(module.ok()) << module.status();
  return *module;
}

size_t CountBulk(const ir::Module& module) {
  size_t count = 0;
  ir::ForEachOp(module.functions[0], [&](ir::OpId id) {
    const ir::Opcode code = module.functions[0].op(id).code;
    count += code == ir::Opcode::kMemoryCopy || code == ir::Opcode::kMemoryFill ? 1 : 0;
  });
  return count;
}

struct Result {
  ir::TrapReport trap;
  std::vector<uint8_t> b;
  friend bool operator==(const Result& x, const Result& y) { return x.trap.code == y.trap.code && x.b == y.b; }
};
std::ostream& operator<<(std::ostream& out, const Result& result) {
  return out << Name(result.trap.code) << ", " << ::testing::PrintToString(result.b);
}

Result Run(const ir::Module& module, uint32_t n) {
  std::vector<uint8_t> a(300), b(300);
  std::iota(a.begin(), a.end(), uint8_t{1});
  std::iota(b.begin(), b.end(), uint8_t{100});
  ir::Launch launch;
  launch.arguments.resize(3);
  launch.arguments[0] = {.data = a.data(), .bytes = a.size(), .scalar = 0};
  launch.arguments[1] = {.data = b.data(), .bytes = b.size(), .scalar = 0};
  launch.arguments[2].scalar = n;
  const StatusOr<ir::TrapReport> trap = ir::Interpret(module, launch);
  EXPECT_TRUE(trap.ok()) << trap.status();
  return {trap.ok() ? *trap : ir::TrapReport(), std::move(b)};
}

// Compares the module before and after the pass, and the number of remaining copies and fills.
void Compare(const std::string& body, uint32_t n, size_t left) {
  const ir::Module before = Parse(body);
  ir::Module after = before;
  ASSERT_TRUE(ResolveProvenance(after).ok());
  ASSERT_TRUE(ir::Verify(after).empty()) << ToString(ir::Verify(after));
  EXPECT_EQ(CountBulk(after), left);
  EXPECT_EQ(Run(after, n), Run(before, n));
}

TEST(ExpandBulkTest, EverySize) {
  for (uint32_t size = 0; size <= kExpandedBytesMax + 1; ++size) {
    SCOPED_TRACE(size);
    const std::string bytes = " %s: i32 = const.i32 " + std::to_string(size) + "\n";
    const size_t left = size == 0 || size > kExpandedBytesMax ? 1 : 0;
    Compare(bytes + " %p: i32 = add.i32 %a, %n\n %q: i32 = add.i32 %b, %n\n memory_copy %q, %p, %s", 3, left);
    Compare(bytes + " memory_fill %b, %n, %s", 0x1234, left);
    // Within one buffer, in both directions; at 60 the largest ones leave it, and write nothing.
    Compare(bytes + " %q: i32 = add.i32 %b, %n\n memory_copy %q, %b, %s", 7, left);
    Compare(bytes + " %q: i32 = add.i32 %b, %n\n memory_copy %b, %q, %s", 2, left);
    Compare(bytes + " %q: i32 = add.i32 %b, %n\n memory_copy %q, %a, %s", 60, left);
    Compare(bytes + " %q: i32 = add.i32 %a, %n\n memory_copy %b, %q, %s", 60, left);
    Compare(bytes + " %q: i32 = add.i32 %b, %n\n memory_fill %q, %n, %s", 60, left);
    Compare(bytes + " memory_copy %a, %b, %s", 0, left);  // `a` is read-only.
  }
}

// Operations that may touch other memory than buffers remain, with exact checks.
TEST(ExpandBulkTest, OtherPlacesStay) {
  const std::string bytes = " %s: i32 = const.i32 16\n %c: i32 = const.i32 512\n";
  Compare(bytes + " memory_copy %c, %a, %s", 0, 1);
  Compare(bytes + " memory_copy %b, %c, %s", 0, 1);
  Compare(bytes + " memory_fill %c, %n, %s", 0, 1);
  Compare(bytes + " memory_copy %b, %a, %n", 16, 1);
}

// However many copies a module has, it grows by a bounded number of operations.
TEST(ExpandBulkTest, ManyStay) {
  constexpr uint64_t kExpanded = kExpandedBytesOfKernelMax / kExpandedBytesMax, kCopies = 1'000;
  std::string body = " %s: i32 = const.i32 " + std::to_string(kExpandedBytesMax) + "\n";
  for (uint64_t i = 0; i < kCopies; ++i) {
    body += " memory_copy %b, %a, %s\n";
  }
  Compare(body, 0, kCopies - kExpanded);
}

}  // namespace
}  // namespace hpvm::pass
