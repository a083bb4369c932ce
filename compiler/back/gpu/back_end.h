// SPDX-License-Identifier: Apache-2.0
// Interface of a back end for one family of devices with a driver. Each back end's folder defines one BackEnd, and
// compiler/back/back_ends.cc lists them.
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
  // Tiles to generate beside the form of one instance per work item, instead of the cost model's choice; for tests.
  std::vector<pass::GpuTile> tiles{};
  bool chooses_tiles = true;           // False: uses `tiles` and no others.
  bool audits_proofs = kAuditsProofs;  // Unchecked variants check, and trap with kWrongProof.
  KernelReport* report = nullptr;      // May be null.
};

struct BackEnd {
  ArtifactKind target;
  // `module` must be verified and have been through RunGpuPipeline. Returns nothing when `diagnostics` has an error.
  std::optional<Artifact> (*emit)(const ir::Module& module, const GpuTarget& target, const GpuOptions& options,
                                  Diagnostics& diagnostics);
  // Returns the target description of an H200, for authors who compile kernels without having the device.
  GpuTarget (*h200)();
  // Name under which the build writes the wrapped-address probe (compiler/back/probe), for devices of this
  // GpuTarget::api_version.
  const char* probe_name;
  uint32_t probe_version;
};

// Returns the H200 properties that NVIDIA's OpenCL and Vulkan drivers, 550 and later, both report.
GpuTarget CommonH200();

}  // namespace hpvm::gpu

#endif  // HPVMD_COMPILER_BACK_GPU_BACK_END_H_
