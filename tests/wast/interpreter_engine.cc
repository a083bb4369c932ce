// SPDX-License-Identifier: Apache-2.0
#include <utility>

#include "compiler/ir/interpret/interpret.h"
#include "tests/wast/engine.h"

namespace hpvm::wast {
namespace {

class InterpreterProgram final : public Program {
 public:
  explicit InterpreterProgram(ir::Interpreter interpreter) : interpreter_(std::move(interpreter)) {}

  StatusOr<ir::TrapCode> Run(uint32_t selector, ir::InstanceStorage& storage, ir::HostCalls& host) override {
    ir::Launch launch;
    launch.arguments.push_back({.data = nullptr, .bytes = 0, .scalar = selector});
    launch.host = &host;
    launch.instance = &storage;
    HPVMD_ASSIGN_OR_RETURN(const ir::TrapReport report, interpreter_.Run(launch));
    return report.code;
  }

 private:
  const ir::Interpreter interpreter_;
};

class InterpreterEngine final : public Engine {
 public:
  StatusOr<std::unique_ptr<Program>> Load(ir::Module module) override {
    HPVMD_ASSIGN_OR_RETURN(ir::Interpreter interpreter, ir::Interpreter::Create(std::move(module)));
    return std::make_unique<InterpreterProgram>(std::move(interpreter));
  }
};

}  // namespace

std::unique_ptr<Engine> CreateInterpreterEngine() { return std::make_unique<InterpreterEngine>(); }

}  // namespace hpvm::wast
