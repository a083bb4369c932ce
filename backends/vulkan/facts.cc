// SPDX-License-Identifier: Apache-2.0
// Properties of a physical device, and the choice of features to enable.
#include <algorithm>
#include <cstring>
#include <thread>

#include "backends/gpu/speeds.h"
#include "backends/vulkan/instance.h"
#include "base/limits.h"

namespace hpvm::vulkan {
namespace {

constexpr VkMemoryPropertyFlags kReadByHost = VK_MEMORY_PROPERTY_DEVICE_LOCAL_BIT |
                                              VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT |
                                              VK_MEMORY_PROPERTY_HOST_COHERENT_BIT | VK_MEMORY_PROPERTY_HOST_CACHED_BIT;

// All queried properties of a device, as one chain.
struct Properties {
  Properties() = default;
  Properties(const Properties&) = delete;
  Properties& operator=(const Properties&) = delete;

  VkPhysicalDeviceProperties2 core{VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_PROPERTIES_2, nullptr, {}};
  VkPhysicalDeviceVulkan11Properties v11{};
  VkPhysicalDeviceVulkan12Properties v12{};
  VkPhysicalDeviceVulkan13Properties v13{};
  VkPhysicalDevicePushDescriptorPropertiesKHR push_descriptors{};
  VkPhysicalDeviceShaderSMBuiltinsPropertiesNV multiprocessors{};
  VkPhysicalDevicePCIBusInfoPropertiesEXT bus{};
  VkPhysicalDeviceExternalMemoryHostPropertiesEXT pins{};
};

template <typename Root, typename Link>
void Append(Root& root, Link& link, VkStructureType type) {
  link.sType = type;
  link.pNext = root.pNext;
  root.pNext = &link;
}

bool Has(const std::vector<VkExtensionProperties>& extensions, const char* name) {
  return std::any_of(extensions.begin(), extensions.end(), [&](const VkExtensionProperties& extension) {
    return std::strcmp(extension.extensionName, name) == 0;
  });
}

void GetProperties(const InstanceFunctions& functions, const PhysicalDevice& device,
                   const std::vector<VkExtensionProperties>& extensions, Properties& properties) {
  Append(properties.core, properties.v11, VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_1_PROPERTIES);
  Append(properties.core, properties.v12, VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_2_PROPERTIES);
  if (device.properties.apiVersion >= VK_API_VERSION_1_3) {
    Append(properties.core, properties.v13, VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_3_PROPERTIES);
  }
  if (Has(extensions, VK_KHR_PUSH_DESCRIPTOR_EXTENSION_NAME)) {
    Append(properties.core, properties.push_descriptors,
           VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_PUSH_DESCRIPTOR_PROPERTIES_KHR);
  }
  if (Has(extensions, VK_NV_SHADER_SM_BUILTINS_EXTENSION_NAME)) {
    Append(properties.core, properties.multiprocessors,
           VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SHADER_SM_BUILTINS_PROPERTIES_NV);
  }
  if (Has(extensions, VK_EXT_PCI_BUS_INFO_EXTENSION_NAME)) {
    Append(properties.core, properties.bus, VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_PCI_BUS_INFO_PROPERTIES_EXT);
  }
  if (Has(extensions, VK_EXT_EXTERNAL_MEMORY_HOST_EXTENSION_NAME)) {
    Append(properties.core, properties.pins, VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_EXTERNAL_MEMORY_HOST_PROPERTIES_EXT);
  }
  functions.GetPhysicalDeviceProperties2(device.handle, &properties.core);
}

// A queue family for copies alone, with as many queues as lanes need, has its own engines.
void FindCopyQueues(const std::vector<VkQueueFamilyProperties>& families, PhysicalDevice& device) {
  constexpr uint32_t kWanted = 2;
  constexpr VkQueueFlags kCopies = VK_QUEUE_TRANSFER_BIT | VK_QUEUE_SPARSE_BINDING_BIT | VK_QUEUE_PROTECTED_BIT;
  for (uint32_t i = 0; i < families.size(); ++i) {
    const VkQueueFlags flags = families[i].queueFlags;
    if ((flags & VK_QUEUE_TRANSFER_BIT) != 0 && (flags & ~kCopies) == 0 &&
        families[i].queueCount > device.copy_queues) {
      device.copy_family = i;
      device.copy_queues = std::min(families[i].queueCount, kWanted);
    }
  }
  const uint32_t others = families[device.queue_family].queueCount - 1;
  if (device.copy_queues == 0 && others >= kWanted) {
    device.copy_family = device.queue_family;
    device.copy_queues = kWanted;
  }
}

// Queues for compute alone come first, so that drawing on a desktop does not wait for kernels.
bool FindQueueFamily(const InstanceFunctions& functions, PhysicalDevice& device) {
  uint32_t count = 0;
  functions.GetPhysicalDeviceQueueFamilyProperties(device.handle, &count, nullptr);
  std::vector<VkQueueFamilyProperties> families(count);
  functions.GetPhysicalDeviceQueueFamilyProperties(device.handle, &count, families.data());
  int best = -1;
  for (uint32_t i = 0; i < count; ++i) {
    const VkQueueFlags flags = families[i].queueFlags;
    const int score = ((flags & VK_QUEUE_GRAPHICS_BIT) == 0 ? 2 : 0) + (families[i].timestampValidBits != 0 ? 1 : 0);
    if (families[i].queueCount != 0 && (flags & VK_QUEUE_COMPUTE_BIT) != 0 && score > best) {
      best = score;
      device.queue_family = i;
      device.timestamp_bits = families[i].timestampValidBits;
    }
  }
  if (best >= 0) {
    FindCopyQueues(families, device);
  }
  return best >= 0;
}

std::string Hex(const uint8_t* bytes, size_t count) {
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  for (size_t i = 0; i < count; ++i) {
    text += kDigits[bytes[i] >> 4];
    text += kDigits[bytes[i] & 15];
  }
  return text;
}

GpuTarget MakeTarget(const PhysicalDevice& device, const Properties& properties, const FeatureChain& features) {
  const VkPhysicalDeviceLimits& limits = device.properties.limits;
  GpuTarget target;
  target.has_int64 = features.core.features.shaderInt64 == VK_TRUE;
  target.has_fp64 = features.core.features.shaderFloat64 == VK_TRUE;
  target.has_8_bit_storage = features.v12.storageBuffer8BitAccess == VK_TRUE && features.v12.shaderInt8 == VK_TRUE;
  target.has_16_bit_storage =
      features.v11.storageBuffer16BitAccess == VK_TRUE && features.core.features.shaderInt16 == VK_TRUE;
  target.has_int64_atomics =
      features.v12.shaderBufferInt64Atomics == VK_TRUE && features.v12.shaderSharedInt64Atomics == VK_TRUE;
  target.has_f32_atomic_add = features.float_atomics.shaderBufferFloat32AtomicAdd == VK_TRUE;
  target.has_f64_atomic_add = target.has_fp64 && features.float_atomics.shaderBufferFloat64AtomicAdd == VK_TRUE;
  constexpr VkSubgroupFeatureFlags kSums =
      VK_SUBGROUP_FEATURE_BASIC_BIT | VK_SUBGROUP_FEATURE_VOTE_BIT | VK_SUBGROUP_FEATURE_ARITHMETIC_BIT;
  target.has_subgroup_sums = (properties.v11.subgroupSupportedStages & VK_SHADER_STAGE_COMPUTE_BIT) != 0 &&
                             (properties.v11.subgroupSupportedOperations & kSums) == kSums;
  target.exact_divide = false;  // Vulkan guarantees 2.5 units in the last place, and offers no more.
  target.exact_fma = false;     // VulkanDevice tests it (fma_trial.h).
  target.device_math = properties.v12.driverID == VK_DRIVER_ID_NVIDIA_PROPRIETARY;
  target.keeps_denormals = properties.v12.shaderDenormPreserveFloat32 == VK_TRUE;
  // Required for every width that a kernel uses.
  target.keeps_nan_and_zero = properties.v12.shaderSignedZeroInfNanPreserveFloat32 == VK_TRUE &&
                              (!target.has_fp64 || properties.v12.shaderSignedZeroInfNanPreserveFloat64 == VK_TRUE);
  target.rounds_to_even = properties.v12.shaderRoundingModeRTEFloat32 == VK_TRUE &&
                          (!target.has_fp64 || properties.v12.shaderRoundingModeRTEFloat64 == VK_TRUE);
  target.group_size_max = limits.maxComputeWorkGroupInvocations;
  for (int d = 0; d < 3; ++d) {
    target.group_extent_max[d] = limits.maxComputeWorkGroupSize[d];
    target.group_count_max[d] = limits.maxComputeWorkGroupCount[d];
  }
  target.local_bytes_max = limits.maxComputeSharedMemorySize;
  target.buffer_bytes_max = limits.maxStorageBufferRange;
  target.buffers_max = std::min(
      {limits.maxPerStageDescriptorStorageBuffers, limits.maxDescriptorSetStorageBuffers, limits::kKernelParamsMax});
  target.push_bytes_max = limits.maxPushConstantsSize;
  target.subgroup_size = std::max(properties.v11.subgroupSize, 1u);
  target.is_processor = device.properties.deviceType == VK_PHYSICAL_DEVICE_TYPE_CPU;
  target.api_version =
      VK_API_VERSION_MAJOR(device.properties.apiVersion) * 10 + VK_API_VERSION_MINOR(device.properties.apiVersion);
  return target;
}

// Returns the size of the heap of the device's own memory. Drivers may list a window into it as a second, smaller heap.
uint64_t LocalHeapBytes(const VkPhysicalDeviceMemoryProperties& memory) {
  uint64_t bytes = 0;
  for (uint32_t i = 0; i < memory.memoryHeapCount; ++i) {
    if ((memory.memoryHeaps[i].flags & VK_MEMORY_HEAP_DEVICE_LOCAL_BIT) != 0) {
      bytes = std::max<uint64_t>(bytes, memory.memoryHeaps[i].size);
    }
  }
  return bytes;
}

bool HasReadByHost(const VkPhysicalDeviceMemoryProperties& memory) {
  for (uint32_t i = 0; i < memory.memoryTypeCount; ++i) {
    if ((memory.memoryTypes[i].propertyFlags & kReadByHost) == kReadByHost) {
      return true;
    }
  }
  return false;
}

DeviceInfo MakeInfo(const PhysicalDevice& device, const Properties& properties) {
  const VkPhysicalDeviceType type = device.properties.deviceType;
  DeviceInfo info;
  info.kind = DeviceKind::kGpu;
  info.name = std::string(device.properties.deviceName) + ", Vulkan " +
              std::to_string(VK_API_VERSION_MAJOR(device.properties.apiVersion)) + "." +
              std::to_string(VK_API_VERSION_MINOR(device.properties.apiVersion));
  info.is_emulated = type == VK_PHYSICAL_DEVICE_TYPE_CPU;
  info.uuid = Hex(properties.v11.deviceUUID, VK_UUID_SIZE);
  info.silicon = info.is_emulated ? "cpu" : "gpu " + info.uuid;
  info.compute_units = info.is_emulated ? std::max(1u, std::thread::hardware_concurrency())
                                        : std::max(1u, properties.multiprocessors.shaderSMCount);
  info.memory_bytes = LocalHeapBytes(device.memory);
  info.allocation_bytes_max = std::min<uint64_t>(properties.v11.maxMemoryAllocationSize, info.memory_bytes);
  if (properties.v13.maxBufferSize != 0) {
    info.allocation_bytes_max = std::min<uint64_t>(info.allocation_bytes_max, properties.v13.maxBufferSize);
  }
  return info;
}

// Chips with HBM have 64 warps per multiprocessor, those since Ampere without it fewer. Vulkan reports no clock rate.
void FillSpeeds(const Properties& properties, PhysicalDevice& device) {
  gpu::SpeedFacts facts;
  facts.lanes_per_unit = properties.multiprocessors.shaderSMCount != 0 ? 128 : 0;
  facts.has_stacked_memory = properties.multiprocessors.shaderWarpsPerSM >= 64;
  facts.shares_memory = device.maps_memory;
  facts.launch_ns = device.info.is_emulated ? 15'000 : 2'500;
  gpu::EstimateSpeeds(facts, &device.info);
}

bool ExportsBuffers(const InstanceFunctions& functions, VkPhysicalDevice device, bool* needs_own) {
  auto info = Typed<VkPhysicalDeviceExternalBufferInfo>(VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_EXTERNAL_BUFFER_INFO);
  info.usage = VK_BUFFER_USAGE_STORAGE_BUFFER_BIT | VK_BUFFER_USAGE_TRANSFER_SRC_BIT | VK_BUFFER_USAGE_TRANSFER_DST_BIT;
  info.handleType = VK_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD_BIT;
  auto found = Typed<VkExternalBufferProperties>(VK_STRUCTURE_TYPE_EXTERNAL_BUFFER_PROPERTIES);
  functions.GetPhysicalDeviceExternalBufferProperties(device, &info, &found);
  const VkExternalMemoryFeatureFlags features = found.externalMemoryProperties.externalMemoryFeatures;
  *needs_own = (features & VK_EXTERNAL_MEMORY_FEATURE_DEDICATED_ONLY_BIT) != 0;
  return (features & VK_EXTERNAL_MEMORY_FEATURE_EXPORTABLE_BIT) != 0;
}

}  // namespace

StatusOr<std::vector<VkExtensionProperties>> DeviceExtensions(const InstanceFunctions& functions,
                                                              VkPhysicalDevice device) {
  uint32_t count = 0;
  HPVMD_RETURN_IF_ERROR(ToStatus(functions.EnumerateDeviceExtensionProperties(device, nullptr, &count, nullptr),
                                 "Listing a Vulkan device's extensions"));
  std::vector<VkExtensionProperties> extensions(count);
  HPVMD_RETURN_IF_ERROR(
      ToStatus(functions.EnumerateDeviceExtensionProperties(device, nullptr, &count, extensions.data()),
               "Listing a Vulkan device's extensions"));
  extensions.resize(count);
  return extensions;
}

bool Describe(const InstanceFunctions& functions, PhysicalDevice& device) {
  const auto extensions = DeviceExtensions(functions, device.handle);
  if (device.properties.apiVersion < VK_API_VERSION_1_2 || !extensions.ok() || !FindQueueFamily(functions, device)) {
    return false;
  }
  functions.GetPhysicalDeviceMemoryProperties(device.handle, &device.memory);
  Properties properties;
  GetProperties(functions, device, *extensions, properties);
  Enabled& enabled = device.enabled;
  enabled.push_descriptors = Has(*extensions, VK_KHR_PUSH_DESCRIPTOR_EXTENSION_NAME);
  enabled.push_descriptors_max = properties.push_descriptors.maxPushDescriptors;
  enabled.robustness2 = Has(*extensions, VK_EXT_ROBUSTNESS_2_EXTENSION_NAME);
  enabled.memory_fd = Has(*extensions, VK_KHR_EXTERNAL_MEMORY_FD_EXTENSION_NAME) &&
                      ExportsBuffers(functions, device.handle, &enabled.dedicated_export);
  enabled.pin_alignment = properties.pins.minImportedHostPointerAlignment;
  const bool zeroes_by_extension = Has(*extensions, VK_KHR_ZERO_INITIALIZE_WORKGROUP_MEMORY_EXTENSION_NAME);
  enabled.zeroes_groups = zeroes_by_extension || device.properties.apiVersion >= VK_API_VERSION_1_3;
  enabled.float_atomics = Has(*extensions, VK_EXT_SHADER_ATOMIC_FLOAT_EXTENSION_NAME);
  FeatureChain features;
  ChooseFeatures(functions, device, features);
  enabled.zeroes_groups = features.zero_groups.shaderZeroInitializeWorkgroupMemory == VK_TRUE;
  enabled.robustness2 = enabled.robustness2 && features.robustness2.robustBufferAccess2 == VK_TRUE;
  device.info = MakeInfo(device, properties);
  if (properties.bus.sType == VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_PCI_BUS_INFO_PROPERTIES_EXT) {
    const VkPhysicalDevicePCIBusInfoPropertiesEXT& bus = properties.bus;
    const gpu::PciAddress address{bus.pciDomain, bus.pciBus, bus.pciDevice, bus.pciFunction};
    device.info.bus = gpu::ToText(address);
    device.near = gpu::CpusNear(address);
  }
  // Buffers are rounded up, and are one alignment longer (Memory::Allocate).
  const uint64_t rounding = 2 * std::max<uint64_t>(16, device.properties.limits.minStorageBufferOffsetAlignment);
  device.info.allocation_bytes_max -= std::min(device.info.allocation_bytes_max, rounding);
  // The host may also see all memory of a discrete device, but reads cross the bus uncached, word by word.
  device.maps_memory =
      HasReadByHost(device.memory) && (device.properties.deviceType == VK_PHYSICAL_DEVICE_TYPE_INTEGRATED_GPU ||
                                       device.properties.deviceType == VK_PHYSICAL_DEVICE_TYPE_CPU);
  FillSpeeds(properties, device);
  device.info.exports_memory = enabled.memory_fd;
  // When host and device share memory, copies take the processor that would run the concurrent work.
  device.info.has_copy_lanes = device.copy_queues != 0 && !device.maps_memory;
  device.info.gpu = MakeTarget(device, properties, features);
  device.ends_loops = device.compiles_at_dispatch = properties.v12.driverID == VK_DRIVER_ID_MESA_LLVMPIPE;
  device.driver = std::string(properties.v12.driverName) + " " + properties.v12.driverInfo + " (" +
                  std::to_string(device.properties.driverVersion) + "), " + device.properties.deviceName + ", " +
                  Hex(device.properties.pipelineCacheUUID, VK_UUID_SIZE);
  return features.v12.timelineSemaphore == VK_TRUE;
}

void ChooseFeatures(const InstanceFunctions& functions, const PhysicalDevice& device, FeatureChain& chain) {
  const Enabled& enabled = device.enabled;
  Append(chain.core, chain.v11, VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_1_FEATURES);
  Append(chain.core, chain.v12, VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_2_FEATURES);
  if (enabled.push_descriptors) {
    chain.extensions.push_back(VK_KHR_PUSH_DESCRIPTOR_EXTENSION_NAME);
  }
  if (enabled.memory_fd) {
    chain.extensions.push_back(VK_KHR_EXTERNAL_MEMORY_FD_EXTENSION_NAME);
  }
  if (enabled.pin_alignment != 0) {
    chain.extensions.push_back(VK_EXT_EXTERNAL_MEMORY_HOST_EXTENSION_NAME);
  }
  if (enabled.robustness2) {
    chain.extensions.push_back(VK_EXT_ROBUSTNESS_2_EXTENSION_NAME);
    Append(chain.core, chain.robustness2, VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_ROBUSTNESS_2_FEATURES_EXT);
  }
  if (enabled.zeroes_groups) {
    if (device.properties.apiVersion < VK_API_VERSION_1_3) {
      chain.extensions.push_back(VK_KHR_ZERO_INITIALIZE_WORKGROUP_MEMORY_EXTENSION_NAME);
    }
    Append(chain.core, chain.zero_groups,
           VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_ZERO_INITIALIZE_WORKGROUP_MEMORY_FEATURES_KHR);
  }
  if (enabled.float_atomics) {
    chain.extensions.push_back(VK_EXT_SHADER_ATOMIC_FLOAT_EXTENSION_NAME);
    Append(chain.core, chain.float_atomics, VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SHADER_ATOMIC_FLOAT_FEATURES_EXT);
  }
  functions.GetPhysicalDeviceFeatures2(device.handle, &chain.core);
  // Enables only the available features that are used.
  const VkPhysicalDeviceFeatures core = chain.core.features;
  chain.core.features = {};
  chain.core.features.robustBufferAccess = core.robustBufferAccess;
  chain.core.features.shaderInt64 = core.shaderInt64;
  chain.core.features.shaderInt16 = core.shaderInt16;
  chain.core.features.shaderFloat64 = core.shaderFloat64;
  const VkPhysicalDeviceVulkan11Features v11 = chain.v11;
  chain.v11 = Typed<VkPhysicalDeviceVulkan11Features>(v11.sType);
  chain.v11.pNext = v11.pNext;
  chain.v11.storageBuffer16BitAccess = v11.storageBuffer16BitAccess;
  const VkPhysicalDeviceVulkan12Features v12 = chain.v12;
  chain.v12 = Typed<VkPhysicalDeviceVulkan12Features>(v12.sType);
  chain.v12.pNext = v12.pNext;
  chain.v12.storageBuffer8BitAccess = v12.storageBuffer8BitAccess;
  chain.v12.shaderInt8 = v12.shaderInt8;
  chain.v12.shaderFloat16 = v12.shaderFloat16;
  chain.v12.shaderBufferInt64Atomics = v12.shaderBufferInt64Atomics;
  chain.v12.shaderSharedInt64Atomics = v12.shaderSharedInt64Atomics;
  chain.v12.vulkanMemoryModel = v12.vulkanMemoryModel;
  chain.v12.vulkanMemoryModelDeviceScope = v12.vulkanMemoryModelDeviceScope;
  chain.v12.timelineSemaphore = v12.timelineSemaphore;
  const VkPhysicalDeviceShaderAtomicFloatFeaturesEXT float_atomics = chain.float_atomics;
  chain.float_atomics = Typed<VkPhysicalDeviceShaderAtomicFloatFeaturesEXT>(float_atomics.sType);
  chain.float_atomics.pNext = float_atomics.pNext;
  chain.float_atomics.shaderBufferFloat32AtomicAdd = float_atomics.shaderBufferFloat32AtomicAdd;
  chain.float_atomics.shaderBufferFloat64AtomicAdd = float_atomics.shaderBufferFloat64AtomicAdd;
  chain.robustness2.robustImageAccess2 = VK_FALSE;
  chain.robustness2.nullDescriptor = VK_FALSE;
}

}  // namespace hpvm::vulkan
