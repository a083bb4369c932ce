// SPDX-License-Identifier: Apache-2.0
// A host block's memory, pinned by the driver: copies from and to it need no staging memory.
//
// The pin is a buffer made with CL_MEM_USE_HOST_PTR that nobody ever maps or uses: NVIDIA's driver pins the memory as
// the buffer is made, and knows by the address that what a copy names is pinned. A map would take as much of the
// device's memory again (driver 580).
#ifndef HPVMD_BACKENDS_OPENCL_PIN_H_
#define HPVMD_BACKENDS_OPENCL_PIN_H_

#include <atomic>
#include <memory>

#include "backends/contract/host_block.h"
#include "backends/opencl/cl.h"

namespace hpvm::opencl {

class Pin final : public HostPin {
 public:
  static constexpr uint64_t kPaysAfter = 4;  // HostBlock::Pinner

  // Null where the driver does not take the memory. What may only be read is not tried: NVIDIA's driver takes it, and
  // crashes in the first copy.
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
  // The first copy finds out whether the memory is pinned in truth: drivers do not say so. Any thread.
  bool TakeCheck() { return !is_checked_.exchange(true); }

 private:
  Memory memory_;  // Holds the context.
  std::atomic<bool> is_checked_{false};
};

}  // namespace hpvm::opencl

#endif  // HPVMD_BACKENDS_OPENCL_PIN_H_
