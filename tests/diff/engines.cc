// SPDX-License-Identifier: Apache-2.0
#include "tests/diff/engines.h"

#include <atomic>
#include <cstring>
#include <utility>

#include "backends/cpu/dispatch.h"
#include "backends/cpu/executable.h"
#include "backends/cpu/pool.h"
#include "compiler/back/llvm/llvm_back.h"
#include "compiler/front/wasm/wasm_front.h"
#include "compiler/ir/interpret/interpret.h"
#include "compiler/pass/pipeline.h"
#include "tests/audit.h"

namespace hpvm::diff {
namespace {

ir::Type TypeOf(ValueType type) {
  switch (type) {
    case ValueType::kI64:
      return ir::Type::kI64;
    case ValueType::kF32:
      return ir::Type::kF32;
    case ValueType::kF64:
      return ir::Type::kF64;
    default:
      return ir::Type::kI32;
  }
}

// Buffers of one run: aligned copies of the launch's initial contents.
class Arena {
 public:
  explicit Arena(const LaunchSpec& launch) {
    for (const Param& param : launch.params) {
      std::vector<uint64_t>& words = words_.emplace_back((param.bytes.size() + 7) / 8);
      if (!param.bytes.empty()) {
        std::memcpy(words.data(), param.bytes.data(), param.bytes.size());
      }
      arguments_.push_back({reinterpret_cast<uint8_t*>(words.data()), param.bytes.size(), param.bits});
    }
  }
  const std::vector<ir::Argument>& arguments() const { return arguments_; }
  std::vector<std::vector<uint8_t>> Copy() const {
    std::vector<std::vector<uint8_t>> buffers;
    for (const ir::Argument& argument : arguments_) {
      buffers.emplace_back(argument.data, argument.data + argument.bytes);
    }
    return buffers;
  }

 private:
  std::vector<std::vector<uint64_t>> words_;
  std::vector<ir::Argument> arguments_;
};

void Inject(const Fault& fault, ir::Module& module) {
  for (ir::Function& function : module.functions) {
    for (ir::Op& op : function.ops) {
      if (op.code == fault.from) {
        op.code = fault.to;
      }
    }
  }
}

const cpu::CpuTarget& Target() {
  static const cpu::CpuTarget* const target = new cpu::CpuTarget(cpu::HostCpuTarget().value());
  return *target;
}

}  // namespace

LaunchSpec LaunchOf(const Program& program) { return {program.extent, program.group, program.params}; }

StatusOr<ir::Module> Read(std::span<const uint8_t> bytes, const LaunchSpec& launch) {
  wasm::WasmOptions options;
  options.entry = "f";
  options.module_name = "diff";
  for (const Param& param : launch.params) {
    options.params.push_back(
        {"p" + std::to_string(options.params.size()), param.is_buffer, param.is_writable, TypeOf(param.type)});
  }
  wasm::ReadOutcome read = wasm::ReadWasm(bytes, options);
  if (!read.module) {
    return InvalidArgument(ToString(read.diagnostics));
  }
  return *std::move(read.module);
}

StatusOr<ir::AddressSpace> Addresses(const ir::Module& module, const LaunchSpec& launch) {
  Arena arena(launch);
  return ir::AssignAddresses(module, arena.arguments());
}

StatusOr<Outcome> Interpret(const ir::Module& module, const LaunchSpec& launch, uint64_t steps_max) {
  Arena arena(launch);
  ir::Launch run;
  run.arguments = arena.arguments();
  for (size_t d = 0; d < 3; ++d) {
    run.extent[d] = launch.extent[d];
    run.group[d] = launch.group[d];
  }
  HPVMD_RETURN_IF_ERROR(ir::CheckLaunch(module, run));
  ir::InterpretOptions options;
  options.steps_max = steps_max;
  HPVMD_ASSIGN_OR_RETURN(const ir::TrapReport trap, ir::Interpret(module, run, options));
  return Outcome{trap, arena.Copy()};
}

namespace {

StatusOr<Outcome> RunVariant(const ir::Module& lowered, const LaunchSpec& launch, Artifact artifact, uint32_t variant) {
  cpu::ExecutableOptions options;
  options.variant = variant;
  HPVMD_ASSIGN_OR_RETURN(const std::unique_ptr<cpu::CpuExecutable> executable,
                         cpu::CpuExecutable::Load(std::move(artifact), std::move(options)));
  Arena arena(launch);
  HPVMD_ASSIGN_OR_RETURN(const ir::AddressSpace space, ir::AssignAddresses(lowered, arena.arguments()));
  std::vector<ir::CpuArgument> arguments;
  for (size_t k = 0; k < lowered.params.size(); ++k) {
    const ir::Argument& from = arena.arguments()[k];
    const bool is_buffer = lowered.params[k].is_buffer;
    arguments.push_back({is_buffer ? from.data : nullptr, is_buffer ? from.bytes : 0,
                         is_buffer ? space.base[k] : from.scalar,
                         !is_buffer                      ? ir::kCpuScalar
                         : lowered.params[k].is_writable ? uint64_t{1}
                                                         : uint64_t{0}});
  }
  static const std::atomic<uint32_t> go{0};
  static cpu::Pool* const pool = new cpu::Pool(1, nullptr);
  cpu::CpuLaunch run;
  run.arguments = arguments;
  for (size_t d = 0; d < 3; ++d) {
    run.extent[d] = launch.extent[d];
    run.group[d] = launch.group[d];
  }
  run.group_base = space.group_base;
  run.stop = &go;
  const backends::Ticks& ticks = backends::ProcessTicks();
  const cpu::DispatchEnd end = cpu::RunDispatch(*executable, run, *pool, ticks, ticks.Now());
  HPVMD_RETURN_IF_ERROR(end.status);
  HPVMD_CHECK(end.trap.code != ir::TrapCode::kWrongProof);
  return Outcome{end.trap, arena.Copy()};
}

}  // namespace

StatusOr<std::vector<Outcome>> RunOnCpu(const ir::Module& module, const LaunchSpec& launch, const CpuForm& form,
                                        const std::optional<Fault>& fault) {
  ir::Module lowered = module;
  HPVMD_RETURN_IF_ERROR(pass::RunCpuPipeline(lowered, {.verify_each = true}));
  if (fault) {
    Inject(*fault, lowered);
  }
  cpu::CpuOptions options;
  options.audits_proofs = TestsAuditProofs();
  options.shapes = form.shapes;
  HPVMD_ASSIGN_OR_RETURN(
      const Artifact artifact,
      cpu::EmitCpuImage(lowered, form.level.empty() ? Target() : cpu::CpuTarget{form.level}, options));
  const auto variants = static_cast<uint32_t>(artifact.variants.size());
  std::vector<Outcome> outcomes;
  // A number beyond the variants means one instance at a time.
  HPVMD_ASSIGN_OR_RETURN(outcomes.emplace_back(), RunVariant(lowered, launch, artifact, variants));
  for (uint32_t variant = 0; !form.shapes.empty() && variant < variants; ++variant) {
    HPVMD_ASSIGN_OR_RETURN(outcomes.emplace_back(), RunVariant(lowered, launch, artifact, variant));
  }
  return outcomes;
}

}  // namespace hpvm::diff
