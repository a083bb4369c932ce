// SPDX-License-Identifier: Apache-2.0
// The families of devices as programs know them that link no driver: one row each. backends/registry.cc lists how
// devices are opened, compiler/back/back_ends.cc what emits code for them.
#ifndef HPVMD_BASE_DEVICE_FAMILY_H_
#define HPVMD_BASE_DEVICE_FAMILY_H_

#include <algorithm>
#include <array>
#include <cstdint>
#include <string_view>

#include "base/module_kind.h"

namespace hpvm {

// What a compile yields and a device loads. Values are kept in files and sent to compilers.
enum class ArtifactKind : uint8_t {
  kInterp = 1,    // `code` is the kernel IR's text form.
  kCpuImage = 2,  // `code` is an image as compiler/ir/cpu_abi.h describes; entry at `entry_offset`.
  kOpenCl = 3,    // `code` is a program for an OpenCL device; `gpu` says of which form.
  kVulkan = 4,    // `code` is a SPIR-V shader module; `gpu` says how to launch it.
};

// Which devices the daemon looks for and configurations name: none of the family, its only one, or those of a driver,
// which are numbered, and whose code Artifact::gpu describes.
enum class Offer : uint8_t { kNone, kOne, kDriven };

struct FamilyRow {
  std::string_view name;  // Of its devices' names: "opencl" of "opencl:1".
  ArtifactKind artifact;  // What its devices load.
  Offer offer;
  std::string_view device, devices{};  // For people: "an OpenCL device", "OpenCL devices".
  std::array<GpuFormat, 3> natives{};  // Forms of modules that run on its devices as they are.
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

// Null for a value that is no kind.
constexpr const FamilyRow* Find(ArtifactKind artifact) { return FindRow(kFamilyRows, artifact, &FamilyRow::artifact); }
constexpr const FamilyRow* FindFamilyRow(std::string_view name) { return FindRow(kFamilyRows, name, &FamilyRow::name); }

// "vulkan" of "vulkan:1".
constexpr std::string_view FamilyOf(std::string_view device) { return device.substr(0, device.find(':')); }

// Artifact::gpu describes it.
constexpr bool IsGpuCode(ArtifactKind artifact) {
  const FamilyRow* const row = Find(artifact);
  return row != nullptr && row->offer == Offer::kDriven;
}

constexpr bool Takes(const FamilyRow& family, const NativeForm& form) {
  return std::ranges::find(family.natives, form.format) != family.natives.end();
}

}  // namespace hpvm

#endif  // HPVMD_BASE_DEVICE_FAMILY_H_
