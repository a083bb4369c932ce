// SPDX-License-Identifier: Apache-2.0
// The estimate sums cycles over the levels of a kernel (its body and loops), weighted by assumed trip counts. Work is
// counted per tile, row or part; registers that values occupy beyond the processor's number, and latencies of
// loop-carried values, are added.
#include "compiler/pass/gang/gang_cost.h"

#include <cmath>

#include "compiler/ir/walk.h"

namespace hpvm::pass {
namespace {

constexpr double kTrips = 32;           // Assumed trip count of a loop.
constexpr double kWeightMax = 1 << 15;  // Three nested loops.
constexpr double kScalarOp = 0.3;       // Scalar code of one instance, and scalars of a tile.
constexpr double kPartsAtOnce = 3;      // Number of parts that overlap, so that none waits.
constexpr double kTileStart = 12;       // Fixed cost of a tile.

// --- Costs of operations.

// Cycles of an arithmetic operation on a whole register, and on one scalar.
struct Cycles {
  double vector = 1, scalar = kScalarOp;  // `vector` is in units of a simple operation.
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

// Returns the distance in bytes from one lane's access to the next, for a linear address.
int64_t StepOf(const ir::Module& module, const Layout& layout) {
  return ir::SignedBits(module.address_type(), layout.step);
}

}  // namespace

GangEstimate::GangEstimate(const ir::Module& module, const GangPlan& plan, const VectorUnit& unit, uint32_t lanes,
                           const std::vector<analysis::Shape>& along_y)
    : module_(module),
      plan_(plan),
      unit_(unit),
      lanes_(lanes),
      f_(module.function(module.entry)),
      along_y_(along_y),
      records_(FindRecords(module, plan)),
      defined_in_(f_.values.size()) {
  levels_.emplace_back();
  levels_[0].region = f_.body;
  levels_[0].is_masked = plan.body_is_masked;
  Walk(f_.body, 0);
  FindPassing();
  FindLatencies();
}

double GangEstimate::Registers(ValueId id) const {
  return std::max(1.0, double(lanes_) * ir::Bytes(f_.type_of(id)) / unit_.vector_bytes);
}

void GangEstimate::Walk(RegionId region, size_t level) {
  for (OpId id : f_.region(region).ops) {
    order_.emplace_back(id, level);
    Visit(id, level);
  }
}

void GangEstimate::AddMemory(OpId id, const Op& op, GangLevel& level) {
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
  if (op.space == ir::Space::kStack) {  // A vector per word; indices that differ by lane are gathered.
    const double whole = OfVector(std::max<uint32_t>(op.width, 4)) * (op.width < 4 ? 3 : 1);
    const double apart = 4 + lanes_ * (is_store ? 1.5 : 1.2);
    level.vectors.Add(true, address.kind == Layout::Kind::kUniform ? whole : apart * std::max(1.0, op.width / 8.0));
    return;
  }
  if (address.kind == Layout::Kind::kUniform && !is_store) {
    level.scalars.Add(by_row, 0.5);
    return;
  }
  const int64_t step = std::abs(StepOf(module_, address));
  const bool is_quad = op.code == Opcode::kLoad128 || op.code == Opcode::kStore128;
  const double shuffles = is_quad ? 3 * OfVector(op.width) : 0;
  const double whole = OfVector(std::max<uint32_t>(op.width, 4)) * (is_store ? 4 : 2) + shuffles;
  if (const int32_t record = records_.of[id.index]; record >= 0) {  // A vector, and the shuffles for one.
    level.vectors.Add(by_row, OfVector(op.width) * (records_.records[static_cast<size_t>(record)].stride > 4 ? 6 : 3));
    return;
  }
  const analysis::Shape& y = along_y_[f_.operands_of(op)[0].index];
  if (address.kind == Layout::Kind::kVarying && y.kind == analysis::Shape::Kind::kLinear && y.step[1] == op.width) {
    ++level.crosswise;
  }
  level.streams += address.kind == Layout::Kind::kLinear && by_row ? 1 : 0;
  if (address.kind == Layout::Kind::kLinear && step <= op.width) {
    level.vectors.Add(by_row, step == op.width ? whole : lanes_ * 1.0);
  } else if (address.kind == Layout::Kind::kLinear && step <= 4 * op.width) {
    level.vectors.Add(by_row, whole * double(step) / op.width + 2);
  } else if (address.kind == Layout::Kind::kUniform) {
    level.vectors.Add(by_row, 2);
  } else {
    const double apart = (4 + lanes_ * (is_store ? 1.5 : 1.2)) * (is_quad ? 4 : 1);
    level.vectors.Add(by_row, apart);
    if (y.kind == analysis::Shape::Kind::kLinear && y.step[1] == op.width && (op.width == 4 || op.width == 8)) {
      level.transposed += std::max(0.0, apart - whole - 3 * OfVector(op.width));  // Shuffles.
    }
  }
}

void GangEstimate::AddArith(const Op& op, GangLevel& level) {
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

// Values defined outside of a loop occupy their registers as long as the loop runs.
void GangEstimate::NoteUses(const Op& op, size_t level) {
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

void GangEstimate::Visit(OpId id, size_t level) {
  const Op& op = f_.op(id);
  NoteUses(op, level);
  for (uint32_t i = 0; i < op.result_count; ++i) {
    defined_in_[op.first_result.index + i] = level;
  }
  switch (op.code) {
    case Opcode::kLoop: {
      GangLevel inner;
      inner.parent = level;
      inner.region = op.body;
      inner.is_masked = plan_.is_masked[id.index];
      inner.weight = std::min(kWeightMax, levels_[level].weight * kTrips);
      const ir::Region& body = f_.region(op.body);
      for (const ValueId param : ir::ParamsOf(body)) {
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
      return op.operand_count > 0 ? AddMemory(id, op, levels_[level]) : void();
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

// Finds the maximum number of registers for values of an iteration that are alive at a time, walking backwards from
// their uses.
void GangEstimate::FindPassing() {
  std::vector<bool> is_alive(f_.values.size());
  std::vector<GangWork> now(levels_.size());
  for (auto at = order_.rbegin(); at != order_.rend(); ++at) {
    const Op& op = f_.op(at->first);
    const size_t level = at->second;
    for (const ValueId id : ir::ResultsOf(op)) {
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
    GangWork& most = levels_[level].passing;
    if (now[level].shared + now[level].by_row > most.shared + most.by_row) {
      most = now[level];
    }
  }
}

// Returns the time from a loop's parameter to its next value.
double GangEstimate::Latency(std::span<const OpId> ops, ValueId param) {
  std::vector<double> since(f_.values.size(), -1);
  since[param.index] = 0;
  double latency = 0;
  auto reach = [&](ValueId id, double time) { since[id.index] = std::max(since[id.index], time); };
  for (OpId id : ops) {
    const Op& op = f_.op(id);
    ir::ForEachBrought(f_, op, [&](ValueId slot, ValueId value) {
      if (slot == param) {
        latency = std::max(latency, since[value.index]);
      } else {
        reach(slot, since[value.index]);
      }
    });
    double time = -1;
    for (ValueId operand : f_.operands_of(op)) {
      time = std::max(time, since[operand.index]);
    }
    if (time < 0) {
      continue;
    }
    const bool is_memory = (ir::Info(op.code).effects & ir::kReads) != 0;
    for (uint32_t i = 0; i < op.result_count && op.code != Opcode::kIf; ++i) {
      reach(ValueId(op.first_result.index + i), time + (is_memory ? 15 : CyclesOf(op).latency));
    }
  }
  return latency;
}

void GangEstimate::FindLatencies() {
  constexpr size_t kLooksMax = 200'000;  // Limit of visited values; larger loops have enough other work anyway.
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
    for (const ValueId param : ir::ParamsOf(region)) {
      looks += f_.values.size() + ops.size();
      if (looks > kLooksMax) {
        return;
      }
      if (Varies(param)) {
        levels_[l].latency = std::max(levels_[l].latency, Latency(ops, param));
      }
    }
  }
}

// --- Shapes.

// Counts work of at most `parts_max` parts at a time, but of all columns for values that rows share.
double GangEstimate::AtOnce(const GangWork& work, const GangShape& shape, double parts_max) const {
  return work.by_row * std::min<double>(parts_max, shape.rows * shape.columns) + work.shared * shape.columns;
}

double GangEstimate::Of(const GangShape& shape) const {
  const double parts = shape.rows * shape.columns;
  double cycles = kTileStart;
  for (size_t l = 0; l < levels_.size(); ++l) {
    const GangLevel& level = levels_[l];
    double work = level.vectors.by_row * parts + level.vectors.shared * shape.columns +
                  level.scalars.by_row * shape.rows + level.scalars.shared;
    work -= shape.rows % 4 == 0 ? level.transposed * parts : 0;
    const double registers = AtOnce(level.kept, shape, parts) + level.splats.shared + level.splats.by_row * shape.rows +
                             // LLVM's scheduler finishes one part before the next, except in code with stores.
                             AtOnce(level.passing, shape, level.stores ? parts : kPartsAtOnce) + 1;
    // Values that do not fit into registers are stored and loaded each time they are used.
    const double touches = std::max(1.0, (level.vectors.by_row + level.vectors.shared) / (4 * OfVector(4)));
    work += 2 * std::max(0.0, registers - unit_.registers) * touches;
    work = std::max(work, level.latency);
    constexpr double kStream = 6, kLine = 4;  // Cycles.
    constexpr uint32_t kLinesMax = 8;  // The lines' addresses tend to differ by powers of two, and caches have 8 ways.
    work += kStream * level.streams * (shape.rows > 1 ? shape.rows : 0);
    work += kLine * level.crosswise * shape.width() * (shape.width() > kLinesMax ? 1.4 : 1);
    // The more lanes, the longer the slowest one takes.
    work *= level.is_masked && l > 0 ? 1 + 0.1 * std::log2(parts) : 1;
    cycles += work * level.weight;
  }
  return cycles / (parts * shape.lanes);
}

}  // namespace hpvm::pass
