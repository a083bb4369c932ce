// SPDX-License-Identifier: Apache-2.0
#include "backends/opencl/queue.h"

#include <array>
#include <utility>

#include "backends/opencl/fill.h"
#include "backends/opencl/flight.h"

namespace hpvm::opencl {

StatusOr<std::unique_ptr<OpenClQueue>> OpenClQueue::Create(const Parts& parts) {
  const auto create = [&](cl_command_queue_properties properties, Queue* queue) {
    cl_int error = CL_SUCCESS;
    *queue = Queue(clCreateCommandQueue(parts.context, parts.found.device, properties, &error));
    return FromCl(error, "Creating a queue on device \"" + parts.found.info.id + "\"");
  };
  const bool has_launches = parts.lane == Lane::kCompute;
  Queue main, plain, download, setup;
  HPVMD_RETURN_IF_ERROR(create(has_launches ? CL_QUEUE_PROFILING_ENABLE : 0, &main));
  HPVMD_RETURN_IF_ERROR(create(0, &download));
  HPVMD_RETURN_IF_ERROR(create(0, &setup));
  if (has_launches) {
    HPVMD_RETURN_IF_ERROR(create(0, &plain));
  }
  return std::unique_ptr<OpenClQueue>(
      new OpenClQueue(parts, std::move(main), std::move(plain), std::move(download), std::move(setup)));
}

OpenClQueue::OpenClQueue(const Parts& parts, Queue main, Queue plain, Queue download, Queue setup)
    : found_(parts.found),
      context_(parts.context),
      health_(parts.health),
      lane_(parts.lane),
      stages_(parts.always_stage || !parts.found.info.is_emulated),
      pinner_(parts.pinner),
      main_(std::move(main)),
      plain_(std::move(plain)),
      download_(std::move(download)),
      setup_(std::move(setup)),
      copier_(parts.staging.helpers, parts.meter, parts.found.near),
      uploads_({context_, main_.get(), setup_.get(), health_, copier_, kUploading}, parts.staging),
      downloads_({context_, download_.get(), setup_.get(), health_, copier_, kDownloading}, parts.staging),
      traps_(context_, main_.get(), setup_.get()) {}

std::unique_ptr<gpu::Flight> OpenClQueue::Enqueue(const Submission& submission, const gpu::Milestones& behind) {
  auto flight = std::make_unique<OpenClFlight>(*this, submission);
  flight->Enqueue(behind);
  return flight;
}

Pin* OpenClQueue::PinOf(HostBlock* block, uint64_t bytes) const {
  if (!stages_ || pinner_ == 0 || block == nullptr) {
    return nullptr;
  }
  // Safety: only this queue makes pins with that number.
  return static_cast<Pin*>(
      block->PinFor({pinner_, Pin::kPaysAfter}, bytes, [&] { return Pin::Make(context_, *block); }));
}

StatusOr<Event> OpenClQueue::Clear(cl_mem memory, uint64_t bytes) {
  const std::array<uint8_t, 4> zero{};
  Event cleared;
  cl_int error = EnqueueFill(setup_.get(), {memory, 0, bytes, found_.view_alignment}, zero, &cleared);
  if (error == CL_SUCCESS) {
    error = clFlush(setup_.get());
  }
  HPVMD_RETURN_IF_ERROR(health_.Judge(error, setup_.get(), "Clearing a buffer of " + std::to_string(bytes) + " bytes"));
  return cleared;
}

Status OpenClQueue::Recheck(Status status) {
  if (status.ok() || absl::IsInvalidArgument(status) || absl::IsCancelled(status) || absl::IsDeadlineExceeded(status)) {
    return status;
  }
  // Fails with a loss if the idle queue cannot finish.
  const Status judged = health_.Judge(CL_OUT_OF_RESOURCES, setup_.get(), "Checking the device");
  return judged.code() == absl::StatusCode::kUnavailable ? judged : status;
}

}  // namespace hpvm::opencl
