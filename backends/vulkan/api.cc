// SPDX-License-Identifier: Apache-2.0
#include "backends/vulkan/api.h"

#include <dlfcn.h>

namespace hpvm::vulkan {
namespace {

struct Loader {
  PFN_vkGetInstanceProcAddr get = nullptr;
  std::string failure;
};

Loader Open() {
  Loader loader;
  void* library = nullptr;
  for (const char* name : {"libvulkan.so.1", "libvulkan.so"}) {
    library = library != nullptr ? library : dlopen(name, RTLD_NOW | RTLD_LOCAL);
  }
  if (library == nullptr) {
    const char* error = dlerror();
    loader.failure = error == nullptr ? "unknown" : error;
    return loader;
  }
  loader.get = reinterpret_cast<PFN_vkGetInstanceProcAddr>(dlsym(library, "vkGetInstanceProcAddr"));
  if (loader.get == nullptr) {
    loader.failure = "it has no vkGetInstanceProcAddr";
  }
  return loader;
}

Status Missing(const char* name) {
  return Unavailable(std::string("The Vulkan driver has no function vk") + name + ".");
}

}  // namespace

StatusOr<InstanceFunctions> OpenLoader() {
  static const Loader loader = Open();
  if (loader.get == nullptr) {
    return NotFound("The Vulkan loader (libvulkan.so.1) cannot be opened: " + loader.failure + ".");
  }
  InstanceFunctions functions;
  functions.GetInstanceProcAddr = loader.get;
#define HPVMD_VULKAN_FIND(name)                                                            \
  functions.name = reinterpret_cast<PFN_vk##name>(loader.get(VK_NULL_HANDLE, "vk" #name)); \
  if (functions.name == nullptr) {                                                         \
    return Missing(#name);                                                                 \
  }
  HPVMD_VULKAN_GLOBAL_FUNCTIONS(HPVMD_VULKAN_FIND)
#undef HPVMD_VULKAN_FIND
  return functions;
}

Status FindInstanceFunctions(VkInstance instance, InstanceFunctions& functions) {
#define HPVMD_VULKAN_FIND(name)                                                                         \
  functions.name = reinterpret_cast<PFN_vk##name>(functions.GetInstanceProcAddr(instance, "vk" #name)); \
  if (functions.name == nullptr) {                                                                      \
    return Missing(#name);                                                                              \
  }
  HPVMD_VULKAN_INSTANCE_FUNCTIONS(HPVMD_VULKAN_FIND)
#undef HPVMD_VULKAN_FIND
  return absl::OkStatus();
}

Status FindDeviceFunctions(const InstanceFunctions& functions, VkDevice device, DeviceFunctions& found) {
#define HPVMD_VULKAN_FIND(name)                                                                 \
  found.name = reinterpret_cast<PFN_vk##name>(functions.GetDeviceProcAddr(device, "vk" #name)); \
  if (found.name == nullptr) {                                                                  \
    return Missing(#name);                                                                      \
  }
  HPVMD_VULKAN_DEVICE_FUNCTIONS(HPVMD_VULKAN_FIND)
#undef HPVMD_VULKAN_FIND
#define HPVMD_VULKAN_FIND(name) \
  found.name = reinterpret_cast<PFN_vk##name>(functions.GetDeviceProcAddr(device, "vk" #name));
  HPVMD_VULKAN_EXTENSION_FUNCTIONS(HPVMD_VULKAN_FIND)
#undef HPVMD_VULKAN_FIND
  return absl::OkStatus();
}

std::string ResultName(VkResult result) {
  switch (result) {
#define HPVMD_VULKAN_NAME(name) \
  case name:                    \
    return #name;
    HPVMD_VULKAN_NAME(VK_SUCCESS)
    HPVMD_VULKAN_NAME(VK_NOT_READY)
    HPVMD_VULKAN_NAME(VK_TIMEOUT)
    HPVMD_VULKAN_NAME(VK_INCOMPLETE)
    HPVMD_VULKAN_NAME(VK_ERROR_OUT_OF_HOST_MEMORY)
    HPVMD_VULKAN_NAME(VK_ERROR_OUT_OF_DEVICE_MEMORY)
    HPVMD_VULKAN_NAME(VK_ERROR_INITIALIZATION_FAILED)
    HPVMD_VULKAN_NAME(VK_ERROR_DEVICE_LOST)
    HPVMD_VULKAN_NAME(VK_ERROR_MEMORY_MAP_FAILED)
    HPVMD_VULKAN_NAME(VK_ERROR_LAYER_NOT_PRESENT)
    HPVMD_VULKAN_NAME(VK_ERROR_EXTENSION_NOT_PRESENT)
    HPVMD_VULKAN_NAME(VK_ERROR_FEATURE_NOT_PRESENT)
    HPVMD_VULKAN_NAME(VK_ERROR_INCOMPATIBLE_DRIVER)
    HPVMD_VULKAN_NAME(VK_ERROR_TOO_MANY_OBJECTS)
    HPVMD_VULKAN_NAME(VK_ERROR_OUT_OF_POOL_MEMORY)
    HPVMD_VULKAN_NAME(VK_ERROR_FRAGMENTED_POOL)
    HPVMD_VULKAN_NAME(VK_ERROR_INVALID_EXTERNAL_HANDLE)
    HPVMD_VULKAN_NAME(VK_ERROR_UNKNOWN)
#undef HPVMD_VULKAN_NAME
    default:
      return "VkResult (" + std::to_string(static_cast<int>(result)) + ")";
  }
}

Status ToStatus(VkResult result, const std::string& doing) {
  const std::string message = doing + " fails: " + ResultName(result) + ".";
  switch (result) {
    case VK_SUCCESS:
      return absl::OkStatus();
    case VK_ERROR_DEVICE_LOST:
      return Unavailable(message);
    case VK_ERROR_OUT_OF_HOST_MEMORY:
    case VK_ERROR_OUT_OF_DEVICE_MEMORY:
    case VK_ERROR_TOO_MANY_OBJECTS:
      return ResourceExhausted(message);
    default:
      return Internal(message);
  }
}

}  // namespace hpvm::vulkan
