// SPDX-License-Identifier: Apache-2.0
// Finds out whether a device's Fma on f32 is rounded once (GpuTarget::exact_fma). Vulkan leaves it open and no property
// tells, so it is tried out when a device is opened, once a process.
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
  // Borrows both. What this needs on the device stays until the object goes.
  FmaTrial(Context& context, Memory& memory) : context_(context), memory_(memory) {}
  ~FmaTrial() { context_.Wait(done_).IgnoreError(); }
  FmaTrial(const FmaTrial&) = delete;
  FmaTrial& operator=(const FmaTrial&) = delete;

  // False also where nothing was found out: the device takes no more memory, is lost, or is kept busy by others.
  bool Run();
  // Then the object can go without waiting for the device.
  bool is_over() { return context_.IsReached(done_); }

 private:
  Status Start();
  Status Record(VkCommandBuffer commands);
  bool IsRight() const;

  Context& context_;
  Memory& memory_;
  Storage operands_, results_;
  std::unique_ptr<Pipelines> pipelines_;
  std::unique_ptr<Slot> slot_;
  LanePoint done_;
};

}  // namespace hpvm::vulkan

#endif  // HPVMD_BACKENDS_VULKAN_FMA_TRIAL_H_
