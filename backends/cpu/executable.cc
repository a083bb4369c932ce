// SPDX-License-Identifier: Apache-2.0
#include "backends/cpu/executable.h"

#include <algorithm>
#include <string>
#include <utility>

#include "base/limits.h"

namespace hpvm::cpu {

ir::Module OutlineOf(const Artifact& artifact) {
  ir::Module outline;
  outline.name = artifact.module_name;
  outline.is_memory64 = artifact.is_memory64;
  outline.memory_bytes = artifact.memory_bytes;
  outline.memory_bytes_max = artifact.memory_bytes_max;
  outline.params = artifact.params;
  outline.uses_barrier = artifact.uses_barrier;
  outline.uses_group_memory = artifact.uses_group_memory;
  outline.has_separate_buffers = artifact.has_separate_buffers;
  outline.functions.resize(artifact.function_names.size());
  for (size_t i = 0; i < artifact.function_names.size(); ++i) {
    outline.functions[i].name = artifact.function_names[i];
  }
  return outline;
}

CpuExecutable::CpuExecutable(Artifact artifact, InitialState initial, Image image, ExecutableOptions options)
    : artifact_(std::move(artifact)),
      outline_(OutlineOf(artifact_)),
      initial_(std::move(initial)),
      image_(std::move(image)),
      options_(std::move(options)),
      variants_(VariantsOf(artifact_, image_.entries())),
      lanes_(initial_, options_.threads),
      classes_(static_cast<uint32_t>(variants_.size()), options_.device),
      proofs_(artifact_) {
  if (variants_.size() == 1) {
    only_class_ = &classes_.ClassOf(1, {1, 1, 1}, {1, 1, 1});
  } else if (options_.variant == kAutoVariant) {
    classes_.Restore(artifact_.tuning);
  }
}

StatusOr<std::unique_ptr<CpuExecutable>> CpuExecutable::Load(Artifact artifact, ExecutableOptions options) {
  if (artifact.params.size() > limits::kKernelParamsMax) {
    return InvalidArgument("Kernel \"" + artifact.entry + "\" has " + std::to_string(artifact.params.size()) +
                           " parameters; the limit is " + std::to_string(limits::kKernelParamsMax) + ".");
  }
  if (artifact.variants.size() > limits::kCpuVariantsMax) {
    return InvalidArgument("Kernel \"" + artifact.entry + "\" has " + std::to_string(artifact.variants.size()) +
                           " variants; the limit is " + std::to_string(limits::kCpuVariantsMax) + ".");
  }
  HPVMD_ASSIGN_OR_RETURN(Image image, Image::Map(artifact));
  HPVMD_ASSIGN_OR_RETURN(InitialState initial, InitialState::From(artifact));
  artifact.code = {};
  if (artifact.formats.empty()) {
    artifact.data = {};  // Otherwise the data holds the strings printed by %s.
  }
  artifact.state = {};
  return std::unique_ptr<CpuExecutable>(
      new CpuExecutable(std::move(artifact), std::move(initial), std::move(image), std::move(options)));
}

StatusOr<std::unique_ptr<GroupRunner>> CpuExecutable::TakeGroupRunner() {
  {
    std::lock_guard lock(mutex_);
    if (!group_runners_.empty()) {
      std::unique_ptr<GroupRunner> runner = std::move(group_runners_.back());
      group_runners_.pop_back();
      return runner;
    }
  }
  return GroupRunner::Create(lanes_, artifact_.uses_barrier);
}

void CpuExecutable::GiveGroupRunner(std::unique_ptr<GroupRunner> runner) {
  std::lock_guard lock(mutex_);
  group_runners_.push_back(std::move(runner));
}

backends::VariantMask CpuExecutable::ForcedVariant(const backends::Extent& group, bool is_proven) const {
  const size_t last = variants_.size() - 1;
  const size_t wanted = std::min<size_t>(options_.variant, last);
  return backends::VariantMask{1} << (MayRun(variants_[wanted], is_proven, group) ? wanted : last);
}

backends::LaunchClass& CpuExecutable::ClassOfOneOfMany(const CpuLaunch& launch) {
  CpuProofs::Launch facts{launch.extent, launch.group, launch.arguments};
  backends::Extent size = launch.extent;
  if (!launch.is_whole) {
    for (size_t d = 0; d < 3; ++d) {
      facts.count[d] = size[d] = launch.part.to[d] - launch.part.from[d];
    }
  }
  if (backends::LaunchClass* known = proofs_.Find(facts)) {
    return *known;
  }
  const bool is_proven = proofs_.Prove(facts);
  const backends::VariantMask mask = options_.variant == kAutoVariant
                                         ? AllowedVariants(variants_, is_proven, size, launch.group)
                                         : ForcedVariant(launch.group, is_proven);
  backends::LaunchClass& found = classes_.ClassOf(mask, size, launch.group);
  proofs_.Remember(facts, &found);
  return found;
}

void CpuExecutable::KeepTuning() {
  if (options_.tuning != nullptr && options_.variant == kAutoVariant && artifact_.name != Sha256{}) {
    options_.tuning->Keep(artifact_.name, classes_.Record());
  }
}

}  // namespace hpvm::cpu
