// SPDX-License-Identifier: Apache-2.0
// A back end for the devices of one family with a driver. Each back end's folder defines one row, and
// compiler/back/back_ends.cc lists the rows.
#ifndef HPVMD_COMPILER_BACK_GPU_BACK_END_H_
#define HPVMD_COMPILER_BACK_GPU_BACK_END_H_

#include <optional>
#include <string_view>
#include <vector>

#include "base/diagnostic.h"
#include "compiler/api/artifact.h"
#include "compiler/api/audit.h"
#include "compiler/api/gpu_target.h"
#include "compiler/api/report.h"
#include "compiler/ir/ir.h"
#include "compiler/pass/tile/coarsen.h"

namespace hpvm::gpu {

struct GpuOptions {
  bool fast_math = false;
  // Tiles to make beside one instance a work item, instead of those that the cost model chooses; for tests.
  std::vector<pass::GpuTile> tiles{};
  bool chooses_tiles = true;           // False: `tiles` and nothing else.
  bool audits_proofs = kAuditsProofs;  // Unchecked variants check, and trap with kWrongProof.
  KernelReport* report = nullptr;      // May be null.
};

struct BackEnd {
  ArtifactKind target;
  // `module` must be verified and have gone through RunGpuPipeline. Nothing when `diagnostics` has an error.
  std::optional<Artifact> (*emit)(const ir::Module& module, const GpuTarget& target, const GpuOptions& options,
                                  Diagnostics& diagnostics);
  // What an H200 is for it, for those who write kernels for one without having it.
  GpuTarget (*h200)();
  // The build writes the probe of wrapped addresses (compiler/back/probe) under this name, for devices of this
  // GpuTarget::api_version.
  const char* probe_name;
  uint32_t probe_version;
};

// What both drivers of NVIDIA, 550 and later, say of an H200.
GpuTarget CommonH200();

}  // namespace hpvm::gpu

#endif  // HPVMD_COMPILER_BACK_GPU_BACK_END_H_
