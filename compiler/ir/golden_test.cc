// SPDX-License-Identifier: Apache-2.0
#include "compiler/ir/testing/golden.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <regex>
#include <set>
#include <sstream>

#include "gtest/gtest.h"

#include "compiler/ir/interpret/interpret.h"

namespace hpvm::ir::testing {
namespace {

const char kFolder[] = HPVMD_SOURCE_DIR "/tests/golden/ir";
const char kDocument[] = HPVMD_SOURCE_DIR "/docs/KERNELS.md";

StatusOr<TrapReport> RunInterpreter(const Module& module, const Launch& launch) { return Interpret(module, launch); }

// The interpreter gives each golden kernel's expected results.
TEST(IrGoldenTest, InterpreterAgrees) {
  for (const std::string& path : GoldenFiles(kFolder)) {
    SCOPED_TRACE(path);
    CheckGoldenFile(path, RunInterpreter, /*may_bless=*/true);
  }
}

// Every sentence of the specification has a golden kernel, and every golden kernel repeats a sentence word for word.
TEST(IrGoldenTest, EverySentenceIsShown) {
  std::ostringstream document;
  document << std::ifstream(kDocument).rdbuf();
  std::set<std::string> sentences;
  const std::regex numbered(R"((?:^|\n)- (S[0-9]+\. [^\n]+))");
  const std::string text = document.str();
  for (std::sregex_iterator i(text.begin(), text.end(), numbered), end; i != end; ++i) {
    EXPECT_TRUE(sentences.insert((*i)[1]).second) << "Twice: " << (*i)[1];
  }
  EXPECT_GE(sentences.size(), 40u);
  std::set<std::string> shown;
  for (const std::string& path : GoldenFiles(kFolder)) {
    std::ifstream file(path);
    std::string line;
    std::getline(file, line);
    ASSERT_EQ(line.substr(0, 3), ";; ") << path;
    const std::string sentence = line.substr(3);
    EXPECT_TRUE(sentences.count(sentence)) << path << ": not in docs/KERNELS.md: " << sentence;
    shown.insert(sentence);
    const std::string number = sentence.substr(1, sentence.find('.') - 1);
    const std::string want = (number.size() == 1 ? "s0" : "s") + number + '-';
    EXPECT_EQ(std::filesystem::path(path).filename().string().substr(0, want.size()), want) << path;
  }
  for (const std::string& sentence : sentences) {
    EXPECT_TRUE(shown.count(sentence)) << "No golden kernel: " << sentence;
  }
}

constexpr char kAddOne[] = R"(;; run extent=2
;; arg x = i32 1 2
;; ends
;; out x = i32 2 2
module "m"
param buffer inout "x"
entry f0
func f0 "f" (%x: i32) -> () {
  %one: i32 = const.i32 1
  %v: i32 = load.i32 flat %x
  %w: i32 = add.i32 %v, %one
  atomic_store.i32 flat %x, %w
  return ()
}
)";

// The driver notices wrong output: two instances add one each, so the result is not 2.
TEST(IrGoldenTest, DriverReplacesWrongExpectations) {
  const StatusOr<std::string> found = RunGoldenText(kAddOne, RunInterpreter);
  ASSERT_TRUE(found.ok()) << found.status();
  EXPECT_EQ(Diff(kAddOne, *found), "-;; out x = i32 2 2\n+;; out x = i32 3 2\n");
}

// Files that would accidentally test nothing are refused.
TEST(IrGoldenTest, DriverRefusesMalformedFiles) {
  const std::string module = "module \"m\"\nentry f0\nfunc f0 \"f\" () -> () {\n  return ()\n}\n";
  EXPECT_TRUE(RunGoldenText(";; run\n;; ends\n" + module, RunInterpreter).ok());
  const std::pair<std::string, std::string> cases[] = {
      {module, "The file runs nothing."},
      {";; ends\n" + module, "\";; ends\" belongs to no run."},
      {";; arg x = i32 1\n" + module, "\";; arg x = i32 1\" belongs to no run."},
      {";; run fast\n" + module, "\"fast\" is not part of a run."},
      {";; run extent=1,2,3,4\n" + module, "\"1,2,3,4\" is not up to three numbers."},
      {";; run\n;; arg x = i32 1\n" + module, "The run does not give each parameter once."},
      {";; run\n;; arg x = i33 1\n" + module, "\"i33\" is no element type."},
  };
  for (const auto& [text, want] : cases) {
    EXPECT_EQ(Message(RunGoldenText(text, RunInterpreter).status()), want);
  }
}

}  // namespace
}  // namespace hpvm::ir::testing
