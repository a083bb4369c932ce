// SPDX-License-Identifier: Apache-2.0
// Compares loads, stores, atomics and traps of tiles, in every shape and level, with the interpreter. Buffers end at a
// page that faults, so that inactive lanes and wide accesses to narrow elements must not touch the bytes after them.
#include <gtest/gtest.h>

#include "compiler/back/llvm/testing/gang_compare.h"

namespace hpvm::cpu {
namespace {

using ir::TrapCode;
using testing::GangCompared;
using testing::GangInput;
using testing::KernelText;
using testing::WordsOf;

struct Case {
  const char* name;
  const char* body;
  bool is_proven = true;  // True: unchecked code runs for some launch.
};

// x has 4 * extent + 8 words here; gathers stay below that.
constexpr Case kCases[] = {
    {"contiguous", R"(
  %w: i32 = load.i32 flat %xa + 4
  store.i32 flat %ra, %w
  return ()
)"},
    {"unaligned", R"(
  %w: i32 = load.i32 flat %xa + 3
  store.i32 flat %ra, %w
  return ()
)"},
    {"reversed", R"(
  %count: i32 = instance_count.i32 %zero
  %last: i32 = sub.i32 %count, %one
  %i: i32 = sub.i32 %last, %id
  %off: i32 = shl.i32 %i, %two
  %a: i32 = add.i32 %x, %off
  %w: i32 = load.i32 flat %a
  %b: i32 = add.i32 %r, %off
  store.i32 flat %b, %w
  return ()
)"},
    {"strided_load", R"(
  %i: i32 = mul.i32 %id, %three
  %off: i32 = shl.i32 %i, %two
  %a: i32 = add.i32 %x, %off
  %p: i32 = load.i32 flat %a
  %q: i32 = load.i32 flat %a + 4
  %w: i32 = sub.i32 %p, %q
  store.i32 flat %ra, %w
  return ()
)"},
    {"strided_by_two_of_eight", R"(
  %off: i32 = shl.i32 %id, %three
  %a: i32 = add.i32 %x, %off
  %p: i64 = load.i64 flat %a
  %w: i32 = wrap.i64 %p
  store.i32 flat %ra, %w
  return ()
)"},
    {"gather", R"(
  %i: i32 = and.i32 %v, %seven
  %off: i32 = shl.i32 %i, %two
  %a: i32 = add.i32 %x, %off
  %w: i32 = load.i32 flat %a
  store.i32 flat %ra, %w
  return ()
)"},
    {"gather_bytes", R"(
  %i: i32 = and.i32 %v, %seven
  %a: i32 = add.i32 %x, %i
  %w: i32 = load.i32 w1 signed flat %a
  %h: i32 = load.i32 w2 flat %a + 1
  %s: i32 = add.i32 %w, %h
  store.i32 flat %ra, %s
  return ()
)"},
    {"gather_last_bytes", R"(
  %count: i32 = instance_count.i32 %zero
  %bytes: i32 = shl.i32 %count, %four
  %end: i32 = add.i32 %x, %bytes
  %i: i32 = and.i32 %v, %seven
  %a: i32 = sub.i32 %end, %i
  %w: i32 = load.i32 w1 flat %a + 31
  store.i32 flat %ra, %w
  return ()
)"},
    {"narrow_rows", R"(
  %a: i32 = add.i32 %x, %id
  %w: i32 = load.i32 w1 flat %a
  %o: i32 = shl.i32 %id, %one
  %b: i32 = add.i32 %x, %o
  %h: i32 = load.i32 w2 signed flat %b
  %s: i32 = mul.i32 %w, %h
  %c: i32 = add.i32 %r, %o
  store.i32 w2 flat %c, %s
  return ()
)"},
    {"uniform_load", R"(
  %w: i32 = load.i32 flat %x + 8
  store.i32 flat %ra, %w
  return ()
)"},
    // Several lanes write one word: the last lane wins, as if instances ran one after the other.
    {"uniform_store", R"(
  %c: i32 = and.i32 %v, %one
  if b0 %c {
    store.i32 flat %r, %id
    br b0 ()
  } else {
    br b0 ()
  }
  return ()
)"},
    {"pointer_that_moves_on", R"(
  %sum: i32, %end: i32 = loop b0 (%p: i32 = %xa, %i: i32 = %zero, %s: i32 = %zero) {
    %w: i32 = load.i32 flat %p
    %s2: i32 = add.i32 %s, %w
    %i2: i32 = add.i32 %i, %one
    %p2: i32 = add.i32 %p, %four
    %more: i32 = lt_u.i32 %i2, %three
    if b1 %more {
      continue b0 (%p2, %i2, %s2)
    } else {
      br b1 ()
    }
    br b0 (%s2, %p2)
  }
  store.i32 flat %ra, %sum
  return ()
)"},
    {"atomic_to_one_word", R"(
  %old: i32 = atomic_add.i32 flat %r, %v
  return ()
)"},
    {"atomic_scattered", R"(
  %i: i32 = and.i32 %v, %three
  %off: i32 = shl.i32 %i, %two
  %a: i32 = add.i32 %r, %off
  %c: i32 = and.i32 %id, %one
  if b0 %c {
    %old: i32 = atomic_max_u.i32 flat %a, %id
    br b0 ()
  } else {
    %other: i32 = atomic_max_u.i32 flat %a, %v
    br b0 ()
  }
  return ()
)"},
    {"atomic_own_word", R"(
  %old: i32 = atomic_add.i32 flat %ra, %v
  %o: i32 = atomic_cmpxchg.i32 flat %ra, %old, %one
  %s: i32 = atomic_xchg.i32 flat %ra, %o
  %t: i32 = atomic_sub.i32 flat %ra, %s
  return ()
)"},
};

class GangMemoryTest : public ::testing::TestWithParam<Case> {};

TEST_P(GangMemoryTest, Agrees) {
  GangCompared kernel(KernelText(GetParam().body));
  for (uint64_t extent : {1, 2, 4, 5, 7, 8, 15, 16, 17, 31, 33, 48, 50}) {
    const size_t words = std::max<uint64_t>(extent, 4);
    kernel.Check({{WordsOf(words, [](size_t i) { return i * 77; }),
                   WordsOf(4 * extent + 8, [](size_t i) { return i * 2654435761u >> 5; }),
                   {}},
                  {},
                  {extent, 1, 1}});
    if (HasFatalFailure() || HasNonfatalFailure()) {
      return;
    }
  }
  EXPECT_EQ(kernel.unchecked_runs > 0, GetParam().is_proven);
}

INSTANTIATE_TEST_SUITE_P(All, GangMemoryTest, ::testing::ValuesIn(kCases),
                         [](const auto& tested) { return std::string(tested.param.name); });

// r has 4 * extent words, of which 3 in 4 or fewer are written.
constexpr Case kWide[] = {
    {"stride_of_two", R"(
  %off: i32 = shl.i32 %id, %three
  %a: i32 = add.i32 %r, %off
  store.i32 flat %a + 4, %v
  return ()
)"},
    {"stride_of_three", R"(
  %i: i32 = mul.i32 %id, %three
  %off: i32 = shl.i32 %i, %two
  %a: i32 = add.i32 %r, %off
  store.i32 flat %a, %v
  store.i32 flat %a + 4, %id
  return ()
)"},
    {"stride_of_four", R"(
  %off: i32 = shl.i32 %id, %four
  %a: i32 = add.i32 %r, %off
  store.i32 flat %a + 12, %v
  return ()
)"},
    {"stride_of_two_of_eight", R"(
  %off: i32 = shl.i32 %id, %four
  %a: i32 = add.i32 %r, %off
  %w: i64 = extend_s.i32 %v
  store.i64 flat %a + 8, %w
  return ()
)"},
    {"stride_of_three_halves", R"(
  %i: i32 = mul.i32 %id, %three
  %off: i32 = shl.i32 %i, %one
  %a: i32 = add.i32 %r, %off
  store.i32 w2 flat %a + 2, %v
  return ()
)"},
    // A vector of four has one element in each of these stores, narrowed just before.
    {"stride_of_four_halves", R"(
  %off: i32 = shl.i32 %id, %three
  %a: i32 = add.i32 %r, %off
  %w: i32 = rotl.i32 %id, %seven
  store.i32 w2 flat %a, %w
  return ()
)"},
    {"stride_of_four_bytes", R"(
  %a: i32 = add.i32 %r, %at
  %w: i64 = extend_s.i32 %v
  %p: i64 = mul.i64 %w, %w
  store.i64 w1 flat %a, %p
  return ()
)"},
    {"stride_of_two_in_an_arm", R"(
  %off: i32 = shl.i32 %id, %three
  %a: i32 = add.i32 %r, %off
  %c: i32 = and.i32 %v, %one
  if b0 %c {
    store.i32 flat %a, %v
    br b0 ()
  } else {
    br b0 ()
  }
  return ()
)"},
    {"four_words", R"(
  %off: i32 = shl.i32 %id, %four
  %a: i32 = add.i32 %x, %off
  %p: i32, %q: i32, %s: i32, %t: i32 = load128 flat %a + 16
  %u: i32 = add.i32 %p, %t
  %b: i32 = add.i32 %r, %off
  store128 flat %b, %u, %t, %q, %s
  return ()
)"},
    {"four_words_in_an_arm", R"(
  %off: i32 = shl.i32 %id, %four
  %c: i32 = and.i32 %v, %one
  if b0 %c {
    %a: i32 = add.i32 %x, %off
    %p: i32, %q: i32, %s: i32, %t: i32 = load128 flat %a
    %b: i32 = add.i32 %r, %off
    store128 flat %b, %id, %t, %q, %s
    br b0 ()
  } else {
    br b0 ()
  }
  return ()
)"},
    {"four_words_anywhere", R"(
  %count: i32 = instance_count.i32 %zero
  %last: i32 = sub.i32 %count, %one
  %i: i32 = sub.i32 %last, %id
  %j: i32 = and.i32 %v, %one
  %k: i32 = shl.i32 %j, %four
  %a: i32 = add.i32 %x, %k
  %p: i32, %q: i32, %s: i32, %t: i32 = load128 flat %a
  %off: i32 = shl.i32 %i, %four
  %b: i32 = add.i32 %r, %off
  store128 flat %b, %p, %id, %q, %t
  return ()
)"},
    {"four_words_at_one_place", R"(
  %p: i32, %q: i32, %s: i32, %t: i32 = load128 flat %x + 4
  store128 flat %r, %p, %id, %v, %t
  return ()
)"},
};

class GangWideTest : public ::testing::TestWithParam<Case> {};

// Elements between the stored ones do not change.
TEST_P(GangWideTest, Agrees) {
  GangCompared kernel(KernelText(GetParam().body));
  for (uint64_t extent : {1, 2, 4, 5, 7, 8, 15, 16, 17, 31, 33, 48, 50}) {
    kernel.Check({{WordsOf(4 * extent, [](size_t i) { return ~(i * 2654435761u); }),
                   WordsOf(4 * extent + 8, [](size_t i) { return i * 2654435761u >> 5; }),
                   {}},
                  {},
                  {extent, 1, 1}});
    if (HasFatalFailure() || HasNonfatalFailure()) {
      return;
    }
  }
  EXPECT_GT(kernel.unchecked_runs, 0u);
}

INSTANTIATE_TEST_SUITE_P(All, GangWideTest, ::testing::ValuesIn(kWide),
                         [](const auto& tested) { return std::string(tested.param.name); });

// The last element of each buffer is the last one before the page that faults; lanes after it are inactive.
TEST(GangMaskTest, LanesThatAreOffTouchNothing) {
  constexpr const char* kBodies[] = {// A guard at the beginning, with more instances than elements.
                                     R"(
  %c: i32 = ge_u.i32 %id, %n
  if b0 %c {
    return ()
  } else {
    br b0 ()
  }
  %w: i32 = load.i32 flat %xa
  %s: i32 = add.i32 %w, %one
  store.i32 flat %ra, %s
  return ()
)",
                                     // The same by an arm, with an address that is not linear in the id.
                                     R"(
  %c: i32 = lt_u.i32 %id, %n
  if b0 %c {
    %i: i32 = and.i32 %id, %seven
    %j: i32 = rem_u.i32 %i, %n
    %a: i32 = add.i32 %x, %j
    %w: i32 = load.i32 w1 flat %a
    %off: i32 = shl.i32 %j, %two
    %b: i32 = add.i32 %x, %off
    %u: i32 = load.i32 flat %b
    %s: i32 = add.i32 %w, %u
    store.i32 flat %ra, %s
    br b0 ()
  } else {
    br b0 ()
  }
  return ()
)"};
  for (const char* body : kBodies) {
    std::string text = KernelText(body);
    // Removes the load of the instance's word, which precedes the guard.
    const std::string load = "  %v: i32 = load.i32 flat %xa @1\n";
    text.replace(text.find(load), load.size(), "");
    GangCompared kernel(text);
    for (uint64_t n : {1, 2, 7, 16, 17, 40}) {
      for (uint64_t extent : {n, n + 1, n + 7, n + 60}) {
        kernel.Check({{WordsOf(n, [](size_t i) { return i; }), WordsOf(n, [](size_t i) { return i * 3 + 1; }), {}},
                      {0, 0, n},
                      {extent, 1, 1}});
      }
    }
  }
}

struct TrapCase {
  const char* name;
  const char* body;
  TrapCode code;
};

constexpr TrapCase kTraps[] = {
    {"out_of_bounds_row", "%w: i32 = load.i32 flat %xa + 4 @7\n  store.i32 flat %ra, %w\n  return ()\n",
     TrapCode::kOutOfBounds},
    {"out_of_bounds_gather", R"(
  %off: i32 = shl.i32 %v, %seven
  %a: i32 = add.i32 %x, %off
  %w: i32 = load.i32 flat %a @7
  store.i32 flat %ra, %w
  return ()
)",
     TrapCode::kOutOfBounds},
    {"out_of_bounds_store",
     "%b: i32 = shl.i32 %at, %one\n  %a: i32 = add.i32 %r, %b\n  store.i32 flat %a, %v @7\n"
     "  return ()\n",
     TrapCode::kOutOfBounds},
    {"read_only", "store.i32 flat %xa, %v @7\n  return ()\n", TrapCode::kReadOnlyBuffer},
    {"divide_by_zero", "%w: i32 = div_u.i32 %id, %v @7\n  store.i32 flat %ra, %w\n  return ()\n",
     TrapCode::kDivideByZero},
    {"overflow", R"(
  %least: i32 = const.i32 -2147483648
  %d: i32 = sub.i32 %v, %two
  %w: i32 = div_s.i32 %least, %d @7
  store.i32 flat %ra, %w
  return ()
)",
     TrapCode::kIntegerOverflow},
    {"conversion", R"(
  %f: f32 = reinterpret.i32 %at
  %inf: f32 = const.f32 0x7f800000
  %g: f32 = fmul.f32 %f, %inf
  %w: i32 = trunc_s.f32 %g @7
  store.i32 flat %ra, %w
  return ()
)",
     TrapCode::kInvalidConversion},
    {"unreachable", R"(
  %c: i32 = eq.i32 %v, %one
  if b0 %c {
    trap 1 @7
  } else {
    br b0 ()
  }
  return ()
)",
     TrapCode::kUnreachable},
    {"assert_in_loop", R"(
  loop b0 (%i: i32 = %zero) {
    %c: i32 = eq.i32 %i, %v
    if b1 %c {
      trap 10 @7
    } else {
      br b1 ()
    }
    %i2: i32 = add.i32 %i, %one
    %more: i32 = lt_u.i32 %i2, %two
    if b2 %more {
      continue b0 (%i2)
    } else {
      br b2 ()
    }
    br b0 ()
  }
  return ()
)",
     TrapCode::kAssert},
    {"out_of_bounds_stride", R"(
  %off: i32 = shl.i32 %id, %three
  %a: i32 = add.i32 %r, %off
  store.i32 flat %a, %v @7
  return ()
)",
     TrapCode::kOutOfBounds},
    {"out_of_bounds_four_words", R"(
  %p: i32, %q: i32, %s: i32, %t: i32 = load128 flat %xa @7
  store128 flat %ra, %p, %q, %s, %t @8
  return ()
)",
     TrapCode::kOutOfBounds},
    {"read_only_four_words", "store128 flat %x, %v, %v, %v, %v @7\n  return ()\n", TrapCode::kReadOnlyBuffer},
    {"misaligned_atomic", R"(
  %a: i32 = add.i32 %ra, %v
  %old: i32 = atomic_add.i32 flat %a, %one @7
  return ()
)",
     TrapCode::kMisalignedAtomic},
    {"in_a_call", R"(
  %w: i32 = call f1 (%v) @6
  store.i32 flat %ra, %w
  return ()
}
func f1 "divide" (%a: i32) -> (i32) {
  %ten: i32 = const.i32 10
  %one: i32 = const.i32 1
  %big: i32 = gt_u.i32 %a, %ten
  if b0 %big {
    %b: i32 = sub.i32 %a, %ten
    %r: i32 = call f1 (%b)
    return (%r)
  } else {
    br b0 ()
  }
  %q: i32 = div_u.i32 %ten, %a @7
  return (%q)
)",
     TrapCode::kDivideByZero},
};

class GangTrapTest : public ::testing::TestWithParam<TrapCase> {};

// One instance traps at each position in its tile; x is 3, except for that instance, where it is 1 or 0.
TEST_P(GangTrapTest, IsReported) {
  GangCompared kernel(KernelText(GetParam().body));
  bool has_trapped = false;
  for (uint64_t extent : {1, 6, 16, 17, 40}) {
    for (uint64_t place : {uint64_t{0}, extent / 2, extent - 1}) {
      for (uint32_t odd : {0u, 1u}) {
        const ir::TrapReport trap = kernel.Check({{WordsOf(extent, [](size_t i) { return i; }),
                                                   WordsOf(extent, [&](size_t i) { return i == place ? odd : 4; }),
                                                   {}},
                                                  {},
                                                  {extent, 1, 1}});
        has_trapped |= trap.code == GetParam().code;
      }
    }
  }
  EXPECT_TRUE(has_trapped);
}

INSTANTIATE_TEST_SUITE_P(All, GangTrapTest, ::testing::ValuesIn(kTraps),
                         [](const auto& tested) { return std::string(tested.param.name); });

// A load through one buffer's address that lands in another buffer finds the same bytes as a flat address.
TEST(GangSearchTest, AnotherBuffer) {
  GangCompared kernel(KernelText(R"(
  %gap: i32 = const.i32 0x20000
  %c: i32 = and.i32 %v, %one
  %far: i32 = mul.i32 %c, %gap
  %a: i32 = add.i32 %ra, %far
  %w: i32 = load.i32 flat %a
  store.i32 flat %ra, %w
  return ()
)"));
  for (uint64_t extent : {1, 16, 21}) {
    kernel.Check(
        {{WordsOf(extent, [](size_t i) { return i + 500; }), WordsOf(extent, [](size_t i) { return i * 5; }), {}},
         {},
         {extent, 1, 1}});
  }
}

// Tests offsets of 2 GiB and more by gathers, whose indices are signed.
TEST(GangFarTest, GathersBeyondTwoGigabytes) {
  constexpr uint64_t kHalf = uint64_t{1} << 31, kBytes = kHalf + 4096, kCount = 21;
  GangCompared kernel(KernelText(R"(
  %w: i32 = load.i32 flat %ra
  %a: i32 = add.i32 %x, %w
  %u: i32 = load.i32 flat %a
  store.i32 flat %ra, %u
  return ()
)"));
  void* mapped = mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  ASSERT_NE(mapped, MAP_FAILED);
  auto* x = static_cast<uint8_t*>(mapped);
  const auto offset_of = [](uint64_t i) { return static_cast<uint32_t>(kHalf - 40 + 4 * (i * 5 % kCount)); };
  for (uint64_t i = 0; i < kCount; ++i) {
    const auto value = static_cast<uint32_t>(1000 + i);
    std::memcpy(x + offset_of(i), &value, 4);
  }
  for (const auto& image : kernel.images()) {
    for (const CpuVariant& variant : image->artifact().variants) {
      if (variant.needs_proof) {
        continue;
      }
      std::vector<uint32_t> r(kCount);
      for (uint64_t i = 0; i < kCount; ++i) {
        r[i] = offset_of(i);
      }
      ir::Launch launch;
      launch.extent = {kCount, 1, 1};
      launch.arguments = {{reinterpret_cast<uint8_t*>(r.data()), kCount * 4, 0}, {x, kBytes, 0}, {}};
      const ir::AddressSpace space{{0x10000, 0x30000, 0}, 0, false};
      EXPECT_EQ(image->RunVariant(launch, space, variant).trap.code, TrapCode::kNone);
      for (uint64_t i = 0; i < kCount; ++i) {
        EXPECT_EQ(r[i], 1000 + i) << variant.lanes;
      }
    }
  }
  munmap(mapped, kBytes);
}

// Reads a table in module memory by varying and by uniform indices, and a global that no instance writes.
TEST(GangModuleMemoryTest, Tables) {
  GangCompared kernel(KernelText(R"(
  %g: i32 = global_get.i32 g0
  %i: i32 = and.i32 %v, %three
  %off: i32 = shl.i32 %i, %two
  %p: i32 = load.i32 module %off + 16
  %q: i32 = load.i32 flat %four + 16
  %s: i32 = add.i32 %p, %q
  %t: i32 = add.i32 %s, %g
  store.i32 flat %ra, %t
  return ()
)",
                                 "",
                                 "memory 65536 65536\ndata 16 \"0102030405060708090a0b0c0d0e0f10\"\nglobal i32 77\n"));
  for (uint64_t extent : {1, 9, 33}) {
    kernel.Check({{WordsOf(extent, [](size_t) { return 0; }), WordsOf(extent, [](size_t i) { return i * 13; }), {}},
                  {},
                  {extent, 1, 1}});
  }
}

// A kernel that writes memory private to an instance does not run in lockstep.
TEST(GangRefusalTest, StoresToModuleMemory) {
  GangCompared kernel(KernelText(R"(
  store.i32 module %four, %v
  %w: i32 = load.i32 module %four
  store.i32 flat %ra, %w
  return ()
)",
                                 "", "memory 65536 65536\n"),
                      /*is_refused=*/true);
}

}  // namespace
}  // namespace hpvm::cpu
