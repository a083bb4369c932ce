// SPDX-License-Identifier: Apache-2.0
#include "backends/cpu/variants.h"

#include <string>

#include "gtest/gtest.h"

#include "backends/cpu/executable.h"
#include "base/clock.h"
#include "base/limits.h"

namespace hpvm::cpu {
namespace {

using backends::LaunchClass;

using Unit = CpuVariant::Unit;

CpuVariant Tile(uint32_t lanes, uint32_t columns, uint32_t rows, bool needs_proof) {
  return {.unit = Unit::kTile, .lanes = lanes, .columns = columns, .rows = rows, .needs_proof = needs_proof};
}
CpuVariant AlongY(uint32_t lanes, bool needs_proof) {
  return {.unit = Unit::kTile, .lanes = lanes, .is_along_y = true, .needs_proof = needs_proof};
}
CpuVariant Group(uint32_t lanes, bool needs_proof, uint64_t value_bytes = 64) {
  return {.unit = Unit::kGroup, .lanes = lanes, .needs_proof = needs_proof, .value_bytes = value_bytes};
}

std::vector<Variant> Variants(const std::vector<CpuVariant>& shapes, bool uses_barrier) {
  Artifact artifact;
  artifact.uses_barrier = uses_barrier;
  artifact.variants = shapes;
  const std::vector<ir::CpuEntry> entries(shapes.size() + 1);
  return VariantsOf(artifact, entries);
}

// Variants that a launch allows: never those that need a proof without one, always one instance at a time.
TEST(VariantsTest, AllowsWhatTheLaunchShows) {
  struct Case {
    const char* name;
    std::vector<CpuVariant> shapes;
    bool uses_barrier, is_proven;
    uint64_t group_x;
    backends::VariantMask want;
  };
  const Case kCases[] = {
      {"None", {}, false, true, 1, 0b1},
      {"Proven", {Tile(16, 3, 8, true), Tile(16, 1, 1, false)}, false, true, 1, 0b111},
      {"NotProven", {Tile(16, 3, 8, true), Tile(16, 1, 1, false)}, false, false, 1, 0b110},
      {"OnlyWithProof", {Tile(16, 3, 8, true)}, false, false, 1, 0b10},
      {"CheckedIsBeaten", {Tile(16, 1, 1, true), Tile(16, 1, 1, false)}, false, true, 1, 0b101},
      {"CheckedStandsIn", {Tile(16, 1, 1, true), Tile(16, 1, 1, false)}, false, false, 1, 0b110},
      {"TilesOfGroups", {Tile(16, 1, 1, false)}, true, true, 64, 0b10},
      {"GroupsOfTiles", {Group(16, false)}, false, true, 64, 0b10},
      {"WideGroup", {Group(8, false), Group(16, false)}, true, true, 64, 0b110},
      {"NarrowGroup", {Group(16, false), Group(8, false)}, true, true, 8, 0b110},
      {"NarrowerThanAll", {Group(16, false), Group(8, false)}, true, true, 4, 0b110},
      {"ProvenGroup", {Group(16, true), Group(16, false)}, true, true, 64, 0b101},
      {"GroupNotProven", {Group(16, true), Group(8, false)}, true, false, 64, 0b110},
      {"LargeGroup", {Group(16, false, limits::kGroupLaneBytesMax)}, true, true, 1040, 0b10},
  };
  for (const Case& c : kCases) {
    SCOPED_TRACE(c.name);
    const backends::VariantMask mask =
        AllowedVariants(Variants(c.shapes, c.uses_barrier), c.is_proven, {1000, 1000, 1}, {c.group_x, 1, 1});
    EXPECT_EQ(mask, c.want);
  }
}

// Lanes are along y when lanes along x would be idle, if there is code for it; then none are along x.
TEST(VariantsTest, LanesAlongYForNarrowLaunches) {
  struct Case {
    backends::Extent extent;
    bool is_proven;
    backends::VariantMask want;
  };
  const std::vector<Variant> variants =
      Variants({Tile(16, 4, 1, true), Tile(16, 1, 1, false), AlongY(16, true), Tile(1, 1, 1, true)}, false);
  for (const Case& c :
       {Case{{1, 1000, 1}, true, 0b11100}, Case{{8, 9, 3}, true, 0b11100}, Case{{9, 1000, 1}, true, 0b11011},
        Case{{8, 8, 1}, true, 0b11011}, Case{{1, 1, 1000}, true, 0b11011}, Case{{1, 1000, 1}, false, 0b10010},
        Case{{1000, 1000, 1}, true, 0b11011}}) {
    EXPECT_EQ(AllowedVariants(variants, c.is_proven, c.extent, {1, 1, 1}), c.want)
        << c.extent[0] << " x " << c.extent[1] << " x " << c.extent[2];
  }
}

// Bytes that a group keeps: rows are padded to whole vectors.
TEST(VariantsTest, GroupValueBytes) {
  EXPECT_EQ(GroupValueBytes(Group(16, false, 8), {16, 4, 2}), 16u * 4 * 2 * 8);
  EXPECT_EQ(GroupValueBytes(Group(16, false, 8), {17, 4, 1}), 32u * 4 * 8);
  EXPECT_EQ(GroupValueBytes(Group(16, false, 8), {1, 1, 1}), 16u * 8);
  EXPECT_EQ(GroupValueBytes(Group(16, false, 0), {1000, 1, 1}), 0u);
  EXPECT_EQ(GroupValueBytes(Group(16, false, limits::kGroupLaneBytesMax), {1024, 1, 1}), limits::kGroupValueBytesMax);
  EXPECT_EQ(GroupValueBytes(Group(16, false, limits::kGroupLaneBytesMax), {1025, 1, 1}), ~uint64_t{0});
}

// Marks the instances covered by a variant's units [begin, end), in the ABI's order; a separate test computes it
// directly.
void Cover(const Variant& variant, const backends::Extent& extent, uint64_t begin, uint64_t end,
           std::vector<uint32_t>& hits) {
  const uint64_t width = variant.width(), rows = variant.height();
  const uint64_t tx = CeilDivide(extent[0], width), ty = CeilDivide(extent[1], rows);
  for (uint64_t unit = begin; unit < end; ++unit) {
    const uint64_t z = unit / (tx * ty), in_plane = unit % (tx * ty);
    const uint64_t x0 = (rows == 1 ? in_plane % tx : in_plane / ty) * width;
    const uint64_t y0 = (rows == 1 ? in_plane / tx : in_plane % ty) * rows;
    for (uint64_t y = y0; y < std::min(y0 + rows, extent[1]); ++y) {
      for (uint64_t x = x0; x < std::min(x0 + width, extent[0]); ++x) {
        ++hits.at((z * extent[1] + y) * extent[0] + x);
      }
    }
  }
}

void RunBox(const Variant& variant, const backends::Extent& extent, const Box& box, std::vector<uint32_t>& hits) {
  if (box.instances() == 0) {
    return;
  }
  ForEachRange(variant, extent, box, [&](uint64_t begin, uint64_t end) {
    EXPECT_LT(begin, end);
    EXPECT_LE(end, UnitCount(variant, extent));
    Cover(variant, extent, begin, end, hits);
    return true;
  });
}

// However a launch is divided into slices, corners and rests, every instance runs exactly once.
TEST(SlicesTest, CoverEveryInstanceOnce) {
  SeededRng rng(3);
  const std::vector<CpuVariant> shapes = {Tile(4, 3, 8, true), Tile(8, 1, 1, true), Tile(2, 2, 3, false),
                                          Tile(16, 1, 5, false), AlongY(8, true)};
  const std::vector<Variant> variants = Variants(shapes, false);
  for (int round = 0; round < 2'000; ++round) {
    const backends::Extent extent = {1 + rng.Below(round % 3 == 0 ? 300 : 40), 1 + rng.Below(40), 1 + rng.Below(5)};
    const backends::VariantMask mask = static_cast<backends::VariantMask>(1 + rng.Below(63));
    const Slices slices(extent, variants, mask);
    std::vector<uint32_t> hits(extent[0] * extent[1] * extent[2]);
    const auto any = [&]() -> const Variant& {
      size_t i = rng.Below(variants.size());
      while ((mask >> i & 1) == 0) {
        i = (i + 1) % variants.size();
      }
      return variants[i];
    };
    uint64_t instances = 0;
    for (uint64_t at = 0; at < slices.count();) {
      const uint64_t end = at + 1 + rng.Below(slices.count() - at);
      if (rng.Below(2) == 0) {
        RunBox(any(), extent, slices.BoxOf(at, end), hits);
        instances += slices.BoxOf(at, end).instances();
        at = end;
        continue;
      }
      const Slices::Cut cut = slices.CornerOf(at);
      RunBox(any(), extent, cut.corner, hits);
      instances += cut.corner.instances();
      for (const Box& box : cut.rest) {
        RunBox(any(), extent, box, hits);
        instances += box.instances();
      }
      ++at;
    }
    ASSERT_EQ(instances, hits.size());
    ASSERT_TRUE(std::all_of(hits.begin(), hits.end(), [](uint32_t n) { return n == 1; }))
        << extent[0] << " x " << extent[1] << " x " << extent[2] << ", mask " << mask;
  }
}

// in[id] of 4 bytes, and a scalar that the program does not use.
Artifact BoundsOfCopy() {
  Artifact artifact;
  artifact.params = {{"in", true, false, ir::Type::kI32}, {"a", false, false, ir::Type::kF32}};
  ir::Atom id;
  id.kind = ir::Atom::Kind::kInstanceId;
  artifact.bounds.atoms = {id};
  artifact.bounds.accesses.push_back({ir::OpId(0u), 0, 4, false, {{4, {ir::AtomId(0u)}}}, {}});
  return artifact;
}

// Similar launches are found again, others are not: a launch of one more instance must not use a proof for fewer.
TEST(ProofCacheTest, FindsOnlyWhatLooksAlike) {
  CpuProofs cache(BoundsOfCopy());
  std::vector<ir::CpuArgument> arguments = {{nullptr, 400, 65536, 0}, {nullptr, 0, 7, ir::kCpuScalar}};
  CpuProofs::Launch launch{{100, 1, 1}, {1, 1, 1}, arguments};
  EXPECT_TRUE(cache.Prove(launch));
  EXPECT_EQ(cache.Find(launch), nullptr);
  LaunchClass proven(1, {}), refused(1, {});
  cache.Remember(launch, &proven);
  EXPECT_EQ(cache.Find(launch), &proven);
  arguments[1].base = 8;  // A scalar on which no access depends.
  EXPECT_EQ(cache.Find(launch), &proven);
  launch.extent[0] = 101;
  EXPECT_EQ(cache.Find(launch), nullptr);
  EXPECT_FALSE(cache.Prove(launch));
  cache.Remember(launch, &refused);
  EXPECT_EQ(cache.Find(launch), &refused);
  arguments[0].bytes = 404;
  EXPECT_EQ(cache.Find(launch), nullptr);
  EXPECT_TRUE(cache.Prove(launch));
  launch.group[1] = 2;
  EXPECT_EQ(cache.Find(launch), nullptr);
  launch = {{100, 1, 1}, {1, 1, 1}, arguments};
  arguments[0].bytes = 400;
  EXPECT_EQ(cache.Find(launch), &proven);
  for (uint64_t i = 1; i <= 8; ++i) {  // As many as the cache holds evict the others.
    cache.Remember({{i, 1, 1}, {1, 1, 1}, arguments}, &refused);
  }
  EXPECT_EQ(cache.Find(launch), nullptr);
}

// Offsets are computed in 32 bits, so buffers beyond 2^31 bytes use checked code.
TEST(ProofCacheTest, RefusesLargeBuffers) {
  const CpuProofs cache(BoundsOfCopy());
  std::vector<ir::CpuArgument> arguments = {{nullptr, uint64_t{1} << 31, 65536, 0}, {nullptr, 0, 7, ir::kCpuScalar}};
  EXPECT_TRUE(cache.Prove({{100, 1, 1}, {1, 1, 1}, arguments}));
  arguments[0].bytes += 1;
  EXPECT_FALSE(cache.Prove({{100, 1, 1}, {1, 1, 1}, arguments}));
}

// Launches of similar size share a class; what was learnt is restored in another process, on the same device only.
TEST(ClassTableTest, RestoresTheTuningRecord) {
  backends::ClassTable table(3, "here");
  LaunchClass& small = table.ClassOf(0b111, {1000, 1, 1}, {1, 1, 1});
  EXPECT_EQ(&small, &table.ClassOf(0b111, {600, 1, 1}, {1, 1, 1}));
  LaunchClass& large = table.ClassOf(0b111, {100'000, 1, 1}, {1, 1, 1});
  EXPECT_NE(&small, &large);
  EXPECT_NE(&small, &table.ClassOf(0b101, {1000, 1, 1}, {1, 1, 1}));
  EXPECT_EQ(small.winner, LaunchClass::kUnsettled);
  small.tuner.Settle(1, 2.5);
  EXPECT_TRUE(small.Publish());
  EXPECT_FALSE(small.Publish());
  const std::vector<uint8_t> record = table.Record();

  backends::ClassTable later(3, "here");
  later.Restore(record);
  EXPECT_EQ(later.ClassOf(0b111, {1000, 1, 1}, {1, 1, 1}).winner, 1u);
  EXPECT_EQ(later.ClassOf(0b111, {1000, 1, 1}, {1, 1, 1}).instance_ns(), 2.5f);
  EXPECT_EQ(later.ClassOf(0b111, {100'000, 1, 1}, {1, 1, 1}).winner, LaunchClass::kUnsettled);
  EXPECT_EQ(later.Record(), record);

  backends::ClassTable elsewhere(3, "there");
  elsewhere.Restore(record);
  EXPECT_EQ(elsewhere.ClassOf(0b111, {1000, 1, 1}, {1, 1, 1}).winner, LaunchClass::kUnsettled);
  backends::ClassTable fewer(2, "here");  // For an image with fewer variants.
  fewer.Restore(record);
  EXPECT_EQ(fewer.ClassOf(0b11, {1000, 1, 1}, {1, 1, 1}).winner, LaunchClass::kUnsettled);
}

// A full table returns the nearest class.
TEST(ClassTableTest, IsBounded) {
  backends::ClassTable table(2, "here");
  LaunchClass* last = nullptr;
  for (int x = 0; x < 8; ++x) {
    for (int y = 0; y < 4; ++y) {
      last = &table.ClassOf(0b11, {uint64_t{1} << (2 * x), uint64_t{1} << (2 * y), 1}, {1, 1, 1});
    }
  }
  EXPECT_EQ(&table.ClassOf(0b11, {uint64_t{1} << 30, uint64_t{1} << 6, 1}, {1, 1, 1}), last);
}

// No bytes crash the reader; a record survives a round trip, and malformed records are refused.
TEST(TuningRecordTest, RoundTripsAndIsTotal) {
  const TuningRecord record{"a processor", {{0b101, {1, 2, 3, 4}, 2, {1.5f, 0, 2.5f}}, {0b1, {9, 9, 9, 9}, 0, {}}}};
  const std::vector<uint8_t> bytes = EncodeTuning(record);
  const StatusOr<TuningRecord> parsed = DecodeTuning(bytes);
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  EXPECT_EQ(*parsed, record);
  for (size_t bit = 0; bit < bytes.size() * 8; ++bit) {
    std::vector<uint8_t> flipped = bytes;
    flipped[bit / 8] ^= static_cast<uint8_t>(1u << (bit % 8));
    const StatusOr<TuningRecord> other = DecodeTuning(flipped);
    for (const TuningClass& c : other.ok() ? other->classes : std::vector<TuningClass>()) {
      EXPECT_NE(c.candidates >> c.winner & 1, 0u);
    }
  }
  for (size_t size = 0; size < bytes.size(); ++size) {
    (void)DecodeTuning(std::span(bytes).first(size));  // Sanitizers detect errors.
  }
  TuningRecord bad = record;
  bad.classes[0].winner = 1;
  EXPECT_FALSE(DecodeTuning(EncodeTuning(bad)).ok());
  bad = record;
  bad.classes[0].instance_ns[0] = -1;
  EXPECT_FALSE(DecodeTuning(EncodeTuning(bad)).ok());
  EXPECT_FALSE(DecodeTuning(std::vector<uint8_t>(kTuningBytesMax + 1)).ok());
  bad = record;
  bad.classes.resize(kTuningClassesMax, bad.classes[0]);
  bad.classes[31].instance_ns.resize(17);
  EXPECT_LE(EncodeTuning(bad).size(), kTuningBytesMax);
}

}  // namespace
}  // namespace hpvm::cpu
