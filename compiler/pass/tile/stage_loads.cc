// SPDX-License-Identifier: Apache-2.0
// Method: operations are visited in order up to the first store, or the first branch on a value that may differ
// within the group; a counted loop without such operations is tried with blocks of 8, 16 and 32 iterations. Its
// loads that a row or a column of work items shares become panels.
// Invariants: every work item of a group reaches the loop, and no store precedes it. A panel's addresses can be
// recomputed for any instance and iteration by at most 64 pure operations. Its buffer is not writable, and each
// work item loads whole 16-byte pieces of it.
// Panels take at most 32 KiB and are at most 16; both kinds must occur.
// Source: Lam, Rothberg and Wolf, ASPLOS 1991 (see stage_loads.h).
#include "compiler/pass/tile/stage_loads.h"

#include <algorithm>
#include <bit>

#include "compiler/analysis/counted_loops.h"
#include "compiler/analysis/definitions.h"
#include "compiler/analysis/uniformity.h"
#include "compiler/ir/walk.h"
#include "compiler/pass/tile/coarsener.h"

namespace hpvm::pass {
namespace {

// Available on every device, and a fraction of most devices' memory: several groups share a multiprocessor.
constexpr uint64_t kPanelBytesMax = 32 * 1024;
// Padding of rows along y, so that neighbours in a column are in different banks.
constexpr uint64_t kPadBytes = 16;
constexpr uint64_t kPieceBytes = 16;
// All banks of group memory together: neighbours that write pieces of different sections never use the same bank.
constexpr uint64_t kBanksBytes = 128;
// Maximum operations of an expression that is recomputed for another instance.
constexpr size_t kSliceMax = 64;
constexpr size_t kPanelsMax = 16;

class StagePlanner {
 public:
  StagePlanner(const ir::Module& module, const TilePlan& tile)
      : module_(module), tile_(tile), f_(module.function(module.entry)), definitions_(f_) {}

  std::optional<StagePlan> Run(std::string* reason) {
    if (module_.is_memory64 || !std::has_single_bit(tile_.tile[0]) || !std::has_single_bit(tile_.tile[1])) {
      *reason = "addresses are 64 bits wide, or the tile's size is not a power of two";
      return std::nullopt;
    }
    if (std::ranges::find(tile_.gang.is_assumed, true) != tile_.gang.is_assumed.end()) {
      *reason = "a guard may keep some of a group's instances from taking part";
      return std::nullopt;
    }
    *reason = "no loop has loads that rows share and loads that columns share";
    bool is_over = false;
    ir::ForEachOp(f_, [&](OpId id) {
      const Op& op = f_.op(id);
      if (is_over || plan_.loop.valid()) {
        return;
      }
      if ((ir::Info(op.code).effects & ir::kWrites) != 0) {
        is_over = true;  // Loads after a store may have to observe it.
      } else if ((op.code == Opcode::kIf || op.code == Opcode::kBrTable) && !tile_.gang.is_masked[id.index] &&
                 !IsSteady(f_.operands_of(op)[0])) {
        is_over = true;
      } else if (op.code == Opcode::kLoop && !Take(id)) {
        is_over = true;  // Values computed from it may differ within the group; operations in it run more than once.
      }
    });
    if (!plan_.loop.valid()) {
      return std::nullopt;
    }
    reason->clear();
    return plan_;
  }

 private:
  bool IsParam(ValueId id) const {
    const uint32_t first = f_.region(f_.body).first_param.index;
    return id.index >= first && id.index < first + module_.params.size();
  }

  // Returns true if the value depends only on scalars and the launch's shape, so that no store can change it.
  bool IsSteady(ValueId id) const { return is_steady_[id.index]; }
  // Returns true if the value can be recomputed for another instance and iteration from uniform values, ids, and
  // parameters of the loop that grow by steps, with limited work.
  bool IsSlice(ValueId id, OpId loop) const {
    const ir::Region& body = f_.region(f_.op(loop).body);
    std::vector<ValueId> open = {id}, seen;
    while (!open.empty()) {
      const ValueId value = open.back();
      open.pop_back();
      if (std::ranges::find(seen, value) != seen.end()) {
        continue;
      }
      seen.push_back(value);
      if (seen.size() > kSliceMax) {
        return false;
      }
      const TileLayout& layout = tile_.layouts[value.index];
      const OpId by = definitions_.Of(value);
      const uint32_t index = value.index - body.first_param.index;
      const bool is_inside = by.valid() && std::ranges::find(body.ops, by) != body.ops.end();
      if (value.index >= body.first_param.index && index < body.param_count) {
        if (!plan_.steps[index]) {
          return false;
        }
        open.push_back(f_.operands_of(f_.op(loop))[index]);
        open.push_back(*plan_.steps[index]);
      } else if (IsParam(value) || (by.valid() && f_.op(by).code == Opcode::kInstanceId) ||
                 (!layout.Differs(0) && !layout.Differs(1) && !is_inside)) {
        continue;
      } else if (!by.valid() || ir::Info(f_.op(by).code).effects != ir::kPure) {
        return false;
      } else {
        open.insert(open.end(), f_.operands_of(f_.op(by)).begin(), f_.operands_of(f_.op(by)).end());
      }
    }
    return true;
  }

  // Returns false if planning must stop here; sets plan_.loop if the loop can be staged.
  bool Take(OpId loop) {
    const std::optional<analysis::LoopEnd> end = loops_.EndOf(loop);
    if (tile_.gang.is_masked[loop.index] || !end || !IsPlain(loop)) {
      return false;
    }
    FindSteps(loop, f_.op(end->again));
    if (!FindCounter(loop, f_.op(end->again), end->condition)) {
      return false;
    }
    // Blocks so large that each work item loads a whole piece of every panel.
    for (const uint32_t block : {8u, 16u, 32u}) {
      plan_.block = block;
      FindPanels(loop);
      const auto count = std::ranges::count_if(plan_.panels, [](const StagePanel& panel) { return panel.is_along_x; });
      if (count != 0 && count != std::ssize(plan_.panels) && plan_.bytes <= kPanelBytesMax &&
          plan_.panels.size() <= kPanelsMax) {
        plan_.loop = loop;
        return true;
      }
    }
    return true;
  }
  // Returns true if no operation in the loop except its end branches, writes or waits.
  bool IsPlain(OpId loop) const {
    const std::vector<OpId>& ops = f_.region(f_.op(loop).body).ops;
    return std::all_of(ops.begin(), ops.end() - 2, [&](OpId id) {
      return (ir::Info(f_.op(id).code).effects & (ir::kControl | ir::kWrites | ir::kSyncs)) == 0;
    });
  }
  void FindSteps(OpId loop, const Op& again) {
    const ir::Region& body = f_.region(f_.op(loop).body);
    plan_.steps.assign(body.param_count, std::nullopt);
    for (uint32_t i = 0; i < body.param_count; ++i) {
      const ValueId param(body.first_param.index + i);
      const Op* by = definitions_.OpOf(f_.operands_of(again)[i], Opcode::kAdd);
      if (by == nullptr) {
        continue;
      }
      const ValueId a = f_.operands_of(*by)[0], b = f_.operands_of(*by)[1];
      const ValueId step = a == param ? b : a;
      if ((a == param || b == param) && IsSteady(step)) {
        plan_.steps[i] = step;
      }
    }
  }
  bool FindCounter(OpId loop, const Op& again, ValueId condition) {
    ValueId next = condition;
    plan_.bound = ValueId();
    plan_.is_below = false;
    const Op* by = definitions_.OpOf(condition);
    if (by != nullptr && (by->code == Opcode::kNe || by->code == Opcode::kLtS)) {
      const Op& test = *by;
      plan_.is_below = test.code == Opcode::kLtS;
      next = f_.operands_of(test)[0];
      plan_.bound = f_.operands_of(test)[1];
      if (!plan_.is_below && IsSteady(next)) {
        std::swap(next, plan_.bound);
      }
      if (!IsSteady(plan_.bound)) {
        return false;
      }
    }
    for (uint32_t i = 0; i < plan_.steps.size(); ++i) {
      const std::optional<uint64_t> stride = plan_.steps[i] ? definitions_.ConstantOf(*plan_.steps[i]) : std::nullopt;
      if (f_.operands_of(again)[i] != next || !stride || f_.type_of(next) != ir::Type::kI32 ||
          !IsSteady(f_.operands_of(f_.op(loop))[i])) {
        continue;
      }
      plan_.counter = i;
      plan_.stride = static_cast<int32_t>(static_cast<uint32_t>(*stride));
      const uint64_t size = static_cast<uint64_t>(std::abs(plan_.stride));
      return std::has_single_bit(size) && (!plan_.is_below || plan_.stride > 0);
    }
    return false;
  }
  void FindPanels(OpId loop) {
    plan_.panels.clear();
    plan_.bytes = 0;
    const uint32_t items = plan_.group[0] * plan_.group[1];
    for (OpId id : f_.region(f_.op(loop).body).ops) {
      const Op& op = f_.op(id);
      if (op.code != Opcode::kLoad || op.space != ir::Space::kParam || module_.params[op.space_index].is_writable ||
          op.width < 4 || op.width != ir::Bytes(op.type) || !IsSlice(f_.operands_of(op)[0], loop)) {
        continue;
      }
      const TileLayout& address = tile_.layouts[f_.operands_of(op)[0].index];
      const uint32_t per_access = 16 / op.width;
      const uint32_t columns = plan_.group[0] * tile_.tile[0], rows = plan_.group[1] * tile_.tile[1];
      // Each work item loads whole pieces.
      if (tile_.is_vector[id.index] && !address.Differs(1) && columns / per_access * plan_.block % items == 0) {
        AddPanel(id, true);
      } else if (!address.Differs(0) && address.Differs(1) && tile_.tile[1] % per_access == 0 &&
                 rows * plan_.block % items == 0) {
        AddPanel(id, false);
      }
    }
  }
  void AddPanel(OpId load, bool is_along_x) {
    const size_t d = is_along_x ? 0 : 1;
    const uint64_t item_bytes = uint64_t{tile_.tile[d]} * f_.op(load).width;
    StagePanel panel{.load = load, .is_along_x = is_along_x, .offset = plan_.bytes};
    if (is_along_x) {
      panel.sections = static_cast<uint32_t>(item_bytes / kPieceBytes);
      const uint64_t apart = panel.sections > 1 ? kBanksBytes / panel.sections : 0;
      panel.section_bytes = plan_.group[0] * kPieceBytes + apart;
      panel.row_bytes = panel.sections * panel.section_bytes;
    } else {
      panel.row_bytes = plan_.group[1] * item_bytes + kPadBytes;
    }
    plan_.bytes += panel.row_bytes * plan_.block;
    plan_.panels.push_back(panel);
  }

  const ir::Module& module_;
  const TilePlan& tile_;
  const ir::Function& f_;
  const analysis::Definitions definitions_;
  const analysis::CountedLoops loops_{f_};
  const std::vector<bool> is_steady_ = analysis::FindFixed(f_, /*of_group=*/false);
  StagePlan plan_;
};

}  // namespace

std::optional<StagePlan> PlanStage(const ir::Module& module, const TilePlan& tile, std::string* reason) {
  return StagePlanner(module, tile).Run(reason);
}

}  // namespace hpvm::pass
