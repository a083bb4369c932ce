// SPDX-License-Identifier: Apache-2.0
#include "backends/cpu/executable.h"

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

CpuExecutable::CpuExecutable(Artifact artifact, InitialState initial, Image image)
    : artifact_(std::move(artifact)),
      outline_(OutlineOf(artifact_)),
      initial_(std::move(initial)),
      image_(std::move(image)),
      lanes_(initial_) {}

StatusOr<std::unique_ptr<CpuExecutable>> CpuExecutable::Load(Artifact artifact) {
  if (artifact.params.size() > limits::kKernelParamsMax) {
    return InvalidArgument("Kernel \"" + artifact.entry + "\" has " + std::to_string(artifact.params.size()) +
                           " parameters; the limit is " + std::to_string(limits::kKernelParamsMax) + ".");
  }
  HPVMD_ASSIGN_OR_RETURN(Image image, Image::Map(artifact));
  HPVMD_ASSIGN_OR_RETURN(InitialState initial, InitialState::From(artifact));
  artifact.code = {};
  if (artifact.formats.empty()) {
    artifact.data = {};  // Else it holds what %s prints.
  }
  artifact.state = {};
  return std::unique_ptr<CpuExecutable>(
      new CpuExecutable(std::move(artifact), std::move(initial), std::move(image)));
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

void CpuExecutable::Learn(double ns, uint64_t instances) {
  if (instances == 0) {
    return;
  }
  const auto now = static_cast<float>(ns / static_cast<double>(instances));
  const float before = instance_ns();
  instance_ns_.store(before == 0 ? now : (before + now) / 2, std::memory_order_relaxed);
}

}  // namespace hpvm::cpu
