// SPDX-License-Identifier: Apache-2.0
// Pin is a host block's memory pinned by the driver: copies from and to it need no staging memory.
//
// The pin is a buffer created with CL_MEM_USE_HOST_PTR that is never mapped or used: NVIDIA's driver pins the memory
// when the buffer is created, and recognises by its address that a copy's memory is pinned. Mapping would take the same
// amount of the device's memory again (driver 580).
#ifndef HPVMD_BACKENDS_OPENCL_PIN_H_
#define HPVMD_BACKENDS_OPENCL_PIN_H_

#include <atomic>
#include <memory>

#include "backends/contract/host_block.h"
#include "backends/opencl/cl.h"

namespace hpvm::opencl {

class Pin final : public HostPin {
 public:
  static constexpr uint64_t kPaysAfter = 4;  // As HostBlock::Pinner::pays_after.

  // Returns null when the driver does not take the memory. Read-only memory is not tried, because NVIDIA's driver takes
  // it and crashes in the first copy.
  static std::unique_ptr<Pin> Make(cl_context context, const HostBlock& block) {
    if (!block.is_writable()) {
      return nullptr;
    }
    cl_int error = CL_SUCCESS;
    auto pin = std::make_unique<Pin>();
    pin->memory_ =
        Memory(clCreateBuffer(context, CL_MEM_READ_WRITE | CL_MEM_USE_HOST_PTR, block.bytes(), block.data(), &error));
    return error == CL_SUCCESS ? std::move(pin) : nullptr;
  }
  // The first copy determines whether the memory is really pinned, because drivers do not report it. Thread-safe.
  bool TakeCheck() { return !is_checked_.exchange(true); }

 private:
  Memory memory_;  // Holds a reference to the context.
  std::atomic<bool> is_checked_{false};
};

}  // namespace hpvm::opencl

#endif  // HPVMD_BACKENDS_OPENCL_PIN_H_
