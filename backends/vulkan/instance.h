// SPDX-License-Identifier: Apache-2.0
// One VkInstance and the physical devices it offers, with what of each the rest of the system wants to know.
#ifndef HPVMD_BACKENDS_VULKAN_INSTANCE_H_
#define HPVMD_BACKENDS_VULKAN_INSTANCE_H_

#include <memory>
#include <string>
#include <vector>

#include "backends/contract/device.h"
#include "backends/gpu/near_cpus.h"
#include "backends/vulkan/api.h"

namespace hpvm::vulkan {

// What is enabled on a device: the features that GpuTarget speaks of, and what this backend itself uses.
struct Enabled {
  bool push_descriptors = false;  // VK_KHR_push_descriptor.
  uint32_t push_descriptors_max = 0;
  bool memory_fd = false;            // VK_KHR_external_memory_fd, and buffers can be exported by opaque descriptor.
  bool dedicated_export = false;     // Exported buffers need an allocation of their own.
  bool robustness2 = false;          // VK_EXT_robustness2: robustBufferAccess2.
  // VK_EXT_external_memory_host: the host's memory is imported in multiples of so many bytes; 0: it is not.
  uint64_t pin_alignment = 0;
  bool zeroes_groups = false;        // Vulkan 1.3 or VK_KHR_zero_initialize_workgroup_memory.
  bool float_atomics = false;        // VK_EXT_shader_atomic_float.
};

struct PhysicalDevice {
  VkPhysicalDevice handle = VK_NULL_HANDLE;
  VkPhysicalDeviceProperties properties{};
  VkPhysicalDeviceMemoryProperties memory{};
  uint32_t queue_family = 0;
  uint32_t timestamp_bits = 0;  // 0: the queue has no timestamps.
  // Queues beside the one for kernels that copies can use, of a family that does nothing else if there is one.
  uint32_t copy_family = 0;
  uint32_t copy_queues = 0;
  Enabled enabled;
  bool ends_loops = false;            // Mesa's llvmpipe: see compiler/ir/loops_cut.h.
  bool compiles_at_dispatch = false;  // The driver makes a kernel's code when it is first dispatched.
  bool maps_memory = false;           // The host reads the device's memory as cheaply as its own.
  gpu::NearCpus near;                  // Processors that its bus ends at.
  DeviceInfo info;                     // But for the id.
  std::string driver;        // Name and version of the driver and the device's, as one line.
};

// The features to enable on a device, as the chain that vkCreateDevice takes. Not copyable: it points into itself.
struct FeatureChain {
  FeatureChain() = default;
  FeatureChain(const FeatureChain&) = delete;
  FeatureChain& operator=(const FeatureChain&) = delete;

  VkPhysicalDeviceFeatures2 core{VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_FEATURES_2, nullptr, {}};
  VkPhysicalDeviceVulkan11Features v11{};
  VkPhysicalDeviceVulkan12Features v12{};
  VkPhysicalDeviceRobustness2FeaturesEXT robustness2{};
  VkPhysicalDeviceZeroInitializeWorkgroupMemoryFeaturesKHR zero_groups{};
  VkPhysicalDeviceShaderAtomicFloatFeaturesEXT float_atomics{};
  std::vector<const char*> extensions;
};

// One a process, or two where some devices are watched by the validation layer and some are not. They stay until the
// process ends: drivers that are loaded and unloaded several times fail in the end (measured: NVIDIA's, after about a
// dozen times, for want of static thread storage).
class Instance {
 public:
  // kNotFound without a loader, a driver, or, with `validate`, the validation layer. Any thread.
  static StatusOr<const Instance*> Get(bool validate);
  ~Instance();
  Instance(const Instance&) = delete;
  Instance& operator=(const Instance&) = delete;

  const InstanceFunctions& functions() const { return functions_; }
  // In the order of their names.
  const std::vector<PhysicalDevice>& devices() const { return devices_; }

 private:
  explicit Instance(InstanceFunctions functions) : functions_(functions) {}
  static StatusOr<std::unique_ptr<Instance>> Create(bool validate);
  Status FindDevices();

  InstanceFunctions functions_;
  VkInstance instance_ = VK_NULL_HANDLE;
  VkDebugUtilsMessengerEXT messenger_ = VK_NULL_HANDLE;
  std::vector<PhysicalDevice> devices_;
};

StatusOr<std::vector<VkExtensionProperties>> DeviceExtensions(const InstanceFunctions& functions,
                                                              VkPhysicalDevice device);
// Everything about a physical device whose handle and properties are set (facts.cc). False where it has no queue for
// compute or is older than 1.2.
bool Describe(const InstanceFunctions& functions, PhysicalDevice& device);
// What of the device's features is to be enabled.
void ChooseFeatures(const InstanceFunctions& functions, const PhysicalDevice& device, FeatureChain& chain);

}  // namespace hpvm::vulkan

#endif  // HPVMD_BACKENDS_VULKAN_INSTANCE_H_
