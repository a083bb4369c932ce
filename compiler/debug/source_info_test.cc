// SPDX-License-Identifier: Apache-2.0
#include "compiler/debug/source_info.h"

#include <gtest/gtest.h>

#include <chrono>

namespace hpvm::debug {
namespace {

// Mangled names become readable, others stay.
TEST(SourceInfoTest, ReadableName) {
  const std::pair<const char*, const char*> kCases[] = {
      {"blur", "blur"},
      {"_Z4blurPfi", "blur(float*, int)"},
      {"_ZN3img4blurEPf", "img::blur(float*)"},
      {"_Z3addIfET_S0_S0_", "float add<float>(float, float)"},
      {"_ZN4core3ptr5write17h0123456789abcdefE", "core::ptr::write"},
      {"_RNvC6_123foo3bar", "123foo::bar"},
      {"_Zwrong", "_Zwrong"},
      {"", ""},
  };
  for (const auto& [name, want] : kCases) {
    EXPECT_EQ(ReadableName(name), want) << name;
  }
}

// A name whose references double its text with each level stays as it is, at once.
TEST(SourceInfoTest, NamesAreNotBombs) {
  std::string bomb = "_Z1fSt4pairI1aS0_E";
  for (int level = 1; level < 60; ++level) {
    bomb += "St4pairIS" + std::string(1, static_cast<char>('0' + level % 10)) + "_S1_E";
  }
  const auto start = std::chrono::steady_clock::now();
  EXPECT_EQ(ReadableName(bomb), bomb.substr(0, 256) + "...");
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::milliseconds(100));
  EXPECT_EQ(ReadableName("_Z" + std::string(100'000, 'P')).size(), 259u);
}

// Malformed debug information gives a warning.
TEST(SourceInfoTest, BrokenDebugInformationIsAWarning) {
  std::vector<uint8_t> module = {0, 'a', 's', 'm', 1, 0, 0, 0, 10, 1, 0, 0, 14, 11};
  for (char c : std::string_view(".debug_line")) {
    module.push_back(static_cast<uint8_t>(c));
  }
  module.push_back(1);
  module.push_back(2);
  ir::Module ir;
  ir.functions.emplace_back().ops.push_back({.code = ir::Opcode::kTrap, .source = 11});
  Artifact artifact;
  artifact.module_name = "m";
  Diagnostics diagnostics;
  AddSourceInfo(module, ir, {}, &artifact, &diagnostics);
  ASSERT_EQ(diagnostics.size(), 1u);
  EXPECT_EQ(diagnostics[0].severity, Severity::kWarning);
  EXPECT_NE(diagnostics[0].message.find("cut short"), std::string::npos) << diagnostics[0].message;
}

}  // namespace
}  // namespace hpvm::debug
