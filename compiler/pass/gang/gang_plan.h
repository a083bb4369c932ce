// SPDX-License-Identifier: Apache-2.0
// PlanGang decides how the instances of a tile run in lockstep: which values are scalars or vectors, and where lanes
// diverge.
//
// A tile is `rows` instances along y by `columns` vectors of `lanes` instances along x; a tile of one row and one
// column is an SPMD gang (Pharr and Mark, "ispc: A SPMD Compiler for High-Performance CPU Programming", InPar 2012).
// Independent of LLVM. Plans the entry, after the pipeline.
#ifndef HPVMD_COMPILER_PASS_GANG_GANG_PLAN_H_
#define HPVMD_COMPILER_PASS_GANG_GANG_PLAN_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "compiler/api/report.h"
#include "compiler/pass/rewrite/words.h"

namespace hpvm::pass {

// The representation of a value for the instances of a tile.
struct Layout {
  enum class Kind : uint8_t {
    kUniform,  // One scalar for all lanes of a row.
    kLinear,   // One scalar, of the row's first lane (also when that lane is off); lane i adds i * step.
    kVarying,  // One vector per column.
  };
  Kind kind = Kind::kVarying;
  bool by_row = false;  // Rows differ, so each row has its own scalar or vectors; else the rows share them.
  uint64_t step = 0;    // For kLinear; modulo 2^64, for an i32 modulo 2^32.
  friend bool operator==(const Layout&, const Layout&) = default;
};

struct GangPlan {
  std::vector<Layout> layouts;  // Indexed by ValueId.
  // Indexed by ValueId, for values that differ by row: the value of row r is that of row 0 plus r * step, lane by
  // lane; modulo 2^64, for an i32 modulo 2^32. Nothing where rows differ in another way.
  std::vector<std::optional<uint64_t>> row_steps;
  // Indexed by OpId of a block, loop or if: true if instances of a tile may enter or leave it separately, so that it
  // runs under a mask. Other constructs are branches that all active lanes take together. The function's body is
  // masked when its `return`s are reached separately.
  std::vector<bool> is_masked;
  bool body_is_masked = false;
  // Indexed by OpId of an if: true if its condition varies, but is the same for nearly every whole tile, and no effect
  // precedes the if. A tile function without a mask takes the condition as uniform, and gives up (kGangMixed) when it
  // is not. Also true for such an extension of a linear i32 to an i64, if its result is assumed linear because no lane
  // exceeds the i32's range; and for such an edge form (compiler/analysis/edge_forms.h), if no lane of the tile is
  // assumed to meet the edge.
  std::vector<bool> is_assumed;
  bool has_edges = false;  // True if some of is_assumed are edge forms.
};

struct GangPlanOptions {
  bool has_rows = false;       // Tiles have more than one row.
  bool assumes_guards = true;  // Fill is_assumed; only for functions that run whole tiles.
  bool assumes_edges = false;  // Also assume edge forms.
};

// The reason why the entry cannot run in lockstep (stores to memory that an instance owns, unresolved stores,
// operations that the emitter lacks). RefuseGang returns nothing if it can. Barriers are no reason.
struct GangRefusal {
  uint32_t source = 0;
  std::string reason;  // A full sentence.
};
std::optional<GangRefusal> RefuseGang(const ir::Module& module);

// Requires a module that RefuseGang does not refuse. Returns nothing when the shapes did not reach a fixed point.
std::optional<GangPlan> PlanGang(const ir::Module& module, const GangPlanOptions& options);

// Reports for each loop and branch how lanes go through it, and how values are represented (gang_explain.cc).
void ExplainGang(const ir::Module& module, const GangPlan& plan, KernelReport* report);

struct GangShape {
  uint32_t lanes = 16;   // A power of two, 2..64: instances per vector.
  uint32_t columns = 1;  // 1..8.
  uint32_t rows = 1;     // 1..16.
  uint32_t width() const { return lanes * columns; }
  friend bool operator==(const GangShape&, const GangShape&) = default;
};

// Returns the cost model's choice for the kernel on a processor with vectors of `vector_bytes` and this number of
// registers: the shapes to emit, best first, at most kGangShapesMax; none when running one instance at a time is much
// faster. A launch measures the emitted shapes (backends/shared/tuner.h), and begins with the first.
inline constexpr size_t kGangShapesMax = 3;
struct VectorUnit {
  uint32_t vector_bytes = 64;
  uint32_t registers = 32;
};
struct ShapeChoice {
  std::vector<GangShape> shapes;
  size_t before_scalar = 0;  // Number of shapes that are preferred to one instance at a time.
  // The best shape without assumptions about edges; nothing if no plan makes any. Launches most of whose tiles meet an
  // edge run faster with it.
  std::optional<GangShape> without_edges{};
};
ShapeChoice ChooseShapes(const ir::Module& module, const VectorUnit& unit, KernelReport* report);

}  // namespace hpvm::pass

#endif  // HPVMD_COMPILER_PASS_GANG_GANG_PLAN_H_
