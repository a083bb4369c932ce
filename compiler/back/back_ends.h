// SPDX-License-Identifier: Apache-2.0
// Lists every back end for devices with a driver; no other file names them.
#ifndef HPVMD_COMPILER_BACK_BACK_ENDS_H_
#define HPVMD_COMPILER_BACK_BACK_ENDS_H_

#include <span>
#include <string>

#include "base/status.h"
#include "compiler/back/gpu/back_end.h"

namespace hpvm::gpu {

std::span<const BackEnd* const> BackEnds();
// Returns null when no back end emits code of this kind, or the kind is for processors.
const BackEnd* FindBackEnd(ArtifactKind target);
// Returns the properties of a device that need not be present; the only name known is "h200".
StatusOr<GpuTarget> FindProfile(ArtifactKind target, const std::string& name);

}  // namespace hpvm::gpu

#endif  // HPVMD_COMPILER_BACK_BACK_ENDS_H_
