// SPDX-License-Identifier: Apache-2.0
// Plans the values that a tile's instances share, and the accesses that are 16 bytes wide. Scalars are assumed to be
// multiples of 2 or 4 where this enables more wide accesses, with as few assumptions as possible.
#include <algorithm>
#include <bit>

#include "base/limits.h"
#include "compiler/analysis/definitions.h"
#include "compiler/analysis/nesting.h"
#include "compiler/analysis/trailing_zeros.h"
#include "compiler/ir/walk.h"
#include "compiler/pass/tile/coarsener.h"

namespace hpvm::pass {
namespace {

// 16 bytes.
constexpr uint8_t kVectorAlignment = 4;
constexpr uint32_t kVectorBytes = 16;

// Returns the alignment by ValueId, for the first instance of a tile.
std::vector<uint8_t> FindAlignment(const ir::Module& module, uint32_t tile_x, std::span<const uint8_t> scalars) {
  const std::vector<uint8_t> params = analysis::ZerosOfParams(module, scalars);
  const auto id_x = static_cast<uint8_t>(std::has_single_bit(tile_x) ? std::countr_zero(tile_x) : 0);
  return analysis::FindTrailingZeros(module.function(module.entry), {.params = params, .id_x = id_x});
}

std::string TextOf(const GpuTile& tile) {
  return std::to_string(tile.size[0]) + " x " + std::to_string(tile.size[1]) + " x " + std::to_string(tile.size[2]);
}

class TilePlanner {
 public:
  TilePlanner(const ir::Module& module, const GpuTile& tile) : module_(module), f_(module.function(module.entry)) {
    plan_.tile = {tile.size[0], tile.size[1]};
    is_staged_ = tile.is_staged;
  }
  // Returns an error's text without its beginning; empty on success.
  std::string Run() {
    if (std::string reason = Refuse(); !reason.empty()) {
      return reason;
    }
    std::optional<GangPlan> gang = PlanGang(module_, {.has_rows = plan_.tile[1] > 1});
    if (gang && AssumesApart(*gang)) {
      gang = PlanGang(module_, {.has_rows = plan_.tile[1] > 1, .assumes_guards = false});
    }
    if (!gang) {
      return "the analysis of which values instances share did not converge";
    }
    if (gang->body_is_masked) {
      return "its instances end at different places";
    }
    plan_.gang = std::move(*gang);
    LayOut();
    // A jump through a table passes the same values to all targets, so the targets must represent them alike.
    bool is_alike = true;
    const auto slot = [&](const ir::Target& target, uint32_t i) {
      return plan_.layouts[ir::SlotsOf(f_, target)[i].index];
    };
    ir::ForEachOp(f_, [&](OpId id) {
      const Op& op = f_.op(id);
      for (uint32_t i = 1; op.code == Opcode::kBrTable && i < op.operand_count; ++i) {
        for (const ir::Target& target : f_.targets_of(op)) {
          is_alike = is_alike && slot(target, i - 1) == slot(f_.targets_of(op)[0], i - 1);
        }
      }
    });
    if (!is_alike) {
      return "a jump through a table leads to places that keep its values differently";
    }
    FindVectors();
    if (is_staged_) {
      std::string reason;
      plan_.stage = PlanStage(module_, plan_, &reason);
      return reason;
    }
    return "";
  }
  TilePlan Take() { return std::move(plan_); }

 private:
  // Refuses kernels that the gang plan accepts but that cannot run in tiles.
  std::string Refuse() const {
    if (module_.uses_barrier || module_.uses_group_memory) {
      return "its instances wait for each other or share group memory";
    }
    if (const std::optional<GangRefusal> refusal = RefuseGang(module_)) {
      return "lockstep is not possible: " + refusal->reason;
    }
    if (module_.stack_frame.has_value()) {
      return "each of its instances has its own stack";
    }
    if (!module_.formats.empty()) {
      return "it prints";
    }
    const analysis::Definitions definitions(f_);
    std::string reason;
    ir::ForEachOp(f_, [&](OpId id) { reason = reason.empty() ? RefuseOp(f_.op(id), definitions) : reason; });
    return reason;
  }
  std::string RefuseOp(const Op& op, const analysis::Definitions& definitions) const {
    switch (op.code) {
      case Opcode::kCall:
        return "it calls a function that is not inlined";
      case Opcode::kGroupId:
      case Opcode::kLocalId:
        return "it reads its id in the group or the group's id";
      case Opcode::kInstanceId:
        return definitions.ConstantOf(f_.operands_of(op)[0])
                   ? ""
                   : "it reads its id in a dimension that is computed at run time";
      default:
        return "";
    }
  }
  void LayOut() {
    plan_.layouts.resize(f_.values.size());
    for (size_t i = 0; i < plan_.layouts.size(); ++i) {
      const Layout& gang = plan_.gang.layouts[i];
      const std::optional<uint64_t>& row_step = plan_.gang.row_steps[i];
      const uint64_t mask = ir::Bytes(f_.values[i].type) == 4 ? 0xffffffffu : ~uint64_t{0};
      TileLayout& layout = plan_.layouts[i];
      if (plan_.tile[0] > 1) {
        layout.varies[0] = gang.kind == Layout::Kind::kVarying;
        layout.step[0] = gang.kind == Layout::Kind::kLinear ? gang.step & mask : 0;
      }
      if (plan_.tile[1] > 1 && gang.by_row) {
        layout.varies[1] = !row_step.has_value();
        layout.step[1] = row_step.value_or(0) & mask;
      }
    }
  }
  // Returns true if neighbours along x access neighbouring elements, in whole pieces of 16 bytes.
  bool IsContiguous(const Op& op) const {
    if (op.code != Opcode::kLoad && op.code != Opcode::kStore) {
      return false;
    }
    const TileLayout& address = plan_.layouts[f_.operands_of(op)[0].index];
    return op.space == ir::Space::kParam && op.width >= 4 && op.width == ir::Bytes(op.type) && !address.varies[0] &&
           address.step[0] == op.width && plan_.tile[0] * op.width % kVectorBytes == 0 &&
           (op.code == Opcode::kStore || plan_.layouts[op.first_result.index].varies[0]);
  }
  bool IsAligned(const Op& op, std::span<const uint8_t> alignment) const {
    const ValueId address = f_.operands_of(op)[0];
    return alignment[address.index] >= kVectorAlignment && op.imm % kVectorBytes == 0 &&
           plan_.layouts[address.index].step[1] % kVectorBytes == 0;
  }
  size_t CountAligned(std::span<const uint8_t> scalars) const {
    const std::vector<uint8_t> alignment = FindAlignment(module_, plan_.tile[0], scalars);
    return static_cast<size_t>(
        std::ranges::count_if(contiguous_, [&](OpId id) { return IsAligned(f_.op(id), alignment); }));
  }
  // Returns, by OpId, true for operations in constructs that run for one instance after the other.
  std::vector<bool> FindApart(const GangPlan& gang) const {
    std::vector<bool> is_apart(f_.ops.size());
    const analysis::Nesting nesting(f_);
    for (const OpId id : nesting.order()) {
      const OpId owner = nesting.OwnerOf(id);
      is_apart[id.index] = owner.valid() && (is_apart[owner.index] || gang.is_masked[owner.index]);
    }
    return is_apart;
  }
  // Returns true if an assumption of the plan concerns code that instances run one after the other, because no guard
  // tests it there.
  bool AssumesApart(const GangPlan& gang) const {
    const std::vector<bool> is_apart = FindApart(gang);
    for (size_t i = 0; i < is_apart.size(); ++i) {
      if (gang.is_assumed[i] && (is_apart[i] || gang.is_masked[i])) {
        return true;
      }
    }
    return false;
  }
  // Rows are as aligned as their length: assumes that scalars are multiples of 2 or 4 if this enables more 16-byte
  // accesses, for as few scalars as possible.
  void FindVectors() {
    plan_.is_vector.assign(f_.ops.size(), false);
    const std::vector<bool> is_apart = FindApart(plan_.gang);
    ir::ForEachOp(f_, [&](OpId id) {
      if (!is_apart[id.index] && IsContiguous(f_.op(id))) {
        contiguous_.push_back(id);
      }
    });
    std::vector<uint8_t> scalars(module_.params.size());
    const auto assume = [&](uint8_t log2) {
      for (size_t i = 0; i < scalars.size(); ++i) {
        scalars[i] = !module_.params[i].is_buffer && ir::IsInt(module_.params[i].type) ? log2 : 0;
      }
      return CountAligned(scalars);
    };
    size_t most = 0;
    uint8_t least = 0;
    for (const uint8_t log2 : {0, 1, 2}) {
      if (const size_t count = assume(log2); count > most) {
        most = count;
        least = log2;
      }
    }
    assume(least);
    for (size_t i = 0; i < scalars.size(); ++i) {
      if (const uint8_t before = std::exchange(scalars[i], uint8_t{0}); before != 0 && CountAligned(scalars) < most) {
        scalars[i] = before;
        plan_.factors.push_back({static_cast<uint32_t>(i), before});
      }
    }
    const std::vector<uint8_t> alignment = FindAlignment(module_, plan_.tile[0], scalars);
    for (OpId id : contiguous_) {
      plan_.is_vector[id.index] = IsAligned(f_.op(id), alignment);
    }
  }

  const ir::Module& module_;
  const ir::Function& f_;
  bool is_staged_ = false;
  std::vector<OpId> contiguous_;
  TilePlan plan_;
};

}  // namespace

StatusOr<TilePlan> PlanTile(const ir::Module& module, const GpuTile& tile) {
  TilePlanner planner(module, tile);
  const bool is_tile = tile.size[2] == 1 &&
                       std::ranges::all_of(tile.size, [](uint32_t n) { return n >= 1 && n <= limits::kGpuTileMax; });
  const std::string reason = is_tile ? planner.Run() : "tiles have one layer and at most 16 instances along x and y";
  if (!reason.empty()) {
    return Unimplemented("Kernel \"" + module.function(module.entry).name + "\" is not run in tiles of " +
                         TextOf(tile) + " instances because " + reason + ".");
  }
  return planner.Take();
}

}  // namespace hpvm::pass
