// SPDX-License-Identifier: Apache-2.0
#include "compiler/api/artifact.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "base/limits.h"
#include "compiler/ir/access.h"

namespace hpvm {
namespace {

using testing::HasSubstr;

constexpr ArtifactKey kKey = {1, 2, 3, 4, 5};
constexpr ArtifactKey kOtherKey = {5, 4, 3, 2, 1};

using Kind = ir::Atom::Kind;

ir::Atom AtomOf(Kind kind, uint32_t index, std::vector<ir::Polynomial> operands = {}) {
  ir::Atom atom;
  atom.kind = kind;
  atom.index = index;
  atom.operands = std::move(operands);
  return atom;
}

// Bounds of in[id < n ? 4 id : 0], in a loop: contains every part that a bounds program may have.
ir::BoundsProgram SampleBounds() {
  ir::BoundsProgram b;
  const auto atom = [](uint32_t i) { return ir::AtomPolynomial(ir::AtomId(i)); };
  b.atoms.push_back(AtomOf(Kind::kInstanceId, 0));
  b.atoms.push_back(AtomOf(Kind::kScalar, 1));
  b.atoms.push_back(AtomOf(Kind::kBufferBytes, 0));
  b.atoms.push_back(AtomOf(Kind::kTrip, 0));
  b.atoms.push_back(AtomOf(Kind::kRange, 0));
  b.atoms.back().range = {-5, ir::Wide{1} << 90};
  b.atoms.push_back(AtomOf(Kind::kOperation, 0, {atom(0), {{4, {}}, {-2, {ir::AtomId(1u), ir::AtomId(2u)}}}}));
  b.atoms.back().code = ir::Opcode::kShrU;
  b.atoms.push_back(AtomOf(Kind::kEither, 0, {atom(5), ir::ConstantPolynomial(0)}));
  b.atoms.back().contexts = {{0}, {}};
  b.atoms.push_back(AtomOf(Kind::kCarried, 0));
  b.constraints.push_back({false, true, 64, atom(0), atom(1)});
  b.loops.push_back({ir::AtomId(3u), {0}, {{{0}, {{atom(3), 32}}}}});
  b.loops[0].goes_on_when = {0};
  b.loops[0].is_exact = true;
  b.loops[0].carried = {{ir::AtomId(7u), atom(1)}};
  b.loops[0].ends[0].next = {{{2, {ir::AtomId(7u)}}}};
  b.accesses.push_back({ir::OpId(17u), 0, 4, false, atom(6), {0}});
  b.accesses[0].width = 4;
  b.accesses[0].is_load = b.accesses[0].is_certain = true;
  b.accesses[0].happens_when = {0};
  b.accesses[0].loops = {0};
  b.others = b.accesses;
  b.others[0].reads_own = true;
  b.by_words = b.accesses;
  b.by_words[0].reach = 8;
  b.is_complete = b.is_wide = true;
  return b;
}

ir::WorkProgram SampleWork() {
  ir::WorkProgram w;
  w.blocks = {{12, 4, 1, {}, {}}, {3, 0, 0.5, {0}, {1, 0}}};
  w.loops = {{0}, {}};
  return w;
}

Artifact Sample() {
  Artifact a;
  a.kind = ArtifactKind::kCpuImage;
  a.module_name = "blur";
  a.entry = "main";
  a.target = "x86-64-v3";
  a.params = {{"in", true, false, ir::Type::kI32}, {"scale", false, true, ir::Type::kF64}};
  a.is_memory64 = true;
  a.uses_barrier = true;
  a.memory_bytes = 131072;
  a.memory_bytes_max = 262144;
  a.data = {{16, {1, 2, 3}}, {100, {9}}};
  a.globals = {7, ~uint64_t{0}};
  a.state_bytes = 64;
  a.state = {{0, {5, 6}}, {60, {7, 8, 9, 10}}};
  a.formats = {"x = %d", "done"};
  a.format_types = {{ir::Type::kI32}, {}};
  a.has_separate_buffers = true;
  a.function_names = {"main", "helper"};
  a.files = {"blur.c", "hpvm.h"};
  a.lines = {{40, 0, 7, 3}, {52, 1, 30, 1}, {60, 0, 0, 0}};
  a.code = {0xc3, 0x90, 0x90};
  a.entry_offset = 1;
  a.variants = {
      {.unit = CpuVariant::Unit::kTile, .lanes = 16, .columns = 3, .rows = 8, .needs_proof = true, .entry_offset = 2},
      {.unit = CpuVariant::Unit::kGroup, .lanes = 8, .value_bytes = 48},
      {.unit = CpuVariant::Unit::kTile, .lanes = 8, .is_along_y = true, .entry_offset = 1}};
  a.bounds = SampleBounds();
  a.work = SampleWork();
  a.remarks = {{KernelRemark::Kind::kShape, 40, "The value is uniform."}, {KernelRemark::Kind::kTile, 0, "16 x 1."}};
  a.fast_math = true;
  a.read_ns = 1;
  a.pass_ns = 2;
  a.emit_ns = 3;
  return a;
}

// Every field survives serialization and parsing: a second serialization yields the same bytes, and the important
// fields are compared.
TEST(ArtifactTest, RoundTrips) {
  std::vector<uint8_t> bytes = Serialize(Sample(), kKey);
  StatusOr<Artifact> parsed = ParseArtifact(bytes, kKey);
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  EXPECT_EQ(Serialize(*parsed, kKey), bytes);
  EXPECT_EQ(parsed->entry, "main");
  EXPECT_EQ(parsed->params[1].type, ir::Type::kF64);
  EXPECT_FALSE(parsed->params[0].is_writable);
  EXPECT_EQ(parsed->data[1].address, 100u);
  EXPECT_EQ(parsed->globals[1], ~uint64_t{0});
  EXPECT_EQ(parsed->state_bytes, 64u);
  EXPECT_EQ(parsed->state[1].bytes.size(), 4u);
  EXPECT_EQ(parsed->formats[0], "x = %d");
  ASSERT_EQ(parsed->format_types.size(), 2u);
  EXPECT_EQ(parsed->format_types[0], std::vector<ir::Type>{ir::Type::kI32});
  EXPECT_TRUE(parsed->has_separate_buffers);
  EXPECT_EQ(parsed->files[1], "hpvm.h");
  EXPECT_EQ(parsed->lines[1].line, 30u);
  EXPECT_EQ(parsed->code.size(), 3u);
  EXPECT_EQ(parsed->variants, Sample().variants);
  ASSERT_EQ(parsed->bounds.atoms.size(), 8u);
  EXPECT_EQ(parsed->bounds.atoms[4].range, (ir::Interval{-5, ir::Wide{1} << 90}));
  EXPECT_EQ(parsed->bounds.atoms[5].operands[1][1].factor, -2);
  EXPECT_EQ(parsed->bounds.accesses[0].reach, 4u);
  EXPECT_EQ(parsed->bounds.loops[0].goes_on_when, std::vector<uint32_t>{0});
  ASSERT_EQ(parsed->bounds.loops[0].carried.size(), 1u);
  EXPECT_EQ(parsed->bounds.loops[0].carried[0].atom, ir::AtomId(7u));
  EXPECT_EQ(parsed->bounds.loops[0].ends[0].next[0][0].factor, 2);
  EXPECT_EQ(parsed->bounds.accesses[0].loops, std::vector<uint32_t>{0});
  EXPECT_TRUE(parsed->bounds.accesses[0].is_certain && !parsed->bounds.accesses[0].reads_own);
  EXPECT_TRUE(parsed->bounds.others[0].reads_own);
  EXPECT_EQ(parsed->bounds.by_words[0].reach, 8u);
  EXPECT_TRUE(parsed->bounds.is_complete && !parsed->bounds.is_separate && parsed->bounds.is_wide);
  ASSERT_EQ(parsed->work.blocks.size(), 2u);
  EXPECT_EQ(parsed->work.blocks[1].share, 0.5);
  EXPECT_EQ(parsed->work.blocks[1].loops, (std::vector<uint32_t>{1, 0}));
  EXPECT_EQ(parsed->work.loops[1].bounds_loop, ir::WorkLoop::kUnknown);
  EXPECT_EQ(parsed->remarks[0].text, "The value is uniform.");
  EXPECT_TRUE(parsed->fast_math);
  EXPECT_EQ(parsed->emit_ns, 3u);
}

// Artifacts of earlier compilers hold outdated bounds, so they are refused by version, whatever their tag.
TEST(ArtifactTest, RefusesOtherVersions) {
  for (const uint32_t version : {kArtifactFormatVersion - 1, kArtifactFormatVersion + 1, 0u}) {
    std::vector<uint8_t> bytes = Serialize(Sample(), kKey);
    std::memcpy(bytes.data() + 4, &version, sizeof(version));
    TagArtifact(bytes, kKey);
    const StatusOr<Artifact> parsed = ParseArtifact(bytes, kKey);
    ASSERT_FALSE(parsed.ok());
    EXPECT_THAT(Message(parsed.status()), HasSubstr("The artifact's format version (" + std::to_string(version) +
                                                    ") is not the supported version"));
  }
}

// No prefix of an artifact is an artifact, even with a matching tag.
TEST(ArtifactTest, RefusesEveryTruncation) {
  std::vector<uint8_t> bytes = Serialize(Sample(), kKey);
  for (size_t size = 0; size < bytes.size(); ++size) {
    std::vector<uint8_t> cut(bytes.begin(), bytes.begin() + static_cast<ptrdiff_t>(size));
    EXPECT_FALSE(ParseArtifact(cut, kKey).ok()) << size;
    if (size >= 40) {
      TagArtifact(cut, kKey);
      EXPECT_FALSE(ParseArtifact(cut, kKey).ok()) << size << " tagged";
    }
  }
}

// A single flipped bit breaks the tag or the header.
TEST(ArtifactTest, RefusesEveryBitFlip) {
  std::vector<uint8_t> bytes = Serialize(Sample(), kKey);
  for (size_t bit = 0; bit < bytes.size() * 8; ++bit) {
    bytes[bit / 8] ^= static_cast<uint8_t>(1u << (bit % 8));
    EXPECT_FALSE(ParseArtifact(bytes, kKey).ok()) << bit;
    bytes[bit / 8] ^= static_cast<uint8_t>(1u << (bit % 8));
  }
}

// With a matching tag a flipped bit yields an artifact or an error, never a fault; parsed artifacts obey the
// invariants.
TEST(ArtifactTest, IsTotalOverTaggedBitFlips) {
  std::vector<uint8_t> original = Serialize(Sample(), kKey);
  size_t parsed_count = 0;
  for (size_t bit = 40 * 8; bit < original.size() * 8; ++bit) {
    std::vector<uint8_t> bytes = original;
    bytes[bit / 8] ^= static_cast<uint8_t>(1u << (bit % 8));
    TagArtifact(bytes, kKey);
    StatusOr<Artifact> artifact = ParseArtifact(bytes, kKey);
    if (!artifact.ok()) {
      continue;
    }
    ++parsed_count;
    EXPECT_LE(artifact->memory_bytes, artifact->memory_bytes_max);
    for (const ir::DataSegment& segment : artifact->data) {
      EXPECT_LE(segment.address + segment.bytes.size(), artifact->memory_bytes);
    }
    for (const ir::DataSegment& segment : artifact->state) {
      EXPECT_LE(segment.address + segment.bytes.size(), artifact->state_bytes);
    }
    EXPECT_EQ(artifact->formats.size(), artifact->format_types.size());
    for (size_t i = 0; i < artifact->lines.size(); ++i) {
      EXPECT_TRUE(artifact->lines[i].line == 0 || artifact->lines[i].file < artifact->files.size());
      EXPECT_TRUE(i == 0 || artifact->lines[i - 1].offset < artifact->lines[i].offset);
    }
    for (const CpuVariant& variant : artifact->variants) {
      EXPECT_TRUE(variant.entry_offset < artifact->code.size() && variant.lanes != 0 && variant.rows != 0);
    }
    if (artifact->params.size() == 2) {
      ir::BoundsFacts facts;
      facts.extent = {100, 3, 1};
      facts.params = {{true, true, 4096, 32}, {false, true, 7, 32}};
      // They terminate, and stay inside their own arrays (checked by the sanitizers).
      ir::ProveBounds(artifact->bounds, facts);
      std::vector<ir::ParamAccess> accesses;
      if (ir::FindAccesses(artifact->bounds, facts, {{0, 1, 0}, {50, 2, 1}}, &accesses)) {
        EXPECT_LE(accesses[0].read.end, 4096u);
      }
      const ir::WorkCount work = ir::CountWork(artifact->work, artifact->bounds, facts);
      EXPECT_TRUE(std::isfinite(work.operations) && work.operations >= 0);
    }
  }
  EXPECT_GT(parsed_count, 0u);
}

// The error for each malformed artifact names the fault.
TEST(ArtifactTest, RefusesWithReason) {
  struct Case {
    const char* name;
    void (*change)(Artifact&);
    const char* want;
  };
  const Case kCases[] = {
      {"EntryOutside", [](Artifact& a) { a.entry_offset = 3; }, "entry (offset 3) lies outside its code (3 bytes)"},
      {"MemoryAboveMax", [](Artifact& a) { a.memory_bytes_max = 65536; }, "larger than its own maximum (65536)"},
      {"UnsortedData", [](Artifact& a) { std::swap(a.data[0], a.data[1]); }, "malformed"},
      {"DataOutside", [](Artifact& a) { a.data[1].address = a.memory_bytes; }, "malformed"},
      {"StateOutside", [](Artifact& a) { a.state_bytes = 63; }, "malformed"},
      {"StateTooLarge", [](Artifact& a) { a.state_bytes = limits::kModuleStateBytesMax + 1; }, "state ("},
      {"UnknownOperandType", [](Artifact& a) { a.format_types[0][0] = static_cast<ir::Type>(4); }, "malformed"},
      {"LinesFall", [](Artifact& a) { a.lines[1].offset = 40; }, "malformed"},
      {"LineOfNoFile", [](Artifact& a) { a.lines[0].file = 2; }, "malformed"},
      {"UnknownKind", [](Artifact& a) { a.kind = static_cast<ArtifactKind>(9); }, "kind (9)"},
      {"VariantOutside", [](Artifact& a) { a.variants[1].entry_offset = 3; }, "variant 1 is malformed"},
      {"VariantOfNoUnit", [](Artifact& a) { a.variants[0].unit = static_cast<CpuVariant::Unit>(0); }, "variant 0"},
      {"VariantOfNoLanes", [](Artifact& a) { a.variants[0].lanes = 0; }, "variant 0"},
      {"VariantOfOddLanes", [](Artifact& a) { a.variants[0].lanes = 12; }, "variant 0"},
      {"VariantTooWide", [](Artifact& a) { a.variants[0].columns = 9; }, "variant 0"},
      {"VariantTooHigh", [](Artifact& a) { a.variants[0].rows = 17; }, "variant 0"},
      {"GroupOfTiles", [](Artifact& a) { a.variants[1].rows = 2; }, "variant 1"},
      {"GroupTooLarge", [](Artifact& a) { a.variants[1].value_bytes = limits::kGroupLaneBytesMax + 1; }, "variant 1"},
      {"RowsAlongY", [](Artifact& a) { a.variants[2].rows = 2; }, "variant 2"},
      {"GroupAlongY", [](Artifact& a) { a.variants[1].is_along_y = true; }, "variant 1"},
      {"GroupForEdges", [](Artifact& a) { a.variants[1].is_for_edges = true; }, "variant 1"},
      {"TooManyVariants", [](Artifact& a) { a.variants.resize(limits::kCpuVariantsMax + 1); }, "variants (17)"},
      {"RemarkOfNoKind", [](Artifact& a) { a.remarks[0].kind = static_cast<KernelRemark::Kind>(0); }, "malformed"},
      {"TooManyParams", [](Artifact& a) { a.params.resize(limits::kKernelParamsMax + 1); }, "malformed"},
  };
  for (const Case& c : kCases) {
    SCOPED_TRACE(c.name);
    Artifact artifact = Sample();
    c.change(artifact);
    StatusOr<Artifact> parsed = ParseArtifact(Serialize(artifact, kKey), kKey);
    ASSERT_FALSE(parsed.ok());
    EXPECT_THAT(Message(parsed.status()), HasSubstr(c.want));
  }
}

// Refuses programs that ir::ProveBounds would use as indices out of range, or recurse along without end.
TEST(ArtifactTest, RefusesMalformedBounds) {
  struct Case {
    const char* name;
    void (*change)(ir::BoundsProgram&);
  };
  const auto last = [](uint32_t i) { return ir::AtomPolynomial(ir::AtomId(i)); };
  static const ir::Polynomial kSelf = last(6), kOutside = last(8), kScalar = last(5);
  const Case kCases[] = {
      {"UnknownKind", [](ir::BoundsProgram& b) { b.atoms[0].kind = static_cast<Kind>(13); }},
      {"UnknownOpcode", [](ir::BoundsProgram& b) { b.atoms[5].code = static_cast<ir::Opcode>(255); }},
      {"FourthDimension", [](ir::BoundsProgram& b) { b.atoms[0].index = 3; }},
      {"ScalarThatIsABuffer", [](ir::BoundsProgram& b) { b.atoms[1].index = 0; }},
      {"BufferThatIsAScalar", [](ir::BoundsProgram& b) { b.atoms[2].index = 1; }},
      {"ParamOutside", [](ir::BoundsProgram& b) { b.atoms[1].index = 2; }},
      {"LoopOutside", [](ir::BoundsProgram& b) { b.atoms[3].index = 1; }},
      {"BitsOfAnAtom", [](ir::BoundsProgram& b) { b.atoms[5].bits = 127; }},
      {"OperandIsItself", [](ir::BoundsProgram& b) { b.atoms[5].operands[0] = kScalar; }},
      {"OperandIsLater", [](ir::BoundsProgram& b) { b.atoms[5].operands[0] = kSelf; }},
      {"NoOperand", [](ir::BoundsProgram& b) { b.atoms[5].operands.clear(); }},
      {"ThreeOperands", [](ir::BoundsProgram& b) { b.atoms[5].operands.resize(3); }},
      {"ChoiceOfNothing", [](ir::BoundsProgram& b) { b.atoms[6].operands.clear(), b.atoms[6].contexts.clear(); }},
      {"ChoiceWithoutContext", [](ir::BoundsProgram& b) { b.atoms[6].contexts.pop_back(); }},
      {"ContextOutside", [](ir::BoundsProgram& b) { b.atoms[6].contexts[1] = {1}; }},
      {"ContextNamesTheChoice", [](ir::BoundsProgram& b) { b.constraints[0].less = kSelf; }},
      {"ConstraintOutside", [](ir::BoundsProgram& b) { b.constraints[0].more = kOutside; }},
      {"BitsOfAConstraint", [](ir::BoundsProgram& b) { b.constraints[0].bits = 0; }},
      {"TripOutside", [](ir::BoundsProgram& b) { b.loops[0].trip = ir::AtomId(8u); }},
      {"LoopContextOutside", [](ir::BoundsProgram& b) { b.loops[0].context = {9}; }},
      {"GoesOnOutside", [](ir::BoundsProgram& b) { b.loops[0].ends[0].goes_on = {1}; }},
      {"SteadyOutside", [](ir::BoundsProgram& b) { b.loops[0].ends[0].steady = {1}; }},
      {"DistanceOutside", [](ir::BoundsProgram& b) { b.loops[0].ends[0].distances[0].polynomial = kOutside; }},
      {"BitsOfADistance", [](ir::BoundsProgram& b) { b.loops[0].ends[0].distances[0].bits = 200; }},
      {"CarriedOfNoLoop", [](ir::BoundsProgram& b) { b.atoms[7].index = 1; }},
      {"CarriedOutside", [](ir::BoundsProgram& b) { b.loops[0].carried[0].atom = ir::AtomId(8u); }},
      {"CarriedIsATrip", [](ir::BoundsProgram& b) { b.loops[0].carried[0].atom = ir::AtomId(3u); }},
      {"FirstOutside", [](ir::BoundsProgram& b) { b.loops[0].carried[0].first = kOutside; }},
      {"NextOutside", [](ir::BoundsProgram& b) { b.loops[0].ends[0].next[0] = kOutside; }},
      {"NextOfNothing", [](ir::BoundsProgram& b) { b.loops[0].ends[0].next.clear(); }},
      {"AccessOfNoParam", [](ir::BoundsProgram& b) { b.accesses[0].param = 2; }},
      {"AccessOfAScalar", [](ir::BoundsProgram& b) { b.accesses[0].param = 1; }},
      {"WiderThanItsReach", [](ir::BoundsProgram& b) { b.accesses[0].width = 5; }},
      {"HappensWhenOutside", [](ir::BoundsProgram& b) { b.accesses[0].happens_when = {1}; }},
      {"LoopOfAnAccessOutside", [](ir::BoundsProgram& b) { b.accesses[0].loops = {1}; }},
      {"OtherAccessOutside", [](ir::BoundsProgram& b) { b.others[0].offset = kOutside; }},
      {"AccessByWordsOutside", [](ir::BoundsProgram& b) { b.by_words[0].offset = kOutside; }},
      {"WordsOfAScalar", [](ir::BoundsProgram& b) { b.atoms[4] = AtomOf(Kind::kWord, 1); }},
      {"WordsOfNoParam", [](ir::BoundsProgram& b) { b.atoms[4] = AtomOf(Kind::kWord, 2); }},
      {"GoesOnWhenOutside", [](ir::BoundsProgram& b) { b.loops[0].goes_on_when = {1}; }},
      {"OffsetOutside", [](ir::BoundsProgram& b) { b.accesses[0].offset = kOutside; }},
      {"AccessContextOutside", [](ir::BoundsProgram& b) { b.accesses[0].context = {1}; }},
      {"TooManyTerms", [](ir::BoundsProgram& b) { b.accesses[0].offset.assign(65, {1, {}}); }},
      {"TooHighADegree", [](ir::BoundsProgram& b) { b.accesses[0].offset[0].atoms.assign(65, ir::AtomId(0u)); }},
      {"TooManyAtoms", [](ir::BoundsProgram& b) { b.atoms.resize(limits::kBoundsAtomsMax + 1, b.atoms[0]); }},
  };
  for (const Case& c : kCases) {
    SCOPED_TRACE(c.name);
    Artifact artifact = Sample();
    c.change(artifact.bounds);
    StatusOr<Artifact> parsed = ParseArtifact(Serialize(artifact, kKey), kKey);
    EXPECT_FALSE(parsed.ok());
  }
}

// Refuses programs that ir::CountWork would use as indices out of range, or whose sums would be meaningless.
TEST(ArtifactTest, RefusesMalformedWork) {
  struct Case {
    const char* name;
    void (*change)(ir::WorkProgram&);
  };
  const Case kCases[] = {
      {"NotANumber", [](ir::WorkProgram& w) { w.blocks[0].operations = std::nan(""); }},
      {"Infinite", [](ir::WorkProgram& w) { w.blocks[0].bytes = HUGE_VAL; }},
      {"Negative", [](ir::WorkProgram& w) { w.blocks[1].operations = -1; }},
      {"ShareAboveOne", [](ir::WorkProgram& w) { w.blocks[1].share = 2; }},
      {"ConditionOutside", [](ir::WorkProgram& w) { w.blocks[1].conditions = {1}; }},
      {"LoopOutside", [](ir::WorkProgram& w) { w.blocks[1].loops = {2}; }},
      {"BoundsLoopOutside", [](ir::WorkProgram& w) { w.loops[0].bounds_loop = 1; }},
      {"TooManyBlocks", [](ir::WorkProgram& w) { w.blocks.resize(limits::kBoundsItemsMax + 1); }},
  };
  for (const Case& c : kCases) {
    SCOPED_TRACE(c.name);
    Artifact artifact = Sample();
    c.change(artifact.work);
    const StatusOr<Artifact> parsed = ParseArtifact(Serialize(artifact, kKey), kKey);
    ASSERT_FALSE(parsed.ok());
    EXPECT_NE(parsed.status().message().find("work program"), std::string::npos) << parsed.status();
  }
}

// An artifact tagged for another executor is refused; re-tagging makes it acceptable.
TEST(ArtifactTest, TagNamesTheExecutor) {
  std::vector<uint8_t> bytes = Serialize(Sample(), kOtherKey);
  EXPECT_THAT(Message(ParseArtifact(bytes, kKey).status()), HasSubstr("tag"));
  TagArtifact(bytes, kKey);
  EXPECT_TRUE(ParseArtifact(bytes, kKey).ok());
}

}  // namespace
}  // namespace hpvm
