// SPDX-License-Identifier: Apache-2.0
// Copies a kernel, or a coarse form of one, into a form that does the same accesses another way, for passes that change
// loads. Internal to this folder.
#ifndef HPVMD_COMPILER_PASS_TILE_FORM_COPIER_H_
#define HPVMD_COMPILER_PASS_TILE_FORM_COPIER_H_

#include <array>
#include <cstdint>
#include <utility>
#include <vector>

#include "compiler/ir/spelling.h"
#include "compiler/pass/memory/copy_function.h"
#include "compiler/pass/tile/coarsen.h"

namespace hpvm {

class FormCopier : public FunctionCopier {
 protected:
  // `coarse`, which may be null, is what `module` is the module of; both are borrowed.
  FormCopier(const ir::Module& module, const CoarseModule* coarse)
      : FunctionCopier(module.function(module.entry)), module_(module), coarse_(coarse) {}

  // Copies the whole, once. The form asks of a launch what `coarse` asks.
  CoarseModule Copy() {
    CopyAll();
    CoarseModule form;
    if (coarse_ != nullptr) {
      form.needs_alignment = coarse_->needs_alignment;
      form.factors = coarse_->factors;
      form.group = coarse_->group;
    }
    original_.resize(to_.ops.size());
    place_.resize(to_.ops.size());
    form.original = std::move(original_);
    form.place = std::move(place_);
    form.module = module_;
    form.module.function(module_.entry) = std::move(to_);
    return form;
  }

  void CopyOp(ir::OpId id) override {
    FunctionCopier::CopyOp(id);
    if (!ir::OwnsRegions(f_.op(id).code)) {
      NoteOriginal(ir::OpId(static_cast<uint32_t>(to_.ops.size() - 1)), id);
    }
  }
  // `made`, of the copy, does the access of `id`.
  void NoteOriginal(ir::OpId made, ir::OpId id) {
    original_.resize(to_.ops.size());
    place_.resize(to_.ops.size());
    original_[made.index] = coarse_ != nullptr ? coarse_->original[id.index] : id;
    place_[made.index] = coarse_ != nullptr ? coarse_->place[id.index] : std::array<uint8_t, 2>{};
  }

 private:
  const ir::Module& module_;
  const CoarseModule* coarse_;
  std::vector<ir::OpId> original_;             // By new OpId.
  std::vector<std::array<uint8_t, 2>> place_;  // By new OpId.
};

}  // namespace hpvm

#endif  // HPVMD_COMPILER_PASS_TILE_FORM_COPIER_H_
