// SPDX-License-Identifier: Apache-2.0
#include "backends/vulkan/instance.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>

#include "backends/vulkan/device.h"

namespace hpvm {
namespace {

constexpr size_t kMessageTextsMax = 32;

struct MessageLog {
  std::mutex mutex;
  ValidationMessages messages;  // Guarded by mutex.
};

// Never destroyed, because drivers' threads may report until the process ends.
MessageLog& Messages() {
  static auto* const log = new MessageLog;
  return *log;
}

}  // namespace

ValidationMessages TakeValidationMessages() {
  MessageLog& log = Messages();
  std::lock_guard lock(log.mutex);
  return std::exchange(log.messages, {});
}

namespace vulkan {
namespace {

constexpr char kValidationLayer[] = "VK_LAYER_KHRONOS_validation";

VKAPI_ATTR VkBool32 VKAPI_CALL OnMessage(VkDebugUtilsMessageSeverityFlagBitsEXT, VkDebugUtilsMessageTypeFlagsEXT,
                                         const VkDebugUtilsMessengerCallbackDataEXT* data, void*) {
  // The loader warns of drivers that it skips, which is unrelated to the program's calls.
  const std::string_view id = data->pMessageIdName == nullptr ? "" : data->pMessageIdName;
  if (id == "Loader Message") {
    return VK_FALSE;
  }
  std::fprintf(stderr, "Vulkan: %s\n", data->pMessage);
  MessageLog& log = Messages();
  std::lock_guard lock(log.mutex);
  ++log.messages.count;
  if (log.messages.texts.size() < kMessageTextsMax) {
    log.messages.texts.emplace_back(data->pMessage);
  }
  return VK_FALSE;
}

VkDebugUtilsMessengerCreateInfoEXT MessengerInfo() {
  auto info = Typed<VkDebugUtilsMessengerCreateInfoEXT>(VK_STRUCTURE_TYPE_DEBUG_UTILS_MESSENGER_CREATE_INFO_EXT);
  info.messageSeverity =
      VK_DEBUG_UTILS_MESSAGE_SEVERITY_WARNING_BIT_EXT | VK_DEBUG_UTILS_MESSAGE_SEVERITY_ERROR_BIT_EXT;
  info.messageType = VK_DEBUG_UTILS_MESSAGE_TYPE_VALIDATION_BIT_EXT | VK_DEBUG_UTILS_MESSAGE_TYPE_GENERAL_BIT_EXT;
  info.pfnUserCallback = OnMessage;
  return info;
}

Status FindValidationLayer(const InstanceFunctions& functions) {
  uint32_t count = 0;
  HPVMD_RETURN_IF_ERROR(
      ToStatus(functions.EnumerateInstanceLayerProperties(&count, nullptr), "Listing Vulkan's layers"));
  std::vector<VkLayerProperties> layers(count);
  HPVMD_RETURN_IF_ERROR(
      ToStatus(functions.EnumerateInstanceLayerProperties(&count, layers.data()), "Listing Vulkan's layers"));
  for (const VkLayerProperties& layer : layers) {
    if (std::strcmp(layer.layerName, kValidationLayer) == 0) {
      return absl::OkStatus();
    }
  }
  return NotFound(std::string("Vulkan's validation layer (") + kValidationLayer + ") is not installed.");
}

bool WantsValidation(bool validate) {
  const char* request = std::getenv("HPVMD_VULKAN_VALIDATION");
  return validate || (request != nullptr && std::strcmp(request, "1") == 0);
}

// Position of a kind of device in the list.
constexpr int kLastRank = 4;
int Rank(VkPhysicalDeviceType type) {
  switch (type) {
    case VK_PHYSICAL_DEVICE_TYPE_DISCRETE_GPU:
      return 0;
    case VK_PHYSICAL_DEVICE_TYPE_INTEGRATED_GPU:
      return 1;
    case VK_PHYSICAL_DEVICE_TYPE_VIRTUAL_GPU:
      return 2;
    case VK_PHYSICAL_DEVICE_TYPE_CPU:
      return kLastRank;
    default:
      return 3;
  }
}

}  // namespace

StatusOr<const Instance*> Instance::Get(bool validate) {
  struct Kept {
    std::mutex mutex;
    std::unique_ptr<Instance> instances[2];  // Guarded by mutex; indexed by whether they use the validation layer.
  };
  static auto* const kept = new Kept;  // Never destroyed.
  validate = WantsValidation(validate);
  std::lock_guard lock(kept->mutex);
  std::unique_ptr<Instance>& instance = kept->instances[validate ? 1 : 0];
  if (instance == nullptr) {
    HPVMD_ASSIGN_OR_RETURN(instance, Create(validate));
  }
  return instance.get();
}

StatusOr<std::unique_ptr<Instance>> Instance::Create(bool validate) {
  HPVMD_ASSIGN_OR_RETURN(InstanceFunctions functions, OpenLoader());
  auto instance = std::unique_ptr<Instance>(new Instance(functions));
  auto application = Typed<VkApplicationInfo>(VK_STRUCTURE_TYPE_APPLICATION_INFO);
  application.pApplicationName = "hpvmd";
  application.apiVersion = VK_API_VERSION_1_3;
  auto info = Typed<VkInstanceCreateInfo>(VK_STRUCTURE_TYPE_INSTANCE_CREATE_INFO);
  info.pApplicationInfo = &application;
  const char* layer = kValidationLayer;
  const char* extension = VK_EXT_DEBUG_UTILS_EXTENSION_NAME;
  const VkDebugUtilsMessengerCreateInfoEXT messenger = MessengerInfo();
  if (validate) {
    HPVMD_RETURN_IF_ERROR(FindValidationLayer(functions));
    info.enabledLayerCount = 1;
    info.ppEnabledLayerNames = &layer;
    info.enabledExtensionCount = 1;
    info.ppEnabledExtensionNames = &extension;
    info.pNext = &messenger;
  }
  const VkResult result = functions.CreateInstance(&info, nullptr, &instance->instance_);
  if (result == VK_ERROR_INCOMPATIBLE_DRIVER) {
    return NotFound("No Vulkan driver is installed.");
  }
  HPVMD_RETURN_IF_ERROR(ToStatus(result, "Creating a Vulkan instance"));
  HPVMD_RETURN_IF_ERROR(FindInstanceFunctions(instance->instance_, instance->functions_));
  if (validate) {
    const auto create = reinterpret_cast<PFN_vkCreateDebugUtilsMessengerEXT>(
        functions.GetInstanceProcAddr(instance->instance_, "vkCreateDebugUtilsMessengerEXT"));
    HPVMD_RETURN_IF_ERROR(create == nullptr
                              ? Unavailable("The Vulkan validation layer reports no messages.")
                              : ToStatus(create(instance->instance_, &messenger, nullptr, &instance->messenger_),
                                         "Asking for Vulkan's messages"));
  }
  HPVMD_RETURN_IF_ERROR(instance->FindDevices());
  return instance;
}

Instance::~Instance() {
  if (messenger_ != VK_NULL_HANDLE) {
    const auto destroy = reinterpret_cast<PFN_vkDestroyDebugUtilsMessengerEXT>(
        functions_.GetInstanceProcAddr(instance_, "vkDestroyDebugUtilsMessengerEXT"));
    destroy(instance_, messenger_, nullptr);
  }
  if (instance_ != VK_NULL_HANDLE && functions_.DestroyInstance != nullptr) {
    functions_.DestroyInstance(instance_, nullptr);
  }
}

Status Instance::FindDevices() {
  uint32_t count = 0;
  VkResult result = functions_.EnumeratePhysicalDevices(instance_, &count, nullptr);
  std::vector<VkPhysicalDevice> handles(count);
  if (result == VK_SUCCESS && count != 0) {
    result = functions_.EnumeratePhysicalDevices(instance_, &count, handles.data());
    handles.resize(count);
  }
  if (result == VK_ERROR_INITIALIZATION_FAILED) {
    return absl::OkStatus();  // Drivers are installed, but none finds hardware.
  }
  HPVMD_RETURN_IF_ERROR(ToStatus(result, "Listing Vulkan's devices"));
  for (int rank = 0; rank <= kLastRank; ++rank) {
    for (VkPhysicalDevice handle : handles) {
      PhysicalDevice device;
      device.handle = handle;
      functions_.GetPhysicalDeviceProperties(handle, &device.properties);
      if (Rank(device.properties.deviceType) == rank && Describe(functions_, device)) {
        devices_.push_back(std::move(device));
      }
    }
  }
  return absl::OkStatus();
}

}  // namespace vulkan
}  // namespace hpvm
