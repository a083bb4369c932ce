// SPDX-License-Identifier: Apache-2.0
// What lowered modules compute, against wabt's interpreter.
#include <algorithm>
#include <filesystem>

#include "compiler/front/wasm/testing/files.h"
#include "compiler/front/wasm/testing/wabt.h"
#include "compiler/front/wasm/wasm_front.h"
#include "compiler/ir/interpret.h"
#include "compiler/ir/text.h"
#include "compiler/ir/verify.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace hpvm {
namespace {

constexpr uint32_t kInstances = 16;

// The array that "run" leaves; nothing if an instance traps.
std::optional<std::vector<uint32_t>> RunInIr(const ir::Module& module) {
  std::vector<uint32_t> out(kInstances);
  ir::Launch launch;
  launch.extent = {kInstances, 1, 1};
  launch.arguments = {{reinterpret_cast<uint8_t*>(out.data()), out.size() * sizeof(uint32_t), 0}};
  const auto report = ir::Interpret(module, launch, {.steps_max = 1'000'000});
  EXPECT_TRUE(report.ok()) << report.status();
  if (!report.ok() || report->code != ir::TrapCode::kNone) {
    return std::nullopt;
  }
  return out;
}

// Returns whether the module ran to its end.
void ExpectSameAsWabt(const std::vector<uint8_t>& bytes, bool* ran) {
  WasmOptions options{.entry = "run", .params = {{.name = "out"}}, .module_name = "test"};
  const ReadOutcome outcome = ReadWasm(bytes, options);
  ASSERT_TRUE(outcome.module) << ToString(outcome.diagnostics);
  const Diagnostics faults = ir::Verify(*outcome.module);
  ASSERT_TRUE(faults.empty()) << ToString(faults) << "\n" << ir::Print(*outcome.module);
  const auto out = RunInIr(*outcome.module);
  EXPECT_EQ(out, wasm::RunInWabt(bytes, kInstances)) << ir::Print(*outcome.module);
  *ran = out.has_value();
}

// Each control shape has a file.
TEST(WasmControlTest, EveryShapeRunsAsInWabt) {
  int count = 0;
  for (const auto& entry : std::filesystem::directory_iterator(HPVMD_SOURCE_DIR "/tests/golden/front_wasm/control")) {
    SCOPED_TRACE(entry.path().filename().string());
    ASSERT_EQ(entry.path().extension(), ".wat");
    const std::string text = wasm::ReadText(entry.path());
    bool ran = false;
    ASSERT_NO_FATAL_FAILURE(ExpectSameAsWabt(wasm::Assemble(text), &ran));
    EXPECT_TRUE(ran);
    ++count;
  }
  EXPECT_GE(count, 8);
}

}  // namespace
}  // namespace hpvm
