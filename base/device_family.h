// SPDX-License-Identifier: Apache-2.0
// Families of devices, one row each, for programs that link no driver. backends/registry.cc lists how devices are
// opened, compiler/back/back_ends.cc which back end emits code for them.
#ifndef HPVMD_BASE_DEVICE_FAMILY_H_
#define HPVMD_BASE_DEVICE_FAMILY_H_

#include <algorithm>
#include <array>
#include <cstdint>
#include <string_view>

#include "base/module_kind.h"

namespace hpvm {

// Result of a compile, which a device loads. Values are stored in files and sent to compilers.
enum class ArtifactKind : uint8_t {
  kInterp = 1,    // `code` is the kernel IR's text form.
  kCpuImage = 2,  // `code` is an image as compiler/ir/cpu_abi.h describes; entry at `entry_offset`.
  kOpenCl = 3,    // `code` is a program for an OpenCL device; `gpu` gives its form.
  kVulkan = 4,    // `code` is a SPIR-V shader module; `gpu` says how to launch it.
};

// Devices of a family that the daemon searches for and configurations name: none, the family's only device, or numbered
// devices of a driver, whose code Artifact::gpu describes.
enum class Offer : uint8_t { kNone, kOne, kDriven };

struct FamilyRow {
  std::string_view name;  // Prefix of its devices' names: "opencl" of "opencl:1".
  ArtifactKind artifact;  // The artifact that its devices load.
  Offer offer;
  std::string_view device, devices{};  // For people: "an OpenCL device", "OpenCL devices".
  std::array<GpuFormat, 3> natives{};  // Forms of modules that run on its devices without compilation.
};

// Devices are listed in this order.
inline constexpr std::array<FamilyRow, 4> kFamilyRows = {{
    {"cpu", ArtifactKind::kCpuImage, Offer::kOne, "the processor"},
    {"opencl",
     ArtifactKind::kOpenCl,
     Offer::kDriven,
     "an OpenCL device",
     "OpenCL devices",
     {GpuFormat::kSpirvKernel, GpuFormat::kOpenClC, GpuFormat::kBitstream}},
    {"vulkan", ArtifactKind::kVulkan, Offer::kDriven, "a Vulkan device", "Vulkan devices", {GpuFormat::kSpirvShader}},
    {"interp", ArtifactKind::kInterp, Offer::kNone, "the interpreter"},
}};

// Returns null for a value that is no ArtifactKind.
constexpr const FamilyRow* Find(ArtifactKind artifact) { return FindRow(kFamilyRows, artifact, &FamilyRow::artifact); }
constexpr const FamilyRow* FindFamilyRow(std::string_view name) { return FindRow(kFamilyRows, name, &FamilyRow::name); }

// Returns "vulkan" for "vulkan:1".
constexpr std::string_view FamilyOf(std::string_view device) { return device.substr(0, device.find(':')); }

// Returns true when Artifact::gpu describes the artifact.
constexpr bool IsGpuCode(ArtifactKind artifact) {
  const FamilyRow* const row = Find(artifact);
  return row != nullptr && row->offer == Offer::kDriven;
}

constexpr bool Takes(const FamilyRow& family, const NativeForm& form) {
  return std::ranges::find(family.natives, form.format) != family.natives.end();
}

}  // namespace hpvm

#endif  // HPVMD_BASE_DEVICE_FAMILY_H_
