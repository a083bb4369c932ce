// SPDX-License-Identifier: Apache-2.0
// Tests the functions of helpers.ll by themselves: LLVM accepts them, and they refer to no external symbol. Tests of
// kernels cover their behaviour.
#include <gtest/gtest.h>

#include "llvm/IR/LLVMContext.h"
#include "llvm/IR/Module.h"
#include "llvm/IR/Verifier.h"
#include "llvm/Support/raw_ostream.h"

#include "compiler/back/llvm/emit/emitter.h"

namespace hpvm::cpu {
namespace {

class HelpersTest : public ::testing::Test {
 protected:
  void SetUp() override {
    StatusOr<std::unique_ptr<llvm::Module>> parsed = ParseHelpers(context_);
    ASSERT_TRUE(parsed.ok()) << parsed.status();
    module_ = *std::move(parsed);
  }

  llvm::LLVMContext context_;
  std::unique_ptr<llvm::Module> module_;
};

TEST_F(HelpersTest, LlvmTakesThem) {
  std::string faults;
  llvm::raw_string_ostream out(faults);
  EXPECT_FALSE(llvm::verifyModule(*module_, &out)) << faults;
}

TEST_F(HelpersTest, NothingLiesOutside) {
  EXPECT_TRUE(module_->global_empty());
  for (const llvm::Function& function : *module_) {
    EXPECT_TRUE(function.isDeclaration() ? function.isIntrinsic() : function.hasInternalLinkage())
        << function.getName().str();
  }
}

// LLVM would turn a loop that copies bytes into a call of memcpy; and a large frame must be probed page by page.
TEST_F(HelpersTest, FunctionsStayWhatTheyAre) {
  for (const llvm::Function& function : *module_) {
    if (!function.isDeclaration()) {
      EXPECT_TRUE(function.hasFnAttribute("no-builtins")) << function.getName().str();
      EXPECT_TRUE(function.doesNotThrow()) << function.getName().str();
      EXPECT_TRUE(function.hasFnAttribute(llvm::Attribute::AlwaysInline) ||
                  function.hasFnAttribute(llvm::Attribute::NoInline) && function.hasFnAttribute("probe-stack"))
          << function.getName().str();
    }
  }
}

}  // namespace
}  // namespace hpvm::cpu
