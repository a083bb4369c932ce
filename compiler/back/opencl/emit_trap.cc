// SPDX-License-Identifier: Apache-2.0
#include "compiler/back/opencl/control.h"

namespace hpvm::opencl {

void Traps::Trap(OpId id, const std::string& condition, ir::TrapCode code, const std::string& address, uint32_t bytes) {
  TrapWith(id, condition, Cat(bytes << 16 | static_cast<uint32_t>(code), "u"), address);
}

// Returns the id of the instance for which the operation works.
std::string Traps::TrappingId(OpId id, uint32_t dimension) {
  const std::string first = dimension == 0 ? "x" : "y";
  const pass::CoarseModule* coarse = v_.options.coarse;
  if (coarse == nullptr) {
    return first;
  }
  const uint8_t lane = coarse->lane[id.index][dimension];
  if (lane != pass::CoarseModule::kComputed) {
    return lane == 0 ? first : Cat(first, " + ", static_cast<uint32_t>(lane), "u");
  }
  const ValueId computed = coarse->computed[dimension];
  return computed.valid() && !text_.Name(computed).empty() ? Cat(first, " + ", text_.Name(computed)) : first;
}

void Traps::TrapWith(OpId id, const std::string& condition, const std::string& code, const std::string& address) {
  const Op& op = v_.f.op(id);
  can_trap_ = true;
  v_.helpers.Need("record_trap");
  facts_.Fact(GpuArgument::Kind::kTrapRecord);
  facts_.Fact(GpuArgument::Kind::kTrapIndex);
  for (uint32_t d = 0; d < 3; ++d) {
    facts_.InstanceId(d);
  }
  const std::string x = TrappingId(id, 0), y = TrappingId(id, 1);
  const std::string here = x == "x" && y == "y" ? "HERE" : Cat("traps, trap_index, ", x, ", ", y, ", z");
  std::string call = Cat("record_trap(", here, ", ", code, ", ", op.source, "u, ",
                         op.origin != 0 ? op.origin - 1 : v_.module.entry.index, "u, ", address, ");");
  call += reconvergence_.ExitOf(id);
  if (condition.empty()) {
    text_.Line("{ ", call, " }");
  } else {
    text_.Line("if (", condition, ") { ", call, " }");
  }
}

}  // namespace hpvm::opencl
