// SPDX-License-Identifier: Apache-2.0
// Decides how the instances of a tile run in lockstep: what is one scalar, what is one vector, where lanes part.
//
// A tile is `rows` instances along y by `columns` vectors of `lanes` instances along x; one of one row and one column
// is a gang (ISPC's word; Pharr and Mark, "ispc: A SPMD Compiler for High-Performance CPU Programming", InPar 2012).
// Free of LLVM. Looks at the entry, after the pipeline.
#ifndef HPVMD_COMPILER_PASS_GANG_GANG_PLAN_H_
#define HPVMD_COMPILER_PASS_GANG_GANG_PLAN_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "compiler/api/report.h"
#include "compiler/pass/rewrite/words.h"

namespace hpvm::pass {

// How a value is kept for the instances of a tile.
struct Layout {
  enum class Kind : uint8_t {
    kUniform,  // One scalar for all lanes of a row.
    kLinear,   // One scalar, of the row's first lane (also when that lane is off); lane i has it plus i * step.
    kVarying,  // One vector a column.
  };
  Kind kind = Kind::kVarying;
  bool by_row = false;  // Rows differ: all of the above once a row. Else the rows share it.
  uint64_t step = 0;    // kLinear; modulo 2^64, for an i32 modulo 2^32.
  friend bool operator==(const Layout&, const Layout&) = default;
};

struct GangPlan {
  std::vector<Layout> layouts;  // By ValueId.
  // By ValueId, of those that are by_row: row r has what row 0 has plus r * step, lane by lane; modulo 2^64, for an i32
  // modulo 2^32. Nothing where rows differ in another way.
  std::vector<std::optional<uint64_t>> row_steps;
  // By OpId of a block, loop or if: whether instances of a tile may be in it, or leave it, separately, so that it is
  // run under a mask. Others are branches that all active lanes take together. The function's body is masked when its
  // `return`s are reached separately.
  std::vector<bool> is_masked;
  bool body_is_masked = false;
  // By OpId of an if: its condition varies, but is the same for nearly every whole tile and stands before anything has
  // an effect. A tile function without a mask takes it as uniform, and gives up (kGangMixed) when it is not. Of an
  // extension of a linear i32 to an i64 that stands there: it is linear too, as no lane is beyond the i32's range. Of
  // an edge form (compiler/analysis/edge_forms.h) that stands there: no lane of the tile meets the edge.
  std::vector<bool> is_assumed;
  bool has_edges = false;  // Some of is_assumed are edge forms.
};

struct GangPlanOptions {
  bool has_rows = false;       // Tiles have more than one row.
  bool assumes_guards = true;  // Fill is_assumed; only for functions that run whole tiles.
  bool assumes_edges = false;  // With edge forms.
};

// Why the entry cannot run in lockstep (stores to what an instance owns, unresolved stores, what the emitter lacks), or
// nothing. Barriers are no reason.
struct GangRefusal {
  uint32_t source = 0;
  std::string reason;  // A full sentence.
};
std::optional<GangRefusal> RefuseGang(const ir::Module& module);

// Requires a module that RefuseGang does not refuse. Nothing when the shapes did not settle.
std::optional<GangPlan> PlanGang(const ir::Module& module, const GangPlanOptions& options);

// Says of each loop and branch how lanes go through it, and how values are kept (gang_explain.cc).
void ExplainGang(const ir::Module& module, const GangPlan& plan, KernelReport* report);

struct GangShape {
  uint32_t lanes = 16;   // A power of two, 2..64: instances in one vector.
  uint32_t columns = 1;  // 1..8.
  uint32_t rows = 1;     // 1..16.
  uint32_t width() const { return lanes * columns; }
  friend bool operator==(const GangShape&, const GangShape&) = default;
};

// What the cost model says of the kernel on a processor with vectors of `vector_bytes` and so many registers: shapes to
// emit, the best first, at most kGangShapesMax; none when one instance at a time is much quicker. A launch measures
// those that are emitted (backends/shared/tuner.h), and begins with the first.
inline constexpr size_t kGangShapesMax = 3;
struct VectorUnit {
  uint32_t vector_bytes = 64;
  uint32_t registers = 32;
};
struct ShapeChoice {
  std::vector<GangShape> shapes;
  size_t before_scalar = 0;  // So many of them come before one instance at a time.
  // The best where nothing is taken to meet no edge; nothing where no plan does. Launches of which most tiles meet an
  // edge are quicker so.
  std::optional<GangShape> without_edges{};
};
ShapeChoice ChooseShapes(const ir::Module& module, const VectorUnit& unit, KernelReport* report);

}  // namespace hpvm::pass

#endif  // HPVMD_COMPILER_PASS_GANG_GANG_PLAN_H_
