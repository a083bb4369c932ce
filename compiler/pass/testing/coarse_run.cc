// SPDX-License-Identifier: Apache-2.0
#include "compiler/pass/testing/coarse_run.h"

#include "compiler/ir/verify/verify.h"

namespace hpvm::pass::testing {
namespace {

// A coarse kernel's id is the id of its tile's first instance, and its extent is that of the whole launch, but the
// interpreter counts executions of the coarse kernel.
void ScaleQueries(ir::Opcode query, const GpuTile& tile, ir::Function& f) {
  for (ir::Region& region : f.regions) {
    for (size_t i = 0; i < region.ops.size(); ++i) {
      const ir::Op& op = f.op(region.ops[i]);
      if (op.code != query) {
        continue;
      }
      uint64_t dimension = 3;
      for (const ir::Op& by : f.ops) {
        dimension = by.first_result == f.operands_of(op)[0] && by.result_count == 1 ? by.imm : dimension;
      }
      if (dimension > 1 || tile.size[dimension] == 1) {
        continue;
      }
      // %id = instance_id becomes %n = instance_id, %k = const, %id = mul %n, %k.
      const ir::Type type = op.type;
      const ir::ValueId id = op.first_result, n(f.values.size()), k(f.values.size() + 1);
      f.values.insert(f.values.end(), 2, {type});
      f.op(region.ops[i]).first_result = n;
      ir::Op number{.code = ir::Opcode::kConst};
      number.type = type;
      number.imm = tile.size[dimension];
      number.first_result = k;
      number.result_count = 1;
      ir::Op product{.code = ir::Opcode::kMul};
      product.type = type;
      product.first_operand = static_cast<uint32_t>(f.operands.size());
      product.operand_count = 2;
      product.first_result = id;
      product.result_count = 1;
      f.operands.insert(f.operands.end(), {n, k});
      region.ops.insert(region.ops.begin() + static_cast<ptrdiff_t>(i) + 1,
                        {ir::OpId(f.ops.size()), ir::OpId(f.ops.size() + 1)});
      f.ops.insert(f.ops.end(), {number, product});
      i += 2;
    }
  }
}

}  // namespace

StatusOr<ir::TrapReport> RunCoarse(const ir::Module& module, const ir::Launch& launch, const GpuTile& tile,
                                   const ir::InterpretOptions& options) {
  HPVMD_ASSIGN_OR_RETURN(CoarseModule coarse, Coarsen(module, tile));
  for (const GpuFactor& factor : coarse.factors) {
    if (launch.arguments[factor.param].scalar % (uint64_t{1} << factor.log2) != 0) {
      return FailedPrecondition("A factor does not hold.");
    }
  }
  for (const ir::Opcode query : {ir::Opcode::kInstanceId, ir::Opcode::kInstanceCount}) {
    ScaleQueries(query, tile, coarse.module.function(coarse.module.entry));
  }
  ir::Launch smaller = launch;
  if (coarse.group[0] != 0) {
    smaller.group = {coarse.group[0], coarse.group[1], coarse.group[2]};
  }
  for (size_t d = 0; d < 3; ++d) {
    HPVMD_CHECK(launch.extent[d] % tile.size[d] == 0);
    smaller.extent[d] /= tile.size[d];
  }
  HPVMD_RETURN_IF_ERROR(ToStatus(ir::Verify(coarse.module)));
  return ir::Interpret(coarse.module, smaller, options);
}

}  // namespace hpvm::pass::testing
