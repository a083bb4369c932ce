// SPDX-License-Identifier: Apache-2.0
#include "backends/opencl/device.h"

#include <fcntl.h>

#include <algorithm>
#include <array>
#include <string>
#include <utility>

#include "backends/gpu/lanes.h"
#include "backends/opencl/executable.h"
#include "backends/opencl/health.h"
#include "backends/opencl/program.h"
#include "backends/opencl/queue.h"
#include "base/io/fd.h"

namespace hpvm {
namespace opencl {
namespace {

// Allocations are multiples of this: the size of a kernel's largest load, and of fill patterns.
constexpr uint64_t kAllocationStep = 16;

std::string Triple(const std::array<uint64_t, 3>& values) {
  return "(" + std::to_string(values[0]) + ", " + std::to_string(values[1]) + ", " + std::to_string(values[2]) + ")";
}

class OpenClDevice final : public Device, public gpu::LaneDrivers {
 public:
  OpenClDevice(Hub& hub, Found found, Context context, const OpenClOptions& options)
      : Device(hub),
        options_(options),
        found_(std::move(found)),
        context_(std::move(context)),
        health_(found_.info.id, found_.info.name) {
    found_.info.artifact_kind = ArtifactKind::kOpenCl;
  }

  Status Open() {
    HPVMD_RETURN_IF_ERROR(OpenLane(Lane::kCompute).status());
    queue_ = queues_[static_cast<size_t>(Lane::kCompute)].get();
    lanes_ = std::make_unique<gpu::Lanes>(hub_, *this, found_.info.has_copy_lanes, options_.gate, found_.near);
    return absl::OkStatus();
  }

  const DeviceInfo& info() const override { return found_.info; }

  Support Supports(const KernelNeeds& needs) const override {
    if (needs.kind != ArtifactKind::kOpenCl) {
      return {false, "Device \"" + found_.info.id + "\" runs programs for OpenCL only."};
    }
    if (!needs.uses_barrier && !needs.uses_group_memory) {
      return {};
    }
    const GpuTarget& target = found_.info.gpu;
    uint64_t product = 1;
    bool fits = true;
    for (size_t d = 0; d < 3; ++d) {
      fits = fits && needs.group[d] <= target.group_extent_max[d];
      fits = fits && !__builtin_mul_overflow(product, needs.group[d], &product);
    }
    if (fits && product <= target.group_size_max) {
      return {};
    }
    return {false, "A group of " + Triple(needs.group) + " instances is larger than device \"" + found_.info.id +
                       "\" allows (" + std::to_string(target.group_size_max) + " in all, " +
                       Triple({target.group_extent_max[0], target.group_extent_max[1], target.group_extent_max[2]}) +
                       " along each dimension)."};
  }

  StatusOr<std::unique_ptr<Executable>> Load(Artifact artifact, const Patience& patience) override {
    HPVMD_RETURN_IF_ERROR(health_.Check());
    StatusOr<std::unique_ptr<OpenClExecutable>> executable = OpenClExecutable::Load(
        found_, context_.get(), std::move(artifact),
        {options_.builder, options_.tuning, options_.forced, options_.undeclared_group_max}, patience);
    if (!executable.ok()) {
      return queue_->Recheck(executable.status());
    }
    return *std::move(executable);
  }

  StatusOr<std::unique_ptr<Buffer>> Allocate(const BufferSpec& spec) override;

  Status Submit(const Submission& submission) override {
    HPVMD_RETURN_IF_ERROR(health_.Check());
    return lanes_->Submit(submission);
  }

 private:
  StatusOr<gpu::Driver*> OpenLane(Lane lane) override {
    std::unique_ptr<OpenClQueue>& queue = queues_[static_cast<size_t>(lane)];
    if (queue == nullptr) {
      HPVMD_ASSIGN_OR_RETURN(queue, OpenClQueue::Create({.found = found_,
                                                         .context = context_.get(),
                                                         .health = health_,
                                                         .meter = copy_meter_,
                                                         .pinner = pins_ ? pinner_ : 0,
                                                         .lane = lane,
                                                         .always_stage = options_.always_stage,
                                                         .staging = options_.staging}));
    }
    return queue.get();
  }
  StatusOr<std::unique_ptr<Buffer>> ImportShared(const BufferSpec& spec);

  const OpenClOptions options_;
  Found found_;
  const Context context_;
  const bool pins_ = found_.pins_host_memory || options_.always_stage;
  const uint64_t pinner_ = HostBlock::NewDevice();
  Health health_;
  std::array<std::unique_ptr<OpenClQueue>, kLanes> queues_;  // Indexed by lane; null for unused lanes.
  OpenClQueue* queue_ = nullptr;                             // The queue of kernels.
  std::unique_ptr<gpu::Lanes> lanes_;  // Last member, so that it stops before the members that it uses are destroyed.
};

StatusOr<std::unique_ptr<Buffer>> OpenClDevice::Allocate(const BufferSpec& spec) {
  HPVMD_RETURN_IF_ERROR(health_.Check());
  if (spec.import != nullptr || spec.is_exported) {
    return Internal("Device \"" + found_.info.id + "\" neither works in host memory nor exports its own memory.");
  }
  if (spec.shared != nullptr) {
    return ImportShared(spec);
  }
  if (spec.bytes > found_.info.allocation_bytes_max) {
    return ResourceExhausted("A buffer of " + std::to_string(spec.bytes) + " bytes is larger than device \"" +
                             found_.info.id + "\" allocates at once (" +
                             std::to_string(found_.info.allocation_bytes_max) + " bytes).");
  }
  const uint64_t bytes =
      std::max(kAllocationStep, (spec.bytes + kAllocationStep - 1) / kAllocationStep * kAllocationStep);
  cl_int error = CL_SUCCESS;
  Memory memory(clCreateBuffer(context_.get(), CL_MEM_READ_WRITE, bytes, nullptr, &error));
  const std::string doing = "Allocating " + std::to_string(spec.bytes) + " bytes on device \"" + found_.info.id + "\"";
  HPVMD_RETURN_IF_ERROR(queue_->Recheck(FromCl(error, doing)));
  // Drivers detect a lack of memory only at first use.
  HPVMD_ASSIGN_OR_RETURN(Event cleared, queue_->Clear(memory.get(), bytes));
  return std::make_unique<OpenClBuffer>(spec.bytes, std::move(memory), std::move(cleared), /*is_imported=*/false);
}

StatusOr<std::unique_ptr<Buffer>> OpenClDevice::ImportShared(const BufferSpec& spec) {
  const ExportedMemory exported = spec.shared->exported();
  if (!found_.info.imports_memory || exported.fd < 0 || exported.bytes < spec.bytes) {
    return Internal("Memory cannot be shared with device \"" + found_.info.id + "\".");
  }
  // The driver takes ownership of the descriptor.
  UniqueFd fd(fcntl(exported.fd, F_DUPFD_CLOEXEC, 0));
  if (fd.get() < 0) {
    return FromErrno(errno, "Duplicating the descriptor of shared memory");
  }
  const cl_mem_properties properties[] = {CL_EXTERNAL_MEMORY_HANDLE_OPAQUE_FD_KHR,
                                          static_cast<cl_mem_properties>(fd.get()), 0};
  cl_int error = CL_SUCCESS;
  Memory memory(
      clCreateBufferWithProperties(context_.get(), properties, CL_MEM_READ_WRITE, exported.bytes, nullptr, &error));
  const Status status =
      FromCl(error, "Importing " + std::to_string(exported.bytes) + " bytes on device \"" + found_.info.id + "\"");
  if (!status.ok()) {
    // The caller continues without sharing.
    return status.code() == absl::StatusCode::kResourceExhausted ? status : FailedPrecondition(Message(status));
  }
  (void)fd.release();
  return std::make_unique<OpenClBuffer>(spec.bytes, std::move(memory), Event(), /*is_imported=*/true);
}

}  // namespace
}  // namespace opencl

std::vector<std::string> ListOpenClDevices() {
  std::vector<std::string> names;
  for (const opencl::Found& found : opencl::AllDevices()) {
    names.push_back(found.info.id);
  }
  return names;
}

StatusOr<std::unique_ptr<Device>> CreateOpenClDevice(std::string_view name, Hub& hub, const OpenClOptions& options) {
  HPVMD_ASSIGN_OR_RETURN(opencl::Found found, opencl::FindDevice(name));
  if (options.fpga) {
    found.info.kind = DeviceKind::kFpga;
  }
  found.info.has_copy_lanes |= options.has_copy_lanes;
  HPVMD_ASSIGN_OR_RETURN(opencl::Context context, opencl::CreateContext(found));
  auto device = std::make_unique<opencl::OpenClDevice>(hub, std::move(found), std::move(context), options);
  HPVMD_RETURN_IF_ERROR(device->Open());
  return device;
}

const DeviceFamily kOpenClFamily = {.name = "opencl",
                                    .open =
                                        [](std::string_view device, Hub& hub, const DeviceOptions& options) {
                                          return CreateOpenClDevice(device, hub,
                                                                    {.builder = options.builder,
                                                                     .tuning = options.tuning,
                                                                     .gate = options.gate,
                                                                     .forced = options.gpu_forced,
                                                                     .fpga = options.fpga});
                                        },
                                    .list = [] { return StatusOr<std::vector<std::string>>(ListOpenClDevices()); },
                                    .build = BuildForOpenCl,
                                    .identity = opencl::IdentityOf,
                                    .reads_opencl = true};

}  // namespace hpvm
