// SPDX-License-Identifier: Apache-2.0
// Pin is a host block's memory as a buffer of a device (VK_EXT_external_memory_host): its copy queues read and write it
// without staging memory.
#ifndef HPVMD_BACKENDS_VULKAN_PIN_H_
#define HPVMD_BACKENDS_VULKAN_PIN_H_

#include <cstdint>
#include <memory>

#include "backends/contract/host_block.h"
#include "backends/vulkan/context.h"

namespace hpvm::vulkan {

class Pin final : public HostPin {
 public:
  static constexpr uint64_t kPaysAfter = 8;  // As HostBlock::Pinner::pays_after.

  // Returns null when the driver does not take the memory; read-only memory is not tried, since NVIDIA's driver takes
  // none. The pin holds a reference to the context.
  static std::unique_ptr<Pin> Make(std::shared_ptr<Context> context, const HostBlock& block);

  VkBuffer buffer() const { return buffer_.get(); }
  uint64_t OffsetOf(const uint8_t* data) const { return static_cast<uint64_t>(data - base_); }

 private:
  std::shared_ptr<Context> context_;
  const uint8_t* base_ = nullptr;
  Owned<VkDeviceMemory> memory_;
  Owned<VkBuffer> buffer_;  // Destroyed before its memory.
};

}  // namespace hpvm::vulkan

#endif  // HPVMD_BACKENDS_VULKAN_PIN_H_
