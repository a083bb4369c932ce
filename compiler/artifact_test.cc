// SPDX-License-Identifier: Apache-2.0
#include "compiler/artifact.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/limits.h"

namespace hpvm {
namespace {

using testing::HasSubstr;

constexpr ArtifactKey kKey = {1, 2, 3, 4, 5};
constexpr ArtifactKey kOtherKey = {5, 4, 3, 2, 1};

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
  a.read_ns = 1;
  a.pass_ns = 2;
  a.emit_ns = 3;
  return a;
}

// Every field survives writing and parsing: the second writing gives the same bytes, and the fields that matter are
// looked at.
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
  EXPECT_EQ(parsed->emit_ns, 3u);
}

// No prefix of an artifact is one, even when its tag is made to fit.
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

// One changed bit anywhere breaks the tag or the header.
TEST(ArtifactTest, RefusesEveryBitFlip) {
  std::vector<uint8_t> bytes = Serialize(Sample(), kKey);
  for (size_t bit = 0; bit < bytes.size() * 8; ++bit) {
    bytes[bit / 8] ^= static_cast<uint8_t>(1u << (bit % 8));
    EXPECT_FALSE(ParseArtifact(bytes, kKey).ok()) << bit;
    bytes[bit / 8] ^= static_cast<uint8_t>(1u << (bit % 8));
  }
}

// With a fitting tag a flipped bit gives some artifact or an error, never a fault; what parses obeys the invariants.
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
  }
  EXPECT_GT(parsed_count, 0u);
}

// Each malformed artifact is refused with a sentence that names the fault.
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

// An artifact tagged for another executor is not believed; re-tagging makes it ours.
TEST(ArtifactTest, TagNamesTheExecutor) {
  std::vector<uint8_t> bytes = Serialize(Sample(), kOtherKey);
  EXPECT_THAT(Message(ParseArtifact(bytes, kKey).status()), HasSubstr("tag"));
  TagArtifact(bytes, kKey);
  EXPECT_TRUE(ParseArtifact(bytes, kKey).ok());
}

}  // namespace
}  // namespace hpvm
