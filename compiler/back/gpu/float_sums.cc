// SPDX-License-Identifier: Apache-2.0
// Method: an address is traced through its definitions to see whether work items of a subgroup share it: certainly
// (FindFixed), or often, because it is uniform or an id was rounded down. One pass over each region then merges
// neighbouring sums to one address.
// Invariants: only a sum of a function in fast math gets partners, and only if the kernel uses no old value of an
// atomic. kAll is given for fixed addresses alone; kAtOnce compares addresses when it runs. Between a kNext and the
// next sum of its region there is only pure computation, and both addresses are computed alike.
// A trace visits at most 256 operations; a comparison of two addresses goes four deep.
// Source: the proof in float_sums.h; PTX ISA, "atom", for flushing.
#include "compiler/back/gpu/float_sums.h"

#include <algorithm>
#include <span>
#include <string>

#include "compiler/analysis/definitions.h"
#include "compiler/analysis/uniformity.h"
#include "compiler/ir/launch.h"
#include "compiler/ir/walk.h"

namespace hpvm::gpu {
namespace {

constexpr int kStepsMax = 256;  // Limit on the operations through which an address is traced.

// Addresses tells how uniform an address is across the work items of a subgroup.
class Addresses {
 public:
  Addresses(const ir::Module& module, const GpuTarget& target)
      : f_(module.function(module.entry)),
        subgroup_size_(target.subgroup_size),
        definitions_(f_),
        is_fixed_(analysis::FindFixed(f_, /*of_group=*/ir::RunsByGroups(module))) {
    if (const auto found = analysis::AnalyseUniformity(module, analysis::Lanes::kAlongX)) {
      shapes_ = found->functions[module.entry.index].shapes;
    }
  }

  // Returns true if all work items of a subgroup compute the same value, whenever each of them computes it.
  bool IsFixed(ir::ValueId value) const { return is_fixed_[value.index]; }
  // Returns true if neighbours along x often have the same value, because it is uniform or an id is rounded down on
  // the way. A heuristic.
  bool IsOftenSame(ir::ValueId value) const {
    int steps = kStepsMax;
    return FollowOften(value, steps);
  }

 private:
  using Follow = bool (Addresses::*)(ir::ValueId, int&) const;

  bool AreOperands(const Op& op, Follow follow, int& steps) const {
    return --steps > 0 && std::ranges::all_of(f_.operands_of(op),
                                              [&](ir::ValueId operand) { return (this->*follow)(operand, steps); });
  }
  bool FollowOften(ir::ValueId value, int& steps) const {
    if (value.index < shapes_.size() && shapes_[value.index].is_uniform()) {
      return true;
    }
    const Op* op = definitions_.OpOf(value);
    if (op == nullptr) {
      return false;
    }
    return op->code == Opcode::kGroupId || RoundsDown(*op, steps) ||
           (IsComputed(*op) && op->operand_count != 0 && AreOperands(*op, &Addresses::FollowOften, steps));
  }

  static bool IsComputed(const Op& op) {
    switch (ir::Info(op.code).family) {
      case ir::Family::kIntUnary:
      case ir::Family::kIntBinary:
      case ir::Family::kIntCompare:
      case ir::Family::kConvert:
      case ir::Family::kSelect:
        return true;
      default:
        return false;
    }
  }
  // Returns true if the operation rounds down by at least the subgroup's size, or by an amount known only at launch.
  bool RoundsDown(const Op& op, int& steps) const {
    const bool divides = op.code == Opcode::kDivS || op.code == Opcode::kDivU;
    if (!divides && op.code != Opcode::kShrS && op.code != Opcode::kShrU) {
      return false;
    }
    const std::span<const ir::ValueId> operands = f_.operands_of(op);
    const std::optional<uint64_t> by = definitions_.ConstantOf(operands[1]);
    const bool is_large = !by.has_value() || (divides ? *by : uint64_t{1} << (*by & 31)) >= subgroup_size_;
    return is_large && FollowIds(operands[0], steps);
  }
  // The value of a load says nothing about neighbours, rounded or not.
  bool FollowIds(ir::ValueId value, int& steps) const {
    const Op* op = definitions_.OpOf(value);
    if (op == nullptr) {
      return IsFixed(value);
    }
    return op->code == Opcode::kConst || ir::Info(op->code).family == ir::Family::kQuery ||
           (IsComputed(*op) && AreOperands(*op, &Addresses::FollowIds, steps));
  }

  const ir::Function& f_;
  const uint32_t subgroup_size_;
  const analysis::Definitions definitions_;
  const std::vector<bool> is_fixed_;
  std::vector<analysis::Shape> shapes_;  // Indexed by ValueId; empty when not known.
};

// Looks up the fast-math mode of the function that contained the operation before inlining into the entry.
bool IsFast(const ir::Module& module, const Op& op, bool fast_math) {
  const uint32_t written = op.origin != 0 ? op.origin - 1 : module.entry.index;
  return fast_math && module.functions[written].fast_math == ir::FastMath::kAll;
}

// Returns true if both values are the same, or are computed by the same operations.
bool AreSame(const ir::Function& f, const analysis::Definitions& definitions, ir::ValueId a, ir::ValueId b,
             int depth = 0) {
  constexpr int kAlikeMax = 4;
  const Op *x = definitions.OpOf(a), *y = definitions.OpOf(b);
  if (a == b || x == nullptr || y == nullptr || depth == kAlikeMax) {
    return a == b;
  }
  const bool is_alike = x->code == y->code && x->type == y->type && x->imm == y->imm &&
                        ir::Info(x->code).effects == ir::kPure && x->result_count == 1 && y->result_count == 1 &&
                        x->operand_count == y->operand_count;
  for (uint32_t i = 0; is_alike && i < x->operand_count; ++i) {
    if (!AreSame(f, definitions, f.operands_of(*x)[i], f.operands_of(*y)[i], depth + 1)) {
      return false;
    }
  }
  return is_alike && ir::Info(x->code).family != ir::Family::kControl;
}

// Merges consecutive sums to one address that have only pure computation between them into the last sum. The same
// bounds check passes or fails for all of them.
void JoinNeighbours(const ir::Function& f, std::vector<SumPartners>& partners) {
  const analysis::Definitions definitions(f);
  for (const ir::Region& region : f.regions) {
    ir::OpId last;
    for (const ir::OpId id : region.ops) {
      const Op& op = f.op(id);
      if (partners[id.index] == SumPartners::kNone) {
        const ir::Family family = ir::Info(op.code).family;
        const bool computes = ir::Info(op.code).effects == ir::kPure && family != ir::Family::kControl;
        last = computes ? last : ir::OpId();
        continue;
      }
      if (last.valid()) {
        const Op& before = f.op(last);
        const bool is_same = before.imm == op.imm && before.type == op.type && before.space == op.space &&
                             before.space_index == op.space_index &&
                             AreSame(f, definitions, f.operands_of(before)[0], f.operands_of(op)[0]);
        partners[last.index] = is_same ? SumPartners::kNext : partners[last.index];
      }
      last = id;
    }
  }
}

std::string TextOf(SumPartners partners) {
  switch (partners) {
    case SumPartners::kNone:
      return "";
    case SumPartners::kNext:
      return " The operand is added to the operand of the next sum, which goes to the same address.";
    case SumPartners::kAll:
      return " The instances of a subgroup add up their operands first, and one of them adds the total.";
    default:
      return " The instances of a subgroup that have the same address add up their operands first, and one of them "
             "adds the total.";
  }
}

std::string TextOf(FloatSum form, const ir::Op& op, bool is_group) {
  switch (form) {
    case FloatSum::kDevice:
      return "The device's own atomic add makes the sum.";
    case FloatSum::kGuarded:
      return "The device's own atomic add makes the sum; a compare-and-exchange loop adds operands so small that the "
             "atomic add might flush a denormal number to zero.";
    default:
      return "A compare-and-exchange loop makes the atomic sum: the device has no atomic add of " +
             std::string(ir::Name(op.type)) + (is_group ? " in group memory." : " in buffers.");
  }
}

}  // namespace

FloatSum FloatSumOf(const ir::Module& module, const ir::Op& op, bool has_operation, bool flushes, bool fast_math) {
  if (!has_operation) {
    return FloatSum::kExchange;
  }
  return flushes && !IsFast(module, op, fast_math) ? FloatSum::kGuarded : FloatSum::kDevice;
}

std::vector<bool> FindUsed(const ir::Function& function) {
  std::vector<bool> is_used(function.values.size());
  ir::ForEachOp(function, [&](ir::OpId id) {
    for (const ir::ValueId operand : function.operands_of(function.op(id))) {
      is_used[operand.index] = true;
    }
  });
  return is_used;
}

std::vector<SumPartners> FindSumPartners(const ir::Module& module, const GpuPlan& plan, const GpuTarget& target,
                                         bool fast_math) {
  const ir::Function& f = module.function(module.entry);
  std::vector<SumPartners> partners(f.ops.size());
  if (!fast_math || !plan.uses_atomics || plan.needs_fences || !target.has_subgroup_sums) {
    return partners;
  }
  const std::vector<bool> is_used = FindUsed(f);
  std::vector<ir::OpId> sums;
  bool gives_old = false;
  ir::ForEachOp(f, [&](ir::OpId id) {
    const Op& op = f.op(id);
    gives_old |=
        ir::Info(op.code).family == ir::Family::kAtomic && op.result_count != 0 && is_used[op.first_result.index];
    const bool is_shared = plan.reach[id.index] == Reach::kParam || plan.reach[id.index] == Reach::kGroup;
    if (op.code == Opcode::kAtomicFAdd && is_shared && IsFast(module, op, fast_math)) {
      sums.push_back(id);
    }
  });
  if (gives_old || sums.empty()) {
    return partners;
  }
  const Addresses addresses(module, target);
  for (const ir::OpId id : sums) {
    const ir::ValueId address = f.operands_of(f.op(id))[0];
    if (addresses.IsFixed(address)) {
      partners[id.index] = SumPartners::kAll;
    } else if (!module.is_memory64 && addresses.IsOftenSame(address)) {
      partners[id.index] = SumPartners::kAtOnce;
    }
  }
  JoinNeighbours(f, partners);
  return partners;
}

void ReportFloatSums(const ir::Module& module, const GpuPlan& plan,
                     const std::function<FloatSum(const ir::Op&, bool is_group)>& form,
                     const std::vector<SumPartners>& partners, KernelReport& report) {
  const ir::Function& f = module.function(module.entry);
  ir::ForEachOp(f, [&](ir::OpId id) {
    const ir::Op& op = f.op(id);
    const Reach reach = plan.reach[id.index];
    // An instance's private memory is not shared.
    if (op.code == ir::Opcode::kAtomicFAdd && reach != Reach::kModule && reach != Reach::kState) {
      const bool is_group = reach == Reach::kGroup;
      report.Add(KernelRemark::Kind::kAccess, op.source,
                 TextOf(form(op, is_group), op, is_group) + TextOf(partners[id.index]));
    }
  });
}

}  // namespace hpvm::gpu
