// SPDX-License-Identifier: Apache-2.0
#include "compiler/back/gpu/gpu_plan.h"

#include <algorithm>
#include <iterator>
#include <set>
#include <string>
#include <utility>

#include "base/limits.h"
#include "compiler/analysis/definitions.h"
#include "compiler/analysis/trailing_zeros.h"
#include "compiler/analysis/value_ranges.h"
#include "compiler/back/gpu/own_memory.h"
#include "compiler/ir/launch.h"
#include "compiler/ir/op_syntax.h"
#include "compiler/ir/walk.h"
#include "compiler/pass/check_barriers.h"
#include "compiler/pass/find_bounds.h"
#include "compiler/pass/tile/guard_loops.h"
#include "compiler/pass/tile/loads_ahead.h"
#include "compiler/pass/tile/wide_loads.h"

namespace hpvm::gpu {
namespace {

bool IsAccess(const Op& op) { return ir::HasSpace(op.code); }
bool Writes(const Op& op) { return (ir::Info(op.code).effects & ir::kWrites) != 0; }

class GpuPlanner {
 public:
  GpuPlanner(const ir::Module& module, const GpuTarget& target, Diagnostics& diagnostics)
      : module_(module), function_(module.function(module.entry)), target_(target), diagnostics_(diagnostics) {}

  // `coarse` and `original` are set for a coarse module, else null.
  GpuPlan Run(const pass::CoarseModule* coarse, const GpuPlan* original) {
    plan_.trap_exit = module_.uses_barrier ? TrapExit::kPostpone : TrapExit::kReturn;
    plan_.is_proven.assign(function_.ops.size(), false);
    plan_.is_proven_by_words.assign(function_.ops.size(), false);
    plan_.local_offset.assign(function_.ops.size(), 0);
    plan_.reach.assign(function_.ops.size(), Reach::kNone);
    plan_.part.assign(function_.ops.size(), -1);
    plan_.is_inside.assign(function_.ops.size(), false);
    plan_.alignment.assign(function_.values.size(), 0);
    RefuseWhole();
    ir::ForEachOp(function_, [&](OpId id) { Visit(id, function_.op(id)); });
    RefuseLocalInLoops();
    pass::CheckBarriers(module_, Place(), diagnostics_);
    if (HasErrors(diagnostics_)) {
      return std::move(plan_);
    }
    const std::vector<analysis::ValueRange> ranges = analysis::FindValueRanges(module_, analysis::kGpuIdMax);
    plan_.alignment =
        analysis::FindTrailingZeros(function_, {.params = analysis::ZerosOfParams(module_), .ranges = &ranges});
    PlanOwnMemory(module_, ranges, plan_, diagnostics_);
    plan_.uses_bases = plan_.uses_flat || !module_.has_separate_buffers;
    if (coarse == nullptr) {
      plan_.bounds = pass::FindBounds(module_);
      for (const ir::BoundsAccess& access : plan_.bounds.accesses) {
        plan_.is_proven[access.op.index] = true;
      }
      for (const ir::BoundsAccess& access : plan_.bounds.by_words) {
        plan_.is_proven_by_words[access.op.index] = true;
      }
    } else {
      for (size_t i = 0; i < coarse->original.size() && i < plan_.is_proven.size(); ++i) {
        const OpId id = coarse->original[i];
        const bool is_known = id.valid() && id.index < original->is_proven.size();
        plan_.is_proven[i] = is_known && original->is_proven[id.index];
        plan_.is_proven_by_words[i] = is_known && original->is_proven_by_words[id.index];
      }
    }
    plan_.needs_fences = plan_.uses_atomics && loads_writable_;
    return std::move(plan_);
  }

 private:
  std::string Place() const { return "module \"" + module_.name + "\""; }

  void Refuse(uint32_t source, std::string message) {
    if (diagnostics_.size() < limits::kDiagnosticsMax) {
      diagnostics_.push_back({Severity::kError, Place(), source, std::move(message)});
    }
  }
  // Reports each reason once, because a kernel of f64 has many such operations.
  void RefuseOnce(const Op& op, const std::string& reason) {
    if (said_.insert(reason).second) {
      Refuse(op.source,
             "The operation " + std::string(ir::Info(op.code).text) + " cannot run on this device: " + reason);
    }
  }

  void RefuseWhole() {
    uint32_t buffers = 0;
    for (const ir::KernelParam& param : module_.params) {
      buffers += param.is_buffer ? 1 : 0;
      RefuseType({.code = Opcode::kConst, .type = param.type}, param.type);
    }
    if (buffers > target_.buffers_max) {
      Refuse(0, "The kernel takes " + std::to_string(buffers) + " buffers; the device's limit is " +
                    std::to_string(target_.buffers_max) + ".");
    }
  }

  void RefuseType(const Op& op, ir::Type type) {
    if (type == ir::Type::kI64 && !target_.has_int64) {
      RefuseOnce(op, "it has no 64-bit integers.");
    }
    if (type == ir::Type::kF64 && !target_.has_fp64) {
      RefuseOnce(op, "it has no 64-bit floats (f64).");
    }
  }

  void Visit(OpId id, const Op& op) {
    if (ir::HasType(op.code)) {
      RefuseType(op, op.type);
    }
    for (uint32_t i = 0; i < op.result_count; ++i) {
      RefuseType(op, function_.type_of(ir::ValueId(op.first_result.index + i)));
    }
    if (ir::Info(op.code).family == ir::Family::kAtomic) {
      plan_.uses_atomics = true;
      if (op.width == 8 && !target_.has_int64_atomics) {
        RefuseOnce(op, "it has no 64-bit atomics.");
      }
    } else if (IsAccess(op) && !Writes(op) && op.space != ir::Space::kGroup && !ir::IsState(op.space)) {
      loads_writable_ |= op.space != ir::Space::kParam || module_.params[op.space_index].is_writable;
    }
    switch (op.code) {
      case Opcode::kCall:
        return Refuse(op.source, "The call of \"" + module_.functions[op.imm].name +
                                     "\" cannot be inlined, because it calls itself or is too large; GPUs have no call "
                                     "stack.");
      case Opcode::kCallRef:
        return RefuseOnce(op, "indirect calls need a call stack, which GPUs do not have.");
      case Opcode::kPrint:
        return RefuseOnce(op, "GPUs cannot print. Run the node on the CPU, or without prints.");
      case Opcode::kMemoryGrow:
        return RefuseOnce(op, "an instance's memory cannot grow on a GPU.");
      case Opcode::kLocalAlloc:
        return PlaceLocal(id, op);
      default:
        return;
    }
  }

  void PlaceLocal(OpId id, const Op& op) {
    const ir::ValueId size = function_.operands_of(op)[0];
    const std::optional<uint64_t> constant = definitions_.ConstantOf(size);
    if (!constant.has_value()) {
      return RefuseOnce(op, "the size of the group memory that it allocates is not a constant.");
    }
    plan_.local_offset[id.index] = plan_.local_bytes;
    const uint64_t mask = module_.is_memory64 ? ~uint64_t{0} : 0xffffffffull;
    const uint64_t bytes = *constant & mask;
    const uint64_t limit = std::min(target_.local_bytes_max, ir::kGroupMemoryBytesMax);
    // Kernels with barriers reserve 16 bytes for the trap flags.
    const uint64_t own = module_.uses_barrier ? 16 : 0;
    if (bytes > limit || plan_.local_bytes + bytes + own > limit) {
      Refuse(op.source, "The kernel asks for " + std::to_string(plan_.local_bytes) + " + " + std::to_string(bytes) +
                            " bytes of group memory; the device's limit is " + std::to_string(limit - own) + ".");
      return;
    }
    plan_.local_bytes = (plan_.local_bytes + bytes + 15) & ~uint64_t{15};
  }

  // The amount of group memory that a loop allocates depends on its iteration count.
  void RefuseLocalInLoops() {
    for (const ir::Region& region : function_.regions) {
      for (OpId id : region.ops) {
        if (function_.op(id).code == Opcode::kLocalAlloc && InLoop(&region)) {
          RefuseOnce(function_.op(id),
                     "the size of the group memory that a loop allocates is not known at compile time.");
        }
      }
    }
  }
  bool InLoop(const ir::Region* region) {
    if (parents_.empty()) {
      parents_.resize(function_.ops.size());
      for (uint32_t i = 0; i < function_.regions.size(); ++i) {
        for (OpId id : function_.regions[i].ops) {
          parents_[id.index] = ir::RegionId(i);
        }
      }
    }
    while (region->owner.valid()) {
      if (function_.op(region->owner).code == Opcode::kLoop) {
        return true;
      }
      region = &function_.region(parents_[region->owner.index]);
    }
    return false;
  }

  const ir::Module& module_;
  const ir::Function& function_;
  const GpuTarget& target_;
  Diagnostics& diagnostics_;
  GpuPlan plan_;
  std::set<std::string> said_;
  const analysis::Definitions definitions_{function_};
  std::vector<ir::RegionId> parents_;  // Indexed by OpId.
  bool loads_writable_ = false;
};

}  // namespace

uint64_t StandInBase(const ir::Module& module) {
  const uint64_t above = module.memory_bytes_max + ir::kBaseAlignment;
  return (above + ir::kBaseAlignment - 1) / ir::kBaseAlignment * ir::kBaseAlignment;
}

GpuPlan PlanGpu(const ir::Module& module, const GpuTarget& target, Diagnostics& diagnostics) {
  return GpuPlanner(module, target, diagnostics).Run(nullptr, nullptr);
}

GpuPlan PlanCoarse(const pass::CoarseModule& coarse, const GpuPlan& original, const GpuTarget& target,
                   Diagnostics& diagnostics) {
  return GpuPlanner(coarse.module, target, diagnostics).Run(&coarse, &original);
}

size_t TilesMax(const GpuPlan& plan) {
  constexpr size_t kVariantsOfTile = 2;
  const size_t single = 1 + (plan.bounds.accesses.empty() ? 0 : 1) + (plan.bounds.by_words.empty() ? 0 : 1);
  return (limits::kGpuVariantsMax - single) / kVariantsOfTile;
}

std::optional<Guarded> GuardLoops(const ir::Module& module, const GpuPlan& plan, Trust trust, const GpuTarget& target,
                                  KernelReport* report) {
  if (!target.has_int64) {
    return std::nullopt;
  }
  std::vector<bool> is_unproven(plan.reach.size());
  for (size_t i = 0; i < is_unproven.size(); ++i) {
    is_unproven[i] = plan.reach[i] == Reach::kParam && !plan.IsProven(OpId(static_cast<uint32_t>(i)), trust);
  }
  KernelReport remarks;
  std::optional<pass::CoarseModule> form = pass::GuardLoops(module, is_unproven, &remarks);
  if (!form) {
    return std::nullopt;
  }
  // Instances may take different copies of the loop, and then a barrier after the loop that depends on the loop's
  // results counts as divergent.
  Diagnostics faults;
  GpuPlan form_plan = PlanCoarse(*form, plan, target, faults);
  if (HasErrors(faults)) {
    return std::nullopt;
  }
  if (report != nullptr) {
    std::ranges::move(remarks.remarks, std::back_inserter(report->remarks));
  }
  return Guarded{*std::move(form), std::move(form_plan)};
}

std::optional<Guarded> ImproveLoads(const Form& form, const GpuPlan& original, Trust trust, const GpuTarget& target) {
  if (target.is_processor) {
    return std::nullopt;
  }
  using Pass =
      std::optional<pass::CoarseModule> (*)(const ir::Module&, const std::vector<bool>&, const pass::CoarseModule*);
  std::optional<Guarded> best;
  for (const Pass pass : {Pass{pass::WidenLoads}, Pass{pass::LoadAhead}}) {
    const Form from = best ? Form(*best) : form;
    const ir::Function& f = from.module->function(from.module->entry);
    std::vector<bool> is_free(f.ops.size());
    for (uint32_t i = 0; i < is_free.size(); ++i) {
      is_free[i] = from.plan->IsProven(OpId(i), trust) || f.ops[i].is_inside;
    }
    if (std::optional<pass::CoarseModule> made = pass(*from.module, is_free, from.coarse)) {
      Diagnostics faults;
      GpuPlan plan = PlanCoarse(*made, original, target, faults);
      if (!HasErrors(faults)) {
        best = Guarded{*std::move(made), std::move(plan)};
      }
    }
  }
  return best;
}

Status WriteSingles(const ir::Module& module, const GpuPlan& plan, const GpuTarget& target, KernelReport* report,
                    size_t written, const std::function<Status(const Form&, Trust, bool)>& write) {
  const auto add = [&](const std::optional<Guarded>& guarded, Trust trust, bool has_room) {
    return write(guarded ? Form(*guarded) : Form(module, plan, nullptr), trust, has_room);
  };
  if (!plan.bounds.by_words.empty()) {
    HPVMD_RETURN_IF_ERROR(add(GuardLoops(module, plan, Trust::kWords, target, nullptr), Trust::kWords, false));
    ++written;
  }
  const bool has_proof = !plan.bounds.accesses.empty(), has_room = written + 3 <= limits::kGpuVariantsMax;
  const std::optional<Guarded> guarded = GuardLoops(module, plan, Trust::kLaunch, target, report);
  if (has_proof) {
    HPVMD_RETURN_IF_ERROR(add(guarded, Trust::kLaunch, has_room));
  }
  return add(guarded, Trust::kNothing, has_room && !has_proof);
}

bool HasSmallOffset(const ir::Module& module, const ir::Op& op) { return !module.is_memory64 && op.imm >> 31 == 0; }

pass::SharedChecks ShareChecks(const ir::Module& module, const GpuPlan& plan,
                               const std::function<bool(ir::OpId)>& omits_check) {
  const ir::Function& f = module.function(module.entry);
  std::vector<bool> is_asked(f.ops.size());
  for (size_t i = 0; i < is_asked.size(); ++i) {
    is_asked[i] = plan.reach[i] == Reach::kParam && !omits_check(ir::OpId(i)) && HasSmallOffset(module, f.ops[i]);
  }
  return pass::FindSharedChecks(module, is_asked, /*is_together=*/true);
}

}  // namespace hpvm::gpu
