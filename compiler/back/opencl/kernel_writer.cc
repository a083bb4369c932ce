// SPDX-License-Identifier: Apache-2.0
#include "compiler/back/opencl/kernel_writer.h"

#include "compiler/back/gpu/loop_constants.h"
#include "compiler/back/opencl/literal.h"

namespace hpvm::opencl {

using Kind = GpuArgument::Kind;
KernelWriter::KernelWriter(const ir::Module& module, const gpu::GpuPlan& plan, const GpuTarget& target,
                           Helpers& helpers, KernelOptions options)
    : v_{module, plan, target, helpers, std::move(options)},
      label_(v_.f.ops.size()),
      end_used_(v_.f.ops.size()),
      next_used_(v_.f.ops.size()) {}

// Declares the parameters that the body uses.
void KernelWriter::NameParams() {
  std::vector<bool> is_used(v_.f.values.size());
  for (const ValueId operand : v_.f.operands) {
    is_used[operand.index] = true;
  }
  const ir::Region& body = v_.f.region(v_.f.body);
  for (uint32_t k = 0; k < body.param_count; ++k) {
    const ValueId value(body.first_param.index + k);
    if (is_used[value.index]) {
      text_.SetName(value, v_.module.params[k].is_buffer ? facts_.BufferBase(k) : facts_.Fact(Kind::kScalar, k));
    }
  }
}

// Makes variables of constants that a loop uses in each iteration.
void KernelWriter::NameLoopConstants() {
  if (!v_.target.device_math) {
    return;
  }
  const std::vector<bool> is_kept = gpu::FindLoopConstants(v_.f);
  for (uint32_t i = 0; i < is_kept.size(); ++i) {
    if (is_kept[i]) {
      const auto bits = v_.f.op(definitions_.Of(ValueId(i))).imm;
      const auto known = kept_constants_.emplace(bits, Cat("k", kept_constants_.size())).first;
      text_.SetName(ValueId(i), known->second);
    }
  }
  if (!kept_constants_.empty()) {
    facts_.Fact(Kind::kFirst, 0);
  }
}

std::string KernelWriter::Run(GpuVariant* variant) {
  NameParams();
  NameLoopConstants();
  WriteBody();
  std::string written = text_.Take();
  if (reconvergence_.by_steps()) {
    written += reconvergence_.StepsEnd();
  }
  std::string prologue = Prologue();
  if (reconvergence_.by_steps()) {
    prologue += reconvergence_.StepsHead();
  }
  variant->entry = v_.options.name;
  variant->tile = v_.options.tile;
  variant->needs_proof = v_.options.trust != gpu::Trust::kNothing;
  variant->needs_words = v_.options.trust == gpu::Trust::kWords;
  variant->can_trap = traps_.can_trap();
  variant->local_bytes = v_.plan.local_bytes + (reconvergence_.by_steps()              ? 16
                                                : reconvergence_.needs_reconvergence() ? 8
                                                                                       : 0);
  return Cat(facts_.Head(variant), prologue, written, "}\n");
}

// Written last, because it depends on what the body uses.
std::string KernelWriter::Prologue() {
  facts_.WriteVariables();
  text_.WriteLocals();
  const uint64_t words = (v_.plan.local_bytes + 7) / 8;
  if (v_.module.uses_group_memory && words != 0) {
    text_.Line("__local ulong group_memory[", words, "] __attribute__((aligned(16)));");
  }
  reconvergence_.WriteVariables();
  ranges_.WriteParts();
  for (uint32_t g : globals_) {
    text_.Line(TypeName(v_.module.globals[g].type), " g", g, " = ",
               Literal(v_.module.globals[g].type, v_.module.globals[g].init), ";");
  }
  if (!kept_constants_.empty()) {
    // Ids are below 2^31, which no compiler knows, so the shifted id is an unknown zero. All bits come from it: known
    // bits would make bits of the constants known.
    text_.Line("const ulong no_bits = (ulong)((int)first_x >> 31);");
  }
  for (const auto& [bits, name] : kept_constants_) {
    text_.Line("const double ", name, " = as_double(", Literal(Type::kI64, bits), " ^ no_bits);");
  }
  ranges_.WriteValue();
  const bool zeroes = v_.module.uses_group_memory && words != 0 && v_.options.zeroes_group;
  if (reconvergence_.by_steps() || reconvergence_.needs_reconvergence() || zeroes) {
    text_.Line("{");
    text_.Indent();
    text_.Line("const uint size = (uint)(get_local_size(0) * get_local_size(1) * get_local_size(2));");
    text_.Line(
        "const uint at = (uint)(get_local_id(0) + get_local_size(0) * (get_local_id(1) + get_local_size(1) * "
        "get_local_id(2)));");
    if (zeroes) {
      text_.Line("for (uint i = at; i < ", words, "u; i += size) group_memory[i] = 0ul;");
    }
    reconvergence_.WriteStart();
    text_.Line("barrier(CLK_LOCAL_MEM_FENCE);");
    text_.Outdent();
    text_.Line("}");
  }
  return text_.Take();
}

void KernelWriter::WriteOp(OpId id) {
  const Op& op = v_.f.op(id);
  const auto define = [&](const std::string& expression) { text_.Define(op.first_result, expression); };
  if (op.type == Type::kF64) {
    v_.helpers.uses_fp64 = true;
  }
  switch (ir::Info(op.code).family) {
    case ir::Family::kConst:
      return;
    case ir::Family::kIntUnary:
      return define(arithmetic_.IntUnary(op));
    case ir::Family::kIntBinary:
      return arithmetic_.WriteIntBinary(id);
    case ir::Family::kIntCompare:
      return define(arithmetic_.IntCompare(op));
    case ir::Family::kFloatUnary:
      return define(arithmetic_.FloatUnary(op));
    case ir::Family::kApprox:
      return define(arithmetic_.Approx(op));
    case ir::Family::kFloatBinary:
      return arithmetic_.WriteFloatBinary(id);
    case ir::Family::kFloatCompare:
      return define(arithmetic_.FloatCompare(op));
    case ir::Family::kConvert:
      return arithmetic_.WriteConvert(id);
    case ir::Family::kSelect:
      return define(Cat(text_.Operand(op, 0), " != 0u ? ", text_.Operand(op, 1), " : ", text_.Operand(op, 2)));
    case ir::Family::kMemory:
      return memory_.WriteAccess(id);
    case ir::Family::kAtomic:
      return atomics_.WriteAtomic(id);
    case ir::Family::kGlobal:
      return WriteGlobal(op);
    case ir::Family::kQuery:
      return WriteQuery(op);
    case ir::Family::kSync:
      return op.code == Opcode::kBarrier ? reconvergence_.WriteBarrier(id) : memory_.WriteLocalAlloc(id);
    default:
      return;  // The plan has refused calls.
  }
}

void KernelWriter::WriteGlobal(const Op& op) {
  const ir::Global& global = v_.module.globals[op.imm];
  if (op.code == Opcode::kGlobalSet) {
    globals_.insert(static_cast<uint32_t>(op.imm));
    return text_.Line("g", op.imm, " = ", text_.Operand(op, 0), ";");
  }
  if (!global.is_mutable) {
    return text_.Define(op.first_result, Literal(global.type, global.init));
  }
  globals_.insert(static_cast<uint32_t>(op.imm));
  text_.Define(op.first_result, Cat("g", op.imm));
}

void KernelWriter::WriteQuery(const Op& op) {
  const Type to = text_.TypeOf(op.first_result);
  const std::string& dimension = text_.Operand(op, 0);
  uint64_t constant = 0;
  const bool is_constant = text_.ConstantOf(v_.f.operands_of(op)[0], &constant);
  std::string value;
  if (op.code == Opcode::kBufferSize) {
    value = "0ul";
    for (uint32_t k = 0; k < v_.module.params.size(); ++k) {
      if (!v_.module.params[k].is_buffer || (is_constant && constant != k)) {
        continue;
      }
      value = is_constant ? facts_.BufferBytes(k)
                          : Cat("(", dimension, " == ", k, "u ? ", facts_.BufferBytes(k), " : ", value, ")");
    }
    return text_.Define(op.first_result, to == Type::kI64 ? value : Cat("(uint)", value));
  }
  const auto read = [&](uint32_t d) -> std::string {
    switch (op.code) {
      case Opcode::kInstanceId:
        return facts_.InstanceId(d);
      case Opcode::kInstanceCount:
        return facts_.Fact(GpuArgument::Kind::kExtent, d);
      case Opcode::kGroupSize:
        return facts_.Fact(GpuArgument::Kind::kGroup, d);
      case Opcode::kGroupId:
        return Cat(facts_.InstanceId(d), " / ", facts_.Fact(GpuArgument::Kind::kGroup, d));
      default:
        return v_.RunsByGroups() ? Cat("(uint)get_local_id(", d, ")")
                                 : Cat(facts_.InstanceId(d), " % ", facts_.Fact(GpuArgument::Kind::kGroup, d));
    }
  };
  const std::string elsewhere = op.code == Opcode::kInstanceCount || op.code == Opcode::kGroupSize ? "1u" : "0u";
  if (is_constant) {
    value = constant < 3 ? read(static_cast<uint32_t>(constant)) : elsewhere;
  } else {
    value = Cat(dimension, " == 0u ? ", read(0), " : ", dimension, " == 1u ? ", read(1), " : ", dimension, " == 2u ? ",
                read(2), " : ", elsewhere);
  }
  text_.Define(op.first_result, to == Type::kI64 ? Cat("(ulong)(", value, ")") : value);
}

}  // namespace hpvm::opencl
