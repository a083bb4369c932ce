// SPDX-License-Identifier: Apache-2.0
#include <utility>
#include <vector>

#include "backends/cpu/testing/instance_runner.h"
#include "compiler/back/llvm/llvm_back.h"
#include "compiler/pass/pipeline.h"
#include "tests/wast/engine.h"

namespace hpvm::wast {
namespace {

class CpuProgram final : public Program {
 public:
  explicit CpuProgram(std::unique_ptr<cpu::InstanceRunner> runner) : runner_(std::move(runner)) {}

  StatusOr<ir::TrapCode> Run(uint32_t selector, ir::InstanceStorage& storage, ir::HostCalls& host) override {
    ir::Launch launch;
    launch.arguments.push_back({.data = nullptr, .bytes = 0, .scalar = selector});
    launch.host = &host;
    launch.instance = &storage;
    HPVMD_ASSIGN_OR_RETURN(const ir::TrapReport report, runner_->Run(launch));
    return report.code;
  }

 private:
  const std::unique_ptr<cpu::InstanceRunner> runner_;
};

class CpuEngine final : public Engine {
 public:
  explicit CpuEngine(cpu::CpuTarget target) : target_(std::move(target)) {}

  StatusOr<std::unique_ptr<Program>> Load(ir::Module module) override {
    const std::vector<ir::FunctionType> reference_types = module.reference_types;
    HPVMD_RETURN_IF_ERROR(pass::RunCpuPipeline(module));
    HPVMD_ASSIGN_OR_RETURN(const Artifact artifact, cpu::EmitCpuImage(module, target_));
    HPVMD_ASSIGN_OR_RETURN(std::unique_ptr<cpu::InstanceRunner> runner,
                           cpu::InstanceRunner::Load(artifact, reference_types));
    return std::make_unique<CpuProgram>(std::move(runner));
  }

 private:
  const cpu::CpuTarget target_;
};

}  // namespace

StatusOr<std::unique_ptr<Engine>> CreateCpuEngine() {
  cpu::InitializeLlvm();
  HPVMD_ASSIGN_OR_RETURN(cpu::CpuTarget target, cpu::HostCpuTarget());
  return std::make_unique<CpuEngine>(std::move(target));
}

}  // namespace hpvm::wast
