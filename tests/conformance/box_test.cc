// SPDX-License-Identifier: Apache-2.0
// Dispatches of parts of launches: instances keep their ids in the whole launch, and kernels see the whole extent.
#include <algorithm>
#include <random>

#include "tests/conformance/conformance.h"

namespace hpvm::conformance {
namespace {

using Extent = std::array<uint64_t, 3>;
constexpr Extent kOne = {1, 1, 1};

// Cuts the launch into boxes along `along`, at random multiples of the group; the last box reaches the end.
std::vector<Box> CutUp(const Extent& extent, const Extent& group, size_t along, std::mt19937& random) {
  std::vector<Box> boxes;
  for (uint64_t at = 0; at < extent[along];) {
    const uint64_t groups = (extent[along] - at + group[along] - 1) / group[along];
    const uint64_t count = std::min((1 + random() % groups) * group[along], extent[along] - at);
    Box box;
    box.first[along] = at;
    box.count[along] = at + count == extent[along] && random() % 2 == 0 ? kAllInstances : count;
    boxes.push_back(box);
    at += count;
  }
  std::shuffle(boxes.begin(), boxes.end(), random);
  return boxes;
}

bool IsIn(const Box& box, const Extent& id) {
  for (size_t d = 0; d < 3; ++d) {
    if (id[d] < box.first[d] || id[d] - box.first[d] >= box.count[d]) {
      return false;
    }
  }
  return true;
}

// Ids, groups and counts are the whole launch's, in boxes that cut one dimension or all, with groups that do not
// divide the extents; instances outside of the box do not run.
void Ids(Bench& bench) {
  std::unique_ptr<Executable> ids = bench.Load("ids");
  ASSERT_NE(ids, nullptr);
  struct Row {
    Extent extent, group;
    Box box;
  };
  const Row rows[] = {
      {{33, 1, 1}, kOne, {{5, 0, 0}, {17, kAllInstances, kAllInstances}}},
      {{33, 1, 1}, {8, 1, 1}, {{16, 0, 0}, {8, 1, 1}}},
      {{33, 1, 1}, {8, 1, 1}, {{24, 0, 0}, {kAllInstances, 1, 1}}},
      {{7, 6, 5}, kOne, {{2, 3, 1}, {4, 2, 3}}},
      {{7, 6, 5}, {4, 2, 2}, {{4, 2, 2}, {3, 2, kAllInstances}}},
      {{7, 6, 5}, {4, 2, 2}, {{0, 4, 0}, {4, 2, 4}}},
  };
  for (const Row& row : rows) {
    const Extent& extent = row.extent;
    const uint64_t n = extent[0] * extent[1] * extent[2];
    std::unique_ptr<Buffer> out = bench.Allocate(n * 64);
    Work work;
    work.Fill(*out, 0, n * 64, 0xee);
    work.Dispatch(*ids, extent, row.group, {Arg::Of(*out)}, row.box);
    const Status status = bench.Run(work);
    ASSERT_TRUE(status.ok()) << status;
    const std::vector<uint32_t> got = bench.Download<uint32_t>(*out);
    for (uint64_t i = 0; i < n; ++i) {
      const Extent id = {i % extent[0], i / extent[0] % extent[1], i / extent[0] / extent[1]};
      const uint32_t* values = &got[i * 16];
      if (!IsIn(row.box, id)) {
        ASSERT_EQ(values[0], 0xeeeeeeeeu) << i;
        continue;
      }
      for (size_t d = 0; d < 3; ++d) {
        ASSERT_EQ(values[d], id[d]) << i;
        ASSERT_EQ(values[3 + d], id[d] / row.group[d]) << i;
        ASSERT_EQ(values[6 + d], id[d] % row.group[d]) << i;
        ASSERT_EQ(values[9 + d], extent[d]) << i;
        ASSERT_EQ(values[12 + d], row.group[d]) << i;
      }
    }
  }
}

// Boxes that make up a launch run each of its instances once, whatever their order and wherever they cut; repeatedly,
// because devices measure and remember.
void CoverTheLaunch(Bench& bench) {
  std::unique_ptr<Executable> saxpy = bench.Load("saxpy");
  ASSERT_NE(saxpy, nullptr);
  const uint64_t n = 70'001;
  std::vector<float> x(n), want(n, 1.0f);
  for (uint64_t i = 0; i < n; ++i) {
    x[i] = static_cast<float>(i % 251);
  }
  std::unique_ptr<Buffer> bx = bench.Upload(x), by = bench.Upload(want);
  std::mt19937 random(3);
  for (int round = 0; round < 12; ++round) {
    Work work;
    for (const Box& box : CutUp({n, 1, 1}, kOne, 0, random)) {
      work.Dispatch(*saxpy, {n, 1, 1}, kOne, {Arg::Of(*by), Arg::Of(*bx), Arg::Scalar(2.0f)}, box);
    }
    const Status status = bench.Run(work);
    ASSERT_TRUE(status.ok()) << status;
    for (uint64_t i = 0; i < n; ++i) {
      want[i] += 2 * x[i];
    }
  }
  EXPECT_TRUE(bench.Download<float>(*by) == want);
}

// Groups stay whole, and share memory and barriers as in the whole launch; the last one may be partial.
void Groups(Bench& bench) {
  std::unique_ptr<Executable> reduce = bench.Load(bench.is_driven() ? "reduce_fixed" : "reduce");
  ASSERT_NE(reduce, nullptr);
  std::mt19937 random(4);
  for (uint64_t group : {1u, 16u, 256u}) {
    const uint64_t n = 9 * group + group / 2 + 1, groups = (n + group - 1) / group;
    std::vector<int32_t> x(n), want(groups);
    for (uint64_t i = 0; i < n; ++i) {
      x[i] = static_cast<int32_t>(i * 7 % 1000);
      want[i / group] += x[i];
    }
    std::unique_ptr<Buffer> bx = bench.Upload(x), out = bench.Allocate(groups * 4);
    Work work;
    work.Fill(*out, 0, groups * 4, 0xee);
    for (const Box& box : CutUp({n, 1, 1}, {group, 1, 1}, 0, random)) {
      work.Dispatch(*reduce, {n, 1, 1}, {group, 1, 1}, {Arg::Of(*out), Arg::Of(*bx)}, box);
    }
    const Status status = bench.Run(work);
    ASSERT_TRUE(status.ok()) << status;
    ASSERT_EQ(bench.Download<int32_t>(*out), want) << "group " << group;
  }
}

// A trap names the instance by its id in the whole launch; a box without it runs.
void Trap(Bench& bench) {
  std::unique_ptr<Executable> divide = bench.Load("divide");
  ASSERT_NE(divide, nullptr);
  constexpr uint64_t kCount = 20'000, kBad = 13'017;
  std::vector<int32_t> values(kCount, 7);
  values[kBad] = 0;
  std::unique_ptr<Buffer> x = bench.Upload(values), y = bench.Allocate(kCount * 4);
  const auto run = [&](uint64_t first, uint64_t count) {
    Work work;
    work.Dispatch(*divide, {kCount, 1, 1}, kOne, {Arg::Of(*y), Arg::Of(*x)}, {{first, 0, 0}, {count, 1, 1}});
    const Status status = bench.Run(work);
    return std::pair(status, work.failure);
  };
  EXPECT_TRUE(run(0, kBad).first.ok());
  EXPECT_TRUE(run(kBad + 1, kAllInstances).first.ok());
  const auto [status, failure] = run(kBad - 1, 3);
  EXPECT_EQ(status.code(), absl::StatusCode::kAborted) << status;
  EXPECT_EQ(failure.trap.instance, (Extent{kBad, 0, 0}));
}

// A box without instances does nothing.
void Empty(Bench& bench) {
  std::unique_ptr<Executable> ids = bench.Load("ids");
  ASSERT_NE(ids, nullptr);
  std::unique_ptr<Buffer> out = bench.Allocate(8 * 64);
  for (const Box& box : {Box{{8, 0, 0}, {kAllInstances, 1, 1}}, Box{{4, 0, 0}, {0, 1, 1}}, Box{{4, 0, 0}, {2, 0, 1}}}) {
    Work work;
    work.Dispatch(*ids, {8, 1, 1}, kOne, {Arg::Of(*out)}, box);
    const Status status = bench.Run(work);
    EXPECT_TRUE(status.ok()) << status;
  }
  EXPECT_EQ(bench.Download<uint8_t>(*out), std::vector<uint8_t>(8 * 64, 0));
}

// Boxes that cut a group are the caller's error, and return a status.
void CutGroups(Bench& bench) {
  std::unique_ptr<Executable> kernel = bench.Load("group_count");
  ASSERT_NE(kernel, nullptr);
  std::unique_ptr<Buffer> out = bench.Allocate(40 * 4);
  for (const Box& box :
       {Box{{4, 0, 0}, {8, 1, 1}}, Box{{0, 0, 0}, {12, 1, 1}}, Box{{4, 0, 0}, {kAllInstances, 1, 1}}}) {
    Work work;
    work.Dispatch(*kernel, {40, 1, 1}, {8, 1, 1}, {Arg::Of(*out)}, box);
    EXPECT_FALSE(bench.Run(work).ok()) << box.first[0] << " " << box.count[0];
  }
  Work whole;
  whole.Dispatch(*kernel, {40, 1, 1}, {8, 1, 1}, {Arg::Of(*out)}, {{0, 0, 0}, {40, 1, 1}});
  EXPECT_TRUE(bench.Run(whole).ok());
}

}  // namespace

std::vector<Case> BoxCases() {
  return {{"box_ids", Ids, true},       {"box_cover_the_launch", CoverTheLaunch, true},
          {"box_groups", Groups, true}, {"box_trap", Trap, true},
          {"box_empty", Empty, true},   {"box_cut_groups", CutGroups, true}};
}

}  // namespace hpvm::conformance
