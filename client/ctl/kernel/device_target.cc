// SPDX-License-Identifier: Apache-2.0
#include "client/ctl/kernel/device_target.h"

#include "client/local/executor_files.h"

#include "supervisor/executor_link.h"

namespace hpvm::ctl {
namespace {

constexpr std::string_view kProfile = "h200", kPrefix = "h200-";

std::string Joined(std::string_view before, std::string_view after, std::string_view between) {
  std::string names;
  for (const FamilyRow& row : kFamilyRows) {
    if (row.offer == Offer::kDriven) {
      names += (names.empty() ? "" : std::string(between)) + std::string(before) + std::string(row.name) +
               std::string(after);
    }
  }
  return names;
}

std::string ProfileNames(std::string_view between) { return Joined(kPrefix, "", between); }

StatusOr<DeviceTarget> AskExecutor(const std::string& name, ArtifactKind kind) {
  HPVMD_ASSIGN_OR_RETURN(const std::string program, ExecutorProgram());
  HPVMD_ASSIGN_OR_RETURN(const internal::Ready found, supervisor::ProbeDevices(program, name));
  if (found.devices().empty()) {
    return FailedPrecondition(
        found.broken().empty()
            ? "This machine has no device \"" + name + "\"; " + ProfileNames(" and ") + " need no device."
            : "The device \"" + found.broken(0).id() + "\" cannot be used: " + found.broken(0).detail());
  }
  const v1::Device& device = found.devices(0).device();
  const std::string& facts = found.devices(0).gpu_target();
  DeviceTarget target;
  target.kind = kind;
  target.label = device.id() + " (" + device.name() + ")";
  StatusOr<GpuTarget> gpu = ParseGpuTarget(facts);
  if (!gpu.ok()) {
    return Unavailable("\"" + program + "\" does not report the properties of \"" + device.id() +
                       "\" that the compiler needs.");
  }
  target.gpu = *std::move(gpu);
  return target;
}

}  // namespace

std::string DeviceTargetNames(std::string_view between) {
  return Joined("", "[:N]", between) + std::string(between) + ProfileNames(between);
}

StatusOr<DeviceTarget> FindDeviceTarget(const std::string& name) {
  const bool is_profile = name.starts_with(kPrefix);
  const std::string_view device = std::string_view(name).substr(is_profile ? kPrefix.size() : 0);
  const FamilyRow* const row = FindFamilyRow(is_profile ? device : FamilyOf(device));
  if (row == nullptr || row->offer != Offer::kDriven) {
    return InvalidArgument("--device takes cpu, " + Joined("", "[:N]", ", ") + ", " + ProfileNames(" or ") +
                           ", not \"" + name + "\".");
  }
  return is_profile ? DeviceTarget{.label = name, .kind = row->artifact, .gpu = {}, .level = std::string(kProfile)}
                    : AskExecutor(name, row->artifact);
}

}  // namespace hpvm::ctl
