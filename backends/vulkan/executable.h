// SPDX-License-Identifier: Apache-2.0
// A shader module on a device, and its pipelines: one for each variant and group shape, created when a launch first
// needs it, from the pipeline cache that a DriverBuilder prepared, if there is one.
#ifndef HPVMD_BACKENDS_VULKAN_EXECUTABLE_H_
#define HPVMD_BACKENDS_VULKAN_EXECUTABLE_H_

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "backends/gpu/dispatch.h"
#include "backends/gpu/launch.h"
#include "backends/vulkan/context.h"
#include "compiler/api/artifact.h"

namespace hpvm::vulkan {

using Group = std::array<uint32_t, 3>;

// One storage buffer of a variant.
struct Binding {
  enum class Kind : uint8_t { kParam, kTrapRecords, kFacts };
  Kind kind = Kind::kParam;
  uint32_t set = 0, binding = 0;
  uint32_t param = 0;  // Set for kParam.
  bool is_writable = false;
  // kParam: some argument is its kBufferStart, so a view may begin anywhere.
  bool takes_start = false;
};

// State shared by the pipelines of one variant.
struct VariantLayout {
  std::vector<Binding> bindings;                   // Sorted by set, then binding; all different.
  std::vector<Owned<VkDescriptorSetLayout>> sets;  // From set 0 on; sets without bindings are empty.
  Owned<VkPipelineLayout> pipeline;
  // All bindings are in set 0, and the device accepts them with the commands.
  bool pushes_descriptors = false;
  bool has_facts_buffer = false;
};

// A module and its pipelines. Thread-safe.
class Pipelines {
 public:
  // Borrows the context. `cached`: an earlier result of CacheData; data of another driver is ignored. Returns
  // kInvalidArgument, with the limit, when the module or a variant exceeds the device's limits.
  static StatusOr<std::unique_ptr<Pipelines>> Create(Context& context, std::span<const uint8_t> code,
                                                     std::span<const GpuVariant> variants,
                                                     std::span<const uint8_t> cached);
  const VariantLayout& layout(uint32_t variant) const { return layouts_[variant]; }
  // Returns kInvalidArgument when the driver refuses the module.
  StatusOr<VkPipeline> Get(uint32_t variant, const Group& group);
  StatusOr<std::vector<uint8_t>> CacheData();

 private:
  Pipelines(Context& context, std::span<const GpuVariant> variants)
      : context_(context), variants_(variants.begin(), variants.end()) {}
  Status CreateModule(std::span<const uint8_t> code);
  Status CreateCache(std::span<const uint8_t> cached);
  Status CreateLayout(const GpuVariant& variant);
  Status CreateSetLayouts(VariantLayout& layout);
  StatusOr<VkPipeline> Build(uint32_t variant, const Group& group);

  Context& context_;
  const std::vector<GpuVariant> variants_;
  Owned<VkShaderModule> module_;
  Owned<VkPipelineCache> cache_;
  std::vector<VariantLayout> layouts_;
  std::mutex mutex_;
  std::map<std::pair<uint32_t, Group>, Owned<VkPipeline>> built_;  // Guarded by mutex_.
};

// Returns the sorted bindings of a variant; kInvalidArgument when two are equal.
StatusOr<std::vector<Binding>> BindingsOf(const GpuVariant& variant);
// Returns the group shape for which to prepare a variant before any launch is known.
Group UsualGroup(const GpuVariant& variant, const GpuTarget& target);

class VulkanExecutable final : public Executable {
 public:
  VulkanExecutable(Artifact artifact, std::unique_ptr<Pipelines> pipelines, const GpuTarget& target,
                   gpu::ForcedVariant* forced, TuningStore* tuning);
  const Artifact& artifact() const override { return artifact_; }
  const gpu::LaunchReader& reader() const { return reader_; }
  gpu::Chooser& chooser() { return *chooser_; }
  Pipelines& pipelines() { return *pipelines_; }

 private:
  const Artifact artifact_;
  const std::unique_ptr<Pipelines> pipelines_;
  const gpu::LaunchReader reader_;
  const std::unique_ptr<gpu::Chooser> chooser_;
};

}  // namespace hpvm::vulkan

#endif  // HPVMD_BACKENDS_VULKAN_EXECUTABLE_H_
