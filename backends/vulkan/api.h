// SPDX-License-Identifier: Apache-2.0
// The Vulkan functions used by this backend, resolved at run time: the loader library is opened, not linked, so that a
// machine without it merely has no Vulkan devices; a device's functions are its driver's own, without the loader's
// dispatch on each call.
//
// Included only by the .cc files and internal headers of this folder.
#ifndef HPVMD_BACKENDS_VULKAN_API_H_
#define HPVMD_BACKENDS_VULKAN_API_H_

#ifndef VK_NO_PROTOTYPES
#define VK_NO_PROTOTYPES
#endif
#include <vulkan/vulkan_core.h>

#include <string>

#include "base/status.h"

// Functions of no instance; of an instance; of a device; of a device with an extension.
#define HPVMD_VULKAN_GLOBAL_FUNCTIONS(X) \
  X(CreateInstance)                      \
  X(EnumerateInstanceLayerProperties)    \
  X(EnumerateInstanceExtensionProperties)
#define HPVMD_VULKAN_INSTANCE_FUNCTIONS(X)     \
  X(DestroyInstance)                           \
  X(EnumeratePhysicalDevices)                  \
  X(EnumerateDeviceExtensionProperties)        \
  X(GetPhysicalDeviceProperties)               \
  X(GetPhysicalDeviceProperties2)              \
  X(GetPhysicalDeviceFeatures2)                \
  X(GetPhysicalDeviceMemoryProperties)         \
  X(GetPhysicalDeviceQueueFamilyProperties)    \
  X(GetPhysicalDeviceExternalBufferProperties) \
  X(CreateDevice)                              \
  X(GetDeviceProcAddr)
#define HPVMD_VULKAN_DEVICE_FUNCTIONS(X) \
  X(AllocateCommandBuffers)              \
  X(AllocateDescriptorSets)              \
  X(AllocateMemory)                      \
  X(BeginCommandBuffer)                  \
  X(BindBufferMemory)                    \
  X(CmdBindDescriptorSets)               \
  X(CmdBindPipeline)                     \
  X(CmdCopyBuffer)                       \
  X(CmdDispatch)                         \
  X(CmdFillBuffer)                       \
  X(CmdPipelineBarrier)                  \
  X(CmdPushConstants)                    \
  X(CmdResetQueryPool)                   \
  X(CmdWriteTimestamp)                   \
  X(CreateBuffer)                        \
  X(CreateCommandPool)                   \
  X(CreateComputePipelines)              \
  X(CreateDescriptorPool)                \
  X(CreateDescriptorSetLayout)           \
  X(CreatePipelineCache)                 \
  X(CreatePipelineLayout)                \
  X(CreateQueryPool)                     \
  X(CreateSemaphore)                     \
  X(CreateShaderModule)                  \
  X(DestroyBuffer)                       \
  X(DestroyCommandPool)                  \
  X(DestroyDescriptorPool)               \
  X(DestroyDescriptorSetLayout)          \
  X(DestroyDevice)                       \
  X(DestroyPipeline)                     \
  X(DestroyPipelineCache)                \
  X(DestroyPipelineLayout)               \
  X(DestroyQueryPool)                    \
  X(DestroySemaphore)                    \
  X(DestroyShaderModule)                 \
  X(DeviceWaitIdle)                      \
  X(EndCommandBuffer)                    \
  X(FreeMemory)                          \
  X(GetBufferMemoryRequirements)         \
  X(GetDeviceQueue)                      \
  X(GetPipelineCacheData)                \
  X(GetQueryPoolResults)                 \
  X(GetSemaphoreCounterValue)            \
  X(MapMemory)                           \
  X(QueueSubmit)                         \
  X(ResetCommandPool)                    \
  X(ResetDescriptorPool)                 \
  X(UpdateDescriptorSets)                \
  X(WaitSemaphores)
#define HPVMD_VULKAN_EXTENSION_FUNCTIONS(X) \
  X(CmdPushDescriptorSetKHR)                \
  X(GetMemoryFdKHR)                         \
  X(GetMemoryHostPointerPropertiesEXT)

namespace hpvm::vulkan {

#define HPVMD_VULKAN_MEMBER(name) PFN_vk##name name = nullptr;

struct InstanceFunctions {
  PFN_vkGetInstanceProcAddr GetInstanceProcAddr = nullptr;
  HPVMD_VULKAN_GLOBAL_FUNCTIONS(HPVMD_VULKAN_MEMBER)
  HPVMD_VULKAN_INSTANCE_FUNCTIONS(HPVMD_VULKAN_MEMBER)
};

struct DeviceFunctions {
  HPVMD_VULKAN_DEVICE_FUNCTIONS(HPVMD_VULKAN_MEMBER)
  HPVMD_VULKAN_EXTENSION_FUNCTIONS(HPVMD_VULKAN_MEMBER)
};

#undef HPVMD_VULKAN_MEMBER

// Opens the loader, once per process; it stays open, because drivers leave threads and exit handlers behind. Returns
// kNotFound when there is none.
StatusOr<InstanceFunctions> OpenLoader();
Status FindInstanceFunctions(VkInstance instance, InstanceFunctions& functions);
Status FindDeviceFunctions(const InstanceFunctions& functions, VkDevice device, DeviceFunctions& found);

// Returns a Vulkan structure that is zero except for its type.
template <typename T>
T Typed(VkStructureType type) {
  T value{};
  value.sType = type;
  return value;
}

// Returns "VK_ERROR_DEVICE_LOST"; "VkResult (-77)" for unknown results.
std::string ResultName(VkResult result);
// Returns the status of a failure while `doing` ("Creating the device"): kUnavailable for a lost device,
// kResourceExhausted for memory, otherwise kInternal. Returns OK for VK_SUCCESS.
Status ToStatus(VkResult result, const std::string& doing);

}  // namespace hpvm::vulkan

#endif  // HPVMD_BACKENDS_VULKAN_API_H_
