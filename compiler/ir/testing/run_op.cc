// SPDX-License-Identifier: Apache-2.0
#include "compiler/ir/testing/run_op.h"

#include <utility>

#include "gtest/gtest.h"

#include "compiler/ir/text/text.h"

namespace hpvm::ir::testing {

OpRunner::OpRunner(Opcode code, Type type, const std::vector<Type>& operands, Type result) {
  std::string params = "param buffer inout \"r\"\n", list = "%r: i32", uses;
  for (size_t i = 0; i < operands.size(); ++i) {
    const std::string type_name(Name(operands[i])), value = "%o" + std::to_string(i);
    params += "param " + type_name + " \"\"\n";
    list += ", " + value + ": " + type_name;
    uses += (i == 0 ? " " : ", ") + value;
  }
  const std::string result_name(Name(result));
  const std::string text = "module \"op\"\n" + params + "entry f0\nfunc f0 \"op\" (" + list + ") -> () {\n%v: " +
                           result_name + " = " + std::string(Info(code).text) + "." + std::string(Name(type)) + uses +
                           "\nstore." + result_name + " flat %r, %v\nreturn ()\n}\n";
  StatusOr<Module> module = ParseModule(text);
  EXPECT_TRUE(module.ok()) << text << module.status();
  if (!module.ok()) {
    return;
  }
  StatusOr<Interpreter> interpreter = Interpreter::Create(*std::move(module));
  EXPECT_TRUE(interpreter.ok()) << text << interpreter.status();
  if (interpreter.ok()) {
    interpreter_.push_back(*std::move(interpreter));
  }
}

OpOutcome OpRunner::Run(const std::vector<uint64_t>& operands) const {
  OpOutcome outcome;
  if (interpreter_.empty()) {
    return outcome;
  }
  Launch launch;
  launch.arguments.push_back({reinterpret_cast<uint8_t*>(&outcome.bits), 8, 0});
  for (const uint64_t bits : operands) {
    launch.arguments.push_back({nullptr, 0, bits});
  }
  const StatusOr<TrapReport> report = interpreter_[0].Run(launch);
  EXPECT_TRUE(report.ok()) << report.status();
  outcome.trap = report.ok() ? report->code : TrapCode::kStopped;
  return outcome;
}

}  // namespace hpvm::ir::testing
