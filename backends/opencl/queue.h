// SPDX-License-Identifier: Apache-2.0
// OpenClQueue brings the submissions of one lane to an OpenCL device: everything goes to one in-order queue, with
// events only for measurements and waits. Long sequences of launches whose times are not needed go to a second queue
// without a clock, because a queue with a clock may write times for every launch, with or without events.
//
// Copies to host memory at the end of a submission are made when the device is done with the rest, on a separate queue,
// so that the next submission runs meanwhile. Copies to host memory that are followed by other commands wait for the
// device immediately.
#ifndef HPVMD_BACKENDS_OPENCL_QUEUE_H_
#define HPVMD_BACKENDS_OPENCL_QUEUE_H_

#include <cstdint>
#include <memory>
#include <string_view>

#include "backends/gpu/host_copy.h"
#include "backends/gpu/submit_thread.h"
#include "backends/opencl/health.h"
#include "backends/opencl/pin.h"
#include "backends/opencl/platform.h"
#include "backends/opencl/staging.h"
#include "backends/opencl/traps.h"

namespace hpvm::opencl {

// Names of copies in messages.
inline constexpr std::string_view kUploading = "Copying from host memory";
inline constexpr std::string_view kDownloading = "Copying to host memory";

class OpenClQueue final : public gpu::Driver {
 public:
  // Borrowed for the queue's life. `always_stage`: also stages copies when the device is the host's processor, which
  // can copy from pageable memory itself.
  struct Parts {
    const Found& found;
    cl_context context;
    Health& health;
    CopyMeter& meter;
    uint64_t pinner = 0;  // The device's number in host blocks; 0: it pins none.
    Lane lane = Lane::kCompute;
    bool always_stage = false;
    gpu::StagingShape staging{};
  };
  static StatusOr<std::unique_ptr<OpenClQueue>> Create(const Parts& parts);

  std::unique_ptr<gpu::Flight> Enqueue(const Submission& submission, const gpu::Milestones& behind) override;
  // Makes new memory read as zero; returns the event after which it does. Thread-safe.
  StatusOr<Event> Clear(cl_mem memory, uint64_t bytes);
  // Examines `status` of a call that used no queue: when it is not the caller's fault, the device may be lost.
  // Thread-safe.
  Status Recheck(Status status);

 private:
  friend class OpenClFlight;

  // Returns the pin for direct copies between the device and this part of the block; null when they use staging memory.
  Pin* PinOf(HostBlock* block, uint64_t bytes) const;

  OpenClQueue(const Parts& parts, Queue main, Queue plain, Queue download, Queue setup);

  const Found& found_;
  const cl_context context_;
  Health& health_;
  const Lane lane_;
  const bool stages_;
  const uint64_t pinner_;
  const Queue main_;      // For submissions; used by the submit thread.
  const Queue plain_;     // Likewise, without a clock; only in the kernels' lane.
  const Queue download_;  // For copies to host memory; used by the completion thread.
  const Queue setup_;     // For new memory.
  gpu::HostCopier copier_;
  Staging uploads_;    // For main_; used by the submit thread.
  Staging downloads_;  // For download_; used by the completion thread.
  TrapPool traps_;
};

}  // namespace hpvm::opencl

#endif  // HPVMD_BACKENDS_OPENCL_QUEUE_H_
