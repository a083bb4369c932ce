// SPDX-License-Identifier: Apache-2.0
// Checks the computed ranges of random kernels' integers while the kernels run in the interpreter.
#include <string>

#include "gtest/gtest.h"

#include "compiler/analysis/value_ranges.h"
#include "compiler/ir/interpret/interpret.h"
#include "compiler/ir/op_syntax.h"
#include "compiler/ir/verify/verify.h"
#include "compiler/pass/inline_calls.h"
#include "compiler/pass/remove_dead.h"
#include "compiler/pass/rewrite/copy_function.h"
#include "tests/spmd/generate.h"
#include "tests/spmd/memory.h"

namespace hpvm::spmd {
namespace {

constexpr uint64_t kStepsMax = 400'000;
constexpr uint32_t kOutOfRange = 0x7fff'ffff;  // The source of a trap for a value outside of its range.

// Adds a trap for each value outside of its range.
class Watcher final : public pass::FunctionCopier {
 public:
  Watcher(const ir::Function& function, const std::vector<analysis::ValueRange>& ranges)
      : pass::FunctionCopier(function), ranges_(ranges) {}
  ir::Function Run() && {
    CopyAll();
    return std::move(to_);
  }
  size_t watched() const { return watched_; }

 private:
  void CopyOp(ir::OpId id) override {
    pass::FunctionCopier::CopyOp(id);
    const ir::Op& op = f_.op(id);
    for (uint32_t i = 0; i < op.result_count && !b_.Terminated(); ++i) {
      Watch(ir::ValueId(op.first_result.index + i));
    }
  }
  void Enter(ir::OpId id, std::span<const ir::ValueId>) override {
    const ir::Region& body = f_.region(f_.op(id).body);
    for (uint32_t i = 0; f_.op(id).code != ir::Opcode::kIf && i < body.param_count; ++i) {
      Watch(ir::ValueId(body.first_param.index + i));
    }
  }
  void Watch(ir::ValueId value) {
    const ir::Type type = f_.type_of(value);
    const analysis::ValueRange& range = ranges_[value.index];
    const uint64_t most = ir::Bytes(type) == 4 ? 0xffffffffu : ~uint64_t{0};
    if (!ir::IsInt(type) || range.Is(analysis::ValueRange::Base::kUnset) || (range.lo == 0 && range.hi >= most)) {
      return;
    }
    ++watched_;
    const ir::ValueId above =
        b_.Append1({.code = ir::Opcode::kSub, .type = type}, {{values_[value.index], b_.Const(type, range.lo)}}, type);
    const ir::ValueId is_out = b_.Append1({.code = ir::Opcode::kGtU, .type = type},
                                          {{above, b_.Const(type, range.hi - range.lo)}}, ir::Type::kI32);
    const ir::OpId branch = b_.BeginIf(is_out, {});
    b_.Trap(ir::TrapCode::kAssert, kOutOfRange);
    b_.Else();
    b_.Leave(branch, {});
    b_.End();
  }

  const std::vector<analysis::ValueRange>& ranges_;
  size_t watched_ = 0;
};

// Returns the number of values that are checked.
size_t ExpectInRange(const Kernel& kernel) {
  ir::Module module = kernel.module;
  EXPECT_TRUE(pass::InlineCalls(module).ok() && pass::RemoveDead(module).ok());
  const std::vector<analysis::ValueRange> ranges = analysis::FindValueRanges(module, ~uint64_t{0});
  Watcher watcher(module.function(module.entry), ranges);
  ir::Module watched = module;
  watched.function(watched.entry) = std::move(watcher).Run();
  EXPECT_TRUE(ir::Verify(watched).empty()) << ToText(kernel);
  const Buffers buffers(kernel, true);
  const StatusOr<ir::TrapReport> trap = ir::Interpret(watched, LaunchOf(kernel, buffers), {.steps_max = kStepsMax});
  EXPECT_TRUE(trap.ok()) << trap.status();
  EXPECT_FALSE(trap.ok() && trap->source == kOutOfRange) << ToText(kernel);
  return watcher.watched();
}

TEST(SpmdRangesTest, ValuesAreInTheirRanges) {
  size_t watched = 0;
  for (uint64_t seed = 0; seed < 500 && !::testing::Test::HasFailure(); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    watched += ExpectInRange(Generate(seed)) + ExpectInRange(GenerateLoops(seed)) + ExpectInRange(GenerateRows(seed));
  }
  EXPECT_GT(watched, 10'000u);
}

}  // namespace
}  // namespace hpvm::spmd
