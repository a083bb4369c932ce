// SPDX-License-Identifier: Apache-2.0
#include "client/ctl/device_target.h"

#include <algorithm>

#include "client/ctl/local.h"

#include "supervisor/executor_link.h"

namespace hpvm::ctl {
namespace {

// What NVIDIA's driver 550 and later say of an H200, for those who write kernels for one without having it.
GpuTarget H200(ArtifactKind kind) {
  GpuTarget target;
  target.has_int64 = target.has_fp64 = target.has_8_bit_storage = target.has_16_bit_storage = true;
  target.has_int64_atomics = target.exact_divide = target.keeps_denormals = target.rounds_to_even = true;
  target.group_size_max = 1024;
  target.group_extent_max = {1024, 1024, 64};
  target.group_count_max = {(1u << 31) - 1, 65535, 65535};
  target.local_bytes_max = 48 * 1024;
  target.buffers_max = 128;
  target.subgroup_size = 32;
  if (kind == ArtifactKind::kOpenCl) {
    target.buffer_bytes_max = uint64_t{35} << 30;
    target.push_bytes_max = 4352;
    target.api_version = 300;
    target.kernel_il = KernelIl::kPtx;
    target.ptx_arch = "sm_90";
  } else {
    target.buffer_bytes_max = (uint64_t{1} << 32) - 1;
    target.push_bytes_max = 256;
    target.api_version = 13;
  }
  return target;
}

struct Profile {
  const char* name;
  ArtifactKind kind;
};
constexpr Profile kProfiles[] = {{"h200-opencl", ArtifactKind::kOpenCl}, {"h200-vulkan", ArtifactKind::kVulkan}};

StatusOr<DeviceTarget> AskExecutor(const std::string& name, ArtifactKind kind) {
  HPVMD_ASSIGN_OR_RETURN(const std::string program, ExecutorProgram());
  HPVMD_ASSIGN_OR_RETURN(const internal::Ready found, ProbeDevices(program, name));
  if (found.devices().empty()) {
    return FailedPrecondition(
        found.broken().empty()
            ? "This machine has no device \"" + name + "\"; h200-opencl and h200-vulkan need none."
            : "The device \"" + found.broken(0).id() + "\" is of no use: " + found.broken(0).detail());
  }
  const v1::Device& device = found.devices(0).device();
  const std::string& facts = found.devices(0).gpu_target();
  DeviceTarget target;
  target.kind = kind;
  target.label = device.id() + " (" + device.name() + ")";
  StatusOr<GpuTarget> gpu = ParseGpuTarget(facts);
  if (!gpu.ok()) {
    return Unavailable("\"" + program + "\" does not say what kernels for \"" + device.id() + "\" must know.");
  }
  target.gpu = *std::move(gpu);
  return target;
}

}  // namespace

StatusOr<DeviceTarget> FindDeviceTarget(const std::string& name) {
  for (const Profile& profile : kProfiles) {
    if (profile.name == name) {
      return DeviceTarget{name, profile.kind, H200(profile.kind)};
    }
  }
  const std::string family = name.substr(0, name.find(':'));
  if (family != "opencl" && family != "vulkan") {
    return InvalidArgument("--device takes cpu, opencl[:N], vulkan[:N], h200-opencl or h200-vulkan, not \"" + name +
                           "\".");
  }
  return AskExecutor(name, family == "opencl" ? ArtifactKind::kOpenCl : ArtifactKind::kVulkan);
}

}  // namespace hpvm::ctl
