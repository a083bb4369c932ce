// SPDX-License-Identifier: Apache-2.0
#include "compiler/front/wasm/read/element_globals.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/diagnostic.h"
#include "compiler/front/wasm/testing/link.h"

namespace hpvm::wasm {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using testing::Pair;
using testing::UnorderedElementsAre;
using Bytes = std::vector<uint8_t>;

// Returns a module with an imported global "a" "g" of `type` and `mutability`, a table of one function, and an
// element section of the given bytes.
Bytes Module(const Bytes& section, uint8_t type = 0x70, uint8_t mutability = 0) {
  Bytes module = {0, 'a', 's', 'm', 1, 0, 0, 0, 2, 8, 1, 1, 'a', 1, 'g', 3, type, mutability, 4, 4, 1, 0x70, 0, 1, 9};
  module.push_back(static_cast<uint8_t>(section.size()));
  module.insert(module.end(), section.begin(), section.end());
  return module;
}
constexpr size_t kSectionBegin = 26;

// Returns one active segment at 0 with one element `expression`.
Bytes Segment(const Bytes& expression) {
  Bytes section = {1, 4, 0x41, 0, 0x0b, 1};
  section.insert(section.end(), expression.begin(), expression.end());
  return section;
}

// The operand keeps its length, and nothing moves.
TEST(ElementGlobalsTest, ReplacesByNullInPlace) {
  const Bytes module = Module(Segment({0x23, 0x80, 0x80, 0x00, 0x0b}));
  const ElementGlobals replaced = ReplaceElementGlobals(module);
  ASSERT_EQ(replaced.bytes.size(), module.size());
  EXPECT_THAT(Bytes(replaced.bytes.begin() + kSectionBegin, replaced.bytes.end()),
              ElementsAre(1, 4, 0x41, 0, 0x0b, 1, 0xd0, 0xf0, 0xff, 0x7f, 0x0b));
  EXPECT_THAT(replaced.globals, UnorderedElementsAre(Pair(kSectionBegin + 10, 0)));
}

// Offsets may remain global.get; passive and declared segments state their type.
TEST(ElementGlobalsTest, FindsElementsOfEveryKindOfSegment) {
  const Bytes module = Module({4,                                                       //
                               0, 0x23, 0,    0x0b, 1,    0,                            // Functions at a global.
                               5, 0x6f, 1,    0x23, 3,    0x0b,                         // Passive, externref.
                               6, 0,    0x41, 0,    0x0b, 0x70, 1,    0xd2, 0,   0x0b,  // A table by its number.
                               7, 0x70, 2,    0xd0, 0x70, 0x0b, 0x23, 1,    0x0b});     // Declared.
  const ElementGlobals replaced = ReplaceElementGlobals(module);
  EXPECT_THAT(replaced.globals, UnorderedElementsAre(Pair(kSectionBegin + 12, 3), Pair(kSectionBegin + 31, 1)));
  EXPECT_EQ(replaced.bytes.at(kSectionBegin + 11), 0x6f);
}

// Modules without such elements are not copied; truncated or unknown sections are left to the reader.
TEST(ElementGlobalsTest, LeavesOtherModulesAlone) {
  const Bytes whole = Module(Segment({0x23, 0, 0x0b}));
  for (size_t size = 0; size < whole.size(); ++size) {
    EXPECT_THAT(ReplaceElementGlobals(std::span(whole).first(size)).bytes, IsEmpty()) << size;
  }
  EXPECT_THAT(ReplaceElementGlobals(Module(Segment({0xd2, 0, 0x0b}))).bytes, IsEmpty());
  EXPECT_THAT(ReplaceElementGlobals(Module({1, 8, 0x23, 0, 0x0b})).bytes, IsEmpty());
}

// Only a constant imported global of the segment's type may give an element.
TEST(ElementGlobalsTest, TheReaderChecksTheGlobal) {
  struct Case {
    const char* name;
    Bytes module;
    bool is_valid;
  };
  const Case cases[] = {
      {"constant funcref", Module(Segment({0x23, 0, 0x0b})), true},
      {"mutable", Module(Segment({0x23, 0, 0x0b}), 0x70, 1), false},
      {"of another type", Module(Segment({0x23, 0, 0x0b}), 0x6f), false},
      {"missing", Module(Segment({0x23, 1, 0x0b})), false},
      {"no end", Module(Segment({0x23, 0, 0x01})), false},
  };
  for (const Case& c : cases) {
    Diagnostics diagnostics;
    EXPECT_EQ(OutlineModule(c.module, diagnostics).has_value(), c.is_valid) << c.name << ToString(diagnostics);
  }
}

}  // namespace
}  // namespace hpvm::wasm
