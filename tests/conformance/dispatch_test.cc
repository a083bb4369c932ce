// SPDX-License-Identifier: Apache-2.0
// Results of kernels: compared with values computed here, and with the interpreter bit for bit.
#include <algorithm>
#include <array>
#include <functional>
#include <numeric>

#include "tests/conformance/conformance.h"

namespace hpvm::conformance {
namespace {

using Extent = std::array<uint64_t, 3>;
constexpr Extent kOne = {1, 1, 1};

std::vector<float> Floats(size_t count, float start) {
  std::vector<float> values(count);
  for (size_t i = 0; i < count; ++i) {
    values[i] = start + 0.37f * static_cast<float>(i);
  }
  return values;
}

// Sizes around one instance, a vector, the switch to the pool, and beyond.
void Saxpy(Bench& bench) {
  std::unique_ptr<Executable> saxpy = bench.Load("saxpy");
  ASSERT_NE(saxpy, nullptr);
  for (uint64_t n : {1u, 7u, 64u, 1000u, 20'000u}) {
    const std::vector<float> x = Floats(n, -3), y = Floats(n, 1);
    std::unique_ptr<Buffer> bx = bench.Upload(x), by = bench.Upload(y);
    Work work;
    work.Dispatch(*saxpy, {n, 1, 1}, kOne, {Arg::Of(*by), Arg::Of(*bx), Arg::Scalar(2.5f)});
    const Status status = bench.Run(work);
    ASSERT_TRUE(status.ok()) << status;
    const std::vector<float> got = bench.Download<float>(*by);
    for (uint64_t i = 0; i < n; ++i) {
      const volatile float product = 2.5f * x[i];  // volatile: the reference must not be contracted either.
      ASSERT_EQ(got[i], product + y[i]) << i << " of " << n;
    }
    EXPECT_EQ(bench.Download<float>(*bx), x);
  }
}

// In a list so long that launches are timed in groups, equal launches have times of their own; different ones are
// timed in turn in each submission, and the others report that their time is shared.
void TimesOfLongLists(Bench& bench) {
  constexpr uint64_t kLaunches = 80;
  std::unique_ptr<Executable> saxpy = bench.Load("saxpy");
  ASSERT_NE(saxpy, nullptr);
  std::unique_ptr<Buffer> x = bench.Upload(Floats(4096, 1)), y = bench.Allocate(4096 * sizeof(float));
  for (const bool is_mixed : {false, true}) {
    std::vector<uint64_t> alone(kLaunches);
    uint64_t shared = 0;
    for (int submission = 0; submission < 20; ++submission) {
      Work work;
      for (uint64_t i = 0; i < kLaunches; ++i) {
        const uint64_t n = is_mixed && i % 2 == 1 ? 4096 : 1;
        work.Dispatch(*saxpy, {n, 1, 1}, kOne, {Arg::Of(*y), Arg::Of(*x), Arg::Scalar(0.0f)});
      }
      const Status status = bench.Run(work);
      ASSERT_TRUE(status.ok()) << status;
      for (uint64_t i = 0; i < kLaunches; ++i) {
        alone[i] += work.timings[i].is_shared ? 0 : 1;
        shared += work.timings[i].is_shared ? 1 : 0;
      }
    }
    EXPECT_EQ(shared > 0, is_mixed && bench.is_driven());
    EXPECT_EQ(std::ranges::count(alone, 0u), 0);
  }
}

// Ids, counts and sizes in three dimensions, with groups that do not divide the extents.
void Ids(Bench& bench) {
  std::unique_ptr<Executable> ids = bench.Load("ids");
  ASSERT_NE(ids, nullptr);
  const std::pair<Extent, Extent> shapes[] = {
      {{5, 3, 2}, {1, 1, 1}}, {{7, 5, 3}, {4, 2, 2}}, {{1, 1, 9}, {2, 3, 4}}, {{33, 1, 1}, {8, 1, 1}}};
  for (const auto& [extent, group] : shapes) {
    const uint64_t n = extent[0] * extent[1] * extent[2];
    std::unique_ptr<Buffer> out = bench.Allocate(n * 64);
    Work work;
    work.Dispatch(*ids, extent, group, {Arg::Of(*out)});
    const Status status = bench.Run(work);
    ASSERT_TRUE(status.ok()) << status;
    const std::vector<uint32_t> got = bench.Download<uint32_t>(*out);
    for (uint64_t i = 0; i < n; ++i) {
      const Extent id = {i % extent[0], i / extent[0] % extent[1], i / extent[0] / extent[1]};
      for (size_t d = 0; d < 3; ++d) {
        const uint32_t* row = &got[i * 16];
        ASSERT_EQ(row[d], id[d]) << i;
        ASSERT_EQ(row[3 + d], id[d] / group[d]) << i;
        ASSERT_EQ(row[6 + d], id[d] % group[d]) << i;
        ASSERT_EQ(row[9 + d], extent[d]) << i;
        ASSERT_EQ(row[12 + d], group[d]) << i;
        ASSERT_EQ(row[15], n * 64) << i;
      }
    }
  }
}

// A launch without instances does nothing and succeeds.
void NoInstances(Bench& bench) {
  std::unique_ptr<Executable> ids = bench.Load("ids");
  ASSERT_NE(ids, nullptr);
  std::unique_ptr<Buffer> out = bench.Allocate(64);
  Work work;
  work.Dispatch(*ids, {4, 0, 4}, kOne, {Arg::Of(*out)});
  EXPECT_TRUE(bench.Run(work).ok());
  EXPECT_EQ(bench.Download<uint32_t>(*out), std::vector<uint32_t>(16, 0));
}

// Scalars of every width, from the command and from the submission's table; one command list is used with two tables.
void Scalars(Bench& bench) {
  std::unique_ptr<Executable> kernel = bench.Load("scalars");
  ASSERT_NE(kernel, nullptr);
  std::unique_ptr<Buffer> out = bench.Allocate(8 * 8);
  Work work;
  const double c = -0.125;
  uint64_t c_bits;
  std::memcpy(&c_bits, &c, sizeof(c_bits));
  work.Dispatch(*kernel, {8, 1, 1}, kOne, {Arg::Of(*out), Arg::Slot(1), Arg::Scalar(c_bits), Arg::Slot(0)});
  for (int64_t k : {int64_t{-1'000'000'007}, int64_t{3}}) {
    work.scalars = {4, static_cast<uint64_t>(k)};
    ASSERT_TRUE(bench.Run(work).ok());
    const std::vector<double> got = bench.Download<double>(*out);
    for (int64_t i = 0; i < 8; ++i) {
      EXPECT_EQ(got[static_cast<size_t>(i)], static_cast<double>(i * k * 16) + c);
    }
  }
}

// Views: the kernel sees only its part, and buffer_size returns the view's size.
void Views(Bench& bench) {
  std::unique_ptr<Executable> saxpy = bench.Load("saxpy");
  std::unique_ptr<Executable> ids = bench.Load("ids");
  ASSERT_TRUE(saxpy != nullptr && ids != nullptr);
  std::unique_ptr<Buffer> y = bench.Upload(Floats(100, 0)), x = bench.Upload(Floats(100, 50));
  Work work;
  work.Dispatch(*saxpy, {10, 1, 1}, kOne, {Arg::View(*y, 80, 40), Arg::View(*x, 160, 40), Arg::Scalar(1.0f)});
  ASSERT_TRUE(bench.Run(work).ok());
  std::vector<float> want = Floats(100, 0);
  for (size_t i = 0; i < 10; ++i) {
    want[20 + i] = Floats(100, 50)[40 + i] + want[20 + i];
  }
  EXPECT_EQ(bench.Download<float>(*y), want);
  std::unique_ptr<Buffer> out = bench.Allocate(256);
  Work sized;
  sized.Dispatch(*ids, kOne, kOne, {Arg::View(*out, 64, 72)});
  ASSERT_TRUE(bench.Run(sized).ok());
  EXPECT_EQ(bench.Download<uint32_t>(*out)[16 + 15], 72u);
  EXPECT_EQ(bench.Download<uint32_t>(*out)[0], 0u);
}

// Dispatches of one submission run in order, and their timings do not overlap.
void InOrder(Bench& bench) {
  std::unique_ptr<Executable> saxpy = bench.Load("saxpy");
  ASSERT_NE(saxpy, nullptr);
  std::unique_ptr<Buffer> y = bench.Upload(std::vector<float>(100, 1.0f));
  Work work;
  for (int i = 0; i < 20; ++i) {
    work.Dispatch(*saxpy, {100, 1, 1}, kOne, {Arg::Of(*y), Arg::Of(*y), Arg::Scalar(1.0f)});
  }
  ASSERT_TRUE(bench.Run(work).ok());
  EXPECT_EQ(bench.Download<float>(*y), std::vector<float>(100, 1048576.0f));
  for (size_t i = 0; i < work.timings.size(); ++i) {
    EXPECT_LE(work.timings[i].start_ns, work.timings[i].end_ns);
    EXPECT_GT(work.timings[i].end_ns, 0);
    if (i > 0) {
      EXPECT_LE(work.timings[i - 1].end_ns, work.timings[i].start_ns);
    }
  }
}

// A tree over group memory with barriers in a loop; the last group is partial. Repeated, so that stale group memory
// is noticed.
void BarrierReduction(Bench& bench) {
  std::unique_ptr<Executable> reduce = bench.Load(bench.is_driven() ? "reduce_fixed" : "reduce");
  ASSERT_NE(reduce, nullptr);
  for (uint64_t group : {1u, 2u, 64u, 256u}) {
    const uint64_t n = 5 * group + group / 2 + 1;
    const uint64_t groups = (n + group - 1) / group;
    std::vector<int32_t> x(n);
    std::iota(x.begin(), x.end(), -17);
    std::vector<int32_t> want(groups);
    for (uint64_t i = 0; i < n; ++i) {
      want[i / group] += x[i];
    }
    std::unique_ptr<Buffer> bx = bench.Upload(x), out = bench.Allocate(groups * 4);
    for (int round = 0; round < 3; ++round) {
      Work work;
      work.Fill(*out, 0, groups * 4, 0xee);
      work.Dispatch(*reduce, {n, 1, 1}, {group, 1, 1}, {Arg::Of(*out), Arg::Of(*bx)});
      const Status status = bench.Run(work);
      ASSERT_TRUE(status.ok()) << status;
      ASSERT_EQ(bench.Download<int32_t>(*out), want) << "group " << group;
    }
  }
}

// Atomics from every instance of a launch that is large enough to be shared out.
void Histogram(Bench& bench) {
  std::unique_ptr<Executable> histogram = bench.Load("histogram");
  ASSERT_NE(histogram, nullptr);
  const uint64_t n = 50'000;
  std::vector<uint8_t> x(n);
  std::vector<uint32_t> want(256);
  for (uint64_t i = 0; i < n; ++i) {
    x[i] = static_cast<uint8_t>((i * i + 3 * i) % 251 % 16);
    ++want[x[i]];
  }
  std::unique_ptr<Buffer> bx = bench.Upload(x), bins = bench.Allocate(1024);
  Work work;
  work.Dispatch(*histogram, {n, 1, 1}, kOne, {Arg::Of(*bins), Arg::Of(*bx)});
  const Status status = bench.Run(work);
  ASSERT_TRUE(status.ok()) << status;
  EXPECT_EQ(bench.Download<uint32_t>(*bins), want);
}

// Group memory without a barrier: zero at first, shared within the group, and private to it.
void GroupMemory(Bench& bench) {
  std::unique_ptr<Executable> kernel = bench.Load("group_count");
  ASSERT_NE(kernel, nullptr);
  const uint64_t n = 70, group = 16;
  std::unique_ptr<Buffer> out = bench.Allocate(n * 4);
  Work work;
  work.Dispatch(*kernel, {n, 1, 1}, {group, 1, 1}, {Arg::Of(*out)});
  const Status status = bench.Run(work);
  ASSERT_TRUE(status.ok()) << status;
  std::vector<uint32_t> got = bench.Download<uint32_t>(*out);
  for (uint64_t start = 0; start < n; start += group) {
    const uint64_t end = std::min(n, start + group);
    std::sort(got.begin() + static_cast<int64_t>(start), got.begin() + static_cast<int64_t>(end));
    for (uint64_t i = start; i < end; ++i) {
      EXPECT_EQ(got[i], i - start);
    }
  }
}

// Module memory, data and globals have their initial values for every instance, whatever ran before it, also in a
// later launch.
void PrivateState(Bench& bench) {
  std::unique_ptr<Executable> kernel = bench.Load("private_state");
  ASSERT_NE(kernel, nullptr);
  for (uint64_t n : {5u, 3000u}) {
    std::unique_ptr<Buffer> out = bench.Allocate(n * 4);
    Work work;
    work.Dispatch(*kernel, {n, 1, 1}, kOne, {Arg::Of(*out)});
    const Status status = bench.Run(work);
    ASSERT_TRUE(status.ok()) << status;
    const std::vector<uint32_t> got = bench.Download<uint32_t>(*out);
    for (uint64_t i = 0; i < n; ++i) {
      ASSERT_EQ(got[i], 700'000 + 1000 + 10 * (i % 4 + 1)) << i;
    }
  }
}

// Arrays on the shadow stack hold zeros for every instance.
void ShadowStack(Bench& bench) {
  std::unique_ptr<Executable> kernel = bench.Load("shadow_stack");
  ASSERT_NE(kernel, nullptr);
  const uint64_t n = 2000;
  std::unique_ptr<Buffer> out = bench.Allocate(n * 4);
  Work work;
  work.Dispatch(*kernel, {n, 1, 1}, kOne, {Arg::Of(*out)});
  const Status status = bench.Run(work);
  ASSERT_TRUE(status.ok()) << status;
  const std::vector<uint32_t> got = bench.Download<uint32_t>(*out);
  for (uint64_t i = 0; i < n; ++i) {
    ASSERT_EQ(got[i], 16 * i + 120) << i;
  }
}

// Every instance grows its memory from one page to two, and finds the new page zero.
void Grow(Bench& bench) {
  std::unique_ptr<Executable> kernel = bench.Load("grow");
  ASSERT_NE(kernel, nullptr);
  std::unique_ptr<Buffer> out = bench.Allocate(300 * 4);
  Work work;
  work.Dispatch(*kernel, {300, 1, 1}, kOne, {Arg::Of(*out)});
  const Status status = bench.Run(work);
  ASSERT_TRUE(status.ok()) << status;
  EXPECT_EQ(bench.Download<uint32_t>(*out), std::vector<uint32_t>(300, 201));
}

// The same launches give the same bits as on the interpreter.
void MatchesInterp(Bench& bench) {
  struct Row {
    const char* kernel;
    Extent extent, group;
    std::function<std::vector<Arg>(Buffer& a, Buffer& b)> args;
  };
  const auto one = [](Buffer& a, Buffer&) { return std::vector<Arg>{Arg::Of(a)}; };
  const auto both = [](Buffer& a, Buffer& b) { return std::vector<Arg>{Arg::Of(a), Arg::Of(b)}; };
  const Row rows[] = {
      {"saxpy", {900, 1, 1}, kOne,
       [](Buffer& a, Buffer& b) { return std::vector<Arg>{Arg::Of(a), Arg::Of(b), Arg::Scalar(0.1f)}; }},
      {"ids", {7, 5, 1}, {4, 2, 2}, one},
      {"scalars", {300, 1, 1}, kOne,
       [](Buffer& a, Buffer&) {
         return std::vector<Arg>{Arg::Of(a), Arg::Scalar(uint64_t{0x123456789abcdef}),
                                 Arg::Scalar(uint64_t{0x3fb999999999999a}), Arg::Scalar(uint64_t{7})};
       }},
      {"reduce", {900, 1, 1}, {32, 1, 1}, both},
      {"reduce_fixed", {900, 1, 1}, {32, 1, 1}, both},
      {"histogram", {900, 1, 1}, kOne, both},
      {"private_state", {700, 1, 1}, kOne, one},
      {"shadow_stack", {700, 1, 1}, kOne, one},
      {"grow", {100, 1, 1}, kOne, one},
  };
  for (const Row& row : rows) {
    const std::string_view name = row.kernel;
    if (bench.is_driven() && (name == "grow" || name == "reduce")) {
      continue;  // Refused when it is compiled.
    }
    std::vector<uint8_t> results[2];
    Bench oracle("interp");
    Bench* benches[] = {&oracle, &bench};
    for (int side = 0; side < 2; ++side) {
      std::unique_ptr<Executable> kernel = benches[side]->Load(row.kernel);
      ASSERT_NE(kernel, nullptr);
      std::unique_ptr<Buffer> a = benches[side]->Upload(Floats(1024, 0.3f));
      std::unique_ptr<Buffer> b = benches[side]->Upload(Floats(1024, -9.7f));
      Work work;
      work.Dispatch(*kernel, row.extent, row.group, row.args(*a, *b));
      const Status status = benches[side]->Run(work);
      ASSERT_TRUE(status.ok()) << row.kernel << ": " << status;
      results[side] = benches[side]->Download<uint8_t>(*a);
    }
    EXPECT_TRUE(results[0] == results[1]) << row.kernel;
  }
}

}  // namespace

std::vector<Case> DispatchCases() {
  return {{"dispatch_saxpy", Saxpy, true},
          {"dispatch_times_of_long_lists", TimesOfLongLists, true},
          {"dispatch_ids", Ids, true},
          {"dispatch_no_instances", NoInstances, true},
          {"dispatch_scalars", Scalars, true},
          {"dispatch_views", Views, true},
          {"dispatch_in_order", InOrder, true},
          {"dispatch_barrier_reduction", BarrierReduction, true},
          {"dispatch_histogram", Histogram, true},
          {"dispatch_group_memory", GroupMemory, true},
          {"dispatch_private_state", PrivateState, true},
          {"dispatch_shadow_stack", ShadowStack, true},
          {"dispatch_grow", Grow, true},
          {"dispatch_matches_interp", MatchesInterp, true}};
}

}  // namespace hpvm::conformance
