// SPDX-License-Identifier: Apache-2.0
#include "compiler/back/llvm/variants.h"

#include <algorithm>
#include <map>
#include <optional>
#include <utility>

#include "llvm/IR/Verifier.h"
#include "llvm/Support/raw_ostream.h"

#include "compiler/back/llvm/gang.h"
#include "compiler/pass/find_bounds.h"

namespace hpvm::cpu {
namespace {

using Kind = KernelRemark::Kind;

VectorUnit UnitOf(Machine::Kind kind) {
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

std::string ToString(const GangShape& shape) {
  return std::to_string(shape.lanes) + "x" + std::to_string(shape.columns) + "x" + std::to_string(shape.rows);
}

void Remark(KernelReport* report, uint32_t source, std::string text) {
  if (report != nullptr) {
    report->Add(Kind::kRefused, source, std::move(text));
  }
}

class VariantEmitter {
 public:
  VariantEmitter(ModuleEmitter& m, const VariantChoice& choice, KernelReport* report)
      : m_(m), choice_(choice), report_(report), none_proven_(choice.proven.size(), false) {}
  std::vector<EmittedVariant> Emit();

 private:
  bool HasProof() const { return !choice_.bounds.accesses.empty(); }
  void EmitTile(size_t index);
  void EmitChecked();
  StatusOr<llvm::Function*> Gang(const GangFunction& kind, const std::string& name);
  StatusOr<llvm::Function*> Masked(uint32_t lanes, bool is_unchecked);
  void Leave(const GangShape& shape, const Status& why);

  ModuleEmitter& m_;
  const VariantChoice& choice_;
  KernelReport* report_;
  const std::vector<bool> none_proven_;
  std::map<std::pair<uint32_t, bool>, llvm::Function*> masked_;  // By lanes and whether it is unchecked.
  std::map<std::pair<bool, bool>, std::optional<GangPlan>> plans_;
  std::vector<EmittedVariant> made_;
};

void VariantEmitter::Leave(const GangShape& shape, const Status& why) {
  Remark(report_, 0, "No code for tiles of " + ToString(shape) + ": " + std::string(why.message()));
}

// A gang that failed half-way leaves a function that LLVM would choke on.
void RemoveUnfinished(llvm::Module& module) {
  for (llvm::Function& function : llvm::make_early_inc_range(module)) {
    if (function.getName().starts_with("gang")) {
      function.deleteBody();
      function.eraseFromParent();
    }
  }
}

StatusOr<llvm::Function*> VariantEmitter::Gang(const GangFunction& kind, const std::string& name) {
  const bool has_rows = kind.shape.rows > 1;
  auto [plan, is_new] = plans_.try_emplace({has_rows, kind.is_masked});
  if (is_new) {
    plan->second = PlanGang(m_.source, {.has_rows = has_rows, .assumes_guards = !kind.is_masked});
  }
  if (!plan->second.has_value()) {
    return Unimplemented("What instances have in common did not settle.");
  }
  // One function tells of the kernel; the others would say the same again.
  KernelReport* report = made_.empty() && !kind.is_masked ? report_ : nullptr;
  GangEmitter gang(m_, *plan->second, kind, kind.is_unchecked ? choice_.proven : none_proven_, report);
  StatusOr<llvm::Function*> function = gang.Emit();
  if (!function.ok()) {
    RemoveUnfinished(*m_.module);
    return function.status();
  }
  std::string fault;
  llvm::raw_string_ostream stream(fault);
  if (llvm::verifyFunction(**function, &stream)) {
    RemoveUnfinished(*m_.module);
    return Internal("The back end made malformed LLVM IR: " + fault.substr(0, 1000));
  }
  (*function)->setName(name);
  return function;
}

StatusOr<llvm::Function*> VariantEmitter::Masked(uint32_t lanes, bool is_unchecked) {
  llvm::Function*& function = masked_[{lanes, is_unchecked}];
  if (function == nullptr) {
    const std::string name = "hpvm_masked" + std::to_string(lanes) + (is_unchecked ? "" : "_checked");
    HPVMD_ASSIGN_OR_RETURN(function,
                           Gang({.shape = {.lanes = lanes}, .is_masked = true, .is_unchecked = is_unchecked}, name));
    // Several entries call it, seldom.
    function->addFnAttr(llvm::Attribute::NoInline);
  }
  return function;
}

void VariantEmitter::EmitTile(size_t index) {
  const GangShape& shape = choice_.shapes[index];
  TileEntry tiles;
  tiles.name = "hpvm_tile" + std::to_string(index);
  tiles.shape = shape;
  const std::string whole_name = tiles.name + ".whole";
  StatusOr<llvm::Function*> whole = Gang({.shape = shape, .is_masked = false, .is_unchecked = HasProof()}, whole_name);
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
                     .needs_proof = HasProof()};
  made_.push_back({variant, tiles.name, {whole_name, tiles.masked->getName().str()}, index});
}

// For launches whose proof fails: every gang under a mask, which costs less than the checks do.
void VariantEmitter::EmitChecked() {
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

std::vector<EmittedVariant> VariantEmitter::Emit() {
  for (size_t i = 0; i < choice_.shapes.size(); ++i) {
    EmitTile(i);
  }
  if (!made_.empty() && HasProof()) {
    EmitChecked();
  }
  return std::move(made_);
}

}  // namespace

VariantChoice ChooseVariants(const ir::Module& module, const Machine& machine, const CpuOptions& options,
                             KernelReport* report) {
  VariantChoice choice;
  if (!options.vectorise) {
    return choice;
  }
  choice.proven.resize(module.function(module.entry).ops.size(), false);
  if (module.uses_barrier || module.uses_group_memory) {
    return choice;
  }
  if (const std::optional<GangRefusal> refusal = RefuseGang(module)) {
    Remark(report, refusal->source, refusal->reason);
    return choice;
  }
  choice.shapes = options.shapes.empty() ? ChooseShapes(module, UnitOf(machine.kind), report) : options.shapes;
  if (!choice.shapes.empty()) {
    choice.bounds = FindBounds(module);
    for (const ir::BoundsAccess& access : choice.bounds.accesses) {
      choice.proven[access.op.index] = true;
    }
  }
  return choice;
}

std::vector<EmittedVariant> EmitVariants(ModuleEmitter& m, const VariantChoice& choice, KernelReport* report) {
  return VariantEmitter(m, choice, report).Emit();
}

void ReplaceBySmaller(VariantChoice& choice, const EmittedVariant& variant) {
  std::vector<GangShape>& shapes =
      variant.variant.unit == CpuVariant::Unit::kGroup ? choice.group_shapes : choice.shapes;
  GangShape smaller = shapes[variant.choice];
  if (smaller.rows > 1) {
    smaller.rows /= 2;
  } else {
    smaller.columns /= 2;
  }
  shapes.erase(shapes.begin() + static_cast<ptrdiff_t>(variant.choice));
  if (smaller.columns > 0 && std::find(shapes.begin(), shapes.end(), smaller) == shapes.end()) {
    shapes.insert(shapes.begin() + static_cast<ptrdiff_t>(variant.choice), smaller);
  }
}

}  // namespace hpvm::cpu
