// SPDX-License-Identifier: Apache-2.0
// Which shapes of tiles are worth emitting. Cycles are guesses, good to a factor of two: what matters is what rows and
// columns share, what waits for what, and what does not fit into registers. A launch measures what is emitted.
#include <algorithm>
#include <cmath>
#include <set>
#include <span>
#include <utility>

#include "absl/strings/str_format.h"

#include "compiler/ir/walk.h"
#include "compiler/pass/gang_plan.h"
#include "compiler/pass/uniformity.h"

namespace hpvm {
namespace {

using ir::Op;
using ir::Opcode;
using ir::OpId;
using ir::RegionId;
using ir::ValueId;

constexpr double kTrips = 32;           // Of a loop, when nothing is known.
constexpr double kWeightMax = 1 << 15;  // Three loops deep.
constexpr double kScalarOp = 0.3;       // One instance at a time; also scalars of a tile.
constexpr double kPartsAtOnce = 3;      // That overlap, so that nothing waits.
constexpr double kTileStart = 12;       // What a tile costs whatever it does.

// Work of one kind: once for a tile (scalars: once a row), or once a column or part of it.
struct Work {
  double shared = 0, by_row = 0;
  void Add(bool is_by_row, double cost) { (is_by_row ? by_row : shared) += cost; }
};

// A loop, or the body: the first.
struct Level {
  size_t parent = 0;
  RegionId region;
  double weight = 1;
  bool is_masked = false;
  bool stores = false;
  Work vectors, scalars;
  Work kept;     // Registers that stay occupied while it runs, in vectors a part.
  Work splats;   // The same for scalars that vectors are combined with.
  Work passing;  // Registers for what is made and used within an iteration, at most at a time.
  double latency = 0;
  double streams = 0;    // Contiguous accesses that each row has its own of: each is a page of its own.
  double crosswise = 0;  // Accesses of which each lane has a cache line of its own, shared by the rows.
};

class Estimate {
 public:
  // `along_y`: the entry's shapes.
  Estimate(const ir::Module& module, const GangPlan& plan, const VectorUnit& unit, uint32_t lanes,
           const std::vector<Shape>& along_y);
  bool has_crosswise() const {
    return std::any_of(levels_.begin(), levels_.end(), [](const Level& level) { return level.crosswise > 0; });
  }
  // Cycles an instance.
  double Of(const GangShape& shape) const;
  double scalar() const { return scalar_; }

 private:
  bool Varies(ValueId id) const { return plan_.layouts[id.index].kind == Layout::Kind::kVarying; }
  bool IsByRow(ValueId id) const { return plan_.layouts[id.index].by_row; }
  double Registers(ValueId id) const;
  double OfVector(uint32_t bytes) const { return 0.5 * std::max(1.0, lanes_ * bytes / 32.0); }
  void Walk(RegionId region, size_t level);
  void Visit(OpId id, size_t level);
  void AddMemory(const Op& op, Level& level);
  void AddArith(const Op& op, Level& level);
  void NoteUses(const Op& op, size_t level);
  void FindPassing();
  void FindLatencies();
  double Latency(const Level& level, std::span<const OpId> ops, ValueId param, uint32_t index);
  double AtOnce(const Work& work, const GangShape& shape, double parts_max) const;

  const ir::Module& module_;
  const GangPlan& plan_;
  const VectorUnit& unit_;
  const uint32_t lanes_;
  const ir::Function& f_;
  const std::vector<Shape>& along_y_;
  std::vector<Level> levels_;
  std::vector<std::pair<OpId, size_t>> order_;  // Operations with their level, as the text form has them.
  std::vector<size_t> defined_in_;              // By ValueId: the level.
  std::set<std::pair<size_t, uint32_t>> kept_;  // Values counted in a level.
  double scalar_ = 0;
};

// --- What an operation costs.

// Cycles of an arithmetic operation, of a whole register and of one scalar.
struct Cycles {
  double vector = 1, scalar = kScalarOp;  // The first in units of a simple operation.
  int latency = 1;
};

Cycles CyclesOf(const Op& op) {
  const bool is_wide = ir::Bytes(op.type) == 8;
  switch (op.code) {
    case Opcode::kDivS:
    case Opcode::kDivU:
    case Opcode::kRemS:
    case Opcode::kRemU:
      return is_wide ? Cycles{60, 10, 30} : Cycles{24, 6, 25};
    case Opcode::kFDiv:
      return is_wide ? Cycles{10, 5, 13} : Cycles{6, 3.5, 11};
    case Opcode::kFSqrt:
      return is_wide ? Cycles{14, 9, 20} : Cycles{8, 5, 15};
    case Opcode::kFMin:
    case Opcode::kFMax:
      return {5, 2, 8};
    case Opcode::kMul:
      return is_wide ? Cycles{3, kScalarOp, 3} : Cycles{2, kScalarOp, 4};
    case Opcode::kRotl:
    case Opcode::kRotr:
    case Opcode::kPopcnt:
    case Opcode::kClz:
    case Opcode::kCtz:
      return {3, kScalarOp, 3};
    default:
      break;
  }
  switch (ir::Info(op.code).family) {
    case ir::Family::kFloatBinary:
    case ir::Family::kFloatUnary:
      return {1, 0.5, 3};
    case ir::Family::kFloatCompare:
    case ir::Family::kSelect:
      return {1, 0.5, 2};
    case ir::Family::kConvert:
      return {2, 1, 4};
    case ir::Family::kConst:
    case ir::Family::kQuery:
      return {0, 0, 0};
    default:
      return {};
  }
}

// The distance in bytes from one lane's access to the next, of a linear address.
int64_t StepOf(const ir::Module& module, const Layout& layout) {
  return module.is_memory64 ? static_cast<int64_t>(layout.step)
                            : static_cast<int64_t>(static_cast<int32_t>(static_cast<uint32_t>(layout.step)));
}

Estimate::Estimate(const ir::Module& module, const GangPlan& plan, const VectorUnit& unit, uint32_t lanes,
                   const std::vector<Shape>& along_y)
    : module_(module),
      plan_(plan),
      unit_(unit),
      lanes_(lanes),
      f_(module.function(module.entry)),
      along_y_(along_y),
      defined_in_(f_.values.size()) {
  levels_.emplace_back();
  levels_[0].region = f_.body;
  levels_[0].is_masked = plan.body_is_masked;
  Walk(f_.body, 0);
  FindPassing();
  FindLatencies();
}

double Estimate::Registers(ValueId id) const {
  return std::max(1.0, double(lanes_) * ir::Bytes(f_.type_of(id)) / unit_.vector_bytes);
}

void Estimate::Walk(RegionId region, size_t level) {
  for (OpId id : f_.region(region).ops) {
    order_.emplace_back(id, level);
    Visit(id, level);
  }
}

void Estimate::AddMemory(const Op& op, Level& level) {
  const bool is_store = (ir::Info(op.code).effects & ir::kWrites) != 0;
  const bool is_atomic = ir::Info(op.code).family == ir::Family::kAtomic;
  const Layout& address = plan_.layouts[f_.operands_of(op)[0].index];
  level.stores = level.stores || is_store;
  scalar_ += level.weight * (is_atomic ? 8 : 0.6);
  bool by_row = address.by_row;
  for (ValueId operand : f_.operands_of(op)) {
    by_row = by_row || IsByRow(operand);
  }
  if (is_atomic) {
    level.vectors.Add(by_row, lanes_ * 9.0);
    return;
  }
  if (address.kind == Layout::Kind::kUniform && !is_store) {
    level.scalars.Add(by_row, 0.5);
    return;
  }
  const int64_t step = std::abs(StepOf(module_, address));
  const double whole = OfVector(std::max<uint32_t>(op.width, 4)) * (is_store ? 4 : 2);
  const Shape& y = along_y_[f_.operands_of(op)[0].index];
  if (address.kind == Layout::Kind::kVarying && y.kind == Shape::Kind::kLinear && y.step[1] == op.width) {
    ++level.crosswise;
  }
  level.streams += address.kind == Layout::Kind::kLinear && by_row ? 1 : 0;
  if (address.kind == Layout::Kind::kLinear && step <= op.width) {
    level.vectors.Add(by_row, step == op.width ? whole : lanes_ * 1.0);
  } else if (address.kind == Layout::Kind::kLinear && !is_store && step <= 4 * op.width) {
    level.vectors.Add(by_row, whole * double(step) / op.width + 2);
  } else if (address.kind == Layout::Kind::kUniform) {
    level.vectors.Add(by_row, 2);
  } else {
    level.vectors.Add(by_row, 4 + lanes_ * (is_store ? 1.5 : 1.2));
  }
}

void Estimate::AddArith(const Op& op, Level& level) {
  const Cycles cycles = CyclesOf(op);
  scalar_ += level.weight * cycles.scalar;
  if (op.result_count == 0) {
    return;
  }
  const bool by_row = IsByRow(op.first_result);
  if (Varies(op.first_result)) {
    level.vectors.Add(by_row, cycles.vector * OfVector(ir::Bytes(op.type)));
  } else {
    level.scalars.Add(by_row, cycles.scalar);
  }
}

// Values from outside of a loop occupy their registers all the while it runs.
void Estimate::NoteUses(const Op& op, size_t level) {
  const bool makes_vectors = (op.result_count > 0 && Varies(op.first_result)) || ir::IsTerminator(op.code);
  for (ValueId id : f_.operands_of(op)) {
    for (size_t l = level; l != defined_in_[id.index]; l = levels_[l].parent) {
      if (!kept_.emplace(l, id.index).second) {
        break;
      }
      if (Varies(id)) {
        levels_[l].kept.Add(IsByRow(id), Registers(id));
      } else if (makes_vectors && !ir::IsInt(f_.type_of(id))) {
        levels_[l].splats.Add(IsByRow(id), Registers(id));
      }
    }
  }
}

void Estimate::Visit(OpId id, size_t level) {
  const Op& op = f_.op(id);
  NoteUses(op, level);
  for (uint32_t i = 0; i < op.result_count; ++i) {
    defined_in_[op.first_result.index + i] = level;
  }
  switch (op.code) {
    case Opcode::kLoop: {
      Level inner;
      inner.parent = level;
      inner.region = op.body;
      inner.is_masked = plan_.is_masked[id.index];
      inner.weight = std::min(kWeightMax, levels_[level].weight * kTrips);
      const ir::Region& body = f_.region(op.body);
      for (uint32_t i = 0; i < body.param_count; ++i) {
        const ValueId param(body.first_param.index + i);
        defined_in_[param.index] = levels_.size();
        if (Varies(param)) {
          inner.kept.Add(IsByRow(param), Registers(param));
        }
      }
      inner.scalars.shared += 1;  // The stop word.
      scalar_ += inner.weight;
      inner.vectors.by_row += inner.is_masked ? 3 : 0;
      levels_.push_back(std::move(inner));
      return Walk(op.body, levels_.size() - 1);
    }
    case Opcode::kBlock:
    case Opcode::kIf: {
      const ir::Region& body = f_.region(op.body);
      for (uint32_t i = 0; i < body.param_count; ++i) {
        defined_in_[body.first_param.index + i] = level;
      }
      scalar_ += levels_[level].weight * 0.5;
      levels_[level].vectors.by_row += plan_.is_masked[id.index] ? 1.5 : 0;
      Walk(op.body, level);
      return op.code == Opcode::kIf ? Walk(op.otherwise, level) : void();
    }
    default:
      break;
  }
  switch (ir::Info(op.code).family) {
    case ir::Family::kMemory:
    case ir::Family::kAtomic:
      return op.operand_count > 0 ? AddMemory(op, levels_[level]) : void();
    case ir::Family::kCall:
      scalar_ += levels_[level].weight * 20;
      levels_[level].vectors.by_row += 25.0 * lanes_;
      return;
    case ir::Family::kControl:
    case ir::Family::kSync:
      return;
    default:
      return AddArith(op, levels_[level]);
  }
}

// --- Registers and latencies.

// How many values of an iteration are alive at a time, going backwards from their uses.
void Estimate::FindPassing() {
  std::vector<bool> is_alive(f_.values.size());
  std::vector<Work> now(levels_.size());
  for (auto at = order_.rbegin(); at != order_.rend(); ++at) {
    const Op& op = f_.op(at->first);
    const size_t level = at->second;
    for (uint32_t i = 0; i < op.result_count; ++i) {
      const ValueId id(op.first_result.index + i);
      if (is_alive[id.index]) {
        now[level].Add(IsByRow(id), -Registers(id));
      }
    }
    for (ValueId id : f_.operands_of(op)) {
      if (!is_alive[id.index] && Varies(id) && defined_in_[id.index] == level) {
        is_alive[id.index] = true;
        now[level].Add(IsByRow(id), Registers(id));
      }
    }
    Work& most = levels_[level].passing;
    if (now[level].shared + now[level].by_row > most.shared + most.by_row) {
      most = now[level];
    }
  }
}

// The time from a loop's parameter to its next value.
double Estimate::Latency(const Level& level, std::span<const OpId> ops, ValueId param, uint32_t index) {
  std::vector<double> since(f_.values.size(), -1);
  since[param.index] = 0;
  double latency = 0;
  auto reach = [&](ValueId id, double time) { since[id.index] = std::max(since[id.index], time); };
  for (OpId id : ops) {
    const Op& op = f_.op(id);
    const std::span<const ValueId> operands = f_.operands_of(op);
    if (ir::IsTerminator(op.code)) {
      const uint32_t first = op.code == Opcode::kLeaveTable ? 1 : 0;
      for (const ir::Target& target : f_.targets_of(op)) {
        const Op& owner = f_.op(target.op);
        if (target.is_continue && owner.body == level.region) {
          latency = std::max(latency, since[operands[first + index].index]);
        } else if (!target.is_continue) {
          for (uint32_t i = 0; i < owner.result_count; ++i) {
            reach(ValueId(owner.first_result.index + i), since[operands[first + i].index]);
          }
        }
      }
      continue;
    }
    double time = -1;
    for (ValueId operand : operands) {
      time = std::max(time, since[operand.index]);
    }
    if (time < 0) {
      continue;
    }
    if (op.code == Opcode::kBlock || op.code == Opcode::kLoop) {
      for (uint32_t i = 0; i < operands.size(); ++i) {
        reach(ValueId(f_.region(op.body).first_param.index + i), since[operands[i].index]);
      }
    }
    const bool is_memory = (ir::Info(op.code).effects & ir::kReads) != 0;
    for (uint32_t i = 0; i < op.result_count && op.code != Opcode::kIf; ++i) {
      reach(ValueId(op.first_result.index + i), time + (is_memory ? 15 : CyclesOf(op).latency));
    }
  }
  return latency;
}

void Estimate::FindLatencies() {
  constexpr size_t kLooksMax = 200'000;  // Values looked at; larger loops have work enough anyway.
  size_t looks = 0;
  for (size_t l = 1; l < levels_.size(); ++l) {
    std::vector<OpId> ops;
    for (const auto& [id, level] : order_) {
      size_t at = level;
      while (at != l && at != 0) {
        at = levels_[at].parent;
      }
      if (at == l) {
        ops.push_back(id);
      }
    }
    const ir::Region& region = f_.region(levels_[l].region);
    for (uint32_t i = 0; i < region.param_count; ++i) {
      const ValueId param(region.first_param.index + i);
      looks += f_.values.size() + ops.size();
      if (looks > kLooksMax) {
        return;
      }
      if (Varies(param)) {
        levels_[l].latency = std::max(levels_[l].latency, Latency(levels_[l], ops, param, i));
      }
    }
  }
}

// --- Shapes.

// `parts_max`: of so many parts at a time, but all columns of what rows share.
double Estimate::AtOnce(const Work& work, const GangShape& shape, double parts_max) const {
  return work.by_row * std::min<double>(parts_max, shape.rows * shape.columns) + work.shared * shape.columns;
}

double Estimate::Of(const GangShape& shape) const {
  const double parts = shape.rows * shape.columns;
  double cycles = kTileStart;
  for (size_t l = 0; l < levels_.size(); ++l) {
    const Level& level = levels_[l];
    double work = level.vectors.by_row * parts + level.vectors.shared * shape.columns +
                  level.scalars.by_row * shape.rows + level.scalars.shared;
    const double registers = AtOnce(level.kept, shape, parts) + level.splats.shared + level.splats.by_row * shape.rows +
                             // LLVM's scheduler finishes one part before it begins with the next, but for stores.
                             AtOnce(level.passing, shape, level.stores ? parts : kPartsAtOnce) + 1;
    // What does not fit is stored and loaded each time that it is touched.
    const double touches = std::max(1.0, (level.vectors.by_row + level.vectors.shared) / (4 * OfVector(4)));
    work += 2 * std::max(0.0, registers - unit_.registers) * touches;
    work = std::max(work, level.latency);
    constexpr double kStream = 6, kLine = 4;  // Cycles.
    constexpr uint32_t kLinesMax = 8;  // Their addresses tend to differ by powers of two, and caches have 8 ways.
    work += kStream * level.streams * (shape.rows > 1 ? shape.rows : 0);
    work += kLine * level.crosswise * shape.width() * (shape.width() > kLinesMax ? 3 : 1);
    // The more lanes, the longer the slowest takes.
    work *= level.is_masked && l > 0 ? 1 + 0.1 * std::log2(parts) : 1;
    cycles += work * level.weight;
  }
  return cycles / (parts * shape.lanes);
}

struct Candidate {
  GangShape shape;
  double cycles = 0;
};

bool HasMasks(const GangPlan& plan) {
  return plan.body_is_masked || std::find(plan.is_masked.begin(), plan.is_masked.end(), true) != plan.is_masked.end();
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

// Code grows with a tile's parts; a kernel this large gains little from more. So do compiles with the number of shapes.
constexpr size_t kOpsTimesPartsMax = 12'000;
constexpr size_t kOpsForTwoShapes = 1'000;
constexpr size_t kOpsForOneShape = 3'000;

size_t CountOps(const ir::Function& function) {
  size_t ops = 0;
  ir::ForEachOp(function, [&](OpId) { ++ops; });
  return ops;
}

std::vector<Candidate> Candidates(const ir::Module& module, const VectorUnit& unit, double* scalar) {
  std::vector<Candidate> candidates;
  const std::optional<Uniformity> along_y = AnalyseUniformity(module, Lanes::kAlongY);
  if (!along_y.has_value()) {
    return candidates;
  }
  const size_t ops = CountOps(module.function(module.entry));
  for (bool has_rows : {false, true}) {
    if (has_rows && !UsesY(module)) {
      continue;
    }
    const std::optional<GangPlan> plan = PlanGang(module, {.has_rows = has_rows});
    if (!plan.has_value() || (has_rows && HasMasks(*plan))) {
      continue;
    }
    for (uint32_t lanes : {unit.vector_bytes / 4, unit.vector_bytes / 8, unit.vector_bytes / 16}) {
      const Estimate estimate(module, *plan, unit, std::max(lanes, 2u), along_y->functions[module.entry.index].shapes);
      if (lanes < 2 || (lanes == unit.vector_bytes / 16 && !estimate.has_crosswise())) {
        continue;
      }
      *scalar = estimate.scalar();
      const std::vector<uint32_t> rows = has_rows ? std::vector<uint32_t>{2, 4, 6, 8} : std::vector<uint32_t>{1};
      for (uint32_t row : rows) {
        for (uint32_t columns : {1, 2, 3, 4}) {
          const GangShape shape{lanes, columns, row};
          if (size_t{row} * columns == 1 || ops * row * columns <= kOpsTimesPartsMax) {
            candidates.push_back({shape, estimate.Of(shape)});
          }
        }
      }
    }
  }
  std::stable_sort(candidates.begin(), candidates.end(),
                   [](const Candidate& a, const Candidate& b) { return a.cycles < b.cycles; });
  return candidates;
}

std::string Spelled(const GangShape& shape) {
  return absl::StrFormat("%d lanes x %d columns x %d rows", shape.lanes, shape.columns, shape.rows);
}

}  // namespace

std::vector<GangShape> ChooseShapes(const ir::Module& module, const VectorUnit& unit, KernelReport* report) {
  constexpr double kGiveUp = 1.5;  // A launch measures one instance at a time, too.
  double scalar = 0;
  const std::vector<Candidate> candidates = Candidates(module, unit, &scalar);
  const size_t ops = CountOps(module.function(module.entry));
  const size_t shapes_max = ops > kOpsForOneShape ? 1 : ops > kOpsForTwoShapes ? 2 : kGangShapesMax;
  std::vector<GangShape> shapes;
  auto say = [&](const Candidate& candidate, const char* what) {
    if (report != nullptr) {
      report->Add(KernelRemark::Kind::kTile, 0,
                  absl::StrFormat("Tile of %s%s: about %.3g cycles an instance; one at a time %.3g.",
                                  Spelled(candidate.shape), what, candidate.cycles, scalar));
    }
  };
  if (candidates.empty() || candidates[0].cycles > kGiveUp * scalar) {
    if (!candidates.empty()) {
      say(candidates[0], " is not worth it");
    }
    return shapes;
  }
  // The second and third are to be unlike the first: another number of rows, or twice as wide or narrow.
  auto is_unlike = [&](const GangShape& shape) {
    return std::all_of(shapes.begin(), shapes.end(), [&](const GangShape& other) {
      return shape.rows != other.rows || shape.width() >= 2 * other.width() || 2 * shape.width() <= other.width();
    });
  };
  for (const Candidate& candidate : candidates) {
    const bool is_close = candidate.cycles < 1.6 * candidates[0].cycles;
    // Beside rows always one without: launches may have few.
    const bool lacks_row = shapes.size() + 1 == shapes_max && !shapes.empty() && candidate.shape.rows == 1 &&
                           std::none_of(shapes.begin(), shapes.end(), [](const GangShape& s) { return s.rows == 1; });
    const bool keeps_room = shapes.size() + 1 < shapes_max || shapes.empty() ||
                            std::any_of(shapes.begin(), shapes.end(), [](const GangShape& s) { return s.rows == 1; });
    if (shapes.size() < shapes_max && is_unlike(candidate.shape) && ((is_close && keeps_room) || lacks_row)) {
      shapes.push_back(candidate.shape);
      say(candidate, shapes.size() == 1 ? " (first choice)" : " (to be measured)");
    }
  }
  return shapes;
}

}  // namespace hpvm
