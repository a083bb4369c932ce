// SPDX-License-Identifier: Apache-2.0
#include "compiler/back/llvm/variants.h"

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <utility>

#include "llvm/IR/Verifier.h"
#include "llvm/Support/raw_ostream.h"

#include "compiler/analysis/before_effects.h"
#include "compiler/back/llvm/gang/gang.h"
#include "compiler/back/llvm/group.h"
#include "compiler/ir/walk.h"
#include "compiler/pass/find_bounds.h"
#include "compiler/pass/gang/turn_axes.h"

namespace hpvm::cpu {
namespace {

using Kind = KernelRemark::Kind;

pass::VectorUnit UnitOf(Machine::Kind kind) {
  switch (kind) {
    case Machine::Kind::kX86V4:
      return {.vector_bytes = 64, .registers = 32};
    case Machine::Kind::kX86V3:
      return {.vector_bytes = 32, .registers = 16};
    case Machine::Kind::kX86V2:
      return {.vector_bytes = 16, .registers = 16};
    case Machine::Kind::kAarch64:
      return {.vector_bytes = 16, .registers = 32};
  }
  return {};
}

std::string ToString(const pass::GangShape& shape) {
  return std::to_string(shape.lanes) + "x" + std::to_string(shape.columns) + "x" + std::to_string(shape.rows);
}

void Remark(KernelReport* report, uint32_t source, std::string text) {
  if (report != nullptr) {
    report->Add(Kind::kRefused, source, std::move(text));
  }
}

// A gang that failed half-way leaves an incomplete function that LLVM cannot handle.
void RemoveUnfinished(llvm::Module& module) {
  for (llvm::Function& function : llvm::make_early_inc_range(module)) {
    if (function.getName().starts_with("gang")) {
      function.deleteBody();
      function.eraseFromParent();
    }
  }
}

// Emits a function for whole tiles, or for partial ones.
StatusOr<llvm::Function*> EmitGang(ModuleEmitter& m, const pass::GangPlan& plan, const GangFunction& kind,
                                   const std::vector<bool>& proven, KernelReport* report, const std::string& name) {
  StatusOr<llvm::Function*> function = GangEmitter(m, plan, kind, proven, report).Emit();
  if (!function.ok()) {
    RemoveUnfinished(*m.module);
    return function.status();
  }
  std::string fault;
  llvm::raw_string_ostream stream(fault);
  if (llvm::verifyFunction(**function, &stream)) {
    RemoveUnfinished(*m.module);
    return Internal("The back end made malformed LLVM IR: " + fault.substr(0, 1000));
  }
  (*function)->setName(name);
  return function;
}

class VariantEmitter {
 public:
  VariantEmitter(ModuleEmitter& m, const VariantChoice& choice, KernelReport* report)
      : m_(m),
        choice_(choice),
        report_(report),
        none_proven_(choice.proven.size(), false),
        before_effects_(analysis::FindBeforeEffects(m.source)) {}
  std::vector<EmittedVariant> Emit() {
    for (size_t i = 0; i < choice_.group_shapes.size() && EmitGroup(i, HasProof()); ++i) {
    }
    if (!choice_.group_shapes.empty()) {
      if (!made_.empty() && HasProof()) {
        EmitGroup(made_.front().choice, false);
      }
      return std::move(made_);
    }
    size_t before_instances = 0;
    for (size_t i = 0; i < choice_.shapes.size(); ++i) {
      EmitTile(choice_.shapes[i], i, /*assumes_edges=*/true);
      before_instances = i < choice_.before_instances ? made_.size() : before_instances;
    }
    if (!made_.empty() && choice_.without_edges.has_value()) {
      EmitTile(*choice_.without_edges, made_.front().choice, /*assumes_edges=*/false);
    }
    if (!made_.empty() && HasProof()) {
      EmitChecked();
    }
    if (!made_.empty() && choice_.has_along_y) {
      EmitAlongY();
    }
    if (choice_.has_unchecked_instances) {
      if (const Status status = EmitUncheckedInstances(); !status.ok()) {
        Leave({.lanes = 1}, status);
      } else {
        std::rotate(made_.begin() + static_cast<ptrdiff_t>(before_instances), made_.end() - 1, made_.end());
      }
    }
    return std::move(made_);
  }

 private:
  bool HasProof() const { return !choice_.bounds.accesses.empty(); }
  void EmitTile(const pass::GangShape& shape, size_t index, bool assumes_edges) {
    TileEntry tiles;
    tiles.name = assumes_edges ? "hpvm_tile" + std::to_string(index) : "hpvm_plain";
    tiles.shape = shape;
    const std::string whole_name = tiles.name + ".whole";
    StatusOr<llvm::Function*> whole = Gang(
        {.shape = shape, .is_masked = false, .is_unchecked = HasProof(), .gives_up = true}, assumes_edges, whole_name);
    if (!whole.ok()) {
      return Leave(shape, whole.status());
    }
    tiles.whole = *whole;
    StatusOr<llvm::Function*> masked = Masked(shape.lanes, HasProof());
    if (!masked.ok()) {
      return Leave(shape, masked.status());
    }
    tiles.masked = *masked;
    EmitTileEntry(m_, tiles);
    CpuVariant variant{.unit = CpuVariant::Unit::kTile,
                       .lanes = shape.lanes,
                       .columns = shape.columns,
                       .rows = shape.rows,
                       .is_for_edges = !assumes_edges,
                       .needs_proof = HasProof()};
    made_.push_back({variant,
                     tiles.name,
                     {whole_name, tiles.masked->getName().str()},
                     index,
                     assumes_edges ? EmittedVariant::From::kShape : EmittedVariant::From::kWithoutEdges});
  }
  // Emits the variant for launches whose proof fails: every gang runs under a mask, which costs less than the checks
  // do.
  void EmitChecked() {
    const size_t index = made_.front().choice;
    TileEntry tiles;
    tiles.name = "hpvm_checked";
    tiles.shape = {.lanes = choice_.shapes[index].lanes};
    StatusOr<llvm::Function*> masked = Masked(tiles.shape.lanes, false);
    if (!masked.ok()) {
      return Leave(tiles.shape, masked.status());
    }
    tiles.masked = *masked;
    EmitTileEntry(m_, tiles);
    CpuVariant variant{.unit = CpuVariant::Unit::kTile, .lanes = tiles.shape.lanes};
    made_.push_back({variant, tiles.name, {tiles.masked->getName().str()}, index});
  }
  // Emits the variant for launches that are narrow along x; every gang runs under a mask, so that it costs one
  // function.
  void EmitAlongY() {
    const std::optional<ir::Module> turned = pass::TurnAxes(m_.source);
    if (!turned.has_value()) {
      return;
    }
    TileEntry tiles;
    tiles.name = "hpvm_along_y";
    tiles.shape = {.lanes = choice_.shapes.front().lanes};
    tiles.is_along_y = true;
    ModuleEmitter along_y(*turned, m_.machine);
    along_y.ExchangeCode(m_);
    const StatusOr<llvm::Function*> masked = Turned(along_y, tiles.shape, tiles.name + ".masked");
    if (masked.ok()) {
      tiles.masked = *masked;
      EmitTileEntry(along_y, tiles);
      CpuVariant variant{.unit = CpuVariant::Unit::kTile, .lanes = tiles.shape.lanes};
      variant.is_along_y = true;
      variant.needs_proof = HasProof();
      made_.push_back({variant, tiles.name, {tiles.name + ".masked"}, 0, EmittedVariant::From::kAlongY});
    }
    m_.ExchangeCode(along_y);
    if (!masked.ok()) {
      Remark(report_, 0, "No code is made for tiles along y: " + std::string(masked.status().message()));
    }
  }
  StatusOr<llvm::Function*> Turned(ModuleEmitter& along_y, const pass::GangShape& shape, const std::string& name) {
    const std::optional<pass::GangPlan> plan = pass::PlanGang(along_y.source, {.assumes_guards = false});
    if (!plan.has_value()) {
      return Unimplemented("The analysis of which values instances share did not converge.");
    }
    const GangFunction kind{.shape = shape, .is_masked = true, .is_unchecked = HasProof()};
    return EmitGang(along_y, *plan, kind, HasProof() ? choice_.proven : none_proven_, nullptr, name);
  }
  // Returns true if it succeeded.
  bool EmitGroup(size_t index, bool is_unchecked) {
    const pass::GangShape& shape = choice_.group_shapes[index];
    GroupEntry group{"hpvm_group" + std::to_string(index) + (is_unchecked ? "" : "_checked"), shape, is_unchecked,
                     &choice_.proven};
    const StatusOr<GroupCode> code = EmitGroupEntry(m_, group, made_.empty() ? report_ : nullptr);
    if (!code.ok()) {
      Remark(report_, 0,
             "No code is made for groups by " + std::to_string(shape.lanes) +
                 " instances: " + std::string(code.status().message()));
      return false;
    }
    CpuVariant variant{.unit = CpuVariant::Unit::kGroup, .lanes = shape.lanes, .needs_proof = is_unchecked};
    variant.value_bytes = code->value_bytes;
    made_.push_back({variant, group.name, code->functions, index});
    return true;
  }
  // Emits tiles of one instance, which are numbered as instances are. Kernels that gather most of their loads run
  // fastest this way.
  Status EmitUncheckedInstances() {
    const std::string name = "hpvm_unchecked";
    const uint32_t entry = m_.source.entry.index;
    llvm::Function* instance = m_.Declare(m_.source.functions[entry].type, name + ".instance");
    HPVMD_RETURN_IF_ERROR(FunctionEmitter(m_, entry, instance, &choice_.proven, &before_effects_).Emit());
    EmitEntry(m_, name, instance, m_.functions[entry]);
    made_.push_back({{.unit = CpuVariant::Unit::kTile, .needs_proof = true},
                     name,
                     {name + ".instance"},
                     0,
                     EmittedVariant::From::kInstances});
    return absl::OkStatus();
  }
  StatusOr<llvm::Function*> Gang(const GangFunction& kind, bool assumes_edges, const std::string& name) {
    const bool has_rows = kind.shape.rows > 1;
    auto [plan, is_new] = plans_.try_emplace({has_rows, kind.is_masked, assumes_edges});
    if (is_new) {
      plan->second = pass::PlanGang(
          m_.source, {.has_rows = has_rows, .assumes_guards = !kind.is_masked, .assumes_edges = assumes_edges});
    }
    if (!plan->second.has_value()) {
      return Unimplemented("The analysis of which values instances share did not converge.");
    }
    // Only one function reports on the kernel, because the others would repeat the remarks.
    KernelReport* report = made_.empty() && !kind.is_masked ? report_ : nullptr;
    return EmitGang(m_, *plan->second, kind, kind.is_unchecked ? choice_.proven : none_proven_, report, name);
  }
  StatusOr<llvm::Function*> Masked(uint32_t lanes, bool is_unchecked) {
    llvm::Function*& function = masked_[{lanes, is_unchecked}];
    if (function == nullptr) {
      const std::string name = "hpvm_masked" + std::to_string(lanes) + (is_unchecked ? "" : "_checked");
      HPVMD_ASSIGN_OR_RETURN(function,
                             Gang({.shape = {.lanes = lanes}, .is_masked = true, .is_unchecked = is_unchecked},
                                  /*assumes_edges=*/false, name));
      // Several entries call it, rarely.
      function->addFnAttr(llvm::Attribute::NoInline);
    }
    return function;
  }
  void Leave(const pass::GangShape& shape, const Status& why) {
    Remark(report_, 0, "No code is made for tiles of " + ToString(shape) + ": " + std::string(why.message()));
  }

  ModuleEmitter& m_;
  const VariantChoice& choice_;
  KernelReport* report_;
  const std::vector<bool> none_proven_;
  const std::vector<bool> before_effects_;
  std::map<std::pair<uint32_t, bool>, llvm::Function*> masked_;  // Keyed by lanes and is_unchecked.
  // Keyed by has_rows, is_masked, and the assumption that tiles meet no edge.
  std::map<std::array<bool, 3>, std::optional<pass::GangPlan>> plans_;
  std::vector<EmittedVariant> made_;
};

// Returns shapes with vectors of whole 32-bit values, and half as many lanes for narrow groups, which are common in
// two dimensions.
std::vector<pass::GangShape> GroupShapes(const ir::Module& module, const pass::VectorUnit& unit) {
  const ir::Function& entry = module.function(module.entry);
  bool has_rows = false;
  std::vector<bool> is_one(entry.values.size(), false);  // Definitions come before uses.
  ir::ForEachOp(entry, [&](ir::OpId id) {
    const ir::Op& op = entry.op(id);
    if (op.code == ir::Opcode::kConst) {
      is_one[op.first_result.index] = op.imm == 1;
    } else if (op.code == ir::Opcode::kInstanceId || op.code == ir::Opcode::kLocalId) {
      has_rows = has_rows || is_one[entry.operands_of(op)[0].index];
    }
  });
  const uint32_t lanes = unit.vector_bytes / 4;
  constexpr uint32_t kRows = 4;
  if (!has_rows) {
    return {{.lanes = lanes}};
  }
  return {{.lanes = lanes, .rows = kRows}, {.lanes = lanes / 2, .rows = kRows}};
}

// Limits on operations times vectors per operation: LLVM takes some 50 us for each. Up to the first limit shapes other
// than the best are worth trying; above the second even one shape would take more than a second.
constexpr uint64_t kWorkForChoice = 4'000;
constexpr uint64_t kWorkMax = 20'000;

// Minimum of accesses for a kernel without loops: with fewer an instance ends before checks matter.
constexpr size_t kAccessesThatCount = 16;

bool HasLoop(const ir::Module& module) {
  const ir::Function& entry = module.function(module.entry);
  bool found = false;
  ir::ForEachOp(entry, [&](ir::OpId id) { found = found || entry.op(id).code == ir::Opcode::kLoop; });
  return found;
}

uint64_t WorkOf(uint64_t ops, const pass::GangShape& shape, const pass::VectorUnit& unit) {
  const uint64_t vectors = std::max<uint64_t>(uint64_t{shape.lanes} * 4 / unit.vector_bytes, 1);
  return ops * vectors * (uint64_t{shape.columns} * shape.rows + 2);  // Plus a masked gang, checked and unchecked.
}

// Drops shapes that would take LLVM too long; of `asked` shapes only those above kWorkMax.
void LimitWork(const ir::Module& module, const pass::VectorUnit& unit, bool asked, std::vector<pass::GangShape>& shapes,
               KernelReport* report) {
  uint64_t ops = 0, work = 0;
  ir::ForEachOp(module.function(module.entry), [&](ir::OpId) { ++ops; });
  std::vector<pass::GangShape> kept;
  for (const pass::GangShape& shape : shapes) {
    work += WorkOf(ops, shape, unit);
    const uint64_t limit = asked || kept.empty() ? kWorkMax : kWorkForChoice;
    if (work > limit) {
      Remark(report, 0,
             "No code is made for tiles of " + ToString(shape) + ": compiling " + std::to_string(ops) +
                 " operations for them would take too long.");
      work -= WorkOf(ops, shape, unit);
      continue;
    }
    kept.push_back(shape);
  }
  shapes = std::move(kept);
}

}  // namespace

VariantChoice ChooseVariants(const ir::Module& module, const Machine& machine, const CpuOptions& options,
                             KernelReport* report) {
  VariantChoice choice;
  if (!options.vectorise) {
    return choice;
  }
  const bool has_groups = module.uses_barrier || module.uses_group_memory;
  choice.proven.resize(module.function(module.entry).ops.size(), false);
  if (const std::optional<pass::GangRefusal> refusal = pass::RefuseGang(module)) {
    Remark(report, refusal->source, refusal->reason);
  } else if (has_groups) {
    choice.group_shapes = options.shapes.empty() ? GroupShapes(module, UnitOf(machine.kind)) : options.shapes;
    for (pass::GangShape& shape : choice.group_shapes) {
      shape.columns = 1;
    }
  } else {
    pass::ShapeChoice chosen{.shapes = options.shapes, .before_scalar = options.shapes.size()};
    if (options.shapes.empty()) {
      chosen = pass::ChooseShapes(module, UnitOf(machine.kind), report);
    } else {
      chosen.without_edges = options.shapes.front();
    }
    choice.shapes = std::move(chosen.shapes);
    choice.before_instances = chosen.before_scalar;
    choice.without_edges = chosen.without_edges;
  }
  LimitWork(module, UnitOf(machine.kind), !options.shapes.empty(), choice.shapes, report);
  if (choice.without_edges.has_value()) {
    std::vector<pass::GangShape> plain = {*choice.without_edges};
    LimitWork(module, UnitOf(machine.kind), !options.shapes.empty(), plain, report);
    choice.without_edges = plain.empty() ? std::nullopt : std::optional(plain[0]);
  }
  LimitWork(module, UnitOf(machine.kind), !options.shapes.empty(), choice.group_shapes, report);
  if (!has_groups || !choice.group_shapes.empty()) {
    choice.bounds = pass::FindBounds(module);
    for (const ir::BoundsAccess& access : choice.bounds.accesses) {
      choice.proven[access.op.index] = true;
    }
  }
  const bool is_long =
      HasLoop(module) || (choice.shapes.empty() && choice.bounds.accesses.size() >= kAccessesThatCount);
  const bool is_first = !choice.shapes.empty() && choice.before_instances == 0;
  choice.has_unchecked_instances = !has_groups && !choice.bounds.accesses.empty() && (is_long || is_first);
  return choice;
}

std::vector<EmittedVariant> EmitVariants(ModuleEmitter& m, const VariantChoice& choice, KernelReport* report) {
  return VariantEmitter(m, choice, report).Emit();
}

void ReplaceBySmaller(VariantChoice& choice, const EmittedVariant& variant) {
  switch (variant.from) {
    case EmittedVariant::From::kInstances:
      choice.has_unchecked_instances = false;
      return;
    case EmittedVariant::From::kWithoutEdges:
      choice.without_edges.reset();
      return;
    case EmittedVariant::From::kAlongY:
      choice.has_along_y = false;
      return;
    case EmittedVariant::From::kShape:
      break;
  }
  std::vector<pass::GangShape>& shapes =
      variant.variant.unit == CpuVariant::Unit::kGroup ? choice.group_shapes : choice.shapes;
  pass::GangShape smaller = shapes[variant.choice];
  if (smaller.rows > 1) {
    smaller.rows /= 2;
  } else {
    smaller.columns /= 2;
  }
  shapes.erase(shapes.begin() + static_cast<ptrdiff_t>(variant.choice));
  if (smaller.columns > 0 && std::ranges::find(shapes, smaller) == shapes.end()) {
    shapes.insert(shapes.begin() + static_cast<ptrdiff_t>(variant.choice), smaller);
  }
}

}  // namespace hpvm::cpu
