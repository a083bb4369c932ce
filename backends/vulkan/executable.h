// SPDX-License-Identifier: Apache-2.0
// A shader module on a device, and its pipelines: one for each variant and shape of groups, made when a launch first
// wants it, out of the pipeline cache that a DriverBuilder prepared where there is one.
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

// One storage buffer that a variant takes.
struct Binding {
  enum class Kind : uint8_t { kParam, kTrapRecords, kFacts };
  Kind kind = Kind::kParam;
  uint32_t set = 0, binding = 0;
  uint32_t param = 0;  // kParam.
  bool is_writable = false;
  bool takes_start = false;  // kParam: some argument is its kBufferStart, so a view may begin anywhere.
};

// What the pipelines of one variant share.
struct VariantLayout {
  std::vector<Binding> bindings;                   // By set, then binding; no two alike.
  std::vector<Owned<VkDescriptorSetLayout>> sets;  // From 0 on; those without bindings are empty.
  Owned<VkPipelineLayout> pipeline;
  bool pushes_descriptors = false;  // All bindings lie in set 0, and the device takes them with the commands.
  bool has_facts_buffer = false;
};

// A module and the pipelines made of it. Any thread.
class Pipelines {
 public:
  // Borrows the context. `cached`: what CacheData gave earlier; data of another driver is ignored. kInvalidArgument
  // when the module or a variant does not fit the device, with the limit.
  static StatusOr<std::unique_ptr<Pipelines>> Create(Context& context, std::span<const uint8_t> code,
                                                     std::span<const GpuVariant> variants,
                                                     std::span<const uint8_t> cached);
  const VariantLayout& layout(uint32_t variant) const { return layouts_[variant]; }
  // kInvalidArgument when the driver refuses the module.
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

// The bindings of a variant, sorted; kInvalidArgument when two are alike.
StatusOr<std::vector<Binding>> BindingsOf(const GpuVariant& variant);
// The shape of groups to prepare a variant for, before any launch is known.
Group UsualGroup(const GpuVariant& variant, const GpuTarget& target);

class VulkanExecutable final : public Executable {
 public:
  VulkanExecutable(Artifact artifact, std::unique_ptr<Pipelines> pipelines, const GpuTarget& target,
                   gpu::ForcedVariant* forced, LearntStore* learnt);
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
