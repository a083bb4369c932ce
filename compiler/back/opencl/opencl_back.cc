// SPDX-License-Identifier: Apache-2.0
#include "compiler/back/opencl/opencl_back.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "base/status.h"
#include "compiler/back/gpu/float_sums.h"
#include "compiler/back/gpu/gpu_plan.h"
#include "compiler/back/opencl/cat.h"
#include "compiler/back/opencl/helpers.h"
#include "compiler/back/opencl/kernel_writer.h"
#include "compiler/back/opencl/literal.h"
#include "compiler/ir/walk.h"

namespace hpvm::opencl {
namespace {

using gpu::Trust;

std::string NameOf(const pass::GpuTile& tile) {
  return Cat("tile_", tile.size[0], "_", tile.size[1], "_", tile.size[2], tile.is_staged ? "_staged" : "");
}

class Emitter {
 public:
  Emitter(const ir::Module& module, const GpuTarget& target, const gpu::GpuOptions& options, Diagnostics& diagnostics)
      : module_(module), target_(target), options_(options), diagnostics_(diagnostics) {}

  std::optional<Artifact> Run() {
    plan_ = gpu::PlanGpu(module_, target_, diagnostics_);
    if (HasErrors(diagnostics_)) {
      return std::nullopt;
    }
    if (options_.report != nullptr) {
      const auto form = [&](const ir::Op& op, bool is_group) {
        return FloatSumIn(module_, op, target_, is_group ? "__local" : "__global", options_.fast_math);
      };
      gpu::ReportFloatSums(module_, plan_, form, gpu::FindSumPartners(module_, plan_, target_, options_.fast_math),
                           *options_.report);
    }
    for (const pass::GpuTile& tile : Tiles()) {
      WriteTile(tile);
    }
    const auto write = [&](const gpu::Form& form, Trust trust, bool has_room) {
      WriteSingle(form, trust, has_room);
      return absl::OkStatus();
    };
    HPVMD_CHECK(gpu::WriteSingles(module_, plan_, target_, options_.report, variants_.size(), write).ok());
    return Finish();
  }

 private:
  std::vector<pass::GpuTile> Tiles() const {
    std::vector<pass::GpuTile> tiles = options_.tiles;
    // Instances of a tile would share a work item's private memory.
    if (tiles.empty() && options_.chooses_tiles && plan_.private_bytes == 0) {
      tiles = pass::ChooseTiles(module_, target_, options_.report);
    }
    tiles.resize(std::min(tiles.size(), gpu::TilesMax(plan_)));
    return tiles;
  }

  KernelOptions Plain(std::string name, Trust trust) const {
    KernelOptions form;
    form.name = std::move(name);
    form.trust = trust;
    form.fast_math = options_.fast_math;
    form.audits_proofs = options_.audits_proofs;
    return form;
  }

  void Remark(std::string text) {
    if (options_.report != nullptr) {
      options_.report->Add(KernelRemark::Kind::kTile, 0, std::move(text));
    }
  }

  void WriteTile(const pass::GpuTile& tile) {
    StatusOr<pass::CoarseModule> coarse = pass::Coarsen(module_, tile);
    if (!coarse.ok()) {
      return Remark("No code is made for " + NameOf(tile) + ": " + Message(coarse.status()));
    }
    Diagnostics faults;
    const gpu::GpuPlan plan = gpu::PlanCoarse(*coarse, plan_, target_, faults);
    if (HasErrors(faults)) {
      return Remark("No code is made for " + NameOf(tile) + ": " + ToString(faults));
    }
    for (const Trust trust : {Trust::kLaunch, Trust::kNothing}) {
      const bool is_unchecked = trust == Trust::kLaunch;
      KernelOptions form = Plain(NameOf(tile) + (is_unchecked ? "" : "_checked"), trust);
      form.suffix = "_" + NameOf(tile);
      form.tile = tile.size;
      form.zeroes_group = !tile.is_staged;
      // Checks would cost more than a staged form gains.
      if (is_unchecked ? HasProofs() : !tile.is_staged) {
        const gpu::Form plain(coarse->module, plan, &*coarse);
        const auto improved = gpu::ImproveLoads(plain, plan_, trust, target_);
        Write(improved ? gpu::Form(*improved) : plain, form, /*uses_alignment=*/true);
      }
    }
  }

  bool HasProofs() const { return !plan_.bounds.accesses.empty(); }

  // Writes a variant; before it one for buffers at multiples of 16 bytes, if that helps some accesses and there is
  // room.
  void WriteSingle(const gpu::Form& plain, Trust trust, bool has_room) {
    const auto improved = gpu::ImproveLoads(plain, plan_, trust, target_);
    const gpu::Form form = improved ? gpu::Form(*improved) : plain;
    if (has_room && form.HasWideAccesses()) {
      Write(form, Plain("aligned", trust), /*uses_alignment=*/true);
    }
    const char* name = trust == Trust::kWords ? "by_words" : trust == Trust::kLaunch ? "unchecked" : "checked";
    Write(form, Plain(name, trust), /*uses_alignment=*/false);
  }

  void Write(const gpu::Form& from, KernelOptions form, bool uses_alignment) {
    form.coarse = from.coarse;
    form.is_aligned = uses_alignment && from.HasWideAccesses();
    GpuVariant variant;
    if (from.coarse != nullptr) {
      variant.needs_alignment = form.is_aligned;
      variant.factors = from.coarse->factors;
      variant.group = from.coarse->group;
    }
    kernels_ += KernelWriter(*from.module, *from.plan, target_, helpers_, form).Run(&variant);
    variants_.push_back(std::move(variant));
  }

  std::string BuildOptions() const {
    std::string text = "-cl-std=CL1.2";
    if (target_.exact_divide) {
      text += " -cl-fp32-correctly-rounded-divide-sqrt";
    }
    return text;
  }

  // Returns the heading, which names the functions that were inlined into the entry.
  std::string Heading() const {
    const ir::Function& entry = module_.function(module_.entry);
    std::vector<bool> has(module_.functions.size());
    has[module_.entry.index] = true;
    ir::ForEachOp(entry, [&](ir::OpId id) {
      if (const uint32_t origin = entry.op(id).origin; origin != 0 && origin <= has.size()) {
        has[origin - 1] = true;
      }
    });
    std::string text = Cat("// ", Identifier(module_.name), ": ", Identifier(entry.name));
    for (size_t i = 0; i < has.size(); ++i) {
      if (has[i] && i != module_.entry.index) {
        Append(text, ", ", Identifier(module_.functions[i].name));
      }
    }
    return text + "\n#pragma OPENCL FP_CONTRACT OFF\n";
  }

  Artifact Finish() {
    Artifact artifact = DescribeModule(module_);
    artifact.kind = ArtifactKind::kOpenCl;
    artifact.fast_math = options_.fast_math;
    artifact.bounds = std::move(plan_.bounds);
    artifact.gpu.format = GpuFormat::kOpenClC;
    artifact.gpu.options = BuildOptions();
    artifact.gpu.variants = std::move(variants_);
    artifact.gpu.private_bytes = plan_.private_bytes;
    const std::string text = Cat(Heading(), helpers_.Text(), kernels_);
    artifact.code.assign(text.begin(), text.end());
    return artifact;
  }

  const ir::Module& module_;
  const GpuTarget& target_;
  const gpu::GpuOptions& options_;
  Diagnostics& diagnostics_;
  gpu::GpuPlan plan_;
  Helpers helpers_;
  std::string kernels_;
  std::vector<GpuVariant> variants_;
};

GpuTarget H200() {
  GpuTarget target = gpu::CommonH200();
  target.buffer_bytes_max = uint64_t{35} << 30;
  target.push_bytes_max = 4352;
  target.api_version = 300;
  target.kernel_il = GpuFormat::kPtx;
  target.ptx_arch = "sm_90";
  return target;
}

}  // namespace

std::optional<Artifact> EmitOpenCl(const ir::Module& module, const GpuTarget& target, const gpu::GpuOptions& options,
                                   Diagnostics& diagnostics) {
  return Emitter(module, target, options, diagnostics).Run();
}

const gpu::BackEnd kOpenClBack = {.target = ArtifactKind::kOpenCl,
                                  .emit = EmitOpenCl,
                                  .h200 = H200,
                                  .probe_name = "kWrapOpenCl",
                                  .probe_version = 120};

}  // namespace hpvm::opencl
