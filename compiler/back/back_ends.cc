// SPDX-License-Identifier: Apache-2.0
#include "compiler/back/back_ends.h"

#include <algorithm>

#include "compiler/back/opencl/opencl_back.h"
#include "compiler/back/vulkan/vulkan_back.h"

namespace hpvm::gpu {
namespace {

constexpr const BackEnd* kBackEnds[] = {&opencl::kOpenClBack, &vulkan::kVulkanBack};

}  // namespace

std::span<const BackEnd* const> BackEnds() { return kBackEnds; }

const BackEnd* FindBackEnd(ArtifactKind target) {
  const auto* const found = std::ranges::find(kBackEnds, target, &BackEnd::target);
  return found == std::end(kBackEnds) ? nullptr : *found;
}

StatusOr<GpuTarget> FindProfile(ArtifactKind target, const std::string& name) {
  const BackEnd* const back = FindBackEnd(target);
  return back != nullptr && name == "h200"
             ? StatusOr<GpuTarget>(back->h200())
             : InvalidArgument("The compiler knows no device \"" + name + "\"; use \"h200\".");
}

}  // namespace hpvm::gpu
