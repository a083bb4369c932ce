// SPDX-License-Identifier: Apache-2.0
#include "compiler/math/testing/kernel.h"

#include <array>
#include <cstring>

#include "base/status.h"
#include "compiler/back/llvm/llvm_back.h"
#include "compiler/ir/launch.h"
#include "compiler/ir/verify/verify.h"
#include "compiler/math/math_module.h"
#include "compiler/pass/pipeline.h"

namespace hpvm::math {
namespace {

using ir::Opcode;
using ir::Type;
using ir::ValueId;

uint32_t IndexOf(const Reference& function, bool is_f64) {
  const std::string name = std::string(function.name) + (is_f64 ? "_f64" : "_f32");
  const auto functions = MathFunctions();
  for (uint32_t i = 0; i < functions.size(); ++i) {
    if (functions[i].name == name) {
      return i;
    }
  }
  HPVMD_CHECK(false);
}

ValueId Unary(ir::Builder& builder, Opcode code, ValueId value, Type type) {
  ir::Op op{.code = code};
  op.type = type;
  return builder.Append1(op, std::array{value}, type);
}

ValueId Binary(ir::Builder& builder, Opcode code, ValueId a, ValueId b, Type type) {
  ir::Op op{.code = code};
  op.type = type;
  return builder.Append1(op, std::array{a, b}, type);
}

ir::Op Access(Opcode code, uint32_t param, Type type) {
  ir::Op op{.code = code};
  op.type = type;
  op.width = static_cast<uint8_t>(ir::Bytes(type));
  op.space = ir::Space::kParam;
  op.space_index = param;
  return op;
}

ValueId Emit(bool is_f64, const std::vector<ValueId>& arguments, ir::Builder& builder,
             std::optional<ir::FunctionId> callee) {
  const Type type = is_f64 ? Type::kF64 : Type::kF32;
  if (!callee) {
    const ValueId one = builder.Const(type, is_f64 ? 0x3ff0000000000000 : 0x3f800000);
    return Binary(builder, Opcode::kFDiv, one, Unary(builder, Opcode::kFSqrt, arguments[0], type), type);
  }
  ir::Op call{.code = Opcode::kCall};
  call.imm = callee->index;
  return builder.Append1(call, arguments, type);
}

ir::Launch LaunchOf(std::vector<std::vector<uint8_t>>& buffers, uint64_t count) {
  ir::Launch launch;
  launch.extent = {count, 1, 1};
  for (std::vector<uint8_t>& buffer : buffers) {
    launch.arguments.push_back({buffer.data(), buffer.size(), 0});
  }
  return launch;
}

// Returns the arguments and room for the results.
std::vector<std::vector<uint8_t>> Pack(const std::vector<std::vector<uint64_t>>& arguments, uint32_t bytes) {
  std::vector<std::vector<uint8_t>> buffers;
  for (const std::vector<uint64_t>& list : arguments) {
    std::vector<uint8_t>& buffer = buffers.emplace_back(list.size() * bytes);
    for (size_t i = 0; i < list.size(); ++i) {
      std::memcpy(buffer.data() + i * bytes, &list[i], bytes);
    }
  }
  buffers.emplace_back(arguments[0].size() * bytes);
  return buffers;
}

std::vector<uint64_t> Unpack(const std::vector<uint8_t>& buffer, uint32_t bytes) {
  std::vector<uint64_t> bits(buffer.size() / bytes);
  for (size_t i = 0; i < bits.size(); ++i) {
    std::memcpy(&bits[i], buffer.data() + i * bytes, bytes);
  }
  return bits;
}

}  // namespace

ir::Module KernelOf(const Reference& function, bool is_f64, wasm::MathForms forms) {
  const Type type = is_f64 ? Type::kF64 : Type::kF32;
  ir::Module module;
  module.name = function.name;
  module.functions.resize(1);
  module.entry = ir::FunctionId(0u);
  std::optional<ir::FunctionId> callee;
  if (function.name != "rsqrt") {
    const uint32_t index = IndexOf(function, is_f64);
    callee = wasm::AppendMath(std::array{index}, forms, module)[index];
  }
  ir::Function& entry = module.functions[0];
  entry.name = function.name;
  for (uint32_t k = 0; k <= function.arity; ++k) {
    module.params.push_back({"p" + std::to_string(k), true, k == function.arity, Type::kI32});
    entry.type.params.push_back(Type::kI32);
  }
  ir::Builder builder(entry);
  builder.BeginBody();
  const ValueId dimension = builder.Const(Type::kI32, 0);
  const ValueId id = Unary(builder, Opcode::kInstanceId, dimension, Type::kI32);
  const ValueId at = Binary(builder, Opcode::kMul, id, builder.Const(Type::kI32, ir::Bytes(type)), Type::kI32);
  std::vector<ValueId> arguments;
  for (uint32_t k = 0; k < function.arity; ++k) {
    arguments.push_back(builder.Append1(Access(Opcode::kLoad, k, type), std::array{at}, type));
  }
  const ValueId result = Emit(is_f64, arguments, builder, callee);
  builder.Append(Access(Opcode::kStore, function.arity, type), std::array{at, result}, {});
  builder.Return({});
  return module;
}

CompiledFunction::CompiledFunction(const Reference& function, bool is_f64, bool is_fast)
    : module_(KernelOf(function, is_f64, is_fast ? wasm::MathForms::kFast : wasm::MathForms::kExact)), is_f64_(is_f64) {
  const Diagnostics faults = ir::Verify(module_);
  HPVMD_CHECK(faults.empty());
  StatusOr<ir::Interpreter> interpreter = ir::Interpreter::Create(module_);
  HPVMD_CHECK(interpreter.ok());
  interpreter_.emplace(*std::move(interpreter));
  ir::Module lowered = module_;
  HPVMD_CHECK(pass::RunCpuPipeline(lowered).ok());
  const StatusOr<cpu::CpuTarget> target = cpu::HostCpuTarget();
  HPVMD_CHECK(target.ok());
  cpu::CpuOptions options;
  options.fast_math = is_fast;
  const StatusOr<Artifact> artifact = cpu::EmitCpuImage(lowered, *target, options);
  HPVMD_CHECK(artifact.ok());
  image_ = std::make_unique<cpu::testing::ImageRunner>(*artifact);
}

std::vector<uint64_t> CompiledFunction::Run(const std::vector<std::vector<uint64_t>>& arguments) {
  const uint32_t bytes = is_f64_ ? 8 : 4;
  std::vector<std::vector<uint8_t>> buffers = Pack(arguments, bytes);
  const uint64_t count = arguments[0].size();
  const ir::Launch launch = LaunchOf(buffers, count);
  const StatusOr<ir::AddressSpace> space = ir::AssignAddresses(module_, launch.arguments);
  HPVMD_CHECK(space.ok());
  const cpu::testing::ImageRun run = image_->Run(launch, *space, 0, count);
  // Stores to the library's stack need no restoration.
  HPVMD_CHECK(run.trap.code == ir::TrapCode::kNone && run.restores == 0);
  return Unpack(buffers.back(), bytes);
}

std::optional<std::vector<uint64_t>> CompiledFunction::RunTiles(const std::vector<std::vector<uint64_t>>& arguments) {
  if (image_->artifact().variants.empty()) {
    return std::nullopt;
  }
  const uint32_t bytes = is_f64_ ? 8 : 4;
  std::vector<std::vector<uint8_t>> buffers = Pack(arguments, bytes);
  const ir::Launch launch = LaunchOf(buffers, arguments[0].size());
  const StatusOr<ir::AddressSpace> space = ir::AssignAddresses(module_, launch.arguments);
  HPVMD_CHECK(space.ok());
  const cpu::testing::ImageRun run = image_->RunVariant(launch, *space, image_->artifact().variants[0]);
  HPVMD_CHECK(run.trap.code == ir::TrapCode::kNone);
  return Unpack(buffers.back(), bytes);
}

std::vector<uint64_t> CompiledFunction::Interpret(const std::vector<std::vector<uint64_t>>& arguments) {
  const uint32_t bytes = is_f64_ ? 8 : 4;
  std::vector<std::vector<uint8_t>> buffers = Pack(arguments, bytes);
  const StatusOr<ir::TrapReport> report = interpreter_->Run(LaunchOf(buffers, arguments[0].size()));
  HPVMD_CHECK(report.ok() && report->code == ir::TrapCode::kNone);
  return Unpack(buffers.back(), bytes);
}

void CompiledFunction::Run32(const float* in, float* out, uint32_t count) {
  ir::Launch launch;
  launch.extent = {count, 1, 1};
  // Safety: `in` is an `in` port, which the image never writes.
  launch.arguments = {{reinterpret_cast<uint8_t*>(const_cast<float*>(in)), uint64_t{count} * 4, 0},
                      {reinterpret_cast<uint8_t*>(out), uint64_t{count} * 4, 0}};
  const StatusOr<ir::AddressSpace> space = ir::AssignAddresses(module_, launch.arguments);
  HPVMD_CHECK(space.ok());
  HPVMD_CHECK(image_->Run(launch, *space, 0, count).trap.code == ir::TrapCode::kNone);
}

}  // namespace hpvm::math
