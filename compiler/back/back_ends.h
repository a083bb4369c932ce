// SPDX-License-Identifier: Apache-2.0
// The one place that names every back end for devices with a driver.
#ifndef HPVMD_COMPILER_BACK_BACK_ENDS_H_
#define HPVMD_COMPILER_BACK_BACK_ENDS_H_

#include <span>
#include <string>

#include "base/status.h"
#include "compiler/back/gpu/back_end.h"

namespace hpvm::gpu {

std::span<const BackEnd* const> BackEnds();
// Null: nothing emits code of this kind, or it is for processors.
const BackEnd* FindBackEnd(ArtifactKind target);
// The facts of a device that need not be here: "h200".
StatusOr<GpuTarget> FindProfile(ArtifactKind target, const std::string& name);

}  // namespace hpvm::gpu

#endif  // HPVMD_COMPILER_BACK_BACK_ENDS_H_
