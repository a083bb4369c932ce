// SPDX-License-Identifier: Apache-2.0
// One VkInstance and its physical devices, with the properties that the rest of the system needs.
#ifndef HPVMD_BACKENDS_VULKAN_INSTANCE_H_
#define HPVMD_BACKENDS_VULKAN_INSTANCE_H_

#include <memory>
#include <string>
#include <vector>

#include "backends/contract/device.h"
#include "backends/gpu/near_cpus.h"
#include "backends/vulkan/api.h"

namespace hpvm::vulkan {

// Features enabled on a device: those in GpuTarget, and those that this backend uses.
struct Enabled {
  bool push_descriptors = false;  // VK_KHR_push_descriptor.
  uint32_t push_descriptors_max = 0;
  // VK_KHR_external_memory_fd is present, and buffers can be exported by opaque descriptor.
  bool memory_fd = false;
  bool dedicated_export = false;     // Exported buffers need a dedicated allocation.
  bool robustness2 = false;          // VK_EXT_robustness2: robustBufferAccess2.
  // VK_EXT_external_memory_host: host memory is imported in multiples of this many bytes; 0: unsupported.
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
  // Queues besides the kernels' queue that copies can use, of a family for copies alone if there is one.
  uint32_t copy_family = 0;
  uint32_t copy_queues = 0;
  Enabled enabled;
  bool ends_loops = false;            // Mesa's llvmpipe: see compiler/ir/loops_cut.h.
  bool compiles_at_dispatch = false;  // The driver generates a kernel's code at its first dispatch.
  bool maps_memory = false;           // The host reads the device's memory as cheaply as its own.
  gpu::NearCpus near;                  // Processors to which its bus is attached.
  DeviceInfo info;                     // All but the id.
  std::string driver;        // Name and version of the driver, and the device's name, as one line.
};

// The features to enable on a device, as the chain for vkCreateDevice. Not copyable, because it points into itself.
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

// There is one per process, or two when some devices use the validation layer and some do not. They live until the
// process ends, because drivers that are loaded and unloaded repeatedly fail eventually (measured: NVIDIA's, after
// about a dozen times, for lack of static thread storage).
class Instance {
 public:
  // Returns kNotFound without a loader, a driver, or, with `validate`, the validation layer. Thread-safe.
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
// Fills everything about a physical device whose handle and properties are set (facts.cc). Returns false when it has no
// compute queue or is older than 1.2.
bool Describe(const InstanceFunctions& functions, PhysicalDevice& device);
// Chooses which of the device's features to enable.
void ChooseFeatures(const InstanceFunctions& functions, const PhysicalDevice& device, FeatureChain& chain);

}  // namespace hpvm::vulkan

#endif  // HPVMD_BACKENDS_VULKAN_INSTANCE_H_
