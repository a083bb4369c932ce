// SPDX-License-Identifier: Apache-2.0
#include "backends/opencl/platform.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <optional>

#include "backends/gpu/speeds.h"

namespace hpvm::opencl {
namespace {

constexpr cl_uint kDevicesMax = 64;  // Limit of devices per platform, and of platforms; no machine comes near.

std::string Hex(std::span<const uint8_t> bytes) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  for (uint8_t byte : bytes) {
    text += kDigits[byte >> 4];
    text += kDigits[byte & 15];
  }
  return text;
}

// NVIDIA's queries, which no header here defines.
constexpr cl_device_info kPciBusNv = 0x4008, kPciSlotNv = 0x4009, kPciDomainNv = 0x400a;

// Older NVIDIA drivers report it only by their own queries.
std::optional<gpu::PciAddress> AddressOf(cl_device_id device) {
  cl_device_pci_bus_info_khr bus{};
  if (clGetDeviceInfo(device, CL_DEVICE_PCI_BUS_INFO_KHR, sizeof(bus), &bus, nullptr) == CL_SUCCESS) {
    return gpu::PciAddress{bus.pci_domain, bus.pci_bus, bus.pci_device, bus.pci_function};
  }
  gpu::PciAddress address;
  const auto ask = [device](cl_device_info what, uint32_t* value) {
    return clGetDeviceInfo(device, what, sizeof(*value), value, nullptr) == CL_SUCCESS;
  };
  const bool is_known =
      ask(kPciBusNv, &address.bus) && ask(kPciSlotNv, &address.device) && ask(kPciDomainNv, &address.domain);
  return is_known ? std::optional(address) : std::nullopt;
}

std::string UuidOf(cl_device_id device, std::string_view extensions) {
  std::array<uint8_t, CL_UUID_SIZE_KHR> uuid{};
  const bool is_known = HasWord(extensions, "cl_khr_device_uuid") &&
                        clGetDeviceInfo(device, CL_DEVICE_UUID_KHR, uuid.size(), uuid.data(), nullptr) == CL_SUCCESS;
  return is_known ? Hex(uuid) : "";
}

// Returns text that identifies one piece of hardware.
std::string SiliconOf(const Found& found, cl_device_type type) {
  if ((type & CL_DEVICE_TYPE_CPU) != 0) {
    return "cpu";
  }
  const std::string kind = (type & CL_DEVICE_TYPE_GPU) != 0 ? "gpu " : "device ";
  if (!found.info.uuid.empty()) {
    return kind + found.info.uuid;
  }
  if (const std::optional<gpu::PciAddress> address = AddressOf(found.device)) {
    return kind + "pci " + std::to_string(address->domain) + ":" + std::to_string(address->bus) + ":" +
           std::to_string(address->device) + "." + std::to_string(address->function);
  }
  return kind + PlatformText(found.platform, CL_PLATFORM_NAME) + " " + DeviceText(found.device, CL_DEVICE_NAME);
}

// "OpenCL 3.0 CUDA" -> 300.
uint32_t VersionOf(std::string_view text) {
  const size_t digit = text.find_first_of("0123456789");
  if (digit == std::string_view::npos || digit + 2 >= text.size() || text[digit + 1] != '.') {
    return 100;
  }
  return static_cast<uint32_t>(text[digit] - '0') * 100 + static_cast<uint32_t>(text[digit + 2] - '0') * 10;
}

void FillTypes(const Found& found, std::string_view extensions, GpuTarget& target) {
  const cl_device_id device = found.device;
  const bool is_embedded = DeviceText(device, CL_DEVICE_PROFILE) == "EMBEDDED_PROFILE";
  target.has_int64 = !is_embedded || HasWord(extensions, "cles_khr_int64");
  target.has_fp64 = DeviceValue<cl_device_fp_config>(device, CL_DEVICE_DOUBLE_FP_CONFIG) != 0;
  target.has_8_bit_storage = target.has_16_bit_storage = true;  // Available since 1.1.
  target.has_int64_atomics =
      HasWord(extensions, "cl_khr_int64_base_atomics") && HasWord(extensions, "cl_khr_int64_extended_atomics");
  const auto floats = DeviceValue<cl_device_fp_config>(device, CL_DEVICE_SINGLE_FP_CONFIG);
  target.exact_divide = (floats & CL_FP_CORRECTLY_ROUNDED_DIVIDE_SQRT) != 0;
  target.keeps_denormals = (floats & CL_FP_DENORM) != 0;
  target.keeps_nan_and_zero = (floats & CL_FP_INF_NAN) != 0;
}

uint32_t SubgroupSize(cl_device_id device, uint32_t version) {
  if (const auto warp = DeviceValue<cl_uint>(device, CL_DEVICE_WARP_SIZE_NV)) {
    return warp;
  }
  const auto multiple = version >= 300 ? DeviceValue<size_t>(device, CL_DEVICE_PREFERRED_WORK_GROUP_SIZE_MULTIPLE) : 0;
  return static_cast<uint32_t>(std::clamp<size_t>(multiple, 1, 128));
}

void FillLimits(const Found& found, GpuTarget& target) {
  const cl_device_id device = found.device;
  constexpr size_t kMost = 0x7fffffff;  // Ids on a GPU stay below 2^31.
  target.group_size_max =
      static_cast<uint32_t>(std::min(kMost, DeviceValue<size_t>(device, CL_DEVICE_MAX_WORK_GROUP_SIZE)));
  std::array<size_t, 3> extents{};
  clGetDeviceInfo(device, CL_DEVICE_MAX_WORK_ITEM_SIZES, sizeof(extents), extents.data(), nullptr);
  for (size_t i = 0; i < 3; ++i) {
    target.group_extent_max[i] = static_cast<uint32_t>(std::clamp<size_t>(extents[i], 1, kMost));
    target.group_count_max[i] = static_cast<uint32_t>(kMost);
  }
  target.local_bytes_max = DeviceValue<cl_ulong>(device, CL_DEVICE_LOCAL_MEM_SIZE);
  target.buffer_bytes_max = DeviceValue<cl_ulong>(device, CL_DEVICE_MAX_MEM_ALLOC_SIZE);
  target.push_bytes_max = static_cast<uint32_t>(DeviceValue<size_t>(device, CL_DEVICE_MAX_PARAMETER_SIZE));
  target.buffers_max = target.push_bytes_max / sizeof(void*);
  target.subgroup_size = SubgroupSize(device, target.api_version);
}

// Fills how kernel-flavoured SPIR-V is loaded.
void FillIl(std::string_view extensions, Found& found) {
  GpuTarget& target = found.info.gpu;
  const bool is_nvidia = PlatformText(found.platform, CL_PLATFORM_NAME) == "NVIDIA CUDA";
  const bool has_il = DeviceText(found.device, CL_DEVICE_IL_VERSION).find("SPIR-V") != std::string::npos;
  if (has_il && target.api_version >= 210) {
    found.create_with_il = clCreateProgramWithIL;
  } else if (has_il && HasWord(extensions, "cl_khr_il_program")) {
    found.create_with_il = reinterpret_cast<clCreateProgramWithILKHR_fn>(
        clGetExtensionFunctionAddressForPlatform(found.platform, "clCreateProgramWithILKHR"));
  }
  if (found.create_with_il != nullptr) {
    target.kernel_il = GpuFormat::kSpirvKernel;
  } else if (is_nvidia) {
    const auto major = DeviceValue<cl_uint>(found.device, CL_DEVICE_COMPUTE_CAPABILITY_MAJOR_NV);
    const auto minor = DeviceValue<cl_uint>(found.device, CL_DEVICE_COMPUTE_CAPABILITY_MINOR_NV);
    target.kernel_il = GpuFormat::kPtx;
    target.ptx_arch = "sm_" + std::to_string(major) + std::to_string(minor);
    target.device_math = major >= 2;  // "sin" and the like, "fma", and "atom" in the PTX ISA.
    target.has_f32_atomic_add = major >= 2;
    target.has_f64_atomic_add = major >= 6;
    target.has_subgroup_sums =
        major >= 8;  // "shfl.sync" accepts any work items that wait for each other, and "redux" exists.
  } else if (found.is_pocl && HasWord(extensions, "cl_khr_spir")) {
    target.kernel_il = GpuFormat::kSpirBitcode;
  }
}

// Copies overlap with kernels on GPUs with their own memory; on a device that is the host they would take its cores.
void FillSpeeds(const Found& found, DeviceInfo& info) {
  const cl_device_id device = found.device;
  const auto major = DeviceValue<cl_uint>(device, CL_DEVICE_COMPUTE_CAPABILITY_MAJOR_NV);
  const auto minor = DeviceValue<cl_uint>(device, CL_DEVICE_COMPUTE_CAPABILITY_MINOR_NV);
  const bool is_gpu = info.kind == DeviceKind::kGpu && !info.is_emulated;
  gpu::SpeedFacts facts;
  facts.clock_hz = 1e6 * DeviceValue<cl_uint>(device, CL_DEVICE_MAX_CLOCK_FREQUENCY);
  facts.shares_memory = DeviceValue<cl_bool>(device, CL_DEVICE_HOST_UNIFIED_MEMORY) != CL_FALSE;
  // NVIDIA's larger chips of a generation, ".0", have HBM and, up to Ampere, half the lanes.
  facts.has_stacked_memory = major >= 6 && minor == 0;
  facts.lanes_per_unit = major == 0 ? (is_gpu ? 64 : 0) : major == 7 || (major <= 8 && minor == 0) ? 64 : 128;
  facts.launch_ns = info.is_emulated ? 1'500 : 4'000;
  gpu::EstimateSpeeds(facts, &info);
  info.has_copy_lanes = is_gpu && !facts.shares_memory;
}

// Fills whether memory of another driver can be imported by an opaque file descriptor.
void FillImports(std::string_view extensions, Found& found) {
  if (!HasWord(extensions, "cl_khr_external_memory") && !HasWord(extensions, "cl_khr_external_memory_opaque_fd")) {
    return;
  }
  std::array<cl_uint, 16> types{};
  size_t bytes = 0;
  if (clGetDeviceInfo(found.device, CL_DEVICE_EXTERNAL_MEMORY_IMPORT_HANDLE_TYPES_KHR, sizeof(types), types.data(),
                      &bytes) != CL_SUCCESS) {
    return;
  }
  const auto end = types.begin() + static_cast<ptrdiff_t>(std::min(bytes / sizeof(cl_uint), types.size()));
  if (std::find(types.begin(), end, cl_uint{CL_EXTERNAL_MEMORY_HANDLE_OPAQUE_FD_KHR}) == end) {
    return;
  }
  found.acquire = reinterpret_cast<clEnqueueAcquireExternalMemObjectsKHR_fn>(
      clGetExtensionFunctionAddressForPlatform(found.platform, "clEnqueueAcquireExternalMemObjectsKHR"));
  found.release = reinterpret_cast<clEnqueueReleaseExternalMemObjectsKHR_fn>(
      clGetExtensionFunctionAddressForPlatform(found.platform, "clEnqueueReleaseExternalMemObjectsKHR"));
  found.info.imports_memory = found.acquire != nullptr && found.release != nullptr;
}

Found Describe(cl_platform_id platform, cl_device_id device) {
  Found found;
  found.platform = platform;
  found.device = device;
  const std::string extensions = DeviceText(device, CL_DEVICE_EXTENSIONS);
  const auto type = DeviceValue<cl_device_type>(device, CL_DEVICE_TYPE);
  found.is_pocl = PlatformText(platform, CL_PLATFORM_NAME) == "Portable Computing Language";
  found.pins_host_memory = PlatformText(platform, CL_PLATFORM_NAME) == "NVIDIA CUDA";
  found.view_alignment = std::max(1u, DeviceValue<cl_uint>(device, CL_DEVICE_MEM_BASE_ADDR_ALIGN) / 8);
  DeviceInfo& info = found.info;
  info.kind = (type & CL_DEVICE_TYPE_ACCELERATOR) != 0 ? DeviceKind::kFpga : DeviceKind::kGpu;
  info.name = DeviceText(device, CL_DEVICE_NAME) + ", " + PlatformText(platform, CL_PLATFORM_NAME) + ", driver " +
              DeviceText(device, CL_DRIVER_VERSION);
  info.uuid = UuidOf(device, extensions);
  info.silicon = SiliconOf(found, type);
  info.compute_units = std::max(1u, DeviceValue<cl_uint>(device, CL_DEVICE_MAX_COMPUTE_UNITS));
  info.memory_bytes = DeviceValue<cl_ulong>(device, CL_DEVICE_GLOBAL_MEM_SIZE);
  info.is_emulated = (type & CL_DEVICE_TYPE_CPU) != 0;
  GpuTarget& target = info.gpu;
  target.api_version = VersionOf(DeviceText(device, CL_DEVICE_VERSION));
  target.is_processor = info.is_emulated;
  FillTypes(found, extensions, target);
  FillLimits(found, target);
  FillIl(extensions, found);
  FillImports(extensions, found);
  info.allocation_bytes_max = std::min(target.buffer_bytes_max, info.memory_bytes);
  FillSpeeds(found, info);
  if (const std::optional<gpu::PciAddress> address = AddressOf(device)) {
    info.bus = gpu::ToText(*address);
    found.near = gpu::CpusNear(*address);
  }
  return found;
}

template <typename T, typename List>
std::vector<T> ListOf(const List& list) {
  cl_uint count = 0;
  std::vector<T> all(kDevicesMax);
  if (list(kDevicesMax, all.data(), &count) != CL_SUCCESS) {
    return {};
  }
  all.resize(std::min(count, kDevicesMax));
  return all;
}

int Rank(const Found& found) {
  if (found.info.is_emulated) {
    return 2;
  }
  return found.info.kind == DeviceKind::kFpga ? 1 : 0;
}

}  // namespace

std::vector<Found> AllDevices() {
  std::vector<Found> all;
  for (cl_platform_id platform : ListOf<cl_platform_id>(clGetPlatformIDs)) {
    const auto devices = ListOf<cl_device_id>([&](cl_uint most, cl_device_id* ids, cl_uint* count) {
      return clGetDeviceIDs(platform, CL_DEVICE_TYPE_ALL, most, ids, count);
    });
    for (cl_device_id device : devices) {
      if (DeviceValue<cl_bool>(device, CL_DEVICE_AVAILABLE) != CL_FALSE) {
        all.push_back(Describe(platform, device));
      }
    }
  }
  std::stable_sort(all.begin(), all.end(), [](const Found& a, const Found& b) { return Rank(a) < Rank(b); });
  for (size_t i = 0; i < all.size(); ++i) {
    all[i].info.id = "opencl:" + std::to_string(i);
  }
  return all;
}

StatusOr<Found> FindDevice(std::string_view name) {
  constexpr std::string_view kBackend = "opencl";
  uint32_t index = 0;
  if (name != kBackend) {
    const std::string_view digits = name.substr(std::min(name.size(), kBackend.size() + 1));
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), index);
    if (!name.starts_with("opencl:") || error != std::errc() || end != digits.data() + digits.size()) {
      return NotFound("\"" + std::string(name) +
                      "\" is not the name of an OpenCL device; names have the form \"opencl:0\".");
    }
  }
  std::vector<Found> all = AllDevices();
  if (index >= all.size()) {
    return NotFound("OpenCL device \"" + std::string(name) + "\" does not exist; " +
                    (all.empty() ? "no OpenCL device was found."
                                 : "the number of OpenCL devices is " + std::to_string(all.size()) + "."));
  }
  return std::move(all[index]);
}

}  // namespace hpvm::opencl
