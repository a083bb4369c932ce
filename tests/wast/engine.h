// SPDX-License-Identifier: Apache-2.0
// Engines that run linked modules: the interpreter, or machine code of the CPU back end.
#ifndef HPVMD_TESTS_WAST_ENGINE_H_
#define HPVMD_TESTS_WAST_ENGINE_H_

#include <cstdint>
#include <memory>

#include "base/status.h"
#include "compiler/ir/ir.h"
#include "compiler/ir/launch.h"

namespace hpvm::wast {

// A module prepared to run.
class Program {
 public:
  virtual ~Program() = default;
  // Runs the entry with that selector (compiler/front/wasm/testing/link.h). Everything is borrowed during the call;
  // `host` may in turn run programs, including this one.
  virtual StatusOr<ir::TrapCode> Run(uint32_t selector, ir::InstanceStorage& storage, ir::HostCalls& host) = 0;
};

class Engine {
 public:
  virtual ~Engine() = default;
  virtual StatusOr<std::unique_ptr<Program>> Load(ir::Module module) = 0;
};

std::unique_ptr<Engine> CreateInterpreterEngine();
// Returns kFailedPrecondition on a machine that the CPU back end does not support.
StatusOr<std::unique_ptr<Engine>> CreateCpuEngine();

}  // namespace hpvm::wast

#endif  // HPVMD_TESTS_WAST_ENGINE_H_
