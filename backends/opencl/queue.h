// SPDX-License-Identifier: Apache-2.0
// How submissions of one lane get onto an OpenCL device: everything on one in-order queue, no event but where something
// is measured or waited for. Many launches in a row of which nobody wants the time go to another one, which has no
// clock: a queue that has one may write times for every launch, events or not.
//
// Copies to host memory at the end of a submission are made when the device is done with the rest, on a queue of their
// own, so that the next submission runs meanwhile. Copies to host memory that other commands follow wait for the device
// on the spot.
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

// The names of copies in messages.
inline constexpr std::string_view kUploading = "Copying from host memory";
inline constexpr std::string_view kDownloading = "Copying to host memory";

class OpenClQueue final : public gpu::Driver {
 public:
  // What it borrows for its life. `always_stage`: also where the device is the host's processor, which can copy from
  // pageable memory itself.
  struct Parts {
    const Found& found;
    cl_context context;
    Health& health;
    CopyMeter& meter;
    uint64_t pinner = 0;  // What the device is called by host blocks; 0: it pins none.
    Lane lane = Lane::kCompute;
    bool always_stage = false;
    gpu::StagingShape staging{};
  };
  static StatusOr<std::unique_ptr<OpenClQueue>> Create(const Parts& parts);

  std::unique_ptr<gpu::Flight> Enqueue(const Submission& submission, const gpu::Milestones& behind) override;
  // Makes fresh memory read as zero: the event after which it does. Any thread.
  StatusOr<Event> Clear(cl_mem memory, uint64_t bytes);
  // `status` of a call that went by no queue; when that is not the caller's fault it may mean that the device is lost.
  // Any thread.
  Status Recheck(Status status);

 private:
  friend class OpenClFlight;

  // By which copies between the device and this part of the block go without staging memory; null: they do not.
  Pin* PinOf(HostBlock* block, uint64_t bytes) const;

  OpenClQueue(const Parts& parts, Queue main, Queue plain, Queue download, Queue setup);

  const Found& found_;
  const cl_context context_;
  Health& health_;
  const Lane lane_;
  const bool stages_;
  const uint64_t pinner_;
  const Queue main_;      // Submissions; the submit thread's.
  const Queue plain_;     // The same, without a clock; only of the lane for kernels.
  const Queue download_;  // Copies to host memory; the completion thread's.
  const Queue setup_;     // Fresh memory.
  gpu::HostCopier copier_;
  Staging uploads_;    // main_'s; the submit thread's.
  Staging downloads_;  // download_'s; the completion thread's.
  TrapPool traps_;
};

}  // namespace hpvm::opencl

#endif  // HPVMD_BACKENDS_OPENCL_QUEUE_H_
