// SPDX-License-Identifier: Apache-2.0
#include "backends/vulkan/device.h"

#include <algorithm>
#include <array>
#include <map>
#include <mutex>
#include <string>
#include <utility>

#include "backends/gpu/lanes.h"
#include "backends/gpu/parts.h"
#include "backends/vulkan/buffer.h"
#include "backends/vulkan/build.h"
#include "backends/vulkan/context.h"
#include "backends/vulkan/early_compile.h"
#include "backends/vulkan/executable.h"
#include "backends/vulkan/flight.h"
#include "backends/vulkan/fma_trial.h"
#include "backends/vulkan/instance.h"
#include "backends/vulkan/shaders/watch_loops.h"
#include "backends/vulkan/shaders/zero_groups.h"
#include "backends/vulkan/staging.h"

namespace hpvm {
namespace vulkan {
namespace {

// A submission that could not be recorded at all.
class FailedFlight final : public gpu::Flight {
 public:
  explicit FailedFlight(Status status) : status_(std::move(status)) {}
  Status Finish() override { return status_; }

 private:
  const Status status_;
};

// One lane of a device.
class VulkanLane final : public gpu::Driver {
 public:
  // All are borrowed.
  VulkanLane(Context& context, Memory& memory, CopyMeter& meter, Lane lane, bool copies_by_kernel,
             const gpu::StagingShape& shape)
      : copier_(shape.helpers, meter, context.physical().near),
        staging_(context, memory, lane, copier_, shape),
        slots_(context, memory, lane),
        deck_{.context = context,
              .memory = memory,
              .staging = staging_,
              .slots = slots_,
              .copier = copier_,
              .lane = lane,
              .copies_by_kernel = copies_by_kernel} {}

  std::unique_ptr<gpu::Flight> Enqueue(const Submission& submission, const gpu::Milestones& behind) override {
    StatusOr<std::unique_ptr<CommandSlot>> slot = slots_.Take();
    if (!slot.ok()) {
      return std::make_unique<FailedFlight>(slot.status());
    }
    auto flight = std::make_unique<VulkanFlight>(deck_, submission, *std::move(slot));
    flight->Record(behind);
    return flight;
  }

 private:
  gpu::HostCopier copier_;
  Staging staging_;
  CommandSlots slots_;
  FlightDeck deck_;
};

class VulkanDevice final : public Device, public gpu::LaneDrivers {
 public:
  VulkanDevice(std::unique_ptr<Context> context, uint32_t index, Hub& hub, const VulkanOptions& options)
      : Device(hub),
        options_(options),
        context_(std::move(context)),
        info_(context_->physical().info),
        memory_(*context_, options.as_discrete),
        zeroer_(*context_),
        lanes_(hub, *this, context_->has_copy_lanes(), options_.gate, context_->physical().near) {
    info_.artifact_kind = ArtifactKind::kVulkan;
    info_.has_copy_lanes = context_->has_copy_lanes();
    info_.id = "vulkan:" + std::to_string(index);
    info_.gpu.is_processor &= !options.as_discrete;
    TryFma();
    info_.gpu.device_math &= info_.gpu.exact_fma;
  }

  const DeviceInfo& info() const override { return info_; }
  Support Supports(const KernelNeeds& needs) const override;
  StatusOr<std::unique_ptr<Executable>> Load(Artifact artifact, const Patience& patience) override;
  StatusOr<std::unique_ptr<Buffer>> Allocate(const BufferSpec& spec) override {
    return AllocateVulkanBuffer(*context_, memory_, zeroer_, spec);
  }
  Status Submit(const Submission& submission) override {
    HPVMD_RETURN_IF_ERROR(context_->lost());
    return lanes_.Submit(submission);
  }

 private:
  void TryFma();
  Status ZeroGroups(Artifact& artifact) const;
  StatusOr<DriverBinary> BuildElsewhere(const Artifact& artifact, const Patience& patience);
  StatusOr<gpu::Driver*> OpenLane(Lane lane) override {
    // Queues for copies alone run no kernels.
    const bool copies_by_kernel = lane == Lane::kCompute && (options_.as_discrete || !context_->physical().maps_memory);
    std::unique_ptr<VulkanLane>& drivers = drivers_[static_cast<size_t>(lane)];
    drivers = std::make_unique<VulkanLane>(*context_, memory_, copy_meter_, lane, copies_by_kernel, options_.staging);
    return drivers.get();
  }

  const VulkanOptions options_;
  const std::shared_ptr<Context> context_;  // Pins also hold a reference.
  DeviceInfo info_;
  Memory memory_;
  std::unique_ptr<FmaTrial> fma_trial_;  // Null once it is over.
  Zeroer zeroer_;
  std::array<std::unique_ptr<VulkanLane>, kLanes> drivers_;  // Indexed by lane; null for unused lanes.
  gpu::Lanes lanes_;  // Last member, so that it stops before the members that it uses are destroyed.
};

// Tests each driver once per process. A driver that did not answer is tested again.
void VulkanDevice::TryFma() {
  static std::mutex mutex;
  static std::map<std::string, bool> known;
  const std::lock_guard lock(mutex);
  const std::string key = info_.id + " " + context_->physical().driver;
  const auto found = known.find(key);
  if (found != known.end()) {
    info_.gpu.exact_fma = found->second;
    return;
  }
  fma_trial_ = std::make_unique<FmaTrial>(*context_, memory_);
  info_.gpu.exact_fma = fma_trial_->Run();
  if (fma_trial_->is_over()) {
    fma_trial_.reset();
    known[key] = info_.gpu.exact_fma;
  }
}

Support VulkanDevice::Supports(const KernelNeeds& needs) const {
  if (needs.kind != ArtifactKind::kVulkan) {
    return {false, "A Vulkan device runs SPIR-V shader modules only."};
  }
  const GpuTarget& target = info_.gpu;
  uint64_t size = 1;
  for (int d = 0; d < 3; ++d) {
    if (needs.group[d] > target.group_extent_max[d]) {
      return {false, "The group's extent in dimension " + std::to_string(d) + " (" + std::to_string(needs.group[d]) +
                         ") is larger than the limit of " + context_->name() + " (" +
                         std::to_string(target.group_extent_max[d]) + ")."};
    }
    size *= needs.group[d];  // Extents are below about 2^16 on every device; the product of three fits.
  }
  if (size > target.group_size_max) {
    return {false, "The group's instances (" + std::to_string(size) + ") are more than the limit of " +
                       context_->name() + " (" + std::to_string(target.group_size_max) + ")."};
  }
  return {};
}

StatusOr<DriverBinary> VulkanDevice::BuildElsewhere(const Artifact& artifact, const Patience& patience) {
  if (options_.builder == nullptr) {
    return DriverBinary{};
  }
  DriverBuild build;
  build.device = info_.id;
  build.format = GpuFormat::kSpirvShader;
  build.code = artifact.code;
  build.variants = artifact.gpu.variants;
  for (const GpuVariant& variant : build.variants) {
    build.entries.push_back(variant.entry);
  }
  // In addition to UsualGroup: the first group of launches of two dimensions.
  for (const GpuVariant& variant : build.variants) {
    const Group group = gpu::ShapesFor(info_.gpu, 2, variant.tile).front();
    if (std::find(build.groups.begin(), build.groups.end(), group) == build.groups.end()) {
      build.groups.push_back(group);
    }
  }
  return options_.builder->Build(build, patience);
}

// A tenant's shader must not see data that another tenant's shader left in group memory. On a device that is the host's
// processor, that memory is this process's own.
Status VulkanDevice::ZeroGroups(Artifact& artifact) const {
  if (!artifact.gpu.is_native) {
    return absl::OkStatus();
  }
  HPVMD_ASSIGN_OR_RETURN(std::vector<uint8_t> zeroed, ZeroGroupMemory(artifact.code));
  if (zeroed.empty()) {
    return absl::OkStatus();
  }
  if (context_->physical().enabled.zeroes_groups) {
    artifact.code = std::move(zeroed);
  } else if (!info_.is_emulated) {
    return FailedPrecondition("Kernel \"" + artifact.entry + "\" uses group memory, which the driver of " + info_.id +
                              " cannot clear for native shaders.");
  }
  return absl::OkStatus();
}

StatusOr<std::unique_ptr<Executable>> VulkanDevice::Load(Artifact artifact, const Patience& patience) {
  HPVMD_RETURN_IF_ERROR(context_->lost());
  if (artifact.kind != ArtifactKind::kVulkan || artifact.gpu.format != GpuFormat::kSpirvShader) {
    return InvalidArgument("The artifact of kernel \"" + artifact.entry + "\" is not a SPIR-V shader module.");
  }
  HPVMD_RETURN_IF_ERROR(ValidateGpuCode(artifact.gpu, artifact.params.size()));
  if (artifact.gpu.is_native && context_->physical().ends_loops) {
    HPVMD_RETURN_IF_ERROR(WatchLoops(info_.gpu, artifact.code, artifact.gpu.variants[0]));
  }
  HPVMD_RETURN_IF_ERROR(ZeroGroups(artifact));
  HPVMD_ASSIGN_OR_RETURN(const DriverBinary built, BuildElsewhere(artifact, patience));
  HPVMD_ASSIGN_OR_RETURN(std::unique_ptr<Pipelines> pipelines,
                         Pipelines::Create(*context_, artifact.code, artifact.gpu.variants, built.bytes));
  // Code that the driver cannot build fails here and not at some launch.
  HPVMD_RETURN_IF_ERROR(pipelines->Get(0, UsualGroup(artifact.gpu.variants[0], info_.gpu)).status());
  if (options_.builder != nullptr) {
    HPVMD_RETURN_IF_ERROR(CompileEarly(*context_, memory_, artifact.gpu.variants, *pipelines));
  }
  return std::make_unique<VulkanExecutable>(std::move(artifact), std::move(pipelines), info_.gpu, options_.forced,
                                            options_.tuning);
}

}  // namespace
}  // namespace vulkan

StatusOr<std::vector<std::string>> ListVulkanDevices() {
  StatusOr<const vulkan::Instance*> instance = vulkan::Instance::Get(false);
  if (absl::IsNotFound(instance.status())) {
    return std::vector<std::string>();
  }
  HPVMD_RETURN_IF_ERROR(instance.status());
  std::vector<std::string> names;
  for (size_t i = 0; i < (*instance)->devices().size(); ++i) {
    names.push_back("vulkan:" + std::to_string(i));
  }
  return names;
}

StatusOr<std::unique_ptr<Device>> CreateVulkanDevice(std::string_view device, Hub& hub, const VulkanOptions& options) {
  HPVMD_ASSIGN_OR_RETURN(const uint32_t index, VulkanDeviceIndex(device));
  HPVMD_ASSIGN_OR_RETURN(const vulkan::Instance* instance, vulkan::Instance::Get(options.validate));
  HPVMD_ASSIGN_OR_RETURN(std::unique_ptr<vulkan::Context> context,
                         vulkan::Context::Create(*instance, index, options.as_discrete));
  return std::make_unique<vulkan::VulkanDevice>(std::move(context), index, hub, options);
}

const DeviceFamily kVulkanFamily = {.name = "vulkan",
                                    .open =
                                        [](std::string_view device, Hub& hub, const DeviceOptions& options) {
                                          return CreateVulkanDevice(device, hub,
                                                                    {.builder = options.builder,
                                                                     .tuning = options.tuning,
                                                                     .gate = options.gate,
                                                                     .forced = options.gpu_forced});
                                        },
                                    .list = ListVulkanDevices,
                                    .build = BuildForVulkan,
                                    .identity = VulkanDriverIdentity};

}  // namespace hpvm
