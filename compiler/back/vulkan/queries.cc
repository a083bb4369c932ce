// SPDX-License-Identifier: Apache-2.0
// Launch queries of instances.
#include <string>

#include "compiler/back/vulkan/control.h"
#include "compiler/ir/launch.h"

namespace hpvm::vulkan {

using Kind = GpuArgument::Kind;

SpvId Queries::ParamValue(uint32_t k) {
  const ir::KernelParam& param = v_.module.params[k];
  if (param.is_buffer && !v_.plan.uses_bases) {
    const uint64_t base = gpu::StandInBase(v_.module);
    return v_.K(param.type, base);
  }
  const auto kind = param.is_buffer ? Kind::kBufferBase : Kind::kScalar;
  const SpvId raw = v_.Argument(kind, k, static_cast<uint8_t>(ir::Bytes(param.type)));
  return param.type == Type::kI32 ? raw : c.Bits(v_.m.TypeOf(param.type), raw);
}

// Returns first + global id * tile; the group's extent is in instances where groups matter, and then the tile is 1.
SpvId Queries::InstanceId(uint32_t d) {
  const SpvId global = v_.BuiltInAt(spv::BuiltInGlobalInvocationId, d);
  const SpvId scaled = v_.options.tile[d] == 1 ? global : c.Mul(global, c.K(v_.options.tile[d]));
  const SpvId first = v_.Argument32(Kind::kFirst, d);
  return c.Add(scaled, first);
}

SpvId Queries::QueryIn(Opcode code, uint32_t d) {
  return functions_.Hoisted(std::string(ir::Info(code).text) + std::to_string(d), [&] { return MakeQuery(code, d); });
}

SpvId Queries::MakeQuery(Opcode code, uint32_t d) {
  switch (code) {
    case Opcode::kInstanceId:
      return InstanceId(d);
    case Opcode::kInstanceCount:
      return v_.Argument32(Kind::kExtent, d);
    case Opcode::kGroupSize:
      return v_.Argument32(Kind::kGroup, d);
    default:
      break;
  }
  // In a kernel without barriers, groups are computed from ids and do not correspond to work groups.
  if (code == Opcode::kLocalId && ir::RunsByGroups(v_.module)) {
    return v_.BuiltInAt(spv::BuiltInLocalInvocationId, d);
  }
  const SpvId id = InstanceId(d);
  const SpvId group = v_.Argument32(Kind::kGroup, d);
  return w.Op(code == Opcode::kGroupId ? spv::OpUDiv : spv::OpUMod, c.U32(), {id, group});
}

SpvId Queries::EmitQuery(const ir::Op& op) {
  const SpvId which = values_.Operand(op, 0);
  uint32_t known = 0;
  SpvId value = 0;
  if (op.code == Opcode::kBufferSize) {
    const auto bytes = [&](uint32_t k) {
      return k < v_.module.params.size() && v_.module.params[k].is_buffer ? v_.Argument32(Kind::kBufferBytes, k)
                                                                          : c.K(0);
    };
    if (w.IsU32(which, &known)) {
      value = bytes(known);
    } else {
      value = c.K(0);
      for (uint32_t k = 0; k < v_.module.params.size(); ++k) {
        const SpvId is_it = c.Equal(which, c.K(k));
        const SpvId size = bytes(k);
        value = c.Select(c.U32(), is_it, size, value);
      }
    }
  } else {
    const bool counts = op.code == Opcode::kInstanceCount || op.code == Opcode::kGroupSize;
    if (w.IsU32(which, &known)) {
      value = known < 3 ? QueryIn(op.code, known) : c.K(counts ? 1 : 0);
    } else {
      value = c.K(counts ? 1 : 0);
      for (uint32_t d = 0; d < 3; ++d) {
        const SpvId is_it = c.Equal(which, c.K(d));
        const SpvId there = QueryIn(op.code, d);
        value = c.Select(c.U32(), is_it, there, value);
      }
    }
  }
  return op.type == Type::kI32 ? value : w.Op(spv::OpUConvert, v_.m.TypeOf(Type::kI64), {value});
}

}  // namespace hpvm::vulkan
