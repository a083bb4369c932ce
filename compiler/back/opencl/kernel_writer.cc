// SPDX-License-Identifier: Apache-2.0
#include "compiler/back/opencl/kernel_writer.h"

#include <algorithm>

#include "compiler/back/gpu/trap_route.h"
#include "compiler/back/opencl/literal.h"
#include "compiler/ir/walk.h"

namespace hpvm::opencl {
namespace {

using Kind = GpuArgument::Kind;

constexpr std::string_view kDimensions[] = {"x", "y", "z"};

// How an argument is called inside the kernel.
std::string NameOf(Kind kind, uint32_t index) {
  switch (kind) {
    case Kind::kBuffer:
      return Cat("p", index);
    case Kind::kBufferBytes:
      return Cat("n", index);
    case Kind::kBufferStart:
      return Cat("start", index);
    case Kind::kBufferBase:
      return Cat("a", index);
    case Kind::kScalar:
      return Cat("s", index);
    case Kind::kFirst:
      return Cat("first_", kDimensions[index]);
    case Kind::kExtent:
      return Cat("extent_", kDimensions[index]);
    case Kind::kGroup:
      return Cat("group_", kDimensions[index]);
    case Kind::kTrapRecord:
      return "traps";
    case Kind::kTrapIndex:
      return "trap_index";
    default:
      return "group_base";
  }
}

}  // namespace

KernelWriter::KernelWriter(const ir::Module& module, const gpu::GpuPlan& plan, const GpuTarget& target,
                           Helpers& helpers, KernelOptions options)
    : module_(module),
      function_(module.function(module.entry)),
      plan_(plan),
      target_(target),
      helpers_(helpers),
      options_(std::move(options)),
      names_(function_.values.size()),
      definitions_(function_.values.size()),
      uses_(function_.values.size()),
      label_(function_.ops.size()),
      end_used_(function_.ops.size()),
      next_used_(function_.ops.size()),
      meet_used_(function_.ops.size()) {
  ir::ForEachOp(function_, [&](OpId id) {
    const Op& op = function_.op(id);
    for (ValueId operand : function_.operands_of(op)) {
      ++uses_[operand.index];
    }
    for (uint32_t i = 0; i < op.result_count; ++i) {
      definitions_[op.first_result.index + i] = &op;
    }
    if (op.code == ir::Opcode::kConst) {
      names_[op.first_result.index] = Literal(op.type, op.imm);
    }
  });
  if (plan.trap_exit == gpu::TrapExit::kPostpone) {
    routes_ = gpu::FindTrapRoutes(module);
    hoists_locals_ = target.is_processor;
    if (target.is_processor) {
      PlanSteps();
    }
  }
}

std::string KernelWriter::Run(GpuVariant* variant) {
  const ir::Region& body = function_.region(function_.body);
  for (uint32_t k = 0; k < body.param_count; ++k) {
    const ValueId value(body.first_param.index + k);
    if (uses_[value.index] != 0) {
      names_[value.index] = module_.params[k].is_buffer ? BufferBase(k) : Fact(Kind::kScalar, k);
    }
  }
  WriteBody();
  std::string written = std::move(out_);
  out_.clear();
  if (by_steps_) {
    written += StepsEnd();
    out_.clear();
  }
  std::string prologue = Prologue();
  out_.clear();
  if (by_steps_) {
    prologue += StepsHead();
  }
  variant->entry = options_.name;
  variant->tile = options_.tile;
  variant->needs_proof = options_.is_unchecked;
  variant->can_trap = can_trap_;
  variant->local_bytes = plan_.local_bytes + (by_steps_ ? 16 : needs_meeting_ ? 8 : 0);
  return Cat(Head(variant), prologue, written, "}\n");
}

// Facts that all variants of this kind need come in one order, whatever the body asked for first.
std::string KernelWriter::Head(GpuVariant* variant) {
  std::vector<std::string> arguments;
  const auto add = [&](Kind kind, uint32_t index, uint8_t bytes, std::string text) {
    if (facts_.count({kind, index}) == 0) {
      return;
    }
    GpuArgument argument;
    argument.kind = kind;
    argument.index = index;
    argument.bytes = bytes;
    argument.is_writable = kind == Kind::kBuffer && module_.params[index].is_writable;
    variant->arguments.push_back(argument);
    arguments.push_back(std::move(text));
  };
  const uint8_t address = module_.is_memory64 ? 8 : 4;
  const std::string address_type(TypeName(module_.address_type()));
  for (uint32_t k = 0; k < module_.params.size(); ++k) {
    const ir::KernelParam& param = module_.params[k];
    add(Kind::kBuffer, k, 8, Cat("__global ", param.is_writable ? "" : "const ", "uchar* b", k));
    add(Kind::kBufferBytes, k, 8, Cat("ulong n", k));
    add(Kind::kBufferStart, k, 8, Cat("ulong start", k));
    add(Kind::kBufferBase, k, address, Cat(address_type, " a", k));
    add(Kind::kScalar, k, static_cast<uint8_t>(ir::Bytes(param.type)), Cat(TypeName(param.type), " s", k));
  }
  for (const Kind kind : {Kind::kFirst, Kind::kExtent, Kind::kGroup}) {
    for (uint32_t d = 0; d < 3; ++d) {
      add(kind, d, 4, Cat("uint ", NameOf(kind, d)));
    }
  }
  add(Kind::kTrapRecord, 0, 8, "__global uint* traps");
  add(Kind::kTrapIndex, 0, 4, "uint trap_index");
  add(Kind::kGroupBase, 0, address, Cat(address_type, " group_base"));
  if (RunsByGroups()) {
    // Whoever builds the text for one group says which (backends/opencl/executable.cc).
    helpers_.Add("GROUP", R"(
#ifdef GROUP_X
#define GROUP __attribute__((reqd_work_group_size(GROUP_X, GROUP_Y, GROUP_Z)))
#else
#define GROUP
#endif
)");
  }
  std::string text = Cat("\n__kernel ", RunsByGroups() ? "GROUP " : "", "void ", options_.name, "(");
  for (size_t i = 0; i < arguments.size(); ++i) {
    Append(text, i == 0 ? "" : ",\n    ", arguments[i]);
  }
  return text + ") {\n";
}

// Written last, as the body decides what it has to say.
std::string KernelWriter::Prologue() {
  for (uint32_t k = 0; k < module_.params.size(); ++k) {
    if (facts_.count({Kind::kBuffer, k}) != 0) {
      Line("__global ", module_.params[k].is_writable ? "" : "const ", "uchar* p", k, " = b", k, " + ",
           Fact(Kind::kBufferStart, k), ";");
    }
  }
  for (uint32_t d = 0; d < 3; ++d) {
    if (facts_.count({Kind::kFirst, d}) != 0) {
      const std::string tile = options_.tile[d] == 1 ? "" : Cat(" * ", options_.tile[d], "u");
      Line("const uint ", kDimensions[d], " = first_", kDimensions[d], " + (uint)get_global_id(", d, ")", tile, ";");
    }
  }
  for (const auto& [type, names] : locals_) {
    for (const std::string& name : names) {
      Line(type, " ", name, ";");
    }
  }
  const uint64_t words = (plan_.local_bytes + 7) / 8;
  if (module_.uses_group_memory && words != 0) {
    Line("__local ulong group_memory[", words, "] __attribute__((aligned(16)));");
  }
  if (by_steps_) {
    Line("__local uint running[3];  // Whether an instance goes on behind the barrier.");
    Line("__local uint stopped;  // Whether one has trapped.");
  } else if (needs_meeting_) {
    Line(
        "__local uint stopped[2];  // Whether an instance has trapped before the next meeting, and the one behind it.");
    Line("uint meeting = 0u;");
  }
  for (const auto& [is_state, part] : parts_) {
    const gpu::OwnMemory& own = (is_state ? plan_.state : plan_.module_memory)[static_cast<size_t>(part)];
    if (!own.is_written) {
      continue;
    }
    const std::string name = Cat(is_state ? "state" : "own", part);
    const uint64_t count = (own.end - own.begin) / 8;
    Line("ulong ", name, "[", count, "]", own.is_scratch ? ";" : " = {0ul};");
    if (own.is_scratch) {
      continue;
    }
    const gpu::OwnMemory::Filled filled = own.filled();
    if (filled.end != filled.begin) {
      const std::vector<uint8_t> bytes(own.bytes.begin() + static_cast<ptrdiff_t>(filled.begin),
                                       own.bytes.begin() + static_cast<ptrdiff_t>(filled.end));
      Line("for (uint i = 0u; i < ", bytes.size() / 8, "u; ++i) ", name, "[i + ", filled.begin / 8,
           "u] = ", helpers_.Constant(bytes), "[i];");
    }
  }
  for (uint32_t g : globals_) {
    Line(TypeName(module_.globals[g].type), " g", g, " = ", Literal(module_.globals[g].type, module_.globals[g].init),
         ";");
  }
  if (uses_ranges_) {
    out_ += RangesValue();
  }
  const bool zeroes = module_.uses_group_memory && words != 0 && options_.zeroes_group;
  if (by_steps_ || needs_meeting_ || zeroes) {
    Line("{");
    ++indent_;
    Line("const uint size = (uint)(get_local_size(0) * get_local_size(1) * get_local_size(2));");
    Line(
        "const uint at = (uint)(get_local_id(0) + get_local_size(0) * (get_local_id(1) + get_local_size(1) * "
        "get_local_id(2)));");
    if (zeroes) {
      Line("for (uint i = at; i < ", words, "u; i += size) group_memory[i] = 0ul;");
    }
    if (by_steps_) {
      Line("for (uint i = at; i < 3u; i += size) running[i] = 0u;");
      Line("if (at == 0u) stopped = 0u;");
    } else if (needs_meeting_) {
      Line("for (uint i = at; i < 2u; i += size) stopped[i] = 0u;");
    }
    Line("barrier(CLK_LOCAL_MEM_FENCE);");
    --indent_;
    Line("}");
  }
  return std::move(out_);
}

void KernelWriter::Label(const std::string& name) {
  out_.append(2 * indent_ - 1, ' ');
  Append(out_, name, ":;\n");
}

void KernelWriter::Declare(ValueId value) {
  names_[value.index] = Cat("v", value.index);
  if (hoists_locals_) {
    locals_[std::string(TypeName(TypeOf(value)))].push_back(Name(value));
  } else {
    Line(TypeName(TypeOf(value)), " ", Name(value), ";");
  }
}

void KernelWriter::Define(ValueId value, const std::string& expression) {
  names_[value.index] = Cat("v", value.index);
  Local("", TypeName(TypeOf(value)), Name(value), expression);
}

void KernelWriter::Local(std::string_view qualifier, std::string_view type, const std::string& name,
                         const std::string& expression) {
  if (hoists_locals_) {
    locals_[std::string(type)].push_back(name);
    return Line(name, " = ", expression, ";");
  }
  Line(qualifier, type, " ", name, " = ", expression, ";");
}

std::string KernelWriter::Fresh(std::string_view prefix) { return Cat(prefix, "_", fresh_++); }

bool KernelWriter::ConstantOf(ValueId value, uint64_t* bits) const {
  const Op* op = definitions_[value.index];
  if (op == nullptr || op->code != ir::Opcode::kConst) {
    return false;
  }
  *bits = ir::Bytes(op->type) == 4 ? op->imm & 0xffffffffull : op->imm;
  return true;
}

std::string KernelWriter::Fact(Kind kind, uint32_t index) {
  facts_.insert({kind, index});
  if (kind == Kind::kBuffer) {
    facts_.insert({Kind::kBufferStart, index});
  }
  return NameOf(kind, index);
}

std::string KernelWriter::BufferBase(uint32_t param) {
  if (plan_.uses_bases) {
    return Fact(Kind::kBufferBase, param);
  }
  return Literal(module_.address_type(), gpu::StandInBase(module_));
}

std::string KernelWriter::InstanceId(uint32_t dimension) {
  Fact(Kind::kFirst, dimension);
  return std::string(kDimensions[dimension]);
}

}  // namespace hpvm::opencl
