// SPDX-License-Identifier: Apache-2.0
// Selects the tile shapes that are worth emitting. A launch measures the emitted shapes.
#include <algorithm>
#include <string>

#include "absl/strings/str_format.h"

#include "compiler/ir/walk.h"
#include "compiler/pass/gang/gang_cost.h"

namespace hpvm::pass {
namespace {

struct Candidate {
  GangShape shape;
  double cycles = 0;
};

bool HasMasks(const GangPlan& plan) {
  return plan.body_is_masked || std::ranges::find(plan.is_masked, true) != plan.is_masked.end();
}

bool UsesY(const ir::Module& module) {
  const ir::Function& f = module.function(module.entry);
  bool uses = false;
  std::vector<uint64_t> constants(f.values.size(), 3);
  ir::ForEachOp(f, [&](OpId id) {
    const Op& op = f.op(id);
    if (op.code == Opcode::kConst && ir::IsInt(op.type)) {
      constants[op.first_result.index] = op.imm;
    }
    uses = uses || (op.code == Opcode::kInstanceId && constants[f.operands_of(op)[0].index] == 1);
  });
  return uses;
}

// Code grows with a tile's parts; a kernel this large gains little from more parts. Compile time grows with the number
// of shapes.
constexpr size_t kOpsTimesPartsMax = 12'000;
// The stacks of a tile's instances should fit in the first-level cache.
constexpr uint64_t kStackOfTileMax = 16 * 1024;
constexpr size_t kOpsForTwoShapes = 1'000;
constexpr size_t kOpsForOneShape = 3'000;

size_t CountOps(const ir::Function& function) {
  size_t ops = 0;
  ir::ForEachOp(function, [&](OpId) { ++ops; });
  return ops;
}

// Returns the candidates, best first. `has_edges` receives whether a plan assumes that an edge form meets no edge,
// which `assumes_edges` permits.
std::vector<Candidate> Candidates(const ir::Module& module, const VectorUnit& unit, bool assumes_edges, double* scalar,
                                  bool* has_edges) {
  std::vector<Candidate> candidates;
  const std::optional<analysis::Uniformity> along_y = analysis::AnalyseUniformity(module, analysis::Lanes::kAlongY);
  if (!along_y.has_value()) {
    return candidates;
  }
  const size_t ops = CountOps(module.function(module.entry));
  const uint64_t stack = module.stack_frame.has_value() ? module.stack_frame->bytes() : 0;
  for (bool has_rows : {false, true}) {
    if (has_rows && !UsesY(module)) {
      continue;
    }
    const std::optional<GangPlan> plan = PlanGang(module, {.has_rows = has_rows, .assumes_edges = assumes_edges});
    if (!plan.has_value() || (has_rows && HasMasks(*plan))) {
      continue;
    }
    *has_edges = *has_edges || plan->has_edges;
    for (uint32_t lanes : {unit.vector_bytes / 4, unit.vector_bytes / 8, unit.vector_bytes / 16}) {
      const GangEstimate estimate(module, *plan, unit, std::max(lanes, 2u),
                                  along_y->functions[module.entry.index].shapes);
      if (lanes < 2 || (lanes == unit.vector_bytes / 16 && !estimate.has_crosswise())) {
        continue;
      }
      *scalar = estimate.scalar();
      const std::vector<uint32_t> rows = has_rows ? std::vector<uint32_t>{2, 4, 6, 8} : std::vector<uint32_t>{1};
      for (uint32_t row : rows) {
        for (uint32_t columns : {1, 2, 3, 4}) {
          const GangShape shape{lanes, columns, row};
          const bool fits =
              ops * row * columns <= kOpsTimesPartsMax && stack * lanes * row * columns <= kStackOfTileMax;
          if (size_t{row} * columns == 1 || fits) {
            candidates.push_back({shape, estimate.Of(shape)});
          }
        }
      }
    }
  }
  std::ranges::stable_sort(candidates, [](const Candidate& a, const Candidate& b) { return a.cycles < b.cycles; });
  return candidates;
}

std::string Spelled(const GangShape& shape) {
  return absl::StrFormat("%d lanes x %d columns x %d rows", shape.lanes, shape.columns, shape.rows);
}

}  // namespace

ShapeChoice ChooseShapes(const ir::Module& module, const VectorUnit& unit, KernelReport* report) {
  constexpr double kGiveUp = 1.5;  // A launch also measures running one instance at a time.
  double scalar = 0;
  bool has_edges = false;
  const std::vector<Candidate> candidates = Candidates(module, unit, /*assumes_edges=*/true, &scalar, &has_edges);
  const size_t ops = CountOps(module.function(module.entry));
  const size_t shapes_max = ops > kOpsForOneShape ? 1 : ops > kOpsForTwoShapes ? 2 : kGangShapesMax;
  ShapeChoice choice;
  std::vector<GangShape>& shapes = choice.shapes;
  auto say = [&](const Candidate& candidate, const char* what) {
    if (report != nullptr) {
      report->Add(
          KernelRemark::Kind::kTile, 0,
          absl::StrFormat("Tile of %s%s: about %.3g cycles per instance; instances that run one at a time take %.3g.",
                          Spelled(candidate.shape), what, candidate.cycles, scalar));
    }
  };
  if (candidates.empty() || candidates[0].cycles > kGiveUp * scalar) {
    if (!candidates.empty()) {
      say(candidates[0], " is not worth it");
    }
    return choice;
  }
  // The second and third shapes must differ from the first: in the number of rows, or by a factor of two in width.
  auto is_unlike = [&](const GangShape& shape) {
    return std::ranges::all_of(shapes, [&](const GangShape& other) {
      return shape.rows != other.rows || shape.width() >= 2 * other.width() || 2 * shape.width() <= other.width();
    });
  };
  for (const Candidate& candidate : candidates) {
    const bool is_close = candidate.cycles < 1.6 * candidates[0].cycles;
    // A shape with rows is always accompanied by one without, because launches may have few rows.
    const bool lacks_row = shapes.size() + 1 == shapes_max && !shapes.empty() && candidate.shape.rows == 1 &&
                           std::ranges::none_of(shapes, [](const GangShape& s) { return s.rows == 1; });
    const bool keeps_room = shapes.size() + 1 < shapes_max || shapes.empty() ||
                            std::ranges::any_of(shapes, [](const GangShape& s) { return s.rows == 1; });
    if (shapes.size() < shapes_max && is_unlike(candidate.shape) && ((is_close && keeps_room) || lacks_row)) {
      shapes.push_back(candidate.shape);
      choice.before_scalar += candidate.cycles <= scalar ? 1 : 0;
      say(candidate, choice.before_scalar == 1 && shapes.size() == 1 ? " (first choice)" : " (to be measured)");
    }
  }
  if (has_edges) {
    const std::vector<Candidate> plain = Candidates(module, unit, /*assumes_edges=*/false, &scalar, &has_edges);
    if (!plain.empty() && plain[0].cycles <= kGiveUp * scalar) {
      choice.without_edges = plain[0].shape;
      say(plain[0], " that assumes nothing about edges (to be measured)");
    }
  }
  return choice;
}

}  // namespace hpvm::pass
