// SPDX-License-Identifier: Apache-2.0
#include "backends/gpu/launch.h"

#include <atomic>
#include <cstdlib>
#include <map>
#include <random>
#include <set>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "backends/gpu/parts.h"
#include "base/clock.h"

namespace {

std::atomic<uint64_t> allocations{0};  // Number of allocations so far in this program.

}  // namespace

void* operator new(size_t bytes) {
  ++allocations;
  void* const memory = std::malloc(bytes);
  HPVMD_CHECK(memory != nullptr);
  return memory;
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, size_t) noexcept { std::free(memory); }

namespace hpvm::gpu {
namespace {

using testing::HasSubstr;

constexpr uint32_t kWide = 0x7fffffff;

GpuTarget Target() {
  GpuTarget target;
  target.group_size_max = 1024;
  target.group_extent_max = {1024, 1024, 64};
  target.group_count_max = {kWide, 65535, 65535};
  target.local_bytes_max = 48 * 1024;
  target.buffer_bytes_max = uint64_t{1} << 32;
  target.subgroup_size = 32;
  return target;
}

GpuVariant Tile(uint32_t x, uint32_t y, uint32_t z, bool needs_proof = false) {
  GpuVariant variant;
  variant.entry = "f";
  variant.tile = {x, y, z};
  variant.needs_proof = needs_proof;
  return variant;
}

Artifact Kernel(std::vector<GpuVariant> variants) {
  Artifact artifact;
  artifact.kind = ArtifactKind::kOpenCl;
  artifact.entry = "f";
  artifact.gpu.format = GpuFormat::kOpenClC;
  artifact.gpu.variants = std::move(variants);
  return artifact;
}

LaunchFacts Launch(std::array<uint64_t, 3> extent, std::array<uint64_t, 3> group = {1, 1, 1}) {
  LaunchFacts facts;
  facts.extent = facts.count = extent;
  facts.group = group;
  return facts;
}

StatusOr<std::vector<Part>> PartsOf(Chooser& chooser, const LaunchFacts& facts) {
  Chosen chosen;
  HPVMD_RETURN_IF_ERROR(chooser.Choose(facts, &chosen));
  return chosen.parts;
}

bool IsMeasured(Chooser& chooser, const LaunchFacts& facts) {
  Chosen chosen;
  return chooser.Choose(facts, &chosen).ok() && chosen.is_measured;
}

// Returns how often each instance of a launch is run; fails for work items outside it.
std::vector<uint8_t> Cover(const GpuCode& code, const std::array<uint64_t, 3>& extent, std::span<const Part> parts) {
  std::vector<uint8_t> hits(extent[0] * extent[1] * extent[2]);
  for (const Part& part : parts) {
    const std::array<uint32_t, 3>& tile = code.variants[part.variant].tile;
    std::array<uint64_t, 3> end{};
    for (size_t d = 0; d < 3; ++d) {
      EXPECT_EQ(part.first[d] % tile[d], 0u);
      EXPECT_GE(part.group[d], 1u);
      end[d] = part.first[d] + uint64_t{part.groups[d]} * part.group[d] * tile[d];
      EXPECT_LE(end[d], extent[d]);
      if (end[d] > extent[d]) {
        return {};
      }
    }
    for (uint64_t z = part.first[2]; z < end[2]; ++z) {
      for (uint64_t y = part.first[1]; y < end[1]; ++y) {
        for (uint64_t x = part.first[0]; x < end[0]; ++x) {
          ++hits[(z * extent[1] + y) * extent[0] + x];
        }
      }
    }
  }
  return hits;
}

bool IsOnce(const std::vector<uint8_t>& hits) {
  return std::all_of(hits.begin(), hits.end(), [](uint8_t hit) { return hit == 1; });
}

void ExpectWithin(const Part& part, const GpuTarget& target) {
  for (size_t d = 0; d < 3; ++d) {
    EXPECT_LE(part.group[d], target.group_extent_max[d]);
    EXPECT_LE(part.groups[d], target.group_count_max[d]);
  }
  EXPECT_LE(part.group[0] * part.group[1] * part.group[2], target.group_size_max);
}

// Every instance runs once, by whole groups within the device's limits, for any extent, tile, group and limits.
TEST(ChooserTest, PartsCoverEveryInstanceOnce) {
  std::mt19937 random(5);
  const auto upto = [&](uint32_t most) { return static_cast<uint32_t>(1 + random() % most); };
  int refused = 0;
  for (int round = 0; round < 3'000; ++round) {
    GpuTarget target = Target();
    target.group_size_max = 1u << random() % 9;
    target.group_extent_max = {target.group_size_max, upto(target.group_size_max), upto(8)};
    target.group_count_max = {upto(300), upto(40) + 8, upto(20) + 4};
    const bool by_groups = round % 3 == 0;
    std::array<uint64_t, 3> extent = {upto(300), round % 2 == 0 ? 1 : upto(40), round % 5 == 0 ? upto(12) : 1};
    std::array<uint64_t, 3> group{1, 1, 1};
    Artifact artifact = Kernel({Tile(1u << random() % 4, upto(4), upto(2)), Tile(1, 1, 1)});
    if (round % 7 == 0) {
      artifact.gpu.variants[0].group = {upto(target.group_extent_max[0]), 1, 1};
    }
    if (round % 4 == 0) {
      artifact.gpu.variants[round % 8 / 4].group_constant = {0, 1, 2};
    }
    if (by_groups) {
      artifact.uses_barrier = true;
      group = {upto(std::min(target.group_size_max, 16u)), 1, 1};
      // Groups count towards the limit of parts: small groups on a device with a low group count would exceed it.
      target.group_count_max = {kWide, kWide, kWide};
    }
    SCOPED_TRACE("round " + std::to_string(round));
    const uint32_t forced = static_cast<uint32_t>(random() % 2);
    ForcedVariant request(forced);
    const std::unique_ptr<Chooser> chooser = CreateChooser(artifact, target, &request, nullptr);
    const StatusOr<std::vector<Part>> parts = PartsOf(*chooser, Launch(extent, group));
    if (!parts.ok()) {
      EXPECT_THAT(parts.status().message(), HasSubstr("launches on the device"));
      ++refused;
      continue;
    }
    for (const Part& part : *parts) {
      ExpectWithin(part, target);
    }
    ASSERT_TRUE(IsOnce(Cover(artifact.gpu, extent, *parts)));
  }
  EXPECT_LT(refused, 30);
}

// Several boxes that make up a launch run each of its instances once, by tiles that begin at multiples of themselves.
TEST(ChooserTest, BoxesCoverTheLaunchOnce) {
  std::mt19937 random(6);
  const auto upto = [&](uint32_t most) { return static_cast<uint32_t>(1 + random() % most); };
  for (int round = 0; round < 1'000; ++round) {
    SCOPED_TRACE("round " + std::to_string(round));
    Artifact artifact = Kernel({Tile(1u << random() % 4, upto(4), 1), Tile(1, 1, 1)});
    if (round % 5 == 0) {
      artifact.gpu.variants[0].group = {upto(16), upto(4), 1};
    }
    std::array<uint64_t, 3> group{1, 1, 1};
    if (round % 3 == 0) {
      artifact.uses_barrier = true;
      group = {upto(16), upto(4), 1};
    }
    const GpuTarget target = Target();
    ForcedVariant request(static_cast<uint32_t>(random() % 2));
    const std::unique_ptr<Chooser> chooser = CreateChooser(artifact, target, &request, nullptr);
    const std::array<uint64_t, 3> extent = {upto(300), upto(30), upto(4)};
    const size_t along = random() % 3;
    std::vector<uint8_t> hits(extent[0] * extent[1] * extent[2]);
    for (uint64_t at = 0; at < extent[along];) {
      LaunchFacts facts = Launch(extent, group);
      facts.first[along] = at;
      facts.count[along] = std::min<uint64_t>(extent[along] - at, upto(100) * group[along]);
      const StatusOr<std::vector<Part>> parts = PartsOf(*chooser, facts);
      ASSERT_TRUE(parts.ok()) << parts.status();
      const std::vector<uint8_t> here = Cover(artifact.gpu, extent, *parts);
      ASSERT_EQ(here.size(), hits.size());
      for (size_t i = 0; i < hits.size(); ++i) {
        hits[i] = static_cast<uint8_t>(hits[i] + here[i]);
      }
      // Again, from the cache: another box of the launch must not get these parts.
      ASSERT_EQ(PartsOf(*chooser, facts)->size(), parts->size());
      at += facts.count[along];
    }
    ASSERT_TRUE(IsOnce(hits));
  }
}

// Times of a box's launches are kept for boxes of its size, not for the whole launch.
TEST(ChooserTest, MeasuresBoxesByTheirOwnSize) {
  const Artifact artifact = Kernel({Tile(2, 2, 1), Tile(1, 1, 1)});
  const GpuTarget target = Target();
  const std::unique_ptr<Chooser> chooser = CreateChooser(artifact, target, nullptr, nullptr);
  LaunchFacts box = Launch({4096, 4096, 1});
  box.first = {0, 1024, 0};
  box.count = {4096, 128, 1};
  for (int i = 0; i < 200; ++i) {
    Chosen chosen;
    ASSERT_TRUE(chooser->Choose(box, &chosen).ok());
    if (!chosen.is_measured) {
      break;
    }
    chooser->Took(box, chosen.parts, 100'000 + static_cast<int64_t>(chosen.parts[0].group[0]));
  }
  EXPECT_FALSE(IsMeasured(*chooser, box));
  EXPECT_TRUE(IsMeasured(*chooser, Launch({4096, 4096, 1})));
  EXPECT_FALSE(IsMeasured(*chooser, Launch({4096, 128, 1})));
  box.count = {16, 16, 1};
  EXPECT_FALSE(IsMeasured(*chooser, box));  // Tiny.
}

// Large round launches are one part of the preferred shape; odd ones get groups that divide them.
TEST(ChooserTest, GroupsDivideTheLaunch) {
  struct Case {
    const char* name;
    std::array<uint64_t, 3> extent;
    std::array<uint32_t, 3> group;
    size_t parts;
  };
  const Case kCases[] = {
      {"Line", {1 << 20, 1, 1}, {256, 1, 1}, 1},
      {"Plane", {4096, 4096, 1}, {32, 8, 1}, 1},
      {"Cube", {256, 256, 256}, {32, 8, 1}, 1},
      {"Column", {1, 1 << 20, 1}, {1, 256, 1}, 1},
      {"Thousand", {1'000'000, 1, 1}, {320, 1, 1}, 1},
      {"ThousandRows", {1000, 1000, 1}, {40, 8, 1}, 1},
      {"Few", {100, 1, 1}, {100, 1, 1}, 1},
      {"Prime", {1'000'003, 1, 1}, {256, 1, 1}, 2},
      {"Wide", {65536, 4, 1}, {64, 4, 1}, 1},
      {"One", {1, 1, 1}, {1, 1, 1}, 1},
  };
  const Artifact artifact = Kernel({Tile(1, 1, 1)});
  const GpuTarget target = Target();
  for (const Case& c : kCases) {
    SCOPED_TRACE(c.name);
    const std::unique_ptr<Chooser> chooser = CreateChooser(artifact, target, nullptr, nullptr);
    const StatusOr<std::vector<Part>> parts = PartsOf(*chooser, Launch(c.extent));
    ASSERT_TRUE(parts.ok()) << parts.status();
    ASSERT_EQ(parts->size(), c.parts);
    EXPECT_EQ((*parts)[0].group, c.group);
  }
}

// When each group shape is a separate build, a kernel needs a handful of them, whatever its launches' extents.
TEST(ChooserTest, FewShapesWhereEachIsABuild) {
  GpuVariant variant = Tile(1, 1, 1);
  variant.group_constant = {0, 1, 2};
  const Artifact artifact = Kernel({variant});
  const GpuTarget target = Target();
  std::set<std::array<uint32_t, 3>> shapes;
  for (uint64_t x = 1; x < 3'000; x += 7) {
    ForcedVariant request(0);
    const std::unique_ptr<Chooser> chooser = CreateChooser(artifact, target, &request, nullptr);
    const StatusOr<std::vector<Part>> parts = PartsOf(*chooser, Launch({x, 1, 1}));
    ASSERT_TRUE(parts.ok()) << parts.status();
    EXPECT_LE(parts->size(), 4u);
    EXPECT_TRUE(IsOnce(Cover(artifact.gpu, {x, 1, 1}, *parts)));
    for (const Part& part : *parts) {
      shapes.insert(part.group);
    }
  }
  EXPECT_LE(shapes.size(), 4u);
}

// A launch's properties decide which variants may run: proofs, alignment, factors of scalars; unnecessary proofs are
// not computed.
TEST(ChooserTest, AllowsWhatTheLaunchShows) {
  GpuVariant aligned = Tile(4, 1, 1, true);
  aligned.needs_alignment = true;
  GpuVariant factored = Tile(8, 1, 1);
  factored.factors = {{1, 2}};
  Artifact artifact = Kernel({factored, aligned, Tile(1, 1, 1, true), Tile(1, 1, 1)});
  artifact.params = {{"a", true, true, ir::Type::kI32}, {"n", false, false, ir::Type::kI32}};
  // a[instance_id(0)], of 4 bytes.
  artifact.bounds.atoms.push_back({});
  artifact.bounds.atoms[0].kind = ir::Atom::Kind::kInstanceId;
  ir::BoundsAccess access;
  access.reach = 4;
  access.offset = {ir::Term{4, {ir::AtomId{0u}}}};
  artifact.bounds.accesses.push_back(access);
  struct Case {
    const char* name;
    uint64_t bytes, start, n;
    uint32_t forced, want;
  };
  constexpr uint64_t kCount = 1 << 20;
  const Case kCases[] = {
      {"Aligned", 4 * kCount, 32, 3, 1, 1},      {"Unaligned", 4 * kCount, 8, 3, 1, 2},
      {"NotProven", 4 * kCount - 1, 0, 3, 1, 3}, {"Factor", 4 * kCount, 8, 8, 0, 0},
      {"NoFactor", 4 * kCount, 8, 6, 0, 2},      {"NotProvenNorAligned", 4, 4, 1, 0, 3},
      {"Tail", 4 * kCount, 0, 4, 2, 2},
  };
  const GpuTarget target = Target();
  for (const Case& c : kCases) {
    SCOPED_TRACE(c.name);
    ForcedVariant request(c.forced);
    const std::unique_ptr<Chooser> chooser = CreateChooser(artifact, target, &request, nullptr);
    LaunchFacts facts = Launch({kCount, 1, 1});
    facts.params = {{c.bytes, c.start}, {c.n, 0}};
    const StatusOr<std::vector<Part>> parts = PartsOf(*chooser, facts);
    ASSERT_TRUE(parts.ok()) << parts.status();
    EXPECT_EQ((*parts)[0].variant, c.want);
  }
}

// Code for aligned buffers runs when all of them are aligned.
TEST(ChooserTest, EveryBufferMustBeAligned) {
  GpuVariant aligned = Tile(4, 1, 1);
  aligned.needs_alignment = true;
  Artifact artifact = Kernel({aligned, Tile(1, 1, 1)});
  artifact.params = {{"a", true, true, ir::Type::kI32}, {"b", true, true, ir::Type::kI32}};
  const GpuTarget target = Target();
  for (const uint64_t a : {16, 8}) {
    for (const uint64_t b : {32, 24}) {
      ForcedVariant request(0);
      const std::unique_ptr<Chooser> chooser = CreateChooser(artifact, target, &request, nullptr);
      LaunchFacts facts = Launch({1 << 20, 1, 1});
      facts.params = {{4096, a}, {4096, b}};
      const StatusOr<std::vector<Part>> parts = PartsOf(*chooser, facts);
      ASSERT_TRUE(parts.ok()) << parts.status();
      EXPECT_EQ((*parts)[0].variant, a == 16 && b == 32 ? 0u : 1u) << a << " " << b;
    }
  }
}

// Launches that differ only in the start of their buffers are equal, as long as these are equally aligned to 16 bytes:
// a thousand of them on as many views of one buffer take no memory, and each runs what its own views allow.
TEST(ChooserTest, LaunchesOnViewsOfOneBufferAreAlike) {
  GpuVariant aligned = Tile(4, 1, 1);
  aligned.needs_alignment = true;
  Artifact artifact = Kernel({aligned, Tile(1, 1, 1)});
  artifact.params = {{"a", true, true, ir::Type::kI32}, {"n", false, false, ir::Type::kI32}};
  const GpuTarget target = Target();
  ForcedVariant request(0);
  const std::unique_ptr<Chooser> chooser = CreateChooser(artifact, target, &request, nullptr);
  LaunchFacts facts = Launch({1 << 20, 1, 1});
  facts.params = {{4096, 0}, {7, 0}};
  Chosen chosen;
  uint64_t warm = 0;
  for (uint64_t i = 0; i < 1000; ++i) {
    if (i == 100) {
      warm = allocations;
    }
    facts.params[0].start = i * 64 + (i % 3 == 0 ? 4 : 0);
    ASSERT_TRUE(chooser->Choose(facts, &chosen).ok());
    ASSERT_EQ(chosen.parts[0].variant, i % 3 == 0 ? 1u : 0u) << i;
  }
  EXPECT_EQ(allocations, warm);
  facts.params[0].value = 2048;  // Sizes, scalars and words are not positions.
  ASSERT_TRUE(chooser->Choose(facts, &chosen).ok());
  EXPECT_NE(allocations, warm);
  warm = allocations;
  facts.params[1].value = 8;
  ASSERT_TRUE(chooser->Choose(facts, &chosen).ok());
  EXPECT_NE(allocations, warm);
}

// A request may change from launch to launch, and the test that made it learns the result.
TEST(ChooserTest, RequestsChangeBetweenLaunches) {
  GpuVariant aligned = Tile(4, 1, 1);
  aligned.needs_alignment = true;
  Artifact artifact = Kernel({aligned, Tile(2, 1, 1), Tile(1, 1, 1)});
  artifact.params = {{"a", true, true, ir::Type::kI32}};
  const GpuTarget target = Target();
  ForcedVariant request;
  const std::unique_ptr<Chooser> chooser = CreateChooser(artifact, target, &request, nullptr);
  const auto run = [&](uint32_t variant, uint32_t shape, uint64_t start) {
    request.Set({variant, shape});
    LaunchFacts facts = Launch({1 << 20, 1, 1});
    facts.params = {{4096, start}};
    const StatusOr<std::vector<Part>> parts = PartsOf(*chooser, facts);
    EXPECT_TRUE(parts.ok()) << parts.status();
    return parts.ok() ? parts->front() : Part{};
  };
  for (int round = 0; round < 2; ++round) {  // The result for the same launch under another request is not reused.
    for (uint32_t variant = 0; variant < 3; ++variant) {
      EXPECT_EQ(run(variant, 0, 16).variant, variant);
    }
  }
  EXPECT_NE(run(2, 0, 16).group, run(2, 1, 16).group);
  EXPECT_EQ(run(2, 3, 16).group, run(2, 99, 16).group);
  ForcedVariant::Counts counts = request.TakeCounts();
  EXPECT_EQ(counts.obeyed, 10u);
  EXPECT_EQ(counts.others, 0u);
  EXPECT_EQ(run(0, 0, 8).variant, 2u);
  EXPECT_EQ(run(7, 0, 16).variant, 2u);
  run(kAutoVariant, 0, 16);
  counts = request.TakeCounts();
  EXPECT_EQ(counts.obeyed, 0u);
  EXPECT_EQ(counts.others, 2u);
}

// Launches that the device cannot run are refused with the limit.
TEST(ChooserTest, RefusesWhatTheDeviceCannotTake) {
  struct Case {
    const char* name;
    std::array<uint64_t, 3> extent, group;
    bool by_groups, is_native;
    uint64_t bytes;
    const char* want;
  };
  constexpr uint64_t kMany = uint64_t{1} << 31;
  const Case kCases[] = {
      {"Extent", {kMany, 1, 1}, {1, 1, 1}, false, false, 4, "exceeds the limit of a GPU, 2147483647 instances"},
      {"Buffer",
       {1, 1, 1},
       {1, 1, 1},
       false,
       false,
       (uint64_t{1} << 32) + 1,
       "can address at most 4294967296 bytes of one buffer"},
      {"Group", {2048, 1, 1}, {2048, 1, 1}, true, false, 4, "1 to 1024 work items in dimension 0"},
      {"GroupSize", {64, 64, 1}, {64, 32, 1}, true, false, 4, "more than the 1024 work items"},
      {"GroupDepth", {64, 64, 128}, {1, 1, 65}, true, false, 4, "1 to 64 work items in dimension 2"},
      {"NoGroup", {64, 64, 128}, {0, 1, 1}, true, false, 4, "1 to 1024 work items in dimension 0"},
      {"NotDividing", {1000, 1, 1}, {64, 1, 1}, false, true, 4, "not a multiple of the group (64, 1, 1)"},
      {"ManyGroups", {1, 100'003, 1}, {1, 1, 1}, false, true, 4, "the device's limit is 65535"},
  };
  const GpuTarget target = Target();
  for (const Case& c : kCases) {
    SCOPED_TRACE(c.name);
    Artifact artifact = Kernel({Tile(1, 1, 1)});
    artifact.uses_barrier = c.by_groups;
    artifact.gpu.is_native = c.is_native;
    artifact.params = {{"a", true, true, ir::Type::kI32}};
    const std::unique_ptr<Chooser> chooser = CreateChooser(artifact, target, nullptr, nullptr);
    LaunchFacts facts = Launch(c.extent, c.group);
    facts.params = {{c.bytes, 0}};
    const StatusOr<std::vector<Part>> parts = PartsOf(*chooser, facts);
    ASSERT_FALSE(parts.ok());
    EXPECT_THAT(parts.status().message(), HasSubstr(c.want));
  }
}

// Code that counts from 0 cannot run a part of a launch, and the refusal names the part.
TEST(ChooserTest, NativeCodeRunsWholeLaunchesOnly) {
  Artifact artifact = Kernel({Tile(1, 1, 1)});
  artifact.gpu.is_native = true;
  const GpuTarget target = Target();
  const std::unique_ptr<Chooser> chooser = CreateChooser(artifact, target, nullptr, nullptr);
  LaunchFacts facts = Launch({128, 2, 1});
  facts.first = {64, 0, 0};
  facts.count = {64, 2, 1};
  const Status status = PartsOf(*chooser, facts).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(status.message(), HasSubstr("the (64, 2, 1) from (64, 0, 0) on cannot run alone"));
}

// Launches without instances have no parts; launches of native code have one, whose groups divide them.
TEST(ChooserTest, NativeCodeIsOnePart) {
  Artifact artifact = Kernel({Tile(1, 1, 1)});
  artifact.gpu.is_native = true;
  const GpuTarget target = Target();
  const std::unique_ptr<Chooser> chooser = CreateChooser(artifact, target, nullptr, nullptr);
  EXPECT_TRUE(PartsOf(*chooser, Launch({0, 5, 1}))->empty());
  for (const uint64_t extent : {1, 7, 1000, 4099, 65536}) {
    const StatusOr<std::vector<Part>> parts = PartsOf(*chooser, Launch({extent, 3, 1}));
    ASSERT_TRUE(parts.ok()) << parts.status();
    ASSERT_EQ(parts->size(), 1u);
    EXPECT_TRUE(IsOnce(Cover(artifact.gpu, {extent, 3, 1}, *parts)));
  }
  EXPECT_EQ((*PartsOf(*chooser, Launch({128, 1, 1}, {64, 1, 1})))[0].group, (std::array<uint32_t, 3>{64, 1, 1}));
  artifact.gpu.variants[0].group = {32, 2, 1};
  EXPECT_EQ((*PartsOf(*chooser, Launch({128, 2, 1})))[0].groups, (std::array<uint32_t, 3>{4, 1, 1}));
  EXPECT_THAT(PartsOf(*chooser, Launch({128, 2, 1}, {64, 1, 1})).status().message(), HasSubstr("(32, 2, 1)"));
}

// Code that depends on the range of indices runs only when that range is known and sufficient; launches that know less
// do not reuse its choice.
TEST(ChooserTest, CodeThatRestsOnWordsNeedsThem) {
  Artifact artifact = Kernel({Tile(1, 1, 1, true), Tile(1, 1, 1, true), Tile(1, 1, 1)});
  artifact.gpu.variants[0].needs_words = true;
  artifact.params = {{.name = "index", .is_writable = false}, {.name = "x", .is_writable = false}};
  ir::BoundsProgram& bounds = artifact.bounds;
  const auto offset = [&](ir::Atom::Kind kind) {  // Four times the atom's value.
    bounds.atoms.push_back({.kind = kind});
    return ir::Polynomial{{4, {ir::AtomId(bounds.atoms.size() - 1)}}};
  };
  bounds.accesses.push_back({ir::OpId(0u), 0, 4, false, offset(ir::Atom::Kind::kInstanceId)});
  bounds.by_words.push_back({ir::OpId(1u), 1, 4, false, offset(ir::Atom::Kind::kWord)});
  const GpuTarget target = Target();
  const std::unique_ptr<Chooser> chooser = CreateChooser(artifact, target, nullptr, nullptr);
  LaunchFacts launch = Launch({64, 1, 1});
  launch.params = {{.value = 256}, {.value = 40}};
  const auto chosen = [&](const ir::WordRange& words, uint64_t index_bytes = 256) {
    launch.params[0] = {.value = index_bytes, .words = words};
    const StatusOr<std::vector<Part>> parts = PartsOf(*chooser, launch);
    return parts.ok() && parts->size() == 1 ? (*parts)[0].variant : 99u;
  };
  for (int round = 0; round < 3; ++round) {
    EXPECT_EQ(chosen({0, 9}), 0u);
    EXPECT_EQ(chosen({0, 10}), 1u);
    EXPECT_EQ(chosen({-1, 9}), 1u);
    EXPECT_EQ(chosen({}), 1u);
    EXPECT_EQ(chosen({2, 3}), 0u);
    EXPECT_EQ(chosen({0, 9}, 252), 2u);  // Not even the index itself is inside.
  }
}

// The driver's register limit bounds groups.
TEST(ChooserTest, ObeysTheDriversLimit) {
  const Artifact artifact = Kernel({Tile(1, 1, 1)});
  const GpuTarget target = Target();
  const std::unique_ptr<Chooser> chooser = CreateChooser(artifact, target, nullptr, nullptr);
  chooser->Limit(0, 96);
  const StatusOr<std::vector<Part>> parts = PartsOf(*chooser, Launch({3 << 20, 1, 1}));
  ASSERT_TRUE(parts.ok());
  EXPECT_EQ((*parts)[0].group[0], 96u);
}

class Shelf final : public TuningStore {
 public:
  void Keep(const Sha256& name, std::span<const uint8_t> record) override {
    kept[name].assign(record.begin(), record.end());
  }
  std::map<Sha256, std::vector<uint8_t>> kept;
};

// Simulates the time of the parts on a device.
int64_t Simulate(std::span<const Part> parts) {
  double ns = 5'000;
  for (const Part& part : parts) {
    const double items = static_cast<double>(part.groups[0]) * part.groups[1] * part.group[0] * part.group[1];
    ns += items * (part.variant == 0 ? 8 : part.variant == 1 ? 2 : 1) * (part.group[0] == 16 ? 0.25 : 1.0);
  }
  return static_cast<int64_t>(ns);
}

// Measured launches settle on the fastest variant, then on its fastest groups; the record serves the next process; tiny
// launches and processors are not measured.
TEST(ChooserTest, FindsTheFastestAndRemembers) {
  Artifact artifact = Kernel({Tile(2, 2, 1), Tile(2, 1, 1), Tile(1, 1, 1)});  // 8, 4, 4 units per four instances.
  artifact.name.bytes[0] = 7;
  const GpuTarget target = Target();
  const LaunchFacts facts = Launch({2048, 2048, 1});
  Shelf shelf;
  std::unique_ptr<Chooser> chooser = CreateChooser(artifact, target, nullptr, &shelf);
  int launches = 0;
  for (; launches < 200; ++launches) {
    Chosen chosen;
    ASSERT_TRUE(chooser->Choose(facts, &chosen).ok());
    if (!chosen.is_measured) {
      break;
    }
    // A launch between choice and time is not measured.
    EXPECT_LE(PartsOf(*chooser, facts)->size(), chosen.parts.size());
    chooser->Took(facts, chosen.parts, Simulate(chosen.parts));
  }
  EXPECT_LT(launches, 40);
  const std::vector<Part> best = *PartsOf(*chooser, facts);
  EXPECT_EQ(best[0].variant, 1u);
  EXPECT_EQ(best[0].group[0], 16u);
  ASSERT_EQ(shelf.kept.size(), 1u);

  artifact.tuning = shelf.kept.begin()->second;
  chooser = CreateChooser(artifact, target, nullptr, nullptr);
  EXPECT_FALSE(IsMeasured(*chooser, facts));
  EXPECT_EQ((*PartsOf(*chooser, facts))[0].variant, 1u);
  EXPECT_FALSE(IsMeasured(*chooser, Launch({100, 100, 1})));
  EXPECT_EQ((*PartsOf(*chooser, Launch({100, 100, 1})))[0].variant, 2u);

  GpuTarget processor = target;
  processor.is_processor = true;
  chooser = CreateChooser(artifact, processor, nullptr, nullptr);
  EXPECT_FALSE(IsMeasured(*chooser, Launch({8192, 8192, 1})));
}

// Equal devices tune one kernel together, even if one is slower than the other by more than the variants differ: one
// measures, the other runs the best so far, and then the result.
TEST(ChooserTest, EqualDevicesTuneTogether) {
  Artifact artifact = Kernel({Tile(2, 2, 1), Tile(2, 1, 1), Tile(1, 1, 1)});
  artifact.name.bytes[0] = 8;
  const GpuTarget targets[2] = {Target(), Target()};
  const LaunchFacts facts = Launch({2048, 2048, 1});
  Shelf shelf;
  std::unique_ptr<Chooser> choosers[2];
  for (int device = 0; device < 2; ++device) {
    choosers[device] = CreateChooser(artifact, targets[device], nullptr, &shelf);
  }
  const auto run = [&](int device) {
    Chosen chosen;
    EXPECT_TRUE(choosers[device]->Choose(facts, &chosen).ok());
    choosers[device]->Took(facts, chosen.parts, Simulate(chosen.parts) * (device == 0 ? 1 : 5));
    return chosen;
  };
  int launches = 0;
  while (launches < 200 && run(launches % 2).is_measured) {
    ++launches;
  }
  EXPECT_LT(launches, 80);
  for (int device = 0; device < 2; ++device) {
    EXPECT_FALSE(IsMeasured(*choosers[device], facts));
    EXPECT_EQ(run(device).parts[0].variant, 1u);
    EXPECT_EQ(run(device).parts[0].group[0], 16u);
  }
}

// When the measuring device has nothing to run any more, another one measures, from the beginning.
TEST(ChooserTest, AnotherDeviceTakesOverTheMeasuring) {
  Artifact artifact = Kernel({Tile(2, 2, 1), Tile(2, 1, 1), Tile(1, 1, 1)});
  artifact.name.bytes[0] = 9;
  const GpuTarget targets[2] = {Target(), Target()};
  const LaunchFacts facts = Launch({2048, 2048, 1});
  Shelf shelf;
  std::unique_ptr<Chooser> first = CreateChooser(artifact, targets[0], nullptr, &shelf);
  std::unique_ptr<Chooser> second = CreateChooser(artifact, targets[1], nullptr, &shelf);
  for (int i = 0; i < 3; ++i) {
    const std::vector<Part> parts = *PartsOf(*first, facts);
    first->Took(facts, parts, Simulate(parts));
  }
  int launches = 0;
  for (; launches < 200; ++launches) {
    Chosen chosen;
    ASSERT_TRUE(second->Choose(facts, &chosen).ok());
    if (!chosen.is_measured) {
      break;
    }
    second->Took(facts, chosen.parts, 5 * Simulate(chosen.parts));
  }
  EXPECT_LT(launches, 60);
  EXPECT_EQ((*PartsOf(*first, facts))[0].variant, 1u);
}

// The bits of arguments.
TEST(ValueOfTest, GivesWhatTheArgumentNames) {
  LaunchFacts facts = Launch({10, 20, 30}, {4, 5, 6});
  facts.params = {{1000, 260}, {77, 0}};
  Part part;
  part.first = {1, 2, 3};
  const uint64_t base[] = {65536, 0};
  const ValueSource source{&facts, &part, base, 1 << 20, 9};
  using Kind = GpuArgument::Kind;
  struct Case {
    Kind kind;
    uint32_t index;
    uint64_t want;
  };
  const Case kCases[] = {{Kind::kBufferBytes, 0, 1000}, {Kind::kBufferStart, 0, 260}, {Kind::kBufferBase, 0, 65536},
                         {Kind::kScalar, 1, 77},        {Kind::kFirst, 2, 3},         {Kind::kExtent, 1, 20},
                         {Kind::kGroup, 2, 6},          {Kind::kTrapIndex, 0, 9},     {Kind::kGroupBase, 0, 1 << 20}};
  for (const Case& c : kCases) {
    GpuArgument argument;
    argument.kind = c.kind;
    argument.index = c.index;
    EXPECT_EQ(ValueOf(argument, source), c.want) << static_cast<int>(c.kind);
  }
}

}  // namespace
}  // namespace hpvm::gpu
