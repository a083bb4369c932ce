// SPDX-License-Identifier: Apache-2.0
// FmaTrial tests whether a device's Fma on f32 is rounded once (GpuTarget::exact_fma). Vulkan does not specify it and
// no property reports it, so it is tested when a device is opened, once per process.
#ifndef HPVMD_BACKENDS_VULKAN_FMA_TRIAL_H_
#define HPVMD_BACKENDS_VULKAN_FMA_TRIAL_H_

#include <memory>
#include <vector>

#include "backends/vulkan/executable.h"
#include "backends/vulkan/memory.h"
#include "backends/vulkan/slot.h"

namespace hpvm::vulkan {

class FmaTrial {
 public:
  // Borrows both. Its resources on the device live as long as the object.
  FmaTrial(Context& context, Memory& memory) : context_(context), memory_(memory) {}
  ~FmaTrial() { context_.Wait(done_).IgnoreError(); }
  FmaTrial(const FmaTrial&) = delete;
  FmaTrial& operator=(const FmaTrial&) = delete;

  // Also returns false when the test gave no answer: the device has no memory left, is lost, or is kept busy by others.
  bool Run();
  // Returns true when the object can be destroyed without waiting for the device.
  bool is_over() { return context_.IsReached(done_); }

 private:
  Status Start();
  Status Record(VkCommandBuffer commands);
  bool IsRight() const;

  Context& context_;
  Memory& memory_;
  Storage operands_, results_;
  std::unique_ptr<Pipelines> pipelines_;
  std::unique_ptr<CommandSlot> slot_;
  LanePoint done_;
};

}  // namespace hpvm::vulkan

#endif  // HPVMD_BACKENDS_VULKAN_FMA_TRIAL_H_
