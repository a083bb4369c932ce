// SPDX-License-Identifier: Apache-2.0
#include "compiler/back/opencl/text.h"

#include "compiler/back/opencl/literal.h"
#include "compiler/ir/walk.h"

namespace hpvm::opencl {

using Kind = GpuArgument::Kind;

namespace {

constexpr std::string_view kDimensions[] = {"x", "y", "z"};

// Returns an argument's name inside the kernel.
std::string NameOf(Kind kind, uint32_t index) {
  constexpr std::string_view kNames[] = {"p",       "n",      "start", "a",          "s",         "first_",
                                         "extent_", "group_", "traps", "trap_index", "group_base"};
  const std::string_view name = kNames[static_cast<size_t>(kind) - static_cast<size_t>(Kind::kBuffer)];
  if (kind <= Kind::kScalar) {
    return Cat(name, index);
  }
  return kind <= Kind::kGroup ? Cat(name, kDimensions[index]) : std::string(name);
}

}  // namespace

Text::Text(Variant& variant)
    : v_(variant),
      names_(variant.f.values.size()),
      is_ahead_(variant.f.values.size()),
      definitions_(variant.f),
      hoists_locals_(variant.plan.trap_exit == gpu::TrapExit::kPostpone && variant.target.is_processor) {
  ir::ForEachOp(v_.f, [&](OpId id) {
    const Op& op = v_.f.op(id);
    if (op.code == ir::Opcode::kConst) {
      names_[op.first_result.index] = Literal(op.type, op.imm);
    }
  });
}

std::string Text::Take() { return std::exchange(out_, std::string()); }

void Text::WriteLocals() {
  for (const auto& [type, names] : locals_) {
    for (const std::string& name : names) {
      Line(type, " ", name, ";");
    }
  }
}

void Text::Label(const std::string& name) {
  out_.append(2 * indent_ - 1, ' ');
  Append(out_, name, ":;\n");
}

void Text::DefineAhead(ValueId value) {
  Define(value, Literal(TypeOf(value), 0));
  is_ahead_[value.index] = true;
}

void Text::Declare(ValueId value) {
  if (is_ahead_[value.index]) {
    return;
  }
  names_[value.index] = Cat("v", value.index);
  if (hoists_locals_) {
    locals_[std::string(TypeName(TypeOf(value)))].push_back(Name(value));
  } else {
    Line(TypeName(TypeOf(value)), " ", Name(value), ";");
  }
}

void Text::Define(ValueId value, const std::string& expression) {
  if (is_ahead_[value.index]) {
    return Line(Name(value), " = ", expression, ";");
  }
  names_[value.index] = Cat("v", value.index);
  Local("", TypeName(TypeOf(value)), Name(value), expression);
}

void Text::Local(std::string_view qualifier, std::string_view type, const std::string& name,
                 const std::string& expression) {
  if (hoists_locals_) {
    locals_[std::string(type)].push_back(name);
    return Line(name, " = ", expression, ";");
  }
  Line(qualifier, type, " ", name, " = ", expression, ";");
}

bool Text::ConstantOf(ValueId value, uint64_t* bits) const {
  const Op* op = definitions_.OpOf(value, ir::Opcode::kConst);
  if (op == nullptr) {
    return false;
  }
  *bits = ir::Bytes(op->type) == 4 ? op->imm & 0xffffffffull : op->imm;
  return true;
}

std::string Facts::Fact(Kind kind, uint32_t index) {
  facts_.insert({kind, index});
  if (kind == Kind::kBuffer) {
    facts_.insert({Kind::kBufferStart, index});
  }
  return NameOf(kind, index);
}

std::string Facts::BufferBase(uint32_t param) {
  if (v_.plan.uses_bases) {
    return Fact(Kind::kBufferBase, param);
  }
  return Literal(v_.module.address_type(), gpu::StandInBase(v_.module));
}

std::string Facts::Places(uint32_t param, uint64_t reach) {
  BufferBytes(param);
  places_.insert({param, reach});
  return Cat("places", param, "_", reach);
}

std::string Facts::InstanceId(uint32_t dimension) {
  Fact(Kind::kFirst, dimension);
  return std::string(kDimensions[dimension]);
}

// Lists the facts of a kind in one order for all variants, whatever the order of use in the body.
std::string Facts::Head(GpuVariant* variant) {
  std::vector<std::string> arguments;
  const auto add = [&](Kind kind, uint32_t index, uint8_t bytes, std::string text) {
    if (facts_.count({kind, index}) == 0) {
      return;
    }
    GpuArgument argument;
    argument.kind = kind;
    argument.index = index;
    argument.bytes = bytes;
    argument.is_writable = kind == Kind::kBuffer && v_.module.params[index].is_writable;
    variant->arguments.push_back(argument);
    arguments.push_back(std::move(text));
  };
  const uint8_t address = v_.module.is_memory64 ? 8 : 4;
  const std::string address_type(TypeName(v_.module.address_type()));
  for (uint32_t k = 0; k < v_.module.params.size(); ++k) {
    const ir::KernelParam& param = v_.module.params[k];
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
  if (v_.RunsByGroups()) {
    // The caller that builds the text for one group defines its size (backends/opencl/executable.cc).
    v_.helpers.Add("GROUP", R"(
#ifdef GROUP_X
#define GROUP __attribute__((reqd_work_group_size(GROUP_X, GROUP_Y, GROUP_Z)))
#else
#define GROUP
#endif
)");
  }
  std::string text = Cat("\n__kernel ", v_.RunsByGroups() ? "GROUP " : "", "void ", v_.options.name, "(");
  for (size_t i = 0; i < arguments.size(); ++i) {
    Append(text, i == 0 ? "" : ",\n    ", arguments[i]);
  }
  return text + ") {\n";
}

void Facts::WriteVariables() {
  for (const auto& [k, reach] : places_) {
    text_.Line("const uint places", k, "_", reach, " = n", k, " >= ", reach, "ul ? (uint)(n", k, " - ", reach - 1,
               "ul) : 0u;");
  }
  for (uint32_t k = 0; k < v_.module.params.size(); ++k) {
    if (facts_.count({Kind::kBuffer, k}) != 0) {
      text_.Line("__global ", v_.module.params[k].is_writable ? "" : "const ", "uchar* p", k, " = b", k, " + ",
                 Fact(Kind::kBufferStart, k), ";");
    }
  }
  for (uint32_t d = 0; d < 3; ++d) {
    if (facts_.count({Kind::kFirst, d}) != 0) {
      const std::string tile = v_.options.tile[d] == 1 ? "" : Cat(" * ", v_.options.tile[d], "u");
      text_.Line("const uint ", kDimensions[d], " = first_", kDimensions[d], " + (uint)get_global_id(", d, ")", tile,
                 ";");
    }
  }
}

}  // namespace hpvm::opencl
