// SPDX-License-Identifier: Apache-2.0
// GangEstimate estimates the cost of running a kernel in tiles of a shape; internal to this folder (used by
// ChooseShapes). Cycles are accurate to a factor of two only. The comparison of shapes depends on the values that rows
// and columns share, on latencies, and on values that do not fit into registers.
#ifndef HPVMD_COMPILER_PASS_GANG_GANG_COST_H_
#define HPVMD_COMPILER_PASS_GANG_GANG_COST_H_

#include <algorithm>
#include <cstdint>
#include <set>
#include <span>
#include <utility>
#include <vector>

#include "compiler/analysis/uniformity.h"
#include "compiler/pass/gang/gang_plan.h"
#include "compiler/pass/gang/gang_records.h"
#include "compiler/pass/rewrite/words.h"

namespace hpvm::pass {

// Work of one kind: once per tile (scalars: once per row), or once per column or part of it.
struct GangWork {
  double shared = 0, by_row = 0;
  void Add(bool is_by_row, double cost) { (is_by_row ? by_row : shared) += cost; }
};

// A loop, or (the first) the body.
struct GangLevel {
  size_t parent = 0;
  ir::RegionId region;
  double weight = 1;
  bool is_masked = false;
  bool stores = false;
  GangWork vectors, scalars;
  GangWork kept;     // Registers that stay occupied while it runs, in vectors per part.
  GangWork splats;   // The same for scalars that are combined with vectors.
  GangWork passing;  // Maximum registers for values made and used within an iteration.
  double latency = 0;
  double streams = 0;     // Contiguous accesses that differ by row: each is in a page of its own.
  double crosswise = 0;   // Accesses for which each lane has a separate cache line that the rows share.
  double transposed = 0;  // Cycles per part that accesses along y save if rows fill vectors (gang_transpose.cc).
};

class GangEstimate {
 public:
  // `along_y`: the entry's shapes.
  GangEstimate(const ir::Module& module, const GangPlan& plan, const VectorUnit& unit, uint32_t lanes,
               const std::vector<analysis::Shape>& along_y);
  bool has_crosswise() const {
    return std::ranges::any_of(levels_, [](const GangLevel& level) { return level.crosswise > 0; });
  }
  // Returns cycles per instance.
  double Of(const GangShape& shape) const;
  double scalar() const { return scalar_; }

 private:
  bool Varies(ir::ValueId id) const { return plan_.layouts[id.index].kind == Layout::Kind::kVarying; }
  bool IsByRow(ir::ValueId id) const { return plan_.layouts[id.index].by_row; }
  double Registers(ir::ValueId id) const;
  double OfVector(uint32_t bytes) const { return 0.5 * std::max(1.0, lanes_ * bytes / 32.0); }
  void Walk(ir::RegionId region, size_t level);
  void Visit(ir::OpId id, size_t level);
  void AddMemory(ir::OpId id, const ir::Op& op, GangLevel& level);
  void AddArith(const ir::Op& op, GangLevel& level);
  void NoteUses(const ir::Op& op, size_t level);
  void FindPassing();
  void FindLatencies();
  double Latency(std::span<const ir::OpId> ops, ir::ValueId param);
  double AtOnce(const GangWork& work, const GangShape& shape, double parts_max) const;

  const ir::Module& module_;
  const GangPlan& plan_;
  const VectorUnit& unit_;
  const uint32_t lanes_;
  const ir::Function& f_;
  const std::vector<analysis::Shape>& along_y_;
  const GangRecords records_;
  std::vector<GangLevel> levels_;
  std::vector<std::pair<ir::OpId, size_t>> order_;  // Operations with their level, in the order of the text.
  std::vector<size_t> defined_in_;                  // Indexed by ir::ValueId: the level.
  std::set<std::pair<size_t, uint32_t>> kept_;      // Values counted in a level.
  double scalar_ = 0;
};

}  // namespace hpvm::pass

#endif  // HPVMD_COMPILER_PASS_GANG_GANG_COST_H_
