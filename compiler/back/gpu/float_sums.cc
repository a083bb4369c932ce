// SPDX-License-Identifier: Apache-2.0
#include "compiler/back/gpu/float_sums.h"

#include <string>

#include "compiler/ir/walk.h"

namespace hpvm::gpu {
namespace {

std::string TextOf(FloatSum form, const ir::Op& op, bool is_group) {
  switch (form) {
    case FloatSum::kDevice:
      return "The device adds atomically by itself.";
    case FloatSum::kGuarded:
      return "The device adds atomically by itself; operands so small that it might lose a denormal number are added "
             "by exchanging the old value.";
    default:
      return "The atomic sum exchanges the old value until no other instance came between: the device has no atomic "
             "sum of " +
             std::string(ir::Name(op.type)) + (is_group ? " in group memory." : " in buffers.");
  }
}

}  // namespace

FloatSum FloatSumOf(const ir::Module& module, const ir::Op& op, bool has_operation, bool flushes, bool fast_math) {
  if (!has_operation) {
    return FloatSum::kExchange;
  }
  const uint32_t written = op.origin != 0 ? op.origin - 1 : module.entry.index;
  const bool is_fast = fast_math && module.functions[written].fast_math == ir::FastMath::kAll;
  return flushes && !is_fast ? FloatSum::kGuarded : FloatSum::kDevice;
}

void ReportFloatSums(const ir::Module& module, const GpuPlan& plan,
                     const std::function<FloatSum(const ir::Op&, bool is_group)>& form, KernelReport& report) {
  const ir::Function& f = module.function(module.entry);
  ir::ForEachOp(f, [&](ir::OpId id) {
    const ir::Op& op = f.op(id);
    const Reach reach = plan.reach[id.index];
    // An instance's own memory is nobody else's.
    if (op.code == ir::Opcode::kAtomicFAdd && reach != Reach::kModule && reach != Reach::kState) {
      const bool is_group = reach == Reach::kGroup;
      report.Add(KernelRemark::Kind::kAccess, op.source, TextOf(form(op, is_group), op, is_group));
    }
  });
}

}  // namespace hpvm::gpu
